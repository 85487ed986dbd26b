"""Bounds of slices that are negatives of sizes: `x[:, -length:]`, as in decoders' biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from tests.support.session import model_of

RANDOM = np.random.default_rng(4)

_LENGTH = (
    " one = Constant<value_ints=[1]>() last = Constant<value_ints=[9223372036854775807]>()"
    " zero = Constant<value_ints=[0]>() s = Shape<start=1, end=2>(t) n = Neg(s)"
)
#: Name -> nodes that give y from x: (A, B) and t: (C, L), and what that is in NumPy.
SLICES: dict[str, tuple[str, Any]] = {
    "the last": ("y = Slice(x, n, last, one)", lambda x, length: x[:, -length:]),
    "all but the last": ("y = Slice(x, zero, n, one)", lambda x, length: x[:, :-length]),
    "the last, and one more": (
        "m = Sub(n, one) y = Slice(x, m, last, one)",
        lambda x, length: x[:, -length - 1 :],
    ),
    "of both axes": (
        "b = Concat<axis=0>(n, n) e = Concat<axis=0>(last, last) a = Concat<axis=0>(zero, one)"
        " y = Slice(x, b, e, a)",
        lambda x, length: x[-length:, -length:],
    ),
}


@pytest.mark.parametrize("name", SLICES)
def test_values(name: str) -> None:
    nodes, wanted = SLICES[name]
    text = f"g (float[A, B] x, float[C, L] t) => (float[P, Q] y) {{ {_LENGTH} {nodes} }}"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    x = RANDOM.standard_normal((5, 7)).astype(np.float32)
    for length in (1, 3, 5, 7, 9):
        t = np.zeros((2, length), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "t": t})[0], wanted(x, length))
    assert not inspect(session).variants, "the plan that a session begins with takes every length"
    t = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "t": t})[0], wanted(x, 0))


def test_a_bias_of_relative_positions() -> None:
    """The last rows of a table of positions, as many as there are queries: all of them."""
    text = (
        "g (int64[B, L] ids) => (float[L, M] y) {"
        " zero = Constant<value_int=0>() one = Constant<value_int=1>()"
        " first = Constant<value_ints=[0]>() last = Constant<value_ints=[9223372036854775807]>()"
        " s = Shape<start=1, end=2>(ids) k = Squeeze(s) r = Range(zero, k, one)"
        " c = Unsqueeze(r, first) d = Constant<value_ints=[1]>() q = Unsqueeze(r, d)"
        " p = Sub(c, q) f = Cast<to=1>(p) n = Neg(s) y = Slice(f, n, last, first) }"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    for length in (1, 4, 6):
        at = np.arange(length)
        (got,) = session.run(None, {"ids": np.zeros((2, length), np.int64)})
        np.testing.assert_array_equal(got, (at - at[:, None]).astype(np.float32))
    assert not inspect(session).variants
