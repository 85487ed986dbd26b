"""Sizes that only feeds bring: zeros, broadcasts, names that the feeds contradict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import check, model_of

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


NO_INDICES = np.zeros(0, np.int64)
#: What it is, the model's text, weights, feeds for one session.
CASES: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "products without rows, columns, terms",
        """g (float[n,k] x, float[k,m] w) => (float[] y, float[] z, float[] a) {
        y = MatMul(x, w) z = ReduceSum(y) a = Softmax(y) }""",
        {},
        [
            {"x": ones(a, b), "w": ones(b, c)}
            for a, b, c in [(0, 3, 4), (2, 3, 0), (0, 3, 0), (2, 0, 4), (2, 3, 4), (0, 0, 0)]
        ],
    ),
    (
        "a convolution of nothing",
        """g (float[n,2,5,w] x) => (float[] y) {
        y = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, c) }""",
        {"c": ones(4, 2, 3, 3)},
        [{"x": ones(0, 2, 5, 5)}, {"x": ones(1, 2, 5, 4)}],
    ),
    (
        "gathered, joined, reduced",
        """g (float[n,3] x, int64[k] i) => (float[] y, float[] z, float[] s, float[] m) {
        y = Gather(x, i) z = Concat <axis = 0> (x, y) s = ReduceSum <keepdims = 0> (z, c)
        m = Transpose(z) }""",
        {"c": np.int64([0])},
        [
            {"x": ones(4, 3), "i": NO_INDICES},
            {"x": ones(0, 3), "i": NO_INDICES},
            {"x": ones(4, 3), "i": np.int64([1, 3])},
        ],
    ),
    (
        "broadcasts that the feeds decide",
        "g (float[n,3] x, float[m,3] w) => (float[] y) { z = Add(x, w) y = Mul(z, x) }",
        {},
        [
            {"x": ones(a, 3), "w": ones(b, 3)}
            for a, b in [(2, 2), (2, 1), (1, 4), (1, 1), (0, 1), (1, 0), (3, 3)]
        ],
    ),
    (
        "one name for sizes that differ",
        "g (float[n,n] x, float[n] w) => (float[] y) { y = Add(x, w) }",
        {},
        [
            {"x": ones(a, b), "w": ones(c)}
            for a, b, c in [(2, 2, 2), (4, 3, 3), (4, 3, 1), (0, 3, 3), (1, 1, 5)]
        ],
    ),
    (
        "a weight that one size alone fits, or 1",
        "g (float[n,3] x) => (float[] y) { y = Add(x, w) }",
        {"w": ones(2, 3)},
        [{"x": ones(2, 3)}, {"x": ones(1, 3)}],
    ),
    (
        "of two sizes that always differ one is 1",
        """g (float[n] x) => (float[] y, float[] z) {
        first = Slice(x, zero, one) longer = Concat<axis = 0>(first, pair, x, x)
        y = Mul(first, longer) again = Concat<axis = 0>(longer, w) z = Mul(w, again) }""",
        {"zero": [0], "one": [1], "pair": ones(2), "w": ones(1)},
        [{"x": ones(4)}, {"x": ones(1)}],
    ),
    (
        "sizes that differ by one, one of them 1",
        """g (float[n] x) => (float[] y) { longer = Concat<axis = 0>(x, w) y = Add(longer, x) }""",
        {"w": ones(1)},
        [{"x": ones(1)}, {"x": ones(0)}],
    ),
    (
        "what one broadcast was taken for, a product takes for granted",
        """g (float[n] x, int64[1] s) => (float[] y) {
        last = Slice(x, begin, end) every = Expand(last, s) y = MatMul(x, every) }""",
        {"begin": [-2], "end": [-1]},
        [{"x": ones(n), "s": np.array([n])} for n in (2, 5, 9)],
    ),
]


@pytest.mark.parametrize(("name", "text", "weights", "feeds"), CASES, ids=[c[0] for c in CASES])
def test_every_size(name: str, text: str, weights: Any, feeds: list[Any]) -> None:
    check(model_of(text, weights), feeds)


@pytest.mark.parametrize(("number", "shape"), [(3, (2, 3)), (5, (5, 3))])
def test_sizes_that_do_not_fit(number: int, shape: tuple[int, ...]) -> None:
    _, text, weights, feeds = CASES[number]
    session = check(model_of(text, weights), feeds[:1])
    wrong = {**feeds[0], "x": ones(*shape)}
    if number == 3:
        wrong["w"] = ones(4, 3)
    with pytest.raises(errors.InvalidArgument, match="broadcast: The sizes of an axis do not fit"):
        session.run(None, wrong)


@pytest.mark.parametrize("trips", [0, 2])
def test_slices_of_no_rows_that_a_loop_gives(trips: int) -> None:
    text = """g (float[n,n] x, int64 trips) => (float[] y, float[] z) {
        y, z = Loop <body = b (int64 i, bool c, float[k,l] v) => (bool d, float[] w, float[] r) {
            d = Identity(c) w = Neg(v) r = Slice(w, one, end) }> (trips, "", x) }"""
    model = model_of(text, {"one": np.array([1]), "end": np.array([9])})
    session = sardonyx.InferenceSession(model.SerializeToString())
    for n in (3, 1, 0):  # a plan may take it that the first row is there
        x = np.arange(n * n, dtype=np.float32).reshape(n, n)
        y, z = session.run(None, {"x": x, "trips": np.array(trips)})
        np.testing.assert_array_equal(y, x)
        rows = max(n - 1, 0)
        np.testing.assert_array_equal(z, np.stack([-x[1:], x[1:]])[:trips].reshape(trips, rows, n))


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_no_position_along_no_elements(operator: str) -> None:
    model = model_of(f"g (float[n,m] x) => (int64[] y) {{ y = {operator}<axis = 1>(x) }}")
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert session.run(None, {"x": ones(0, 0)})[0].shape == (0, 1)
    with pytest.raises(errors.InvalidArgument, match=f"{operator}: Axis 1 has no elements"):
        session.run(None, {"x": ones(2, 0)})


def test_a_number_of_axes_that_only_a_run_knows() -> None:
    # A list that is fed comes with its length: see test_deciding_inputs. This one is computed.
    model = model_of(
        "g (float[n] x) => (float[] y) { i = NonZero(x) s = Squeeze(i, zero) y = Reshape(x, s) }",
        {"zero": np.array([0])},
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape, count in (((2, 3), 6), ((1, 2, 3), 6), ((2, 4), 8)):
        x = np.isin(np.arange(count), shape).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.reshape(shape))
