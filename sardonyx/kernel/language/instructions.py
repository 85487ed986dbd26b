"""Writes statements without control flow: arithmetic, vectors, memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import overload
from weakref import ref

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.operations import BINARY, COMPARE, REDUCE, UNARY
from sardonyx.kernel.language.program import (
    Block,
    Let,
    Literal,
    Operand,
    Parameter,
    Program,
    SsaValue,
    Statement,
    Store,
)
from sardonyx.kernel.language.types import BF16, I1, I64, PTR, Type


class InstructionBuilder:
    """Collects the statements of one program; `builder.Builder` adds registers and control flow.

    Args:
        name: Symbol name.
        parameters: Names and types, in order. For a kernel each is one 64-bit slot.
        kind: `kernel`, `block` or `function`.
        result: Result type of a function.
        always_inline: The function is put into its callers.
        noalias: Names of a function's pointers that reach what no other reaches.
        cold: Seldom called; kept out of line.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, Type]] = (),
        *,
        kind: str = "function",
        result: Type | None = None,
        always_inline: bool = False,
        noalias: Collection[str] = (),
        cold: bool = False,
    ) -> None:
        self._count, self._reference = 0, ref(self)
        self._stack = [Block()]
        self._at_end: list[Callable[[], None]] = []
        self.program = Program(
            name,
            kind,
            tuple(Parameter(n, self.fresh(t), n in noalias) for n, t in parameters),
            result,
            self._stack[0],
            always_inline,
            cold,
        )

    # -- plumbing -----------------------------------------------------------------------------

    def fresh(self, type: Type) -> SsaValue:
        """A new value that a statement will define."""
        self._count += 1
        return SsaValue(type, self._count, self._reference)

    def append(self, statement: Statement) -> None:
        """Add a statement at the current place."""
        self._stack[-1].statements.append(statement)

    def at_end(self, action: Callable[[], None]) -> None:
        """Have something done when the parallel axis is written, such as to let go of caches."""
        self._at_end.append(action)

    def parameter(self, name: str) -> SsaValue:
        """The parameter called `name`."""
        return next(p.value for p in self.program.parameters if p.name == name)

    def fail(self, what: str) -> EngineError:
        """An error that names this program."""
        return EngineError(message(f"kernel {self.program.name}", what))

    def lift(self, value: object, type: Type) -> Operand:
        """`value` as an operand of `type`: numbers become constants, scalars are broadcast."""
        if isinstance(value, (SsaValue, Literal)):
            own = value.type
            if own is type or own == type:
                return value
            if own.lanes == 1 and own == type.element:
                return self.splat(value, type.lanes)
            raise self.fail(f"operand {value!r} is {value.type}, not {type}")
        if isinstance(value, (bool, int, float)):
            return Literal(type, value, self._reference)
        raise self.fail(f"{value!r} is not an operand")

    def let(
        self, type: Type, op: str, operands: Sequence[Operand], **attributes: object
    ) -> SsaValue:
        """Append `op` with a result of `type`; callers use the named methods."""
        result = self.fresh(type)
        facts = tuple(sorted(attributes.items())) if attributes else ()
        self._stack[-1].statements.append(Let(result, op, tuple(operands), facts))
        return result

    def _pair(self, a: object, b: object) -> tuple[Operand, Operand]:
        if isinstance(a, SsaValue) and isinstance(b, SsaValue) and a.type is b.type:
            return a, b
        types = [x.type for x in (a, b) if isinstance(x, (SsaValue, Literal))]
        if not types:
            raise self.fail("an operation on two numbers needs no kernel")
        wide = max(types, key=lambda t: t.lanes)
        return self.lift(a, wide), self.lift(b, wide)

    # -- arithmetic ---------------------------------------------------------------------------

    def constant(self, type: Type, value: float) -> Literal:
        """A literal that knows its builder, so that it computes with others."""
        return Literal(type, value, self._reference)

    def unary(self, op: str, x: Operand) -> SsaValue:
        """One of UNARY."""
        if op not in UNARY:
            raise self.fail(f"unknown operation {op}")
        return self.let(x.type, op, [x])

    def binary(self, op: str, a: object, b: object) -> SsaValue:
        """One of BINARY; numbers take the other operand's type, scalars broadcast."""
        if op not in BINARY:
            raise self.fail(f"unknown operation {op}")
        x, y = self._pair(a, b)
        return self.let(x.type, op, [x, y])

    def compare(self, op: str, a: object, b: object) -> SsaValue:
        """One of COMPARE, giving `i1` lanes; comparisons with NaN are false but `ne`."""
        if op not in COMPARE:
            raise self.fail(f"unknown comparison {op}")
        x, y = self._pair(a, b)
        return self.let(I1.with_lanes(x.type.lanes), op, [x, y])

    def eq(self, a: object, b: object) -> SsaValue:
        """Equality, lane by lane."""
        return self.compare("eq", a, b)

    def ne(self, a: object, b: object) -> SsaValue:
        """Inequality, lane by lane."""
        return self.compare("ne", a, b)

    def min(self, a: object, b: object) -> SsaValue:
        """The smaller; NaN wins."""
        return self.binary("min", a, b)

    def max(self, a: object, b: object) -> SsaValue:
        """The larger; NaN wins."""
        return self.binary("max", a, b)

    def fma(self, a: object, b: object, c: object) -> SsaValue:
        """`a * b + c`, rounded once."""
        x, y = self._pair(a, b if isinstance(b, (SsaValue, Literal)) else c)
        wide = max((x.type, y.type, self._pair(a, c)[0].type), key=lambda t: t.lanes)
        return self.let(wide, "fma", [self.lift(v, wide) for v in (a, b, c)])

    def dot(self, total: Operand, a: Operand, b: Operand) -> SsaValue:
        """`total[i]` and the four products `a[4 i + j] * b[4 i + j]`, j < 4, as i32 that wrap.

        `a` has unsigned bytes, `b` signed ones, each four times as many as `total` has lanes.
        """
        return self.let(total.type, "dot", [total, a, b])

    def dot_halves(self, total: Operand, a: Operand, b: Operand) -> SsaValue:
        """`total[i]` and the products `a[2 i + j] * b[2 i + j]`, j < 2, of bfloat16, as f32.

        On targets that have it as an instruction alone, which takes denormal numbers as 0.
        """
        return self.let(total.type, "dot_halves", [total, a, b])

    def round_to_half(self, x: Operand) -> SsaValue:
        """f32 to the nearest bfloat16, as `dot_halves` takes it: denormal numbers may become 0."""
        return self.let(BF16.with_lanes(x.type.lanes), "round_to_half", [x])

    def scale(self, x: Operand, exponent: object) -> SsaValue:
        """`x * 2^exponent`, rounded once; `exponent` is an integral float below 2000 in size."""
        return self.let(x.type, "scale", [x, self.lift(exponent, x.type)])

    def value(self, type: Type, value: float) -> SsaValue:
        """A literal as a value, for use with operators."""
        return self.let(type, "constant", [Literal(type, value)])

    def select(self, condition: Operand, a: object, b: object) -> SsaValue:
        """`a` where `condition`, else `b`; a scalar condition picks whole vectors."""
        x, y = self._pair(a, b)
        if condition.type.lanes > x.type.lanes:
            wide = x.type.with_lanes(condition.type.lanes)
            x, y = self.lift(x, wide), self.lift(y, wide)
        return self.let(x.type, "select", [condition, x, y])

    @overload
    def convert(self, x: SsaValue, type: Type) -> SsaValue: ...

    @overload
    def convert(self, x: Operand, type: Type) -> Operand: ...

    def convert(self, x: Operand, type: Type) -> Operand:
        """Convert numbers: floats to integers truncate and saturate, integers wrap, `i1` is 0 or 1.

        To `i1`: true where not zero. The lanes of `type` are ignored.
        """
        target = type.with_lanes(x.type.lanes)
        if target == x.type:
            return x
        if isinstance(x, Literal) and target.is_float:
            return Literal(target, float(x.value), self._reference)
        return self.let(target, "convert", [x])

    def bitcast(self, x: Operand, type: Type) -> SsaValue:
        """The same bits as another type of the same total size."""
        return self.let(type, "bitcast", [x])

    # -- vectors ------------------------------------------------------------------------------

    def splat(self, x: Operand, lanes: int) -> Operand:
        """A vector with `x` in all lanes."""
        if lanes == x.type.lanes:
            return x
        if isinstance(x, Literal):
            return Literal(x.type.with_lanes(lanes), x.value, self._reference)
        return self.let(x.type.with_lanes(lanes), "splat", [x])

    def iota(self, type: Type) -> SsaValue:
        """The vector 0, 1, 2 ..."""
        return self.let(type, "iota", [])

    def extract(self, x: Operand, lane: int) -> SsaValue:
        """One lane of a vector."""
        return self.let(x.type.element, "extract", [x], lane=lane)

    def insert(self, x: Operand, lane: int, value: Operand) -> SsaValue:
        """The vector with one lane replaced."""
        return self.let(x.type, "insert", [x, value], lane=lane)

    def shuffle(self, a: Operand, b: Operand, lanes: Sequence[int]) -> SsaValue:
        """Lanes picked from `a` followed by `b`."""
        return self.let(a.type.with_lanes(len(lanes)), "shuffle", [a, b], lanes=tuple(lanes))

    def reduce(self, op: str, x: Operand) -> SsaValue:
        """One of REDUCE."""
        if op not in REDUCE:
            raise self.fail(f"unknown reduction {op}")
        return self.let(x.type.element, op, [x])

    def tail_mask(self, count: Operand | int, lanes: int) -> SsaValue:
        """`i1` lanes, true in the first `count` (an i64, any value)."""
        return self.let(I1.with_lanes(lanes), "tail_mask", [self.lift(count, I64)])

    def index_cast(self, x: Operand) -> Operand:
        """Any integer or `i1` as i64."""
        return self.convert(x, I64)

    def lane_indices(self, start: Operand, stride: Operand | int, lanes: int) -> SsaValue:
        """i64 lanes `start + lane * stride`."""
        steps = self.iota(I64.with_lanes(lanes))
        return steps * self.lift(stride, I64) + start

    def parted(self, number: Operand, extent: Operand) -> tuple[Operand, Operand]:
        """Quotient and remainder by a size, which is not 0 where anything comes of them."""
        if isinstance(extent, Literal):
            return self.binary("div", number, extent), self.binary("rem", number, extent)
        x, size = self._pair(number, extent)
        quotient = self.let(x.type, "div", [x, size], by_size=True)
        return quotient, self.binary("sub", x, self.binary("mul", quotient, size))

    def coordinates(self, number: Operand, extents: Sequence[Operand]) -> list[Operand]:
        """Where element `number` of row-major axes lies along each; the first is not bounded."""
        found: list[Operand] = []
        for extent in reversed(extents[1:]):
            number, place = self.parted(number, extent)
            found.append(place)
        return [number, *reversed(found)] if extents else []

    # -- memory -------------------------------------------------------------------------------

    def load(
        self,
        type: Type,
        pointer: Operand,
        index: Operand | int = 0,
        *,
        mask: Operand | None = None,
        align_bytes: int | None = None,
        ordering: str | None = None,
        invariant: bool = False,
    ) -> SsaValue:
        """Read `type` at `pointer + index * size of a lane`; an index vector gathers.

        Masked-off lanes are zero and not touched. `invariant`: nothing writes there meanwhile.
        """
        at = self.lift(index, I64) if isinstance(index, int) else index
        operands = [pointer, at] + ([mask] if mask is not None else [])
        return self.let(
            type, "load", operands,
            align_bytes=align_bytes or type.alignment_bytes, ordering=ordering, invariant=invariant,
        )  # fmt: skip

    def store(
        self,
        value: Operand,
        pointer: Operand,
        index: Operand | int = 0,
        *,
        mask: Operand | None = None,
        align_bytes: int | None = None,
        ordering: str | None = None,
        nontemporal: bool = False,
    ) -> None:
        """Write `value` at `pointer + index * size of a lane`; an index vector scatters."""
        at = self.lift(index, I64) if isinstance(index, int) else index
        align = align_bytes or value.type.alignment_bytes
        self.append(Store(pointer, at, value, mask, align, ordering, nontemporal))

    def offset(self, pointer: Operand, index: Operand | int, element: Type | int = 1) -> SsaValue:
        """`pointer + index * element`, `element` a type or a number of bytes."""
        size = element if isinstance(element, int) else element.size_bytes
        at = self.lift(index, I64) if isinstance(index, int) else index
        return self.let(PTR, "offset", [pointer, at], size_bytes=size)

    def table(self, element: Type, values: Sequence[int | float]) -> SsaValue:
        """The address of constant data: `values` side by side as scalars of type `element`."""
        return self.let(PTR, "table", [], element=element, values=tuple(values))

    def local(self, type: Type, count: int, *, align_bytes: int = 64) -> SsaValue:
        """Memory of this call's own, for `count` elements; contents undefined; small."""
        return self.let(PTR, "local", [], element=type, count=count, align_bytes=align_bytes)

    def atomic(
        self, op: str, pointer: Operand, value: Operand, ordering: str = "seq_cst"
    ) -> SsaValue:
        """Atomic `add`, `sub`, `max`, `min`, `or`, `exchange`; gives the old value."""
        return self.let(value.type, "atomic", [pointer, value], rmw=op, ordering=ordering)

    def compare_exchange(self, pointer: Operand, expected: Operand, value: Operand) -> SsaValue:
        """Atomically replace `expected` by `value`; gives the old value."""
        return self.let(value.type, "compare_exchange", [pointer, expected, value])
