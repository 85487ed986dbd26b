"""Writes kernel programs: every method appends a statement and returns its value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.program import (
    Block,
    Constant,
    Effect,
    For,
    If,
    Let,
    Operand,
    Parallel,
    Parameter,
    Program,
    Read,
    Return,
    Set,
    Statement,
    Store,
    Value,
    Variable,
    While,
)
from sardonyx.kernel.types import F32, I1, I32, I64, PTR, Type

#: Elementwise operations of one operand that keep its type. Float only unless said.
UNARY = frozenset(
    "neg abs sign not sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log1p"
    " sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid popcount ctlz".split()
)
#: Of two operands of one type. `div` and `rem` of integers truncate toward zero; `min` and `max`
#: of floats return NaN if either is NaN; shifts by at least the width give 0 (or the sign).
BINARY = frozenset(
    "add sub mul div rem min max and or xor shl shr pow atan2 copysign add_sat sub_sat".split()
)
COMPARE = frozenset("eq ne lt le gt ge".split())
#: A vector to a scalar. Float sums add lanes pairwise.
REDUCE = frozenset("reduce_add reduce_mul reduce_min reduce_max reduce_and reduce_or".split())


class Register:
    """Handle of a mutable register: `x.get()`, `x.set(v)`."""

    def __init__(self, builder: Builder, variable: Variable) -> None:
        self._builder, self.variable = builder, variable

    @property
    def type(self) -> Type:
        """The register's type."""
        return self.variable.type

    def get(self) -> Value:
        """Its value now."""
        result = self._builder.fresh(self.variable.type)
        self._builder.append(Read(result, self.variable))
        return result

    def set(self, value: Operand | float) -> None:
        """Give it a new value."""
        lifted = self._builder.lift(value, self.variable.type)
        self._builder.append(Set(self.variable, lifted))


class Builder:
    """Collects the statements of one program.

    Args:
        name: Symbol name.
        parameters: Names and types, in order. For a kernel each is one 64-bit slot.
        kind: `kernel` or `function`.
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
        self._count = 0
        self._stack = [Block()]
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

    def fresh(self, type: Type) -> Value:
        """A new value that a statement will define."""
        self._count += 1
        return Value(type, self._count, self)

    def append(self, statement: Statement) -> None:
        """Add a statement at the current place."""
        self._stack[-1].statements.append(statement)

    def parameter(self, name: str) -> Value:
        """The parameter called `name`."""
        return next(p.value for p in self.program.parameters if p.name == name)

    def fail(self, what: str) -> EngineError:
        """An error that names this program."""
        return EngineError(message(f"kernel {self.program.name}", what))

    def lift(self, value: object, type: Type) -> Operand:
        """`value` as an operand of `type`: numbers become constants, scalars are broadcast."""
        if isinstance(value, (Value, Constant)):
            if value.type == type:
                return value
            if value.type.lanes == 1 and value.type == type.element:
                return self.splat(value, type.lanes)
            raise self.fail(f"operand {value!r} is {value.type}, not {type}")
        if isinstance(value, (bool, int, float)):
            return Constant(type, value)
        raise self.fail(f"{value!r} is not an operand")

    def let(self, type: Type, op: str, operands: Sequence[Operand], **attributes: object) -> Value:
        """Append `op` with a result of `type`; callers use the named methods."""
        result = self.fresh(type)
        self.append(Let(result, op, tuple(operands), tuple(sorted(attributes.items()))))
        return result

    def _pair(self, a: object, b: object) -> tuple[Operand, Operand]:
        types = [x.type for x in (a, b) if isinstance(x, (Value, Constant))]
        if not types:
            raise self.fail("an operation on two numbers needs no kernel")
        wide = max(types, key=lambda t: t.lanes)
        return self.lift(a, wide), self.lift(b, wide)

    # -- arithmetic ---------------------------------------------------------------------------

    def constant(self, type: Type, value: float) -> Constant:
        """A literal."""
        return Constant(type, value)

    def unary(self, op: str, x: Operand) -> Value:
        """One of UNARY."""
        if op not in UNARY:
            raise self.fail(f"unknown operation {op}")
        return self.let(x.type, op, [x])

    def binary(self, op: str, a: object, b: object) -> Value:
        """One of BINARY; numbers take the other operand's type, scalars broadcast."""
        if op not in BINARY:
            raise self.fail(f"unknown operation {op}")
        x, y = self._pair(a, b)
        return self.let(x.type, op, [x, y])

    def compare(self, op: str, a: object, b: object) -> Value:
        """One of COMPARE, giving `i1` lanes; comparisons with NaN are false but `ne`."""
        if op not in COMPARE:
            raise self.fail(f"unknown comparison {op}")
        x, y = self._pair(a, b)
        return self.let(I1.with_lanes(x.type.lanes), op, [x, y])

    def eq(self, a: object, b: object) -> Value:
        """Equality, lane by lane."""
        return self.compare("eq", a, b)

    def ne(self, a: object, b: object) -> Value:
        """Inequality, lane by lane."""
        return self.compare("ne", a, b)

    def min(self, a: object, b: object) -> Value:
        """The smaller; NaN wins."""
        return self.binary("min", a, b)

    def max(self, a: object, b: object) -> Value:
        """The larger; NaN wins."""
        return self.binary("max", a, b)

    def fma(self, a: object, b: object, c: object) -> Value:
        """`a * b + c`, rounded once."""
        x, y = self._pair(a, b if isinstance(b, (Value, Constant)) else c)
        wide = max((x.type, y.type, self._pair(a, c)[0].type), key=lambda t: t.lanes)
        return self.let(wide, "fma", [self.lift(v, wide) for v in (a, b, c)])

    def scale(self, x: Operand, exponent: object) -> Value:
        """`x * 2^exponent`, rounded once; `exponent` is an integral float below 2000 in size."""
        return self.let(x.type, "scale", [x, self.lift(exponent, x.type)])

    def value(self, type: Type, value: float) -> Value:
        """A literal as a value, for use with operators."""
        return self.let(type, "constant", [Constant(type, value)])

    def select(self, condition: Operand, a: object, b: object) -> Value:
        """`a` where `condition`, else `b`; a scalar condition picks whole vectors."""
        x, y = self._pair(a, b)
        if condition.type.lanes > x.type.lanes:
            wide = x.type.with_lanes(condition.type.lanes)
            x, y = self.lift(x, wide), self.lift(y, wide)
        return self.let(x.type, "select", [condition, x, y])

    def convert(self, x: Operand, type: Type) -> Operand:
        """Convert numbers: floats to integers truncate and saturate, integers wrap, `i1` is 0 or 1.

        To `i1`: true where not zero. The lanes of `type` are ignored.
        """
        target = type.with_lanes(x.type.lanes)
        if target == x.type:
            return x
        if isinstance(x, Constant) and target.is_float:
            return Constant(target, float(x.value))
        return self.let(target, "convert", [x])

    def bitcast(self, x: Operand, type: Type) -> Value:
        """The same bits as another type of the same total size."""
        return self.let(type, "bitcast", [x])

    # -- vectors ------------------------------------------------------------------------------

    def splat(self, x: Operand, lanes: int) -> Operand:
        """A vector with `x` in all lanes."""
        if lanes == x.type.lanes:
            return x
        if isinstance(x, Constant):
            return Constant(x.type.with_lanes(lanes), x.value)
        return self.let(x.type.with_lanes(lanes), "splat", [x])

    def iota(self, type: Type) -> Value:
        """The vector 0, 1, 2 ..."""
        return self.let(type, "iota", [])

    def extract(self, x: Operand, lane: int) -> Value:
        """One lane of a vector."""
        return self.let(x.type.element, "extract", [x], lane=lane)

    def insert(self, x: Operand, lane: int, value: Operand) -> Value:
        """The vector with one lane replaced."""
        return self.let(x.type, "insert", [x, value], lane=lane)

    def shuffle(self, a: Operand, b: Operand, lanes: Sequence[int]) -> Value:
        """Lanes picked from `a` followed by `b`."""
        return self.let(a.type.with_lanes(len(lanes)), "shuffle", [a, b], lanes=tuple(lanes))

    def reduce(self, op: str, x: Operand) -> Value:
        """One of REDUCE."""
        if op not in REDUCE:
            raise self.fail(f"unknown reduction {op}")
        return self.let(x.type.element, op, [x])

    def tail_mask(self, count: Operand | int, lanes: int) -> Value:
        """`i1` lanes, true in the first `count` (an i64, any value)."""
        return self.let(I1.with_lanes(lanes), "tail_mask", [self.lift(count, I64)])

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
    ) -> Value:
        """Read `type` at `pointer + index * size of a lane`; an index vector gathers.

        Masked-off lanes are zero and not touched. `invariant`: nothing writes there meanwhile.
        """
        at = self.lift(index, I64) if isinstance(index, int) else index
        operands = [pointer, at] + ([mask] if mask is not None else [])
        return self.let(
            type, "load", operands,
            align_bytes=align_bytes or type.size_bytes, ordering=ordering, invariant=invariant,
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
        align = align_bytes or value.type.size_bytes
        self.append(Store(pointer, at, value, mask, align, ordering, nontemporal))

    def offset(self, pointer: Operand, index: Operand | int, element: Type | int = 1) -> Value:
        """`pointer + index * element`, `element` a type or a number of bytes."""
        size = element if isinstance(element, int) else element.size_bytes
        at = self.lift(index, I64) if isinstance(index, int) else index
        return self.let(PTR, "offset", [pointer, at], size_bytes=size)

    def table(self, element: Type, values: Sequence[int | float]) -> Value:
        """The address of constant data: `values` side by side as scalars of type `element`."""
        return self.let(PTR, "table", [], element=element, values=tuple(values))

    def local(self, type: Type, count: int, *, align_bytes: int = 64) -> Value:
        """Memory of this call's own, for `count` elements; contents undefined; small."""
        return self.let(PTR, "local", [], element=type, count=count, align_bytes=align_bytes)

    def atomic(self, op: str, pointer: Operand, value: Operand, ordering: str = "seq_cst") -> Value:
        """Atomic `add`, `sub`, `max`, `min`, `or`, `exchange`; gives the old value."""
        return self.let(value.type, "atomic", [pointer, value], rmw=op, ordering=ordering)

    def compare_exchange(self, pointer: Operand, expected: Operand, value: Operand) -> Value:
        """Atomically replace `expected` by `value`; gives the old value."""
        return self.let(value.type, "compare_exchange", [pointer, expected, value])

    # -- control ------------------------------------------------------------------------------

    def variable(
        self, initial: Operand | float, type: Type | None = None, name: str = "v"
    ) -> Register:
        """A mutable register with its first value."""
        if type is None:
            if not isinstance(initial, (Value, Constant)):
                raise self.fail("a variable that starts as a number needs a type")
            type = initial.type
        handle = Register(self, Variable(type, name))
        handle.set(initial)
        return handle

    @contextmanager
    def _block(self, block: Block) -> Iterator[None]:
        self._stack.append(block)
        try:
            yield
        finally:
            self._stack.pop()

    @contextmanager
    def for_(
        self, low: Operand | int, high: Operand | int, step: Operand | int = 1
    ) -> Iterator[Value]:
        """`with b.for_(0, n) as i:`"""
        index, body = self.fresh(I64), Block()
        first, last, pace = (self.lift(x, I64) for x in (low, high, step))
        self.append(For(index, first, last, pace, body))
        with self._block(body):
            yield index

    @contextmanager
    def parallel(self) -> Iterator[Value]:
        """`with b.parallel() as block:` once, at the top of a kernel."""
        index, body = self.fresh(I64), Block()
        self.append(Parallel(index, body))
        with self._block(body):
            yield index

    @contextmanager
    def while_(self, condition: Callable[[], Operand]) -> Iterator[None]:
        """`with b.while_(lambda: i.get() < n):`; the condition is evaluated before every pass."""
        header, body = Block(), Block()
        with self._block(header):
            test = condition()
        self.append(While(header, test, body))
        with self._block(body):
            yield

    @contextmanager
    def if_(self, condition: Operand) -> Iterator[None]:
        """`with b.if_(x < y):`, perhaps followed by `with b.else_():`."""
        then = Block()
        self.append(If(condition, then, Block()))
        with self._block(then):
            yield

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The other branch of the `if_` just before."""
        last = self._stack[-1].statements[-1] if self._stack[-1].statements else None
        if not isinstance(last, If):
            raise self.fail("else_ must follow if_")
        with self._block(last.otherwise):
            yield

    def return_(self, value: Operand | None = None) -> None:
        """Leave the function."""
        self.append(Return(value))

    def call(
        self,
        target: str | Operand,
        operands: Sequence[Operand],
        result: Type | None = None,
        *,
        fixed: int | None = None,
    ) -> Value | None:
        """Call a function of the same module by name, or any by its address.

        `fixed`: for a C variadic function, how many parameters are declared.
        """
        through = () if isinstance(target, str) else (target,)
        name = target if isinstance(target, str) else None
        if result is None:
            attributes = (("fixed", fixed), ("name", name))
            self.append(Effect("call", (*through, *operands), attributes))
            return None
        return self.let(result, "call", [*through, *operands], name=name, fixed=fixed)

    def address_of(self, function: str) -> Value:
        """The address of a function of the same module."""
        return self.let(PTR, "address_of", [], name=function)

    def fault(self, code: int, a: Operand | int = 0, b: Operand | int = 0) -> None:
        """Record a fault (the first one stays); execution goes on, so guard what follows."""
        operands = (self.lift(a, I64), self.lift(b, I64))
        self.append(Effect("fault", operands, (("code", code),)))

    def context(self, field: str) -> Value:
        """A field of the calling thread's context: see kernel/context.py."""
        type = I64 if field in ("thread", "scratch_bytes") else PTR
        return self.let(type, "context", [], field=field)

    def pause(self) -> None:
        """Tell the processor that this is a spin loop."""
        self.append(Effect("pause", ()))

    def fence(self, ordering: str = "seq_cst") -> None:
        """Order memory accesses."""
        self.append(Effect("fence", (), (("ordering", ordering),)))

    def prefetch(self, pointer: Operand, index: Operand | int, element: Type = F32) -> None:
        """Ask for the cache line at `pointer + index * size`."""
        at = self.lift(index, I64) if isinstance(index, int) else index
        self.append(Effect("prefetch", (pointer, at), (("size_bytes", element.size_bytes),)))

    def index_cast(self, x: Operand) -> Operand:
        """Any integer or `i1` as i64."""
        return self.convert(x, I64)

    def lane_indices(self, start: Operand, stride: Operand | int, lanes: int) -> Value:
        """i64 lanes `start + lane * stride`."""
        steps = self.iota(I64.with_lanes(lanes))
        return steps * self.lift(stride, I64) + start


__all__ = ["BINARY", "COMPARE", "I32", "REDUCE", "UNARY", "Builder", "Register"]
