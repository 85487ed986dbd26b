"""`1 + erf(u)` as `erfc(-u)`: that takes half as many operations, and does not cancel below 0."""

from __future__ import annotations

import math

from sardonyx.base import dtypes
from sardonyx.tensor.scalar import Scalar


def as_complement(x: Scalar) -> tuple[Scalar, float] | None:
    """What to take the complementary error function of: a scalar, and the factor before it.

    None where `x` is not 1 plus an error function of floats. A quotient by a number becomes a
    product: one more rounding of u, which moves `erf(u)` by a quarter of a unit in the last place
    of 1 at most.
    """
    if x.op != "add" or x.dtype is not dtypes.FLOAT:
        return None
    one, erf = sorted(x.arguments, key=lambda part: part.op == "erf")
    if erf.op != "erf" or one.op != "constant" or one.payload != 1:
        return None
    (u,) = erf.arguments
    if u.op == "div" and u.arguments[1].op == "constant":
        argument, divisor = u.arguments
        if divisor.payload and math.isfinite(1 / divisor.payload) and 1 / divisor.payload:
            return _unless_constant(argument, -1 / divisor.payload)
    if u.op == "mul" and "constant" in (u.arguments[0].op, u.arguments[1].op):
        argument, number = sorted(u.arguments, key=lambda part: part.op == "constant")
        return _unless_constant(argument, -number.payload)
    return _unless_constant(u, -1.0)


def _unless_constant(argument: Scalar, factor: float) -> tuple[Scalar, float] | None:
    return None if argument.op == "constant" else (argument, factor)
