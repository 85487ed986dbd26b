"""What tensors read lies inside what they are read from, or becomes a condition."""

import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import InvalidGraph
from sardonyx.tensor import assumptions, scalar
from sardonyx.tensor import language as t
from sardonyx.tensor.inside import assume_inside
from sardonyx.tensor.tensor import buffer

N, M, K = map(sizes.symbol, "NMK")


def floats(*shape):
    return buffer(f"x{shape}", shape, dtypes.FLOAT)


def conditions(make):
    """What is assumed for a tensor's reads, apart from what its lowering says."""
    with assumptions.collect() as found:
        result = make()
        stated = len(found)
        assume_inside(result, "node")
        return list(found)[stated:]


def shifted(x, shape, step):
    return t.compute(shape, lambda i: scalar.load(x, (i + step,)))


PROVEN = {
    "own axes": lambda: floats(N, M) * 2.0,
    "a sum of equal sizes": lambda: floats(N) + floats(M),
    "chains of equal sizes": lambda: floats(N) + floats(M) + floats(K),
    "concatenation": lambda: t.concat([floats(N, 2), floats(M, 2), floats(K, 2)], 0),
    "padding": lambda: t.pad(floats(N, M), (2, 0), (0, 3)),
    "taking away": lambda: t.slice_axis(floats(N), 0, 2, None),
    "every other": lambda: t.slice_axis(floats(N), 0, None, None, 2),
    "flipping": lambda: t.flip(floats(N, 3), 0),
    "reshaping": lambda: t.reshape(floats(N, M, 4), (N * M, 4)),
    "tiling": lambda: t.tile(floats(N, 3), (2, 3)),
    "product": lambda: t.matmul(floats(N, K), floats(K, M)),
    "reduction": lambda: floats(N, M).sum(1),
}


@pytest.mark.parametrize("make", PROVEN.values(), ids=PROVEN)
def test_what_is_proven_costs_nothing(make):
    assert conditions(make) == []


@pytest.mark.parametrize(
    ("make", "good", "bad"),
    [
        (lambda: shifted(floats(M), (N,), 0), {"N": 3, "M": 3}, {"N": 4, "M": 3}),
        (lambda: shifted(floats(M), (N,), 2), {"N": 3, "M": 5}, {"N": 3, "M": 4}),
        (lambda: shifted(floats(M), (N,), -1), {"N": 0, "M": 3}, {"N": 3, "M": 3}),
        (lambda: shifted(floats(M), (N,), 0), {"N": 0, "M": 0}, {"N": 1, "M": 0}),
        (lambda: t.compute((), lambda: floats(N)[0]), {"N": 1}, {"N": 0}),
        (
            lambda: t.gather(floats(N, 2), buffer("i", (M,), dtypes.INT64)),
            {"N": 0, "M": 0},
            {"N": 0, "M": 1},
        ),
        (
            lambda: t.compute(
                (N, M), lambda i, j: scalar.load(floats(K), (integer.floordiv(i, M),))
            ),
            {"N": 4, "M": 2, "K": 2},
            {"N": 5, "M": 2, "K": 2},
        ),
    ],
)
def test_what_is_not_becomes_a_condition(make, good, bad):
    found = conditions(make)
    assert found
    for sizes_given, holds in ((good, True), (bad, False)):
        values = [
            sizes.evaluate(a, sizes_given) == sizes.evaluate(b, sizes_given) for a, b in found
        ]
        assert all(values) is holds


def test_a_choice_by_position_is_a_proof_only_of_that_position():
    x, y = floats(N, M), floats(K)

    def body(i, j):
        first = scalar.compare("lt", scalar.size(j), scalar.size(K))
        return scalar.select(first, scalar.load(y, (j,)), scalar.load(x, (i, j)))

    assert conditions(lambda: t.compute((N, M), body)) == []
    (condition, _), *rest = conditions(lambda: t.compute((N + 1, M), body))
    assert not rest
    assert sizes.evaluate(condition, {"N": 3, "M": 1, "K": 1}) == 1


def test_what_is_outside_for_certain_is_refused():
    with pytest.raises(InvalidGraph, match=r"node.*leaves an axis of size 3"):
        assume_inside(shifted(floats(3), (4,), 0), "node")
