"""What is rounded to codes: scales that are literals become one number, as float32 gives it."""

import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.plan.requantise import requantised
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import buffer

F = np.float32
SUMS = load(buffer("sums", (), dtypes.INT32), ())


def factors(x: scalar.Scalar) -> list[scalar.Scalar]:
    """What sums are multiplied with anywhere in an expression."""
    own = [x.arguments[1]] if x.op in ("mul", "fma") and x.arguments[0].op == "cast" else []
    return [*own, *(f for a in x.arguments for f in factors(a))]


@pytest.mark.parametrize(
    "own, other, result",
    [(0.02, 0.002, 0.03), (0.0173, 0.00091, 0.131), (3e-20, 3e-20, 0.1), (1.0, 1.0, 1.0)],
)
def test_scales_of_a_convolution_are_one_number(own, other, result):
    own, other, result = map(F, (own, other, result))
    x, w, y = (scalar.constant(float(v), dtypes.FLOAT) for v in (own, other, result))
    number = scalar.cast(SUMS, dtypes.FLOAT) * (x * w / y)
    code = scalar.cast(scalar.unary("round", number), dtypes.UINT8)
    found = set(factors(requantised(code)))
    expected = float(own * other / result)
    assert {f.payload for f in found} == ({expected} if expected not in (0.0, 1.0) else set())
    assert all(f.op == "constant" for f in found)


@pytest.mark.parametrize("own, other, result", [(3e30, 3e30, 0.1), (1.0, 1.0, 0.0)])
def test_what_float32_does_not_hold_stays_an_expression(own, other, result):
    x, w, y = (scalar.constant(v, dtypes.FLOAT) for v in (own, other, result))
    number = scalar.cast(SUMS, dtypes.FLOAT) * (x * w / y)
    code = scalar.cast(scalar.unary("round", number), dtypes.UINT8)
    assert any(f.op != "constant" for f in factors(requantised(code)))
