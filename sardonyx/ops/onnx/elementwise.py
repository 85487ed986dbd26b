"""Element by element: arithmetic, comparison, logic, bits, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.registry import CONSUMED_INPUTS, op
from sardonyx.ops.onnx.alignment import aligned
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import Tensor

_COMMUTATIVE = ("commutative",)


def _register_unary(op_type: str, function: Callable[[Tensor], Tensor], *versions: int) -> None:
    def lowering(x: Tensor, *, consumed_inputs: Sequence[int] = ()) -> Tensor:
        return function(x)

    removed = {"consumed_inputs": 1} if op_type == "Not" else CONSUMED_INPUTS
    op(op_type, *versions, removed=removed)(lowering)


def _integer_or_float(op_type: str, x: Tensor) -> Tensor:
    """Floor, Ceil and Round leave integers as they are."""
    return t.unary(op_type, x) if x.dtype.is_float else x


for _name, _operation, *_versions in (
    ("Neg", "neg", 1, 6, 13),
    ("Abs", "abs", 1, 6, 13),
    ("Sign", "sign", 9, 13),
    ("Sqrt", "sqrt", 1, 6, 13),
    ("Exp", "exp", 1, 6, 13),
    ("Log", "log", 1, 6, 13),
    ("Reciprocal", "reciprocal", 1, 6, 13),
    ("Tanh", "tanh", 1, 6, 13),
    ("Sigmoid", "sigmoid", 1, 6, 13),
    ("Sin", "sin", 7),
    ("Cos", "cos", 7),
    ("Tan", "tan", 7),
    ("Asin", "asin", 7),
    ("Acos", "acos", 7),
    ("Atan", "atan", 7),
    ("Sinh", "sinh", 9),
    ("Cosh", "cosh", 9),
    ("Asinh", "asinh", 9),
    ("Acosh", "acosh", 9),
    ("Atanh", "atanh", 9),
    ("Not", "not", 1),
    ("BitwiseNot", "not", 18),
):
    _register_unary(_name, functools.partial(t.unary, _operation), *_versions)
for _name, _operation, *_versions in (
    ("Floor", "floor", 1, 6, 13),
    ("Ceil", "ceil", 1, 6, 13),
    ("Round", "round", 11),
):
    _register_unary(_name, functools.partial(_integer_or_float, _operation), *_versions)


@op("Erf", 9, 13)
def erf(x: Tensor) -> Tensor:
    """The error function; of integers it is computed in double and cut off."""
    if x.dtype.is_float:
        return t.unary("erf", x)
    return t.cast(t.unary("erf", t.cast(x, dtypes.DOUBLE)), x.dtype)


def _register_binary(
    op_type: str, function: Callable[[Tensor, Tensor], Tensor], flags: tuple[str, ...], *since: int
) -> None:
    def lowering(a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)

    op(op_type, *since, flags=flags)(lowering)


def _register_aligned(
    op_type: str, function: Callable[[Tensor, Tensor], Tensor], *since: int
) -> None:
    """The versions before 7; those that have a version 6 had `consumed_inputs` in version 1.

    Only operands of one shape commute, so no flag says that they do.
    """

    def lowering(
        a: Tensor,
        b: Tensor,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: Sequence[int] = (),
    ) -> Tensor:
        return function(a, aligned(a, b, axis, broadcast, op_type))

    removed = CONSUMED_INPUTS if 6 in since else {"consumed_inputs": 1}
    op(op_type, *since, removed=removed)(lowering)


_flags: tuple[str, ...]
for _name, _operation, _flags, *_versions in (
    ("Add", "add", _COMMUTATIVE, 7, 13, 14),
    ("Sub", "sub", (), 7, 13, 14),
    ("Mul", "mul", _COMMUTATIVE, 7, 13, 14),
    ("Div", "div", (), 7, 13, 14),
    ("And", "and", _COMMUTATIVE, 7),
    ("Or", "or", _COMMUTATIVE, 7),
    ("Xor", "xor", _COMMUTATIVE, 7),
    ("BitwiseAnd", "and", _COMMUTATIVE, 18),
    ("BitwiseOr", "or", _COMMUTATIVE, 18),
    ("BitwiseXor", "xor", _COMMUTATIVE, 18),
):
    _register_binary(_name, functools.partial(t.binary, _operation), _flags, *_versions)
for _name, _operation, *_versions in (
    ("Add", "add", 1, 6),
    ("Sub", "sub", 1, 6),
    ("Mul", "mul", 1, 6),
    ("Div", "div", 1, 6),
    ("And", "and", 1),
    ("Or", "or", 1),
    ("Xor", "xor", 1),
):
    _register_aligned(_name, functools.partial(t.binary, _operation), *_versions)


def _compare(operation: str, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is dtypes.BOOL and b.dtype is dtypes.BOOL:
        return t.unary("not", a ^ b)  # only equality is asked of bools
    return t.compare(operation, a, b)


for _name, _operation, _flags, *_versions in (
    ("Equal", "eq", (*_COMMUTATIVE, "strings"), 7, 11, 13, 19),
    ("Less", "lt", (), 7, 9, 13),
    ("LessOrEqual", "le", (), 12, 16),
    ("Greater", "gt", (), 7, 9, 13),
    ("GreaterOrEqual", "ge", (), 12, 16),
):
    _register_binary(_name, functools.partial(_compare, _operation), _flags, *_versions)
for _op_type, _relation in (("Equal", "eq"), ("Less", "lt"), ("Greater", "gt")):
    _register_aligned(_op_type, functools.partial(_compare, _relation), 1)


@op("Pow", 7, 12, 13, 15, flags=("mixed",))
def pow_7(base: Tensor, exponent: Tensor) -> Tensor:
    """Power in the type of the base; small whole exponents multiply.

    Of integers it is computed in double, exact up to 2**53.
    """
    known = elements_of(exponent)
    if known is not None and len(known) == 1 and known[0] in (1, 2, 3):
        common = t.broadcast_shapes(base.shape, exponent.shape)
        x = t.broadcast_to(base, common)
        return x if known[0] == 1 else x * x if known[0] == 2 else x * x * x
    if base.dtype.is_float and base.dtype.bits >= exponent.dtype.bits % 64:
        return t.power(base, exponent.cast(base.dtype))
    wide = dtypes.DOUBLE
    return t.power(base.cast(wide), exponent.cast(wide)).cast(base.dtype)


_register_aligned("Pow", pow_7, 1)


@op("Mod", 10, 13)
def mod_10(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Remainder with the sign of the divisor, or with that of the dividend for `fmod`."""
    rest = t.remainder(a, b)
    if fmod or a.dtype.kind == "u" or (_is_nonnegative(a) and _is_nonnegative(b)):
        return rest
    shape = rest.shape

    def body(r: scalar.Scalar, d: scalar.Scalar) -> scalar.Scalar:
        negative = r < 0
        other_sign = scalar.binary("xor", negative, d < 0)
        exact = scalar.binary("copysign", r, d) if r.dtype.is_float else r
        inexact = scalar.select(other_sign, r + d, r)
        return scalar.select(scalar.compare("eq", r, 0), exact, inexact)

    return t.elementwise(body, rest, t.broadcast_to(b, shape))


def _is_nonnegative(x: Tensor) -> bool:
    known = elements_of(x) if x.dtype.is_integer else None
    return known is not None and all(map(integer.is_nonnegative, known))


#: So many tensors are joined one after the other; of more, groups are: expressions are as deep.
_TOGETHER = 16


def _fold(name: str, operation: str, inputs: tuple[Tensor, ...]) -> Tensor:
    if not inputs:
        raise InvalidGraph(message(name, "It needs an input"))
    parts, join = list(inputs), functools.partial(t.binary, operation)
    while len(parts) > 1:
        starts = range(0, len(parts), _TOGETHER)
        parts = [functools.reduce(join, parts[k : k + _TOGETHER]) for k in starts]
    return parts[0]


def _of_one_shape(where: str, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    for x in inputs[1:]:
        t.assume_shape(x.shape, inputs[0].shape, where, "An input, before version 8,")
    return inputs


@op("Min", 1, 6, flags=_COMMUTATIVE, removed=CONSUMED_INPUTS)
def min_1(*inputs: Tensor, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """As later, of tensors of one shape."""
    return min_8(*_of_one_shape("Min", inputs))


@op("Min", 8, 12, 13, flags=_COMMUTATIVE)
def min_8(*inputs: Tensor) -> Tensor:
    """The smallest; NaN if one is NaN."""
    return _fold("Min", "min", inputs)


@op("Max", 1, 6, flags=_COMMUTATIVE, removed=CONSUMED_INPUTS)
def max_1(*inputs: Tensor, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """As later, of tensors of one shape."""
    return max_8(*_of_one_shape("Max", inputs))


@op("Max", 8, 12, 13, flags=_COMMUTATIVE)
def max_8(*inputs: Tensor) -> Tensor:
    """The largest; NaN if one is NaN."""
    return _fold("Max", "max", inputs)


@op("Sum", 1, 6, flags=_COMMUTATIVE, removed=CONSUMED_INPUTS)
def sum_1(*inputs: Tensor, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """As later, of tensors of one shape."""
    return sum_8(*_of_one_shape("Sum", inputs))


@op("Sum", 8, 13, flags=_COMMUTATIVE)
def sum_8(*inputs: Tensor) -> Tensor:
    """Sum of all."""
    return _fold("Sum", "add", inputs)


@op("Mean", 1, 6, flags=_COMMUTATIVE, removed=CONSUMED_INPUTS)
def mean_1(*inputs: Tensor, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """As later, of tensors of one shape."""
    return mean_8(*_of_one_shape("Mean", inputs))


@op("Mean", 8, 13, flags=_COMMUTATIVE)
def mean_8(*inputs: Tensor) -> Tensor:
    """Mean of all."""
    return _fold("Mean", "add", inputs) / float(len(inputs))


@op("Where", 9, 16, flags=("strings",))
def where_9(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` where the condition holds, else `b`."""
    return t.where(condition, a, b)


@op("Clip", 1, 6, removed=CONSUMED_INPUTS)
def clip_1(
    x: Tensor,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
    consumed_inputs: Sequence[int] = (),
) -> Tensor:
    """Kept between two attributes."""
    return t.clip(x, float(min), float(max))


@op("Clip", 11, 12, 13)
def clip_11(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Kept between two inputs; the upper one wins where they cross."""
    return t.clip(x, *(None if bound is None else _one(bound) for bound in (min, max)))


def _one(x: Tensor) -> Tensor:
    """A bound without axes, from a tensor of one element."""
    return x if not x.shape else t.reshape(x, ())


@op("IsNaN", 9, 13, 20)
def is_nan_9(x: Tensor) -> Tensor:
    """Whether NaN."""
    return t.not_equal(x, x)


@op("IsInf", 10, 20)
def is_inf_10(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether infinite, with the signs asked for."""
    if detect_negative and detect_positive:
        return t.equal(t.absolute(x), float("inf"))
    if not detect_negative and not detect_positive:
        # Not the number alone: an index that gave an element is checked whatever is asked.
        return t.binary("and", t.equal(x, x), t.constant(False, dtypes.BOOL))
    return t.equal(x, float("-inf" if detect_negative else "inf"))


@op("BitShift", 11)
def bit_shift_11(x: Tensor, count: Tensor, *, direction: str) -> Tensor:
    """Bits moved; 0 where the count reaches the width."""
    if direction not in ("LEFT", "RIGHT"):
        raise InvalidGraph(
            message("BitShift", "Bad direction", expected="LEFT or RIGHT", got=repr(direction))
        )
    return t.binary("shl" if direction == "LEFT" else "shr", x, count)


@op("Identity", 1, flags=("strings", "objects"))
def identity_1(x: Tensor) -> Tensor:
    """The same."""
    return x
