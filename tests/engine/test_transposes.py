"""Transpositions, and maps of what lies along another axis: squares transposed in registers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

_random = np.random.default_rng(21)
_TYPES = {
    "float": np.float32,
    "double": np.float64,
    "int64": np.int64,
    "uint8": np.uint8,
    "float16": np.float16,
    "bool": np.bool_,
}
#: Around whole squares of 4, 8 and 16 lanes, with rests on either side, and nothing at all.
_SHAPES = [(16, 16), (37, 53), (17, 16), (16, 33), (15, 40), (0, 20), (2, 19, 33, 18)]


def _session(text: str, weights: Any = None) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model_of(f"graph {text}", weights, 17).SerializeToString())


def _orders(rank: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(rank)))


#: The last axis stays, changes place with another one, or goes to the front.
_SOME_ORDERS = [(1, 0), (2, 1, 0, 3), (0, 1, 3, 2), (0, 2, 3, 1), (3, 0, 1, 2), (3, 2, 1, 0)]


@pytest.mark.parametrize("name", _TYPES)
def test_every_order(name: str) -> None:
    """All of them for elements of four bytes; the others' squares differ in their sizes alone."""
    for rank in (2, 4):
        for order in _orders(rank):
            if name != "float" and order not in _SOME_ORDERS:
                continue
            dims = ",".join("ABCD"[:rank])
            text = f"({name}[{dims}] x) => ({name}[{','.join('ABCD'[k] for k in order)}] y)"
            session = _session(
                f"{text} {{ y = Transpose<perm = [{','.join(map(str, order))}]>(x) }}"
            )
            for shape in (s for s in _SHAPES if len(s) == rank):
                x = (_random.standard_normal(shape) * 50).astype(_TYPES[name])
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.transpose(order))


@pytest.mark.parametrize("shape", [s for s in _SHAPES if len(s) == 2])
def test_what_is_computed_on_the_way(shape: tuple[int, int]) -> None:
    """Two tensors that lie apart, one that does not, and one under a condition."""
    a, b = shape
    text = f"(float[{b},{a}] x, float[{b},{a}] z, float[{a},{b}] w) => (float[{a},{b}] y)"
    session = _session(
        text + " { u = Transpose(x) v = Transpose(z) s = Mul(u, v) c = Less(s, w)"
        " t = Where(c, u, w) y = Sub(t, s) }"
    )
    x, z = (_random.standard_normal((b, a)).astype(np.float32) for _ in range(2))
    w = _random.standard_normal(shape).astype(np.float32)
    product = x.T * z.T
    want = np.where(product < w, x.T, w) - product
    np.testing.assert_array_equal(session.run(None, {"x": x, "z": z, "w": w})[0], want)
