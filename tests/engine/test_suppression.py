"""NonMaxSuppression against the operator spec, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

_random = np.random.default_rng(14)


def _boxes(batches: int, count: int, centred: int) -> Any:
    """Corners in any order, or centres and sizes."""
    low = _random.random((batches, count, 2)).astype(np.float32)
    size = (_random.random((batches, count, 2)) * 0.4).astype(np.float32)
    if centred:
        return np.concatenate([low, size], -1)
    swapped = _random.random((batches, count, 1)) < 0.5
    high = low + size
    return np.concatenate([np.where(swapped, high, low), np.where(swapped, low, high)], -1)


def _corners(box: Any, centred: int) -> tuple[Any, Any]:
    a, b = box[:2], box[2:]
    return (a - b / 2, a + b / 2) if centred else (np.minimum(a, b), np.maximum(a, b))


def _overlap(one: Any, two: Any, centred: int) -> float:
    (a, b), (c, d) = _corners(one, centred), _corners(two, centred)
    shared = np.prod(np.maximum(np.minimum(b, d) - np.maximum(a, c), 0))
    union = np.prod(b - a) + np.prod(d - c) - shared
    return float(shared / union) if shared > 0 else 0.0


def _expected(feeds: dict[str, Any], centred: int) -> Any:
    found = []
    boxes, scores = feeds["b"], feeds["s"]
    for batch, kind in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for box in np.argsort(-scores[batch, kind], kind="stable"):
            if len(kept) == feeds["m"][0]:
                break
            if "l" in feeds and not scores[batch, kind, box] > feeds["l"][0]:
                break
            limit = feeds["o"][0]
            if all(_overlap(boxes[batch, box], boxes[batch, k], centred) <= limit for k in kept):
                kept.append(box)
        found += [(batch, kind, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


#: Batches, boxes, classes, most of a class.
SIZES = [(1, 10, 1, 3), (2, 50, 3, 20), (1, 120, 2, 300), (1, 0, 1, 3), (1, 5, 2, 0), (0, 5, 2, 4)]


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("scored", [False, True])
def test_boxes_that_are_kept(centred, scored):
    inputs = "float[B,N,4] b, float[B,C,N] s, int64[1] m, float[1] o"
    names = "b, s, m, o"
    if scored:
        inputs, names = f"{inputs}, float[1] l", f"{names}, l"
    text = (
        f"g ({inputs}) => (int64[K,3] y)"
        f" {{ y = NonMaxSuppression <center_point_box = {centred}> ({names}) }}"
    )
    session = sardonyx.InferenceSession(model_of(text, opset=11).SerializeToString())
    for batches, count, classes, most in SIZES:
        feeds = {
            "b": _boxes(batches, count, centred),
            "s": _random.random((batches, classes, count)).astype(np.float32),
            "m": np.array([most]),
            "o": np.array([0.3], np.float32),
        }
        if scored:
            feeds["l"] = np.array([0.4], np.float32)
        (got,) = session.run(None, feeds)
        np.testing.assert_array_equal(got, _expected(feeds, centred))


def test_without_a_number_nothing_is_kept():
    text = "g (float[B,N,4] b, float[B,C,N] s) => (int64[K,3] y) { y = NonMaxSuppression (b, s) }"
    session = sardonyx.InferenceSession(model_of(text, opset=11).SerializeToString())
    scores = np.ones((1, 1, 4), np.float32)
    assert session.run(None, {"b": _boxes(1, 4, 0), "s": scores})[0].shape == (0, 3)


def test_many_boxes_of_many_classes_as_onnxruntime_has_them():
    text = (
        "g (float[B,N,4] b, float[B,C,N] s, int64[1] m, float[1] o, float[1] l) => (int64[K,3] y)"
        " { y = NonMaxSuppression (b, s, m, o, l) }"
    )
    model = model_of(text, opset=11).SerializeToString()
    onnxruntime = pytest.importorskip("onnxruntime")
    session, peer = sardonyx.InferenceSession(model), onnxruntime.InferenceSession(model)
    for least, most, overlap in ((0.9, 40, 0.5), (0.0, 7, 0.1), (0.5, 3000, 0.7), (2.0, 5, 0.5)):
        scores = _random.random((2, 5, 1500)).astype(np.float32)
        scores[:, :, ::3] = scores[:, :, 1::3]  # of equal scores the lower position is better
        feeds = {
            "b": _boxes(2, 1500, 0),
            "s": scores,
            "m": np.array([most]),
            "o": np.array([overlap], np.float32),
            "l": np.array([least], np.float32),
        }
        (mine,), (theirs,) = session.run(None, feeds), peer.run(None, feeds)
        np.testing.assert_array_equal(mine, theirs)


def test_scores_that_are_no_numbers_and_boxes_without_area():
    text = (
        "g (float[1,N,4] b, float[1,1,N] s, int64[1] m, float[1] o, float[1] l) => (int64[K,3] y)"
        " { y = NonMaxSuppression (b, s, m, o, l) }"
    )
    session = sardonyx.InferenceSession(model_of(text, opset=11).SerializeToString())
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]]], np.float32)
    feeds = {
        "b": boxes,
        "s": np.array([[[np.nan, 0.5, 0.75, 0.25]]], np.float32),
        "m": np.array([9]),
        "o": np.array([0.0], np.float32),
        "l": np.array([-1.0], np.float32),
    }
    assert session.run(None, feeds)[0][:, 2].tolist() == [2, 1, 3]


@pytest.mark.parametrize("level", [0, 99])
def test_only_the_number_of_boxes_is_read(level):
    model = model_of(
        "g (float[1,N,4] b, float[1,C,N] s) => (int64[2] y) { k = Constant<value_ints=[10]>()"
        " i = Constant<value_floats=[0.5]>() t = Constant<value_floats=[0.1]>()"
        " q = NonMaxSuppression(b, s, k, i, t) y = Shape(q) }"
    )
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel(level)
    session = sardonyx.InferenceSession(model.SerializeToString(), options)
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 6, 1))
    boxes[0, :3] += 5
    scores = np.full((1, 2, 6), 0.9, np.float32)
    scores[0, 1] = 0.05
    (found,) = session.run(None, {"b": boxes, "s": scores})
    assert found.tolist() == [2, 3]
