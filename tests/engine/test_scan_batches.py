"""Scan of version 8: batches of sequences, each of its own length, against a loop in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import SardonyxError
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

_random = np.random.default_rng(8)
_W = (_random.standard_normal((3, 3)) / 2).astype(np.float32)


def _floats(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def _model(lengths: bool, directions: tuple[int, int]) -> Any:
    inputs = "float[B,3] h, float[B,T,3] x, float[B,T] q" + (", int64[B] n" if lengths else "")
    text = (
        f"g ({inputs}) => (float[B,3] last, float[B,T,3] y, float[B,T] z) {{"
        f" last, y, z = Scan<num_scan_inputs = 2, directions = [{directions[0]}, {directions[1]}],"
        " body = b (float[3] s, float[3] a, float k) => (float[3] t, float[3] o, float p) {"
        " r = Reshape(s, row) m = MatMul(r, w) v = Reshape(m, flat) u = Mul(a, k)"
        " e = Add(v, u) t = Tanh(e) o = Mul(t, a) p = ReduceSum<keepdims = 0>(t) }>"
        f" ({'n' if lengths else ''}, h, x, q) }}"
    )
    return model_of(text, {"w": _W, "row": np.array([1, 3]), "flat": np.array([3])}, opset=8)


def _expected(feeds: dict[str, Any], directions: tuple[int, int]) -> list[Any]:
    state, x, q = feeds["h"].copy(), feeds["x"], feeds["q"]
    batches, steps = q.shape
    y, z = np.zeros_like(x), np.zeros_like(q)
    for b in range(batches):
        length = int(feeds["n"][b]) if "n" in feeds else steps
        for t in range(length):
            at_x, at_q = (length - 1 - t if back else t for back in directions)
            state[b] = np.tanh(state[b] @ _W + x[b, at_x] * q[b, at_q])
            y[b, t], z[b, t] = state[b] * x[b, at_x], state[b].sum()
    return [state, y, z]


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_batches(lengths: bool, directions: tuple[int, int]) -> None:
    model = _model(lengths, directions)
    session = sardonyx.InferenceSession(model.SerializeToString())
    onnxruntime = pytest.importorskip("onnxruntime")
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    for batches, steps in ((2, 5), (1, 1), (3, 4), (4, 7), (2, 5)):
        feeds = {"h": _floats(batches, 3), "x": _floats(batches, steps, 3)}
        feeds["q"] = _floats(batches, steps)
        if lengths:
            feeds["n"] = _random.integers(1, steps + 1, batches)
        got = session.run(None, feeds)
        references = zip(_expected(feeds, directions), peer.run(None, feeds), strict=True)
        for mine, (exact, theirs) in zip(got, references, strict=True):
            assert_near(mine, exact, "float: functions near zero")
            assert_near(mine, theirs, "float: functions near zero")


def test_sequences_without_steps_keep_their_state() -> None:
    session = sardonyx.InferenceSession(_model(True, (0, 1)).SerializeToString())
    for batches, steps in ((2, 0), (2, 3), (0, 3)):
        feeds = {"h": _floats(batches, 3), "x": _floats(batches, steps, 3)}
        feeds |= {"q": _floats(batches, steps), "n": np.zeros(batches, np.int64)}
        last, y, z = session.run(None, feeds)
        np.testing.assert_array_equal(last, feeds["h"])
        assert (y.shape, z.shape) == ((batches, steps, 3), (batches, steps))
        assert not y.any()
        assert not z.any()


@pytest.mark.parametrize("directions", [(0, 0), (1, 0)])
@pytest.mark.parametrize("bad", [5, -1])
def test_lengths_that_are_refused(directions: tuple[int, int], bad: int) -> None:
    session = sardonyx.InferenceSession(_model(True, directions).SerializeToString())
    feeds = {"h": _floats(2, 3), "x": _floats(2, 4, 3), "q": _floats(2, 4)}
    with pytest.raises(SardonyxError, match=f"sequence_lens.*Expected 0 to 4, got {bad}"):
        session.run(None, {**feeds, "n": np.array([2, bad])})
    right = {**feeds, "n": np.array([4, 3])}
    for mine, theirs in zip(session.run(None, right), _expected(right, directions), strict=True):
        assert_near(mine, theirs, "float: functions near zero")
