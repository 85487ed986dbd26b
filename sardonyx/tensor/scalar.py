"""Scalar expressions over index variables: what one element of a tensor is.

Frozen and hash-consed: equal structure is the same object. Indices inside `load` are symbolic
integers (`base.sizes`); a value read from a tensor becomes one through `as_index`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, InvalidGraph, message
from sardonyx.base.interning import WeakTable
from sardonyx.base.sizes import Dim
from sardonyx.tensor import arithmetic
from sardonyx.tensor.noted_checks import may_divide_by_zero, note_check
from sardonyx.tensor.operations import OF_FLOATS, OF_INTEGERS
from sardonyx.tensor.rounding import NEAREST, Rounding

if TYPE_CHECKING:
    from sardonyx.tensor.tensor import Buffer, Tensor


class Scalar:
    """One node of a scalar expression.

    Attributes:
        op: `constant`, `size`, `load`, `cast`, `bitcast`, `select`, `check_index`,
            `check_range`, `complex`, `real`, `imag`, or an elementwise name. Plans also have `fma`:
            a * b + c, rounded once.
        dtype: Type of the value.
        arguments: Operands.
        payload: constant: the Python number. size: the symbolic integer. load: (tensor, indices).
            check_index: the extent. check_range: what the number is called. cast: how it
            rounds (see `rounding`). Others: None.
    """

    __slots__ = ("__weakref__", "_checks", "_loads", "arguments", "dtype", "op", "payload")

    def __init__(self, op: str, dtype: DType, arguments: tuple[Scalar, ...], payload: Any) -> None:
        self.op, self.dtype, self.arguments, self.payload = op, dtype, arguments, payload
        self._loads: tuple[Scalar, ...] | None = None
        self._checks: tuple[Scalar, ...] | None = None

    @property
    def tensor(self) -> Tensor:
        """What a `load` reads."""
        found: Tensor = self.payload[0]
        return found

    @property
    def buffer(self) -> Buffer:
        """What a `load` of a group reads: it lies in memory."""
        found: Buffer = self.payload[0]
        return found

    @property
    def at(self) -> tuple[Dim, ...]:
        """Where a `load` reads."""
        found: tuple[Dim, ...] = self.payload[1]
        return found

    @property
    def dim(self) -> Dim:
        """The symbolic integer of a `size` or `check_index`."""
        found: Dim = self.payload
        return found

    @property
    def rounding(self) -> Rounding:
        """How a `cast` rounds to a float of few bits."""
        found: Rounding = self.payload or NEAREST
        return found

    def __add__(self, other: object) -> Scalar:
        return binary("add", self, other)

    def __radd__(self, other: object) -> Scalar:
        return binary("add", other, self)

    def __sub__(self, other: object) -> Scalar:
        return binary("sub", self, other)

    def __rsub__(self, other: object) -> Scalar:
        return binary("sub", other, self)

    def __mul__(self, other: object) -> Scalar:
        return binary("mul", self, other)

    def __rmul__(self, other: object) -> Scalar:
        return binary("mul", other, self)

    def __truediv__(self, other: object) -> Scalar:
        return binary("div", self, other)

    def __rtruediv__(self, other: object) -> Scalar:
        return binary("div", other, self)

    def __neg__(self) -> Scalar:
        return unary("neg", self)

    def __and__(self, other: object) -> Scalar:
        return binary("and", self, other)

    def __or__(self, other: object) -> Scalar:
        return binary("or", self, other)

    def __invert__(self) -> Scalar:
        return unary("not", self)

    def __lt__(self, other: object) -> Scalar:
        return compare("lt", self, other)

    def __le__(self, other: object) -> Scalar:
        return compare("le", self, other)

    def __gt__(self, other: object) -> Scalar:
        return compare("gt", self, other)

    def __ge__(self, other: object) -> Scalar:
        return compare("ge", self, other)

    def __repr__(self) -> str:
        if self.op == "constant":
            return repr(self.payload)
        if self.op == "size":
            return f"[{self.payload!r}]"
        if self.op == "load":
            return f"{self.tensor.label}[{', '.join(map(repr, self.at))}]"
        inner = ", ".join(map(repr, self.arguments))
        return f"{self.op}({inner}{'' if self.op != 'cast' else f', {self.dtype}'})"


# Weak, so that the weights behind a model's expressions go when the model does.
_NODES: WeakTable[object, Scalar] = WeakTable()


def make_node(
    op: str, dtype: DType, arguments: tuple[Scalar, ...] = (), payload: object = None
) -> Scalar:
    """The one node of this structure, not simplified: the functions below simplify first."""
    marker = (type(payload), repr(payload)) if op == "constant" else payload
    key = (op, dtype, arguments, marker)
    entry = _NODES.entries.get(key)
    found = None if entry is None else entry()
    if found is None:
        found = _NODES.add(key, Scalar(op, dtype, arguments, payload))
    return found


def constant(value: float | bool | complex, dtype: DType) -> Scalar:
    """A number of type `dtype`; floats are kept in double and rounded when used."""
    if dtype.is_complex:
        return make_node("constant", dtype, (), complex(value))
    if dtype.is_float:
        return make_node("constant", dtype, (), float(value))  # type: ignore[arg-type]  # `value` is no Scalar here
    return make_node("constant", dtype, (), bool(value) if dtype is dtypes.BOOL else int(value))  # type: ignore[arg-type]  # `value` is no Scalar here


def size(value: Dim) -> Scalar:
    """A symbolic integer as an int64 value."""
    if isinstance(value, int):
        return constant(value, dtypes.INT64)
    atom = sizes.as_atom(value)
    if atom is not None and atom.kind == "opaque" and isinstance(atom.payload, Scalar):
        return atom.payload
    return make_node("size", dtypes.INT64, (), value)


def load(tensor: Tensor, indices: tuple[Dim, ...]) -> Scalar:
    """The element of `tensor` at `indices`, which must lie inside it."""
    if len(indices) != len(tensor.shape):
        raise EngineError(
            message("load", f"{len(indices)} indices for {tensor!r} of rank {len(tensor.shape)}")
        )
    known = tensor.scalar_value
    if known is not None:
        return _keeping(constant(known, tensor.dtype), indices)
    for i in indices:
        if not isinstance(i, int):  # almost always the first one
            return make_load(tensor, indices)
    elements = tensor.elements
    if elements is not None:
        position = 0
        for i, extent in zip(indices, tensor.shape, strict=True):
            position = position * extent + i  # type: ignore[assignment]  # all were seen to be numbers
        if 0 <= position < len(elements):  # elsewhere under a select that does not choose it
            return lift_element(elements[position], tensor.dtype)
    return make_load(tensor, indices)


def _keeping(x: Scalar, indices: tuple[Dim, ...]) -> Scalar:
    """What does not hang on some indices, with their checks."""
    if not any(map(sizes.opaque_in, indices)):
        return x
    from sardonyx.tensor.checked import checks_in, with_checks

    return with_checks(x, checks_in(indices))


def make_load(tensor: Tensor, indices: tuple[Dim, ...]) -> Scalar:
    """A load that stays one even where the tensor's only element is known."""
    return make_node("load", tensor.dtype, (), (tensor, indices))


def lift_element(value: Dim, dtype: DType) -> Scalar:
    """One known element of a tensor of type `dtype`."""
    if isinstance(value, sizes.Size):
        return cast(size(value), dtype)
    return constant(value, dtype)


def lift(value: object, dtype: DType) -> Scalar:
    """`value` as an expression: numbers take `dtype`."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, sizes.Size):
        return size(value)
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return constant(value.item() if isinstance(value, np.generic) else value, dtype)
    raise EngineError(message("expression", f"{value!r} is not a scalar"))


def _pair(a: object, b: object) -> tuple[Scalar, Scalar]:
    known = next((x for x in (a, b) if isinstance(x, Scalar)), None)
    dtype = known.dtype if known is not None else dtypes.INT64
    x, y = lift(a, dtype), lift(b, dtype)
    if x.dtype is not y.dtype:
        raise EngineError(
            message("expression", f"operands {x!r} and {y!r} differ in type: {x.dtype}, {y.dtype}")
        )
    return x, y


def whole_number(value: Scalar) -> Dim | None:
    """The symbolic integer that an int64 expression is, if it is one."""
    if value.dtype is not dtypes.INT64:
        return None
    if value.op in ("size", "constant"):
        whole: Dim = value.payload
        return whole
    return None


def _check_type(op: str, x: Scalar) -> None:
    wrong = OF_INTEGERS if x.dtype.is_float else OF_FLOATS
    if op in wrong:
        wanted = "whole numbers or bool" if op in OF_INTEGERS else "floating-point numbers"
        raise InvalidGraph(
            message(op, "Its operand has the wrong type", expected=wanted, got=x.dtype.name)
        )


def unary(op: str, x: Scalar) -> Scalar:
    """One of UNARY.

    Raises:
        InvalidGraph: Numbers of this type have no such operation.
    """
    if x.dtype.is_complex:
        from sardonyx.tensor import complex_scalar

        return complex_scalar.unary(op, x)
    _check_type(op, x)
    if op == "not" and x.op == "constant" and x.dtype is dtypes.BOOL:
        return constant(not x.payload, dtypes.BOOL)
    whole = whole_number(x)
    if op == "neg" and whole is not None:
        return size(-whole)
    return make_node(op, x.dtype, (x,))


#: Integer operations that symbolic integers have too.
SYMBOLIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": sizes.add,
    "sub": sizes.subtract,
    "mul": sizes.multiply,
    "min": integer.minimum,
    "max": integer.maximum,
}


def binary(op: str, a: object, b: object) -> Scalar:
    """One of BINARY. Integer `div` and `rem` truncate toward zero.

    Raises:
        InvalidGraph: Numbers of this type have no such operation.
    """
    x, y = _pair(a, b)
    if x.dtype.is_complex:
        from sardonyx.tensor import complex_scalar

        return complex_scalar.binary(op, x, y)
    _check_type(op, x)
    left, right = whole_number(x), whole_number(y)
    if left is not None and right is not None:
        if op in SYMBOLIC:
            return size(SYMBOLIC[op](left, right))
        positive = integer.is_nonnegative(left) and integer.is_nonnegative(right - 1)
        if op in ("div", "rem") and (
            positive or (isinstance(right, int) and right > 0 and positive)
        ):
            return size(
                integer.floordiv(left, right) if op == "div" else integer.modulo(left, right)
            )
    if x.dtype is dtypes.BOOL:
        for known, other in ((x, y), (y, x)):
            if known.op == "constant" and op in ("and", "or"):
                if bool(known.payload) == (op == "and"):
                    return other
                if _can_be_dropped(other):
                    return known
    if x.dtype.is_float and y.op == "constant":
        if (op == "mul" or op == "div") and y.payload == 1.0:  # x * 1 -> x
            return x
        if op in ("add", "sub") and y.payload == 0.0 and (op == "sub" or _sign(y) < 0):
            return x  # x - 0 -> x, x + -0.0 -> x; x + 0.0 turns -0.0 into 0.0
    made = make_node(op, x.dtype, (x, y))
    if may_divide_by_zero(made):
        note_check("divisor")
    return made


def clamp(value: Scalar, low: object, high: object) -> Scalar:
    """`value` kept between two bounds; `high` wins where they cross."""
    return binary("min", binary("max", value, low), high)


def _sign(x: Scalar) -> float:
    return float(np.copysign(1.0, x.payload))


def compare(op: str, a: object, b: object) -> Scalar:
    """One of COMPARE, giving a bool."""
    x, y = _pair(a, b)
    if x.dtype.is_complex:
        from sardonyx.tensor import complex_scalar

        return complex_scalar.compare(op, x, y)
    left, right = whole_number(x), whole_number(y)
    if left is not None and right is not None:
        known = decide(op, left, right)
        if known is not None:
            return constant(known, dtypes.BOOL)
    return make_node(op, dtypes.BOOL, (x, y))


def decide(op: str, a: Dim, b: Dim) -> bool | None:
    """Whether a comparison of symbolic integers holds, None if that depends on the run."""
    if op in ("eq", "ne"):
        equal = integer.known_equal(a, b)
        return equal if equal is None or op == "eq" else not equal
    if op in ("gt", "le"):
        greater = decide("lt", b, a)
        return greater if greater is None or op == "gt" else not greater
    difference = b - a  # lt: b - a > 0; ge: b - a <= 0
    if integer.is_nonnegative(difference - 1):
        return op == "lt"
    if integer.is_nonnegative(-difference):
        return op == "ge"
    return None


def select(condition: Scalar, a: object, b: object) -> Scalar:
    """`a` where `condition`, else `b`; a load is not made where it is not chosen."""
    x, y = _pair(a, b)
    if condition.op == "constant":
        return x if condition.payload else y
    if x is y and _can_be_dropped(condition):
        return x
    return make_node("select", x.dtype, (condition, x, y))


def _can_be_dropped(x: Scalar) -> bool:
    from sardonyx.tensor.checked import can_be_dropped

    return can_be_dropped(x)


def cast(x: Scalar, dtype: DType, rounding: Rounding = NEAREST) -> Scalar:
    """Convert: floats to integers truncate and saturate, integers wrap, bool is 0 or 1.

    `rounding` is for floats of 8 bits and fewer, which saturate unless it says otherwise.
    """
    if x.dtype is dtype:
        return x
    if x.dtype.is_complex or dtype.is_complex:
        from sardonyx.tensor import complex_scalar

        return complex_scalar.cast(x, dtype)
    if x.op == "cast" and dtype in (dtypes.FLOAT16, dtypes.BFLOAT16):
        (before,) = x.arguments
        if before.dtype is dtype and x.dtype in (dtypes.FLOAT, dtypes.DOUBLE):
            return before  # every half float is a float, too
    if x.op == "constant":
        value = x.payload
        if dtype.is_float or dtype is dtypes.BOOL:
            given = arithmetic.constant(value, x.dtype, x.dtype.numpy)
            rounded = arithmetic.cast(given, x.dtype, dtype, dtype.numpy, rounding)
            return constant(rounded.item(), dtype)
        if isinstance(value, (int, bool)):
            bits = dtype.bits
            wrapped = int(value) & ((1 << bits) - 1)
            if dtype.kind == "i" and wrapped >> (bits - 1):
                wrapped -= 1 << bits
            return constant(wrapped, dtype)
    return make_node("cast", dtype, (x,), None if rounding == NEAREST else rounding)


def bitcast(x: Scalar, dtype: DType) -> Scalar:
    """The same bits as another type of the same size."""
    return make_node("bitcast", dtype, (x,))


def check_index(value: Scalar, extent: Dim) -> Scalar:
    """An int64 index, counted from the end if negative; a fault outside [-extent, extent)."""
    index = cast(value, dtypes.INT64)
    whole = whole_number(index)
    if whole is not None:
        if integer.is_nonnegative(whole) and integer.is_nonnegative(extent - whole - 1):
            return index
        if isinstance(whole, int) and whole < 0 and integer.is_nonnegative(extent + whole):
            return size(extent + whole)
    note_check("index")
    return make_node("check_index", dtypes.INT64, (index,), extent)


def check_range(value: Scalar, name: str, low: object, high: object) -> Scalar:
    """A number of the data as int64; a fault outside [low, high], which names the number.

    Args:
        value: The number.
        name: What it is called, one of `RANGED_NAMES`.
        low: The smallest that is allowed: a number, a size or an int64 expression.
        high: The largest.
    """
    number = cast(value, dtypes.INT64)
    ends = lift(low, dtypes.INT64), lift(high, dtypes.INT64)
    if decide_range(number, *ends):
        return number
    note_check("range")
    return make_node("check_range", dtypes.INT64, (number, *ends), name)


def decide_range(number: Scalar, low: Scalar, high: Scalar) -> bool:
    """Whether a number is known to be in [low, high]."""
    whole, *ends = map(whole_number, (number, low, high))
    if whole is None or ends[0] is None or ends[1] is None:
        return False
    return integer.is_nonnegative(whole - ends[0]) and integer.is_nonnegative(ends[1] - whole)


def as_index(value: Scalar, extent: Dim) -> Dim:
    """An int64 expression in [0, extent) as a symbolic integer that `load` can use."""
    whole = whole_number(value)
    return whole if whole is not None else sizes.opaque(value, 0, extent - 1)
