"""Kernel programs: typed three-address statements in structured control flow.

A `Program` is plain frozen-once-built data. `Builder` (builder.py) writes it, text.py prints it,
verify.py checks it, `llvm` turns it into machine code. These kinds exist:

- `kernel`: work cut into blocks along one parallel axis. Its parameters are 64-bit slots of an
  argument block (pointers, sizes, scalars). Exactly one top-level `Parallel` statement.
- `block`: the same for a GPU, as each thread of a thread block does it (threads.py).
- `function`: plain typed parameters and at most one result; called by kernels and by the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING
from weakref import ref

from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.types import Type

if TYPE_CHECKING:
    from sardonyx.kernel.language.instructions import InstructionBuilder


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named, typed parameter; `value` is what the body uses it by.

    `noalias`: what a function's pointer reaches is reached through no other pointer in it.
    """

    name: str
    value: SsaValue
    noalias: bool = False


class OperandOperators:
    """Arithmetic as Python writes it: each operator appends one instruction.

    Numbers become literals of the other operand's type. `==` and `!=` compare objects: see
    `InstructionBuilder.eq` and `ne`. `//` and `/` are one instruction, `div`; by convention the
    first is of integers, and rounds toward zero.
    """

    __slots__ = ()

    def builder_beside(self, other: object) -> InstructionBuilder:
        """The builder that an instruction with both operands belongs to."""
        raise NotImplementedError

    def __add__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("add", self, other)

    def __radd__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("add", other, self)

    def __sub__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("sub", self, other)

    def __rsub__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("sub", other, self)

    def __mul__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("mul", self, other)

    def __rmul__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("mul", other, self)

    def __truediv__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("div", self, other)

    def __rtruediv__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("div", other, self)

    def __floordiv__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("div", self, other)

    def __rfloordiv__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("div", other, self)

    def __mod__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("rem", self, other)

    def __rmod__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("rem", other, self)

    def __and__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("and", self, other)

    def __rand__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("and", other, self)

    def __or__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("or", self, other)

    def __ror__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("or", other, self)

    def __xor__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("xor", self, other)

    def __rxor__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("xor", other, self)

    def __lshift__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("shl", self, other)

    def __rlshift__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("shl", other, self)

    def __rshift__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("shr", self, other)

    def __rrshift__(self, other: object) -> SsaValue:
        return self.builder_beside(other).binary("shr", other, self)

    def __lt__(self, other: object) -> SsaValue:
        return self.builder_beside(other).compare("lt", self, other)

    def __le__(self, other: object) -> SsaValue:
        return self.builder_beside(other).compare("le", self, other)

    def __gt__(self, other: object) -> SsaValue:
        return self.builder_beside(other).compare("gt", self, other)

    def __ge__(self, other: object) -> SsaValue:
        return self.builder_beside(other).compare("ge", self, other)


@dataclass(frozen=True, slots=True, eq=False)
class SsaValue(OperandOperators):
    """The result of one statement (or a parameter, or a loop index): assigned once."""

    type: Type
    number: int
    #: Its builder; weak, as the builder has the program, and the program its values.
    made_by: ref[InstructionBuilder] = field(repr=False)

    def __repr__(self) -> str:
        return f"%{self.number}"

    @property
    def owner(self) -> InstructionBuilder:
        """Its builder. Raises EngineError when that is gone, and the program with it complete."""
        builder = self.made_by()
        if builder is None:
            raise EngineError(message("kernel", f"What wrote {self!r} has done its work"))
        return builder

    def builder_beside(self, other: object) -> InstructionBuilder:
        """See `OperandOperators`."""
        return self.owner

    def __neg__(self) -> SsaValue:
        return self.owner.unary("neg", self)

    def __invert__(self) -> SsaValue:
        return self.owner.binary("xor", self, True if self.type.scalar == "i1" else -1)


@dataclass(frozen=True, slots=True)
class Literal(OperandOperators):
    """A literal operand; `value` is an int, float or bool, equal in all lanes.

    `made_by` is the builder, where one made it: two literals may meet in an instruction.
    """

    type: Type
    value: int | float | bool
    made_by: ref[InstructionBuilder] | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"{self.value!r}:{self.type}"

    def builder_beside(self, other: object) -> InstructionBuilder:
        """See `OperandOperators`.

        Raises:
            EngineError: Neither operand knows a builder.
        """
        if isinstance(other, SsaValue):
            return other.owner
        for operand in (self, other):
            builder = operand._builder() if isinstance(operand, Literal) else None
            if builder is not None:
                return builder
        what = f"No builder is known that would compute with {self!r} and {other!r}"
        raise EngineError(message("kernel", what, do="Make one of them by `Builder.constant`"))

    def _builder(self) -> InstructionBuilder | None:
        return None if self.made_by is None else self.made_by()

    def __neg__(self) -> SsaValue:
        return self.builder_beside(self).unary("neg", self)

    def __invert__(self) -> SsaValue:
        builder = self.builder_beside(self)
        return builder.binary("xor", self, True if self.type.scalar == "i1" else -1)


Operand = SsaValue | Literal


@dataclass(eq=False, slots=True)
class Variable:
    """A mutable register: read and set by statements, never addressed."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True)
class Let:
    """`result = op(operands)`; `attributes` are compile-time facts such as `align`."""

    result: SsaValue
    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, object], ...] = ()

    def attribute(self, name: str, default: object = None) -> object:
        """The compile-time fact `name`."""
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True, slots=True)
class Read:
    """`result = variable`."""

    result: SsaValue
    variable: Variable


@dataclass(frozen=True, slots=True)
class SetVariable:
    """`variable = value`."""

    variable: Variable
    value: Operand


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` at `pointer + index * size`; lanes lie side by side unless `index` is a vector.

    A vector index scatters. Masked-off lanes are not written. `ordering` makes it atomic.
    """

    pointer: Operand
    index: Operand
    value: Operand
    mask: Operand | None = None
    align_bytes: int | None = None
    ordering: str | None = None
    nontemporal: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Without result: `fault`, `pause`, `fence`, `prefetch`, `set_condition`, call, or mode."""

    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, object], ...] = ()

    def attribute(self, name: str, default: object = None) -> object:
        """The compile-time fact `name`."""
        return dict(self.attributes).get(name, default)


@dataclass(eq=False, slots=True)
class Block:
    """Statements in order."""

    statements: list[Statement] = field(default_factory=list)

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)


@dataclass(frozen=True, slots=True)
class For:
    """`for index in range(low, high, step)`: i64, step positive, runs zero times if low >= high."""

    index: SsaValue
    low: Operand
    high: Operand
    step: Operand
    body: Block


@dataclass(frozen=True, slots=True)
class Parallel:
    """The kernel's parallel axis: `index` runs over the blocks given to this call."""

    index: SsaValue
    body: Block


@dataclass(frozen=True, slots=True)
class While:
    """Run `header`, leave if `condition` is false, run `body`, again."""

    header: Block
    condition: Operand
    body: Block


@dataclass(frozen=True, slots=True)
class If:
    """Two branches on a scalar `i1`."""

    condition: Operand
    then: Block
    otherwise: Block


@dataclass(frozen=True, slots=True)
class Return:
    """Leave the function; the last statement of its block."""

    value: Operand | None = None


Statement = Let | Read | SetVariable | Store | Effect | For | Parallel | While | If | Return


@dataclass(eq=False, slots=True)
class Program:
    """A kernel or function: see the module's text.

    Attributes:
        name: Symbol name.
        kind: `kernel`, `block` or `function`.
        parameters: In slot order for a kernel.
        result: Result type of a function, or None.
        body: Its statements.
        always_inline: For functions that only serve others in the same module.
        cold: Seldom called; kept out of line.
        as_written: Whether loops step as they are written. LLVM takes most of its time to choose
            other steps where a loop has many addresses.
        resident: Thread blocks that a multiprocessor need have room for at a time, where there are
            few: each may have so many more registers. 0 leaves that to the assembler.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    result: Type | None
    body: Block
    always_inline: bool = False
    cold: bool = False
    as_written: bool = False
    resident: int = 0
