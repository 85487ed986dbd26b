"""Which factors of a contraction are codes of 8 bits less a zero point, perhaps times a scale.

    ConvInteger, QLinearConv, MatMulInteger:   int32(code) - zero
    what DequantizeLinear gives:               float(int32(code) - zero) * scale

Sums of products of such factors are sums of integers, times scales that do not change along the
summed axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sardonyx.base import dtypes, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import dims_of
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import loads_of

#: Types of codes.
CODES = (dtypes.UINT8, dtypes.INT8)


@dataclass(frozen=True, slots=True)
class Codes:
    """A factor `(code - zero) * scale` where `window` holds, else 0.

    Attributes:
        code: Of type uint8 or int8.
        zero: The zero point, of type int32.
        scale: A float; None for 1.
        window: None where it always holds.
    """

    code: Scalar
    zero: Scalar
    scale: Scalar | None = None
    window: Scalar | None = None

    @property
    def whole(self) -> Scalar:
        """The factor without its scale, of type int32."""
        value = scalar.cast(self.code, dtypes.INT32)
        if self.zero.op != "constant" or self.zero.payload != 0:
            value = value - self.zero
        return value if self.window is None else scalar.select(self.window, value, 0)

    @property
    def filled(self) -> Scalar:
        """The code, outside of the window that of 0."""
        if self.window is None:
            return self.code
        return scalar.select(self.window, self.code, scalar.cast(self.zero, self.code.dtype))


def codes_of(
    x: Scalar, body_of: Callable[[Scalar], Scalar | None] = lambda _: None
) -> Codes | None:
    """How a factor is made of codes; None if it is not.

    Args:
        x: The factor.
        body_of: What a load of a tensor that has no memory is; None if it has.
    """
    if x.op == "select":
        condition, a, b = x.arguments
        found = codes_of(a, body_of)
        if b.op != "constant" or b.payload != 0 or loads_of(condition):
            return None
        if found is None or found.window is not None or not _holds_zero(found):
            return None
        return replace(found, window=condition)
    if x.op == "load" and x.dtype not in CODES:
        body = body_of(x)
        return None if body is None else codes_of(body, body_of)
    if x.dtype is dtypes.FLOAT:
        one = scalar.constant(1.0, dtypes.FLOAT)
        parts = x.arguments if x.op == "mul" else (x, one)
        for whole, scale in (parts, reversed(parts)):
            if whole.op == "cast":
                centred = _centred(whole.arguments[0])
                if centred is not None:
                    return replace(centred, scale=scale)
        return None
    return _centred(x) if x.dtype in (dtypes.INT32, *CODES) else None


def _centred(x: Scalar) -> Codes | None:
    """`int32(code) - zero`, or the code alone."""
    if x.dtype in CODES:
        return Codes(x, scalar.constant(0, dtypes.INT32))
    if x.dtype is not dtypes.INT32:
        return None
    if x.op == "cast" and x.arguments[0].dtype in CODES:
        return Codes(x.arguments[0], scalar.constant(0, dtypes.INT32))
    if x.op == "sub":
        code, zero = x.arguments
        if code.op == "cast" and code.arguments[0].dtype in CODES:
            return Codes(code.arguments[0], zero)
    return None


def _holds_zero(codes: Codes) -> bool:
    """Whether the zero point is a code, too."""
    zero, dtype = codes.zero, codes.code.dtype
    if zero.op == "constant":
        low = -128 if dtype is dtypes.INT8 else 0
        return low <= int(zero.payload) < low + 256
    return zero.op == "cast" and zero.arguments[0].dtype is dtype


def moved(zero: Scalar, by: int) -> Scalar:
    """A zero point and a number."""
    if zero.op == "constant":
        return scalar.constant(zero.payload + by, dtypes.INT32)
    return zero + by if by else zero


def index_atoms(x: Scalar) -> set[sizes.Atom | None]:
    """The index variables that an expression uses."""
    return {atom for dim in dims_of(x) for atom in sizes.atoms_of(dim, "index")}


def is_small(left: Codes, right: Codes, extents: Sequence[Dim]) -> bool:
    """Whether 32 bits hold any sum of products over axes of these extents."""
    count = 1
    for extent in extents:
        if not isinstance(extent, int):
            return False
        count *= extent
    return count * _reach(left) * _reach(right) < 1 << 31


def _reach(codes: Codes) -> int:
    """A bound of `code - zero`, where the zero point is a code."""
    if codes.zero.op != "constant":
        return 255
    low = -128 if codes.code.dtype is dtypes.INT8 else 0
    zero = int(codes.zero.payload)
    return max(abs(low - zero), abs(low + 255 - zero))
