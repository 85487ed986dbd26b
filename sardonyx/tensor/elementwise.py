"""Element by element: broadcasting, arithmetic, comparisons, `compute`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.integer import known_equal
from sardonyx.base.sizes import Dim
from sardonyx.tensor import complex_scalar, scalar, symbolic
from sardonyx.tensor.assumptions import (
    assume_equal,
    broadcasts_are_undecided,
    is_taken_as_one,
)
from sardonyx.tensor.rounding import NEAREST, Rounding
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, Tensor, indices, make_map

Operand = object  #: A tensor, a Python number, a symbolic integer or a scalar expression.


def compute(shape: Shape, body: Callable[..., Scalar], dtype: DType | None = None) -> Tensor:
    """The tensor whose element at (i0, i1, ...) is `body(i0, i1, ...)`, perhaps cast."""
    result = body(*indices(shape))
    return make_map(shape, result if dtype is None else scalar.cast(result, dtype))


def element(x: Tensor, at: Sequence[Dim | Scalar]) -> Scalar:
    """The element of `x` at these indices.

    Scalar expressions among them are checked, and count from the end if negative.
    """
    if len(at) != len(x.shape):
        raise InvalidGraph(message("element", f"{len(at)} indices for rank {len(x.shape)}"))
    return scalar.load(
        x,
        tuple(
            scalar.as_index(scalar.check_index(i, d), d) if isinstance(i, Scalar) else i
            for i, d in zip(at, x.shape, strict=True)
        ),
    )


def constant(value: float | bool, dtype: DType, shape: Shape = ()) -> Tensor:
    """A tensor full of one number."""
    return make_map(shape, scalar.constant(value, dtype))


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The common size of two axes under NumPy's rules; equality that is not known is assumed."""
    if a is b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and a == b:
        return a
    known = known_equal(a, b)
    if (broadcasts_are_undecided() or _chosen_in_run(a, b)) and known is None:
        return _undecided_dim(a, b)
    if is_taken_as_one(a) or is_taken_as_one(b):
        return b if is_taken_as_one(a) else a
    if known is False:
        return _dim_of_different(a, b)
    assume_equal(a, b, "broadcast", "The sizes of an axis do not fit")
    return b if isinstance(b, int) else a


def _chosen_in_run(a: Dim, b: Dim) -> bool:
    """Whether a run chooses which of two sizes is 1, such as by naming the axes of a reduction."""
    return integer.hangs_on_choice(a) or integer.hangs_on_choice(b)


def _dim_of_different(a: Dim, b: Dim) -> Dim:
    """The common size of two axes that are never equally long: that of one, the other's is 1."""
    shorter, longer = (a, b) if integer.is_nonnegative(b - a - 1) else (b, a)
    candidates = [d for d in (shorter, longer) if known_equal(d, 1) is None]
    if len(candidates) == 2 and broadcasts_are_undecided():
        return _undecided_dim(a, b)
    one = candidates[0] if candidates else shorter
    assume_equal(one, 1, "broadcast", "The sizes of an axis do not fit")
    return longer if one is shorter else shorter


def _undecided_dim(a: Dim, b: Dim) -> Dim:
    """The common size of two axes of which a run may find that one has size 1."""
    fits = (a - 1) * (b - 1) * (a - b)
    assume_equal(fits, 0, "broadcast", "The sizes of an axis do not fit")
    longer, shorter = integer.maximum(a, b), integer.minimum(a, b)
    return longer * integer.minimum(shorter, 1)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape under NumPy's rules."""
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result:
            continue
        long, short = (result, shape) if len(result) >= len(shape) else (shape, result)
        skip = len(long) - len(short)
        try:
            result = long[:skip] + tuple(map(broadcast_dim, long[skip:], short))
        except InvalidGraph:
            raise InvalidGraph(
                message("broadcast", f"The shapes {list(result)} and {list(shape)} do not fit")
            ) from None
    return result


def assume_broadcast(shape: Shape, wanted: Shape, where: str, what: str) -> None:
    """Take a shape as one that broadcasts to `wanted`; `what` names the operand that has it.

    Raises:
        InvalidGraph: It provably does not.
    """
    if len(shape) > len(wanted):
        raise InvalidGraph(
            message(where, f"{what} has the wrong rank", expected=f"at most {len(wanted)}",
                    got=repr(list(shape)))
        )  # fmt: skip
    for a, b in zip(shape, wanted[len(wanted) - len(shape) :], strict=True):
        if a != 1:
            try:
                common = broadcast_dim(b, a)
            except InvalidGraph:
                common = a
            assume_equal(b, common, where, f"{what} has the wrong shape {list(shape)}")


def load_broadcast(x: Tensor, at: tuple[Dim, ...]) -> Scalar:
    """The element that `x`, broadcast to more or longer axes, has at `at`."""
    return scalar.load(x, broadcast_indices(x.shape, at))


def broadcast_indices(shape: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
    """The indices of the element that a tensor, broadcast to more or longer axes, has at `at`."""
    skip = len(at) - len(shape)
    return tuple(broadcast_index(d, at[skip + k]) for k, d in enumerate(shape))


def broadcast_index(extent: Dim, index: Dim) -> Dim:
    """The index on an axis that may be broadcast to that of `index`."""
    if index == 0 or (extent == 1 if isinstance(extent, int) else is_taken_as_one(extent)):
        return 0
    atom = sizes.as_atom(index)
    if atom is None or atom.kind != "index" or atom.arguments[0] == extent:
        return index
    if not broadcasts_are_undecided() and not _chosen_in_run(extent, atom.arguments[0]):
        return index
    if known_equal(extent, atom.arguments[0]):
        return index
    return index * integer.minimum(extent - 1, 1)


def elementwise(body: Callable[..., Scalar], *operands: Tensor) -> Tensor:
    """`body` of the elements of the operands, which are broadcast."""
    shape = broadcast_shapes(*[x.shape for x in operands])
    at = indices(shape)
    return make_map(shape, body(*[load_broadcast(x, at) for x in operands]))


def as_tensor(x: object, dtype: DType) -> Tensor:
    """`x` itself, or the number `x` as a tensor without axes."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, float) and not dtype.is_float and not x.is_integer():
        raise InvalidGraph(message("elementwise", f"{x} is no value of the type {dtype}"))
    return make_map((), scalar.lift(x, dtype))


def _operands(*operands: object) -> list[Tensor]:
    dtype = next(x.dtype for x in operands if isinstance(x, Tensor))
    found = [as_tensor(x, dtype) for x in operands]
    for x in found:
        if x.dtype is not dtype:
            raise InvalidGraph(
                message("elementwise", f"The operands differ in type: {dtype} and {x.dtype}")
            )
    return found


def _load(x: object, at: tuple[Dim, ...], dtype: DType) -> Scalar:
    if isinstance(x, Tensor):
        return load_broadcast(x, at)
    if isinstance(x, float) and not dtype.is_float and not x.is_integer():
        raise InvalidGraph(message("elementwise", f"{x} is no value of the type {dtype}"))
    return scalar.lift(x, dtype)


def _loaded(a: object, b: object) -> tuple[Shape, Scalar, Scalar]:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.dtype is not b.dtype:
            raise InvalidGraph(
                message("elementwise", f"The operands differ in type: {a.dtype} and {b.dtype}")
            )
        shape, dtype = broadcast_shapes(a.shape, b.shape), a.dtype
    else:
        known = a if isinstance(a, Tensor) else b
        if not isinstance(known, Tensor):
            raise InvalidGraph(message("elementwise", "One of two operands must be a tensor"))
        shape, dtype = known.shape, known.dtype
    at = indices(shape)
    return shape, _load(a, at, dtype), _load(b, at, dtype)


def unary(op: str, x: Tensor) -> Tensor:
    """One of `operations.UNARY`."""
    return make_map(x.shape, scalar.unary(op, scalar.load(x, indices(x.shape))))


def binary(op: str, a: Operand, b: Operand) -> Tensor:
    """One of `operations.BINARY`. Integer `div` and `rem` truncate toward zero."""
    shape, x, y = _loaded(a, b)
    return make_map(shape, scalar.binary(op, x, y))


def compare(op: str, a: Operand, b: Operand) -> Tensor:
    """One of `operations.COMPARE`, giving bools."""
    shape, x, y = _loaded(a, b)
    return make_map(shape, scalar.compare(op, x, y))


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """`a` where `condition`, else `b`."""
    if condition.dtype is not dtypes.BOOL:
        raise InvalidGraph(message("where", f"The condition is {condition.dtype}, not bool"))
    x, y = _operands(a, b)
    return elementwise(scalar.select, condition, x, y)


def cast(x: Tensor, dtype: DType, rounding: Rounding = NEAREST) -> Tensor:
    """Converted: floats to integers truncate and saturate, integers wrap, bool is 0 or 1.

    `rounding` is for floats of 8 bits and fewer, which saturate unless it says otherwise.
    """
    if x.dtype is dtype:
        return x
    return make_map(x.shape, scalar.cast(scalar.load(x, indices(x.shape)), dtype, rounding))


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    """The same bits as elements of another type of the same size."""
    if x.dtype is dtype:
        return x
    return make_map(x.shape, scalar.bitcast(scalar.load(x, indices(x.shape)), dtype))


def by_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A linear function of a complex tensor, given as one of real tensors of any float type."""

    def part(take: Callable[[Scalar], Scalar]) -> Tensor:
        return function(make_map(x.shape, take(scalar.load(x, indices(x.shape)))))

    re, im = part(complex_scalar.real), part(complex_scalar.imaginary)
    return elementwise(complex_scalar.combine, re, im)


def clip(x: Tensor, low: Operand | None, high: Operand | None) -> Tensor:
    """`x` kept between two bounds; `high` wins where they cross. NaN stays."""
    if low is not None:
        x = binary("max", x, low)
    return x if high is None else binary("min", x, high)


def known_tensor(elements: Sequence[Dim], shape: Shape, dtype: DType) -> Tensor:
    """A small tensor of these elements, row-major: integers, symbolic or not, floats or bools."""
    values = [scalar.lift_element(e, dtype) for e in elements] or [scalar.constant(0, dtype)]

    def pick(*at: Dim) -> Scalar:
        position: Dim = 0
        for i, extent in zip(at, shape, strict=True):
            position = position * extent + i
        value = values[-1]
        for number in range(len(values) - 2, -1, -1):
            here = scalar.compare("eq", scalar.size(position), number)
            value = scalar.select(here, values[number], value)
        return value

    result = compute(shape, pick)
    symbolic.remember(result, tuple(elements))
    return result


def size_tensor(elements: Sequence[Dim], dtype: DType = dtypes.INT64) -> Tensor:
    """A tensor of one axis whose elements are these symbolic integers."""
    return known_tensor(elements, (len(elements),), dtype)


def _named_unary(op: str, doc: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return unary(op, x)

    function.__name__, function.__doc__ = op, doc
    return function


def _named_binary(op: str, doc: str) -> Callable[[Operand, Operand], Tensor]:
    def function(a: Operand, b: Operand) -> Tensor:
        return binary(op, a, b)

    function.__name__, function.__doc__ = op, doc
    return function


def _named_compare(op: str, doc: str) -> Callable[[Operand, Operand], Tensor]:
    def function(a: Operand, b: Operand) -> Tensor:
        return compare(op, a, b)

    function.__name__, function.__doc__ = op, doc
    return function


negative = _named_unary("neg", "-x.")
absolute = _named_unary("abs", "|x|.")
sign = _named_unary("sign", "-1, 0 or 1.")
logical_not = _named_unary("not", "Negated truth, or negated bits.")
exp = _named_unary("exp", "e to the x.")
expm1 = _named_unary("expm1", "e to the x, less 1.")
log = _named_unary("log", "Natural logarithm.")
log1p = _named_unary("log1p", "Natural logarithm of 1 + x.")
sqrt = _named_unary("sqrt", "Square root.")
rsqrt = _named_unary("rsqrt", "1 by the square root.")
reciprocal = _named_unary("reciprocal", "1 / x.")
erf = _named_unary("erf", "Error function.")
tanh = _named_unary("tanh", "Hyperbolic tangent.")
sigmoid = _named_unary("sigmoid", "1 / (1 + exp(-x)).")
floor = _named_unary("floor", "Rounded down.")
ceil = _named_unary("ceil", "Rounded up.")
round_even = _named_unary("round", "Rounded to nearest, halves to even.")
sin = _named_unary("sin", "Sine.")
cos = _named_unary("cos", "Cosine.")
maximum = _named_binary("max", "The larger; NaN if one is NaN.")
minimum = _named_binary("min", "The smaller; NaN if one is NaN.")
remainder = _named_binary("rem", "Remainder with the sign of `a`.")
power = _named_binary("pow", "`a` to the `b`, of floats.")
equal = _named_compare("eq", "Whether equal.")
not_equal = _named_compare("ne", "Whether different, or one is NaN.")
