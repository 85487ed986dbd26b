"""`load`, `warmup`, `out=` and inner tensors on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

_TEXT = """g (float[N,16] x, float[16,8] w) => (float[N,8] y)
    { a = MatMul(x, w) b = Relu(a) y = Add(b, a) }"""
_RANDOM = np.random.default_rng(6)


def _feeds(rows: int) -> dict[str, Any]:
    return {
        "x": (_RANDOM.integers(-4, 5, (rows, 16)) / 4).astype(np.float32),
        "w": (_RANDOM.integers(-4, 5, (16, 8)) / 4).astype(np.float32),
    }


@pytest.fixture
def session(gpu: FakeDriver | None) -> sardonyx.InferenceSession:
    return sardonyx.load(model_of(_TEXT), device="cuda")


def test_results_in_memory_of_the_caller(session: sardonyx.InferenceSession) -> None:
    session.warmup({"x": (4, 16)})
    there = sardonyx.OrtValue.ortvalue_from_shape_and_type([4, 8], np.float32, "cuda", 0)
    here = np.full((4, 8), 9, np.float32)
    for _ in range(4):
        feeds = _feeds(4)
        product = feeds["x"] @ feeds["w"]
        expected = np.maximum(product, 0) + product
        assert session.run(None, feeds, out=[there])[0] is there
        np.testing.assert_array_equal(there.numpy(), expected)
        assert session.run(["y"], feeds, out=[here])[0] is here
        np.testing.assert_array_equal(here, expected)
    with pytest.raises(errors.InvalidArgument, match="y"):
        session.run(None, _feeds(5), out=[there])


def test_inner_tensors(session: sardonyx.InferenceSession) -> None:
    for rows in (3, 3, 7, 3):
        feeds = _feeds(rows)
        product = feeds["x"] @ feeds["w"]
        b, y, a = session.run(["b", "y", "a"], feeds)
        np.testing.assert_array_equal(a, product)
        np.testing.assert_array_equal(b, np.maximum(product, 0))
        np.testing.assert_array_equal(y, np.maximum(product, 0) + product)
    with pytest.raises(errors.InvalidArgument, match="no output 'q'"):
        session.run(["q"], _feeds(3))
