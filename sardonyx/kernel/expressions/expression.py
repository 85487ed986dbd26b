"""Tensor expressions to kernel statements.

`Expression` writes the value of scalar expressions and symbolic integers at the builder's current
place, as a scalar where they do not depend on the vector index, else as a vector. What does not
change inside a loop is written before it: `hoist` on the emitter around the loop fills a cache that
the emitter inside (made by `child`) reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions import complex_numbers
from sardonyx.kernel.expressions.checks import check_divisor, check_index, check_range
from sardonyx.kernel.expressions.dependence import Dependence, is_total, needs_guard
from sardonyx.kernel.expressions.error_functions import as_complement
from sardonyx.kernel.expressions.hoisting import Hoisting
from sardonyx.kernel.expressions.representation import (
    HALVES,
    cast,
    constant,
    from_memory,
    to_memory,
    value_type,
)
from sardonyx.kernel.expressions.select_address import load_chosen
from sardonyx.kernel.expressions.strided import (
    LONGEST_STRIDE,
    load_repeated,
    load_strided,
    pays,
    repeats,
)
from sardonyx.kernel.expressions.symbolic_integers import SymbolicIntegers
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Place
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import I32, Type, memory_type
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.rounding import UNSATURATED
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of


class Expression(SymbolicIntegers):
    """Writes expressions at one loop level. See the module's text.

    Args:
        builder: Where statements go.
        atoms: i64 values of symbols and index variables.
        place: Finds where a tensor lies. Not asked for tensors in `values`.
        values: Values of loads that are at hand (a contract's accumulator, a row's maximum).
        vector: The index variable that runs over lanes; its value in `atoms` is that of lane 0.
        lanes: How many lanes.
        mask: Which lanes count; None for all.
    """

    def __init__(
        self,
        builder: Builder,
        atoms: Mapping[Atom, Operand],
        place: Callable[[Tensor], Place],
        *,
        values: Mapping[Scalar, Operand] | None = None,
        vector: Atom | None = None,
        lanes: int = 1,
        mask: Operand | None = None,
        parent: Expression | None = None,
    ) -> None:
        self.builder, self.place = builder, place
        self.atoms: dict[Atom, Operand] = dict(atoms)
        self._given: set[Scalar]
        self.vector, self.lanes, self.mask = vector, lanes, mask
        self.parent = self._outer = parent
        self._first_lane: Expression | None = None
        self._values: dict[tuple[Scalar, object], Operand] = {}
        self._dims: dict[Dim, Operand] = {}
        self._guarded_dims: dict[tuple[Dim, Operand], Operand] = {}
        self._own: dict[SymbolicIntegers, frozenset[Atom]] = {}
        for load, value in (values or {}).items():
            self._values[load, None] = value
        self._given = set(values or {}) | (parent._given if parent else set())
        #: Those of the given values that differ from lane to lane.
        self._vector_loads: frozenset[Scalar] = frozenset(
            load for load, value in (values or {}).items() if value.type.lanes > 1
        ) | (parent._vector_loads if parent else frozenset())
        #: Whether the lanes at an offset begin at a multiple of their size; None if unknown.
        self.aligned: Callable[[Dim], bool] | None = parent.aligned if parent else None
        #: Whether a tensor has elements for all lanes at its beginning: what a guard keeps from
        #: being read may be read there instead, so that no load hangs on a branch.
        self.has_lanes: Callable[[Tensor], bool] | None = parent.has_lanes if parent else None
        #: Whether lane 0 is always at a multiple of the number of lanes.
        self.whole_vectors: bool = parent.whole_vectors if parent else False
        self.dependence: Dependence = parent.dependence if parent else Dependence()

    def child(
        self,
        atoms: Mapping[Atom, Operand] | None = None,
        *,
        values: Mapping[Scalar, Operand] | None = None,
        vector: Atom | None = None,
        lanes: int = 1,
        mask: Operand | None = None,
    ) -> Expression:
        """An emitter for a loop inside this one, which reads what this one has hoisted."""
        return Expression(
            self.builder, self.atoms | dict(atoms or {}), self.place,
            values=values, vector=vector or self.vector, lanes=lanes, mask=mask, parent=self,
        )  # fmt: skip

    def is_vector(self, x: Scalar | Dim) -> bool:
        """See `SymbolicIntegers.is_vector`."""
        return (
            self.lanes > 1
            and self.vector is not None
            and self.dependence.varies(x, frozenset((self.vector,)), self._vector_loads)
        )

    def _is_read_anyway(self, x: Scalar) -> bool:
        """Whether what would be lanes, if there were several, needs no branch around its loads."""
        has_lanes = self.has_lanes
        return (
            has_lanes is not None
            and self.lanes == 1
            and self.vector is not None
            and self.dependence.varies(x, frozenset((self.vector,)), self._vector_loads)
            and all(has_lanes(load.tensor) for load in loads_of(x))
        )

    def hoist(
        self,
        expressions: list[Scalar],
        inside: frozenset[Atom],
        loads: frozenset[Scalar] = frozenset(),
        loops: frozenset[Atom] | None = None,
        *,
        addresses: bool = True,
    ) -> None:
        """Write now every part of the expressions that does not depend on the atoms `inside`.

        Also the invariant part of the address of each load, unless `addresses` says otherwise.
        `loads`: values that will be known only inside the loop. `loops`: those of `inside` whose
        loops may have no iteration: what reads memory or may fail is then written where there is
        one; None for all.
        """
        hoisting = Hoisting(self, inside, loads, addresses=addresses)
        for expression in expressions:
            hoisting.visit(expression, guarded=False)
        self._write_ahead(hoisting.found, inside if loops is None else loops)

    def has_value(self, x: Scalar) -> bool:
        """Whether a value was written or given here, and not outside."""
        return (x, None) in self._values

    def is_written(self, x: Scalar) -> bool:
        """Whether a value is at hand that no guard keeps from being read."""
        return self._find(x, None) is not None

    def _write_ahead(self, found: list[Scalar | Dim], loops: frozenset[Atom]) -> None:
        """Write expressions before loops; what may fail only if the loops have iterations."""
        extents = [atom.arguments[0] for atom in loops]
        unsure = sorted((d for d in extents if not integer.is_nonnegative(d - 1)), key=repr)
        left: list[Scalar | Dim] = []
        for x in found:
            if unsure and not is_total(x, self.is_written):
                left.append(x)
            elif isinstance(x, Scalar):
                self.scalar(x)
            elif self.is_dense(x):  # an address: that of lane 0 is all that is asked for
                self._dims[x] = self.with_scalar_vector().dim(x)
            else:
                self.dim(x)
        if not left:
            return
        b = self.builder
        held = [b.variable(b.constant(self._type_of(x), 0)) for x in left]
        any_at_all = [self.dim(extent) > 0 for extent in unsure]
        with b.if_(reduce(partial(b.binary, "and"), any_at_all)):
            inside = self.child(vector=self.vector, lanes=self.lanes, mask=self.mask)
            for x, variable in zip(left, held, strict=True):
                value = inside.scalar(x) if isinstance(x, Scalar) else inside.dim(x)
                variable.set(b.lift(value, self._type_of(x)))
        for x, variable in zip(left, held, strict=True):
            if isinstance(x, Scalar):
                self._values[x, None] = variable.get()
            else:
                self._dims[x] = variable.get()

    def _type_of(self, x: Scalar | Dim) -> Type:
        kind = value_type(x.dtype) if isinstance(x, Scalar) else memory_type(dtypes.INT64)
        return kind.with_lanes(self.lanes if self.is_vector(x) else 1)

    # -- scalar expressions -------------------------------------------------------------------

    def scalar(self, x: Scalar, guard: Operand | None = None) -> Operand:
        """The value of `x` in `value_type(x.dtype)`; loads only in lanes where `guard` holds."""
        if x.op == "constant":
            return constant(self.builder, x.payload, x.dtype)
        found = self._find(x, guard)
        if found is None:
            found = self._values[x, guard] = self._write(x, guard)
        return found

    def _find(self, x: Scalar, guard: Operand | None) -> Operand | None:
        level: Expression | None = self
        vector = self.is_vector(x)
        while level is not None:
            for key in ((x, None), (x, guard)):
                found = level._values.get(key)
                if found is not None and ((found.type.lanes > 1) == vector or x in self._given):
                    return found
            level = level.parent
        return None

    def _write(self, x: Scalar, guard: Operand | None) -> Operand:
        b = self.builder
        if x.op == "load":
            return from_memory(b, self._load(x, guard), x.dtype)
        if x.op == "size":
            return self.dim(x.dim, guard)
        if x.op == "select":
            return self._select(x, guard)
        if x.op == "bitcast":
            return from_memory(b, self._bits(x, guard), x.dtype)
        complement = as_complement(x)
        if complement is not None:
            argument, factor = complement
            return b.unary("erfc", self.scalar(argument, guard) * factor)
        arguments = [self.scalar(a, guard) for a in x.arguments]
        if x.op == "cast":
            return cast(b, arguments[0], x.arguments[0].dtype, x.dtype, x.rounding)
        if x.op == "complex":
            return complex_numbers.combine(b, arguments[0], arguments[1], x.dtype)
        if x.op in ("real", "imag"):
            return complex_numbers.part(b, arguments[0], x.arguments[0].dtype, x.op)
        if x.arguments[0].dtype.is_narrow_float:
            return self._narrow(x, arguments, guard)
        if x.op == "check_index":
            return check_index(
                b, arguments[0], self.dim(x.dim, guard),
                lambda lanes: self._held_mask(guard, lanes),
            )  # fmt: skip
        if x.op == "check_range":
            value, low, high = arguments
            return check_range(
                b, value, low, high, x.payload, lambda lanes: self._held_mask(guard, lanes)
            )
        return self._arithmetic(x, arguments, guard)

    def _narrow(self, x: Scalar, codes: list[Operand], guard: Operand | None) -> Operand:
        """An operation on floats of few bits: computed in f32, rounded if its result is one.

        It does not saturate: the absolute value of an infinity is one.
        """
        b, dtype = self.builder, x.arguments[0].dtype
        numbers = [cast(b, code, dtype, dtypes.FLOAT) for code in codes]
        result = self._arithmetic(x, numbers, guard)
        return result if x.op in COMPARE else cast(b, result, dtypes.FLOAT, x.dtype, UNSATURATED)

    def _arithmetic(self, x: Scalar, arguments: list[Operand], guard: Operand | None) -> Operand:
        b = self.builder
        if len(arguments) == 1:
            if x.op == "not" and x.dtype is dtypes.BOOL:
                return ~arguments[0]
            return b.unary(x.op, arguments[0])
        if x.op == "fma":
            return b.fma(*arguments)
        if all(isinstance(a, Literal) for a in arguments):
            arguments[0] = b.variable(arguments[0]).get()
        if x.op in COMPARE:
            return b.compare(x.op, *arguments)
        if x.op in ("div", "rem") and arguments[0].type.is_integer:
            check_divisor(b, arguments[1], lambda lanes: self._held_mask(guard, lanes))
        return b.binary(x.op, *arguments)

    def _select(self, x: Scalar, guard: Operand | None, stored: bool = False) -> Operand:
        b = self.builder
        write = Expression.stored if stored else Expression.scalar
        element = memory_type(x.dtype) if stored else value_type(x.dtype)
        condition = self.scalar(x.arguments[0], guard)
        if isinstance(condition, Literal):
            return write(self, x.arguments[1 if condition.value else 2], guard)
        if self.lanes > 1 and condition.type.lanes == 1:
            lanes_at_once = load_chosen(self, x, guard)
            if lanes_at_once is not None:
                return lanes_at_once if stored else from_memory(b, lanes_at_once, x.dtype)
        chosen = []
        for wanted, argument in ((True, x.arguments[1]), (False, x.arguments[2])):
            if needs_guard(argument) and not self._available(argument):
                test = condition if wanted else ~condition
                chosen.append(self._guarded(argument, self._both(guard, test), write, element))
            else:
                chosen.append(write(self, argument, guard))
        lanes = max(v.type.lanes for v in chosen)
        kind = element.with_lanes(lanes)
        return b.select(
            condition,
            *(
                b.lift(v, kind) if not isinstance(v, Literal) else b.constant(kind, v.value)
                for v in chosen
            ),
        )

    def _available(self, x: Scalar) -> bool:
        return x.op == "constant" or self._find(x, None) is not None

    def _guarded(
        self, x: Scalar, guard: Operand, write: Callable[..., Operand], element: Type
    ) -> Operand:
        """`x` where `guard` holds; the rest is unspecified and nothing is read there."""
        b = self.builder
        if guard.type.lanes == 1 and not self.is_vector(x) and not self._is_read_anyway(x):
            held = b.variable(b.constant(element, 0))
            with b.if_(guard):
                inside = self.child({}, vector=self.vector, lanes=self.lanes, mask=self.mask)
                held.set(write(inside, x))
            return held.get()
        return write(self, x, guard)

    def _both(self, a: Operand | None, c: Operand) -> Operand:
        return c if a is None else a & c

    def load_mask(self, guard: Operand | None, lanes: int) -> Operand | None:
        """The lanes that count and in which `guard` holds; None if it is all of them."""
        b = self.builder
        parts = [b.splat(m, lanes) for m in (self.mask, guard) if m is not None]
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else b.binary("and", *parts)

    def _held_mask(self, guard: Operand | None, lanes: int) -> Operand | None:
        """Where `guard` holds, for a value of `lanes` lanes; None where it always does.

        One value for all lanes is used where the guard holds in any lane that counts.
        """
        if lanes > 1:
            return self.load_mask(guard, lanes)
        if guard is None or guard.type.lanes == 1:
            return guard
        mask = guard if self.mask is None else self.mask & guard
        return self.builder.reduce("reduce_or", mask)

    def stored(self, x: Scalar, guard: Operand | None = None) -> Operand:
        """The value of `x` in `memory_type(x.dtype)`; half floats that only move stay as they are.

        So moving them costs no conversion, and keeps the bits of every NaN.
        """
        b = self.builder
        moves = x.dtype in HALVES and not self._available(x)
        if moves and x.op == "load":
            return self._load(x, guard)
        if moves and x.op == "select":
            return self._select(x, guard, stored=True)
        if moves and x.op == "bitcast":
            return self._bits(x, guard)
        return to_memory(b, self.scalar(x, guard), x.dtype)

    def _bits(self, x: Scalar, guard: Operand | None) -> Operand:
        """A bitcast, as it lies in memory."""
        bits = self.stored(x.arguments[0], guard)
        return self.builder.bitcast(bits, memory_type(x.dtype).with_lanes(bits.type.lanes))

    def _load(self, x: Scalar, guard: Operand | None) -> Operand:
        """The element, or the lanes, as they lie in memory."""
        tensor, indices = x.tensor, x.at
        where = self.place(tensor)
        offset = where.offset(indices)
        element = memory_type(tensor.dtype)
        b = self.builder
        if not self.is_vector(x):
            at = self.dim(offset, guard)
            if guard is not None and self._is_read_anyway(x):
                at, guard = b.select(guard, b.lift(at, memory_type(dtypes.INT64)), 0), None
            return b.load(element, where.pointer, at, mask=self._held_mask(guard, 1))
        stride = self._short_stride(offset)
        if stride is not None:
            base = b.offset(where.pointer, self.with_scalar_vector().dim(offset, guard), element)
            mask = self.load_mask(guard, self.lanes)
            return load_strided(b, base, element, self.lanes, stride, mask)
        repeated = self._repeated(offset) if guard is None or guard.type.lanes == 1 else None
        if repeated is not None:
            base = b.offset(where.pointer, self.with_scalar_vector().dim(offset, guard), element)
            mask = self.load_mask(guard, self.lanes)
            return load_repeated(b, base, element.with_lanes(self.lanes), *repeated, mask)
        pointer, at = self._lane_places(where.pointer, offset, element, guard)
        align = self.align_bytes(offset, element)
        kind = element.with_lanes(self.lanes)
        is_one = guard is not None and guard.type.lanes == at.type.lanes == 1
        if is_one and guard is not None and self.has_lanes is not None and self.has_lanes(tensor):
            at, guard = b.select(guard, b.lift(at, memory_type(dtypes.INT64)), 0), None
        mask = self.load_mask(guard, self.lanes)
        return b.load(kind, pointer, at, mask=mask, align_bytes=align)

    def _lane_places(
        self, pointer: Operand, offset: Dim, element: Type, guard: Operand | None
    ) -> tuple[Operand, Operand]:
        """A pointer, and where the lanes lie from there on: numbers of 32 bits if they suffice.

        Gathering by those takes half the time.
        """
        at = self._lane_offsets(offset, guard)
        if at.type.lanes == 1:
            return pointer, at
        inside = frozenset((self.vector,)) if self.vector is not None else frozenset()
        fixed, rest = self.dependence.split(offset, inside, self._vector_loads)
        low, high = integer.bounds(rest)
        if not (isinstance(low, int) and isinstance(high, int)):
            return pointer, at
        if low < -(2**31) or high >= 2**31:
            return pointer, at
        b = self.builder
        if fixed != 0:
            pointer = b.offset(pointer, self.with_scalar_vector().dim(fixed, guard), element)
        return pointer, b.convert(
            b.lift(self.dim(rest, guard), at.type), I32.with_lanes(self.lanes)
        )

    def _short_stride(self, offset: Dim) -> int | None:
        """Elements from lane to lane, where some vectors side by side have all of them."""
        linear = sizes.coefficient_of(offset, self.vector)  # type: ignore[arg-type]  # only vectors get here
        if linear is None or self.is_vector(linear[1]) or not pays(self.lanes):
            return None
        step = linear[0]
        return step if isinstance(step, int) and 2 <= step <= LONGEST_STRIDE else None

    def _repeated(self, offset: Dim) -> tuple[int, int] | None:
        """How many lanes read the same element, and how far off the next is, where all are near."""
        if not self.whole_vectors:
            return None
        for atom in sizes.atoms_of(offset, "floordiv"):
            dividend, count = atom.arguments
            linear = sizes.coefficient_of(offset, atom)
            if sizes.as_atom(dividend) is not self.vector or linear is None:
                continue
            step, rest = linear
            if isinstance(count, int) and isinstance(step, int) and not self.is_vector(rest):
                return (count, step) if step > 0 and repeats(self.lanes, count, step) else None
        return None

    def with_scalar_vector(self) -> Expression:
        """An emitter at the same place in which the vector index is that of lane 0."""
        if self.lanes == 1:
            return self
        if self._first_lane is None:
            self._first_lane = self.child({}, vector=self.vector, lanes=1, mask=self.mask)
            self.builder.at_end(self._forget_first_lane)
        return self._first_lane

    def _forget_first_lane(self) -> None:
        """Let go of what refers to this one: the collector would have to find all of both."""
        self._first_lane = None

    # -- memory -------------------------------------------------------------------------------

    def store_element(self, tensor: Tensor, indices: tuple[Dim, ...], body: Scalar) -> None:
        """Write the value of `body` to the element (or the lanes) of `tensor` at `indices`."""
        self.write(tensor, indices, self.stored(body))

    def store(self, tensor: Tensor, indices: tuple[Dim, ...], value: Operand) -> None:
        """Write `value`, of type `value_type`, likewise."""
        self.write(tensor, indices, to_memory(self.builder, value, tensor.dtype))

    def write(self, tensor: Tensor, indices: tuple[Dim, ...], stored: Operand) -> None:
        """Write `stored`, of type `memory_type`, likewise."""
        b = self.builder
        where = self.place(tensor)
        offset = where.offset(indices)
        if not self.is_vector(offset):
            # It would be written to the elements behind this one, too; in an empty tensor none is.
            if stored.type.lanes > 1 and 0 not in tensor.shape:
                what = "a value varies along the lanes, and its place does not"
                raise EngineError(message(f"kernel {b.program.name}", what))
            b.store(stored, where.pointer, self.dim(offset))
            return
        stored = b.splat(stored, self.lanes)
        mask = self.load_mask(None, self.lanes)
        align = self.align_bytes(offset, stored.type.element)
        b.store(stored, where.pointer, self._lane_offsets(offset), mask=mask, align_bytes=align)

    def align_bytes(self, offset: Dim, element: Type) -> int | None:
        """What the address of the first lane is known to be a multiple of."""
        if self.aligned is None or not self.aligned(offset):
            return None
        return min(16, self.lanes * element.size_bytes)

    def is_dense(self, offset: Dim) -> bool:
        """Whether it differs from lane to lane by one."""
        if not self.is_vector(offset):
            return False
        linear = sizes.coefficient_of(offset, self.vector)  # type: ignore[arg-type]  # a vector has one
        return linear is not None and linear[0] == 1 and not self.is_vector(linear[1])

    def _lane_offsets(self, offset: Dim, guard: Operand | None = None) -> Operand:
        """Where the lanes lie: that of lane 0 if they lie side by side, else all of them."""
        if self.is_dense(offset):
            return self.with_scalar_vector().dim(offset, guard)
        at = self.dim(offset, guard)
        # Indices may vary along the lanes where the offset that they make up does not.
        return self.builder.splat(at, self.lanes) if at.type.lanes == 1 else at
