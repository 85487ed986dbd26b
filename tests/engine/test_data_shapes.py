"""Shapes that depend on data: each model runs at several of them in one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.llvm import compile
from tests.support.session import check, model_of

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

_random = np.random.default_rng(3)


def _floats(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def _holes(*shape: int) -> Any:
    return np.where(_random.random(shape) < 0.5, 0, _floats(*shape)).astype(np.float32)


_HOLED = [{"x": _holes(*s)} for s in ((3, 4), (1, 1), (0, 4), (50, 70), (3, 4))]
_ONES = [{"x": np.ones((3, 4), np.float32)}, {"x": np.zeros((3, 4), np.float32)}]

#: Graph, feeds.
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "positions": ("(float[N,M] x) => (int64[A,B] y) { y = NonZero(x) }", _HOLED + _ONES),
    "positions of bools": (
        "(bool[N] x) => (int64[A,B] y) { y = NonZero(x) }",
        [{"x": _random.random(n) < 0.5} for n in (9, 0, 64)],
    ),
    "positions of positions": (
        "(float[N,M] x) => (int64[A,B] y, int64[C,D] j)"
        " { i = NonZero(x) j = NonZero(i) y = NonZero(j) }",
        _HOLED,
    ),
    "what is there": (
        "(float[N,M] x) => (float[A] y, float s)"
        " { i = NonZero(x) j = Transpose(i) y = GatherND(x, j) s = ReduceSum<keepdims=0>(y) }",
        _HOLED + _ONES,
    ),
    "compressed": (
        "(float[N,M] x) => (float[A] y) { zero = Constant<value_float=0.0>()"
        " c = Greater(x, zero) s = Constant<value_ints=[-1]>() q = Reshape(c, s)"
        " z = Compress(x, q) y = Mul(z, z) }",
        _HOLED,
    ),
    "compressed along an axis, short condition": (
        "(float[N,M] x, bool[K] c) => (float[A,M] y) { z = Compress<axis=0>(x, c) y = Neg(z) }",
        [{"x": _floats(5, 3), "c": _random.random(n) < 0.5} for n in (5, 2, 0)],
    ),
    "reshaped": (
        "(float[N,M] x, int64[2] s) => (float[A,B] y) { z = Reshape(x, s) y = Relu(z) }",
        [
            {"x": _floats(4, 6), "s": np.array(s)}
            for s in ([24, 1], [-1, 3], [0, -1], [6, 4], [2, 12], [0, 6])
        ],
    ),
    "reshaped, some of it known": (
        "(float[N,6] x, int64[1] k) => (float[A,2,B] y) { two = Constant<value_ints=[2]>()"
        " rest = Constant<value_ints=[-1]>() s = Concat<axis=0>(k, two, rest)"
        " z = Reshape(x, s) y = Softmax(z) }",
        [{"x": _floats(4, 6), "k": np.array([k])} for k in (4, 1, 12, 2)],
    ),
    "a slice of what is always empty": (
        "(float[N] x) => (float[A] y, float[B] z) { s = Slice(x, from, to) e = Slice(s, last, far)"
        " t = Concat<axis=0>(pair, e) y, z = Split<axis=0>(t, lengths) }",
        [{"x": _floats(n)} for n in (5, 9, 40)],
    ),
    "a size that can only be 1 is broadcast": (
        "(float[K] x) => (float[A] y) { z = MatMul(x, row) y = Add(z, x) }",
        [{"x": _floats(1)}],
    ),
    "positions in what a model knows": (
        "(float[N] x) => (int64[A,B] y, float[N] z) { low = Constant<value_int=0>()"
        " high = Constant<value_int=7>() step = Constant<value_int=2>()"
        " k = Constant<value_ints=[2]>() r = Range(low, high, step)"
        " v, i = TopK<axis=0, largest=0>(r, k) y = NonZero(v) z = Neg(x) }",
        [{"x": _floats(3)}],
    ),
    "range": (
        "(int64 a, int64 b, int64 c) => (int64[A] y) { y = Range(a, b, c) }",
        [
            dict(zip("abc", map(np.array, bounds), strict=True))
            for bounds in ((0, 10, 3), (10, 0, -3), (5, 5, 1), (-7, 20, 4), (0, 9, 3), (3, 0, 1))
        ],
    ),
    "range of floats": (
        "(float a, float b, float c) => (float[A] y) { y = Range(a, b, c) }",
        [
            dict(zip("abc", map(np.float32, bounds), strict=True))
            for bounds in ((0, 10, 3), (10, 0, -0.5), (5, 5, 1))
        ],
    ),
    "expanded": (
        "(float[N,1] x, int64[2] s) => (float[A,B] y) { z = Expand(x, s) y = Add(z, z) }",
        [{"x": _floats(4, 1), "s": np.array(s)} for s in ([4, 5], [1, 7], [4, 1], [4, 0])],
    ),
    "filled": (
        "(int64[3] s) => (float[A,B,C] y)"
        " { z = ConstantOfShape<value = float[1] {2.5}>(s) y = Add(z, z) }",
        [{"s": np.array(s)} for s in ([4, 5, 2], [1, 7, 0], [1, 1, 1])],
    ),
    "sliced": (
        "(float[N,M] x, int64[2] a, int64[2] b) => (float[A,B] y)"
        " { z = Slice(x, a, b) y = Neg(z) }",
        [
            {"x": _floats(5, 6), "a": np.array(a), "b": np.array(b)}
            for a, b in (
                ([0, 1], [3, 4]),
                ([-2, -3], [-1, 100]),
                ([3, 2], [1, 4]),
                ([0, 0], [-1, -1]),
                ([-100, 0], [2, 2]),
            )
        ],
    ),
    "ends of what is there": (
        "(float[N] x, bool[N] m) => (float[A] a, float[B] b, float[C] c, float[D] d)"
        " { z = Compress(x, m) o = Constant<value_ints = [0]>() i = Constant<value_ints = [1]>()"
        " l = Constant<value_ints = [-1]>() e = Constant<value_ints = [1000]>()"
        " a = Slice(z, i, e) b = Slice(z, o, l) c = Slice(z, l, e) d = Slice(z, o, i) }",
        [{"x": _floats(n), "m": _random.random(n) < p} for n in (1, 8) for p in (0, 0.5, 1)],
    ),
    "sliced, and the size of the slice beside what it begins with": (
        "(float[N,M] x, int64[1] a) => (float[A,M] y, float[B,C] z) {"
        " none = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()"
        " far = Constant<value_ints = [1000]>()"
        " both = Concat<axis = 0>(a, none) first = ReduceMax<keepdims = 0>(both)"
        " start = Unsqueeze(first, none) y = Slice(x, start, far, none)"
        " all = Shape(y) length = Slice(all, none, one) s = Concat<axis = 0>(start, length)"
        " z = ConstantOfShape<value = float[1] {2.5}>(s) }",
        [{"x": _floats(5, 6), "a": np.array([a])} for a in (3, -2, 0, 9)],
    ),
    "tiled": (
        "(float[N,2] x, int64[2] r) => (float[A,B] y) { y = Tile(x, r) }",
        [{"x": _floats(3, 2), "r": np.array(r)} for r in ([1, 2], [3, 1], [0, 2])],
    ),
    "the largest": (
        "(float[N,M] x, int64[1] k) => (float[A,B] v, int64[C,D] i) { v, i = TopK(x, k) }",
        [{"x": _floats(3, 9), "k": np.array([k])} for k in (1, 4, 9)],
    ),
    "sums of none of the largest, as a matrix without columns": (
        "(float[N,M,3] x, int64[1] k, int64[1] n) => (int64[1,1] y) {"
        " none = Constant<value_ints = [0]>()"
        " v, i = TopK(x, k) s = Concat<axis=0>(n, none) r = Reshape<allowzero=1>(i, s)"
        " y = ReduceL1<axes = [0, 1]>(r) }",
        [{"x": _floats(n, 2, 3), "k": np.array([0]), "n": np.array([n])} for n in (3, 70)],
    ),
    "split": (
        "(float[N,3] x, int64[2] k) => (float[A,B] a, float[C,D] z)"
        " { a, b = Split<axis=0>(x, k) z = Neg(b) }",
        [{"x": _floats(5, 3), "k": np.array(k)} for k in ([1, 4], [5, 0], [2, 3])],
    ),
    "padded": (
        "(float[N,3] x, int64[4] p) => (float[A,B] y) { y = Pad(x, p) }",
        [{"x": _floats(5, 3), "p": np.array(p)} for p in ([1, 1, 1, 1], [0, 2, 3, 0])],
    ),
    "a product with weights": (
        "(float[N,8] x) => (float[A,5] y) { s = ReduceSum<keepdims=0>(x, one) z = Relu(s)"
        " i = NonZero(z) r = Squeeze(i) g = Gather(x, r) y = MatMul(g, w) }",
        [{"x": _floats(n, 8)} for n in (40, 9, 70)],
    ),
}
_WEIGHTS = {
    "a product with weights": {"w": _floats(8, 5), "one": np.array([1])},
    "a size that can only be 1 is broadcast": {"row": _floats(1, 2)},
    # What is sliced has elements only where N is below 5, which the plan takes for granted.
    "a slice of what is always empty": {
        "from": np.array([-3]),
        "to": np.array([2]),
        "last": np.array([-1]),
        "far": np.array([1 << 40]),
        "pair": _floats(2),
        "lengths": np.array([2, 0]),
    },
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_from_data(name):
    text, feeds = CASES[name]
    check(model_of(f"g {text}", _WEIGHTS.get(name)), feeds)


#: Graph, feeds, words of the error.
REFUSED = {
    "a negative size": (
        "(int64[2] s) => (float[A,B] y) { y = ConstantOfShape(s) }",
        {"s": np.array([-3, 2])},
        ["ConstantOfShape", "-3"],
    ),
    "too many elements": (
        "(int64[2] s) => (float[A,B] y) { y = ConstantOfShape(s) }",
        {"s": np.array([1 << 40, 1 << 40])},
        ["too large"],
    ),
    "a shape that does not fit": (
        "(float[N] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }",
        {"x": np.zeros(7, np.float32), "s": np.array([2, 4])},
        ["Expected 7"],
    ),
    "more than there is": (
        "(float[N] x, int64[1] k) => (float[A] v, int64[B] i) { v, i = TopK(x, k) }",
        {"x": np.zeros(7, np.float32), "k": np.array([8])},
        ["TopK", "8"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_sizes_are_refused_and_the_session_goes_on(name):
    text, feeds, words = REFUSED[name]
    session = sardonyx.InferenceSession(model_of(f"g {text}").SerializeToString())
    for _ in range(2):
        with pytest.raises(Exception) as error:
            session.run(None, feeds)
        assert type(error.value).__module__.startswith("sardonyx")
        assert all(word in str(error.value) for word in words), str(error.value)


def test_nothing_is_compiled_for_a_new_size_and_memory_stays():
    text = CASES["what is there"][0]
    session = sardonyx.InferenceSession(model_of(f"g {text}").SerializeToString())
    session.run(None, {"x": _holes(200, 200)})
    compiled, held = compile.COUNTS["modules"], session.memory()["intermediate_bytes"]
    for _ in range(200):
        session.run(None, {"x": _holes(*_random.integers(0, 150, 2))})
    assert compile.COUNTS["modules"] == compiled
    assert session.memory()["intermediate_bytes"] == held
