"""Which sums are complementary error functions."""

import pytest

from sardonyx.base import dtypes
from sardonyx.kernel.expressions.error_functions import as_complement
from sardonyx.tensor import scalar
from sardonyx.tensor.tensor import buffer

X = scalar.make_load(buffer("x", (), dtypes.FLOAT), ())
Y = scalar.make_load(buffer("y", (), dtypes.FLOAT), ())
WIDE = scalar.make_load(buffer("z", (), dtypes.DOUBLE), ())
HALF = scalar.make_load(buffer("h", (), dtypes.FLOAT16), ())


def number(value, dtype=dtypes.FLOAT):
    return scalar.constant(value, dtype)


def node(op, *arguments):
    return scalar.make_node(op, arguments[0].dtype, arguments)


def one_plus(u):
    return node("add", node("erf", u), number(1.0, u.dtype))


CASES = {
    "quotient": (one_plus(node("div", X, number(2.0))), (X, -0.5)),
    "product": (one_plus(node("mul", X, number(0.25))), (X, -0.25)),
    "product turned round": (one_plus(node("mul", number(0.25), X)), (X, -0.25)),
    "number first": (node("add", number(1.0), node("erf", X)), (X, -1.0)),
    "quotient by a value": (one_plus(node("div", X, Y)), (node("div", X, Y), -1.0)),
    "quotient by 0": (
        one_plus(node("div", X, number(0.0))), (node("div", X, number(0.0)), -1.0),
    ),
    "another number": (node("add", node("erf", X), number(2.0)), None),
    "another function": (node("add", node("exp", X), number(1.0)), None),
    "a value": (node("add", node("erf", X), Y), None),
    "difference": (node("sub", node("erf", X), number(1.0)), None),
    "double": (one_plus(WIDE), None),
    "half": (one_plus(HALF), None),
    "of a number": (one_plus(number(0.5)), None),
}  # fmt: skip


@pytest.mark.parametrize(("sum_", "wanted"), CASES.values(), ids=CASES)
def test_as_complement(sum_, wanted):
    assert as_complement(sum_) == wanted
