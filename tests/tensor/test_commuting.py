import pytest

from sardonyx.base import dtypes, sizes
from sardonyx.tensor import scalar
from sardonyx.tensor.commuting import Commuting
from sardonyx.tensor.scalar import binary, constant, load, select, unary
from sardonyx.tensor.tensor import buffer, indices

SHAPE = (sizes.symbol("rows"), sizes.symbol("columns"))
ROW, COLUMN = indices(SHAPE)


def matrix(name, dtype=dtypes.FLOAT):
    return load(buffer(name, SHAPE, dtype), (ROW, COLUMN))


SUM, X, Y = matrix("sum"), matrix("x"), matrix("y")
BIAS = load(buffer("bias", SHAPE[1:], dtypes.FLOAT), (COLUMN,))
HALF = constant(0.5, dtypes.FLOAT)
WHOLE, BITS = matrix("whole", dtypes.INT32), matrix("bits", dtypes.INT32)

# What is written in two ways, and the one that both become.
EQUAL = {
    "bias": (BIAS + SUM, SUM + BIAS),
    "residual": (X + (SUM + BIAS), (SUM + BIAS) + X),
    "residual and bias": (X + (BIAS + SUM), (SUM + BIAS) + X),
    "sum first": (X + SUM, SUM + X),
    "factor": (HALF * X, X * HALF),
    "gate": (BIAS * unary("sigmoid", X), unary("sigmoid", X) * BIAS),
    "inside": (
        binary("max", X + (SUM + BIAS), constant(0.0, dtypes.FLOAT)),
        binary("max", (SUM + BIAS) + X, constant(0.0, dtypes.FLOAT)),
    ),
    "chosen": (select(X < Y, BIAS + X, Y), select(X < Y, X + BIAS, Y)),
}
SAME = {
    "associated otherwise": (SUM + X) + BIAS,
    "equal weights": Y + X,
    "difference": BIAS - SUM,
    "quotient": BIAS / SUM,
    "maximum": binary("max", HALF, X),
    "whole numbers": scalar.cast(BIAS, dtypes.INT32) + (WHOLE + BITS),
    "load": X,
    "number": HALF,
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_commutes_is_in_one_order(name):
    written, wanted = EQUAL[name]
    assert written is not wanted
    assert Commuting(SUM).ordered(written) is wanted
    assert Commuting(SUM).ordered(wanted) is wanted


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_commute_stays(name):
    assert Commuting(SUM).ordered(SAME[name]) is SAME[name]


def test_shared_parts_are_visited_once():
    x = X
    for _ in range(100):
        x = BIAS + x * x
    made = Commuting().ordered(x)
    assert made.arguments[1] is BIAS
    assert made.arguments[0].op == "mul"
