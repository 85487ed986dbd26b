"""Squeeze without axes where only a run knows which sizes are 1: a plan for each choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import InvalidArgument
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

_random = np.random.default_rng(2)


def _floats(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def test_sizes_of_feeds() -> None:
    text = "g (float[A,B,1,C] x) => (float[...] y, int64[R] s)"
    text = text.replace("float[...] y", "float[P,Q] y")
    model = model_of(text + " { z = Squeeze(x) y = Relu(z) s = Shape(z) }", opset=13)
    shapes = [(2, 3, 1, 4), (1, 3, 1, 4), (2, 1, 1, 4), (1, 1, 1, 1), (5, 6, 1, 7), (1, 2, 1, 2)]
    session = check(model, [{"x": _floats(*s)} for s in (*shapes, *shapes)])
    assert len(inspect(session).variants) == 2  # by what the first plan meets first


def test_sizes_that_are_worked_out_and_measured() -> None:
    text = "g (float[A,6] x, int64[2] s) => (float[P,Q] y) { r = Reshape(x, s) q = Squeeze(r)"
    model = model_of(text + " c = Cos(q) y = Neg(c) }", opset=13)
    shapes = ((2, 12), (1, 24), (24, 1), (4, 6), (1, 24))
    check(model, [{"x": _floats(4, 6), "s": np.array(s)} for s in shapes])
    text = "g (float[N,4] x) => (float[P,4] y) { i = NonZero(x) q = Squeeze(i) d = Add(q, q)"
    model = model_of(text + " y = Cast<to = 1>(d) }", opset=13)
    feeds = [np.zeros((3, 4), np.float32) for _ in range(3)]
    feeds[0][1, 2] = 1
    feeds[1][1:, 2] = 1
    check(model, [{"x": f} for f in (*feeds, feeds[0])])


def test_what_a_model_cannot_take_says_why() -> None:
    text = "g (float[A,3] x, float[3,2] w) => (float[P,2] y) { z = Squeeze(x) y = Gemm(z, w) }"
    session = sardonyx.InferenceSession(model_of(text, opset=13).SerializeToString())
    w = _floats(3, 2)
    with pytest.raises(InvalidArgument, match="The model cannot take feeds for which"):
        session.run(None, {"x": _floats(1, 3), "w": w})
    x = _floats(4, 3)
    assert_near(session.run(None, {"x": x, "w": w})[0], x @ w, "float: functions")
