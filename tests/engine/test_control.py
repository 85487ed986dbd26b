"""Branches and loops, in one session at many shapes and numbers of iterations."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from sardonyx.base.errors import Fail
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

_random = np.random.default_rng(4)
_WEIGHTS = {"w": _random.standard_normal((4, 4)).astype(np.float32) / 2, "axis": np.array([0])}
_TRUE = "on = Constant<value = bool {1}>()"
_POSITIVE = (
    "zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)"
)


def _floats(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


_SIGNS = [{"x": f(abs(_floats(n, 4)))} for n in (3, 1, 6) for f in (np.positive, np.negative)]


def _trips(shape: tuple[int, ...], *counts: int) -> list[dict[str, Any]]:
    return [{"x": _floats(*shape), "k": np.array(k)} for k in counts]


#: Graph, feeds.
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "if": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} z = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Add(x, x) },"
        "else_branch = e () => (float[A,B] b) { n = Neg(x) b = Mul(n, x) }> y = Neg(z) }",
        _SIGNS,
    ),
    "branches of different sizes": (
        f"(float[N,4] x) => (float[A,B] y, float[A,B] z) {{ {_POSITIVE} z = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Concat<axis = 0>(x, x) },"
        "else_branch = e () => (float[A,B] b) { b = Identity(x) }> y = Neg(z) }",
        _SIGNS,
    ),
    "branches of several results": (
        f"(float[N,4] x) => (float[A,B] y, float[C] z) {{ {_POSITIVE} y, z = If(c) <"
        "then_branch = t () => (float[A,B] a, float[C] a2)"
        " { a = MatMul(x, w) a2 = ReduceSum<keepdims = 0>(a, axis) },"
        "else_branch = e () => (float[A,B] b, float[C] b2)"
        " { b = Exp(x) b2 = ReduceMax<axes = [0], keepdims = 0>(b) }> }",
        _SIGNS,
    ),
    "branches in branches": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} five = Constant<value_float = 5.0>()"
        " d = Greater(s, five) y = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = If(d) <"
        "then_branch = tt () => (float[A,B] aa) { aa = MatMul(x, w) },"
        "else_branch = te () => (float[A,B] ab) { ab = Mul(x, x) }> },"
        "else_branch = e () => (float[A,B] b) { b = Neg(x) }> }",
        [{"x": f * abs(_floats(n, 4))} for n in (1, 8) for f in (-1, 1, 3)],
    ),
    "a feed that only the branches read": (
        "(float[N,4] x, bool c) => (float[A,B] y) { y = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Neg(x) },"
        "else_branch = e () => (float[A,B] b) { b = Concat<axis = 0>(x, w) }> }",
        [{"x": _floats(n, 4), "c": np.array(c)} for n in (3, 1) for c in (True, False, False)],
    ),
    "a shape that decides": (
        "(float[N,4] x) => (float[A,B] y) { n = Size(x) limit = Constant<value_int = 12>()"
        " c = Greater(n, limit) y = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Neg(x) },"
        "else_branch = e () => (float[A,B] b) { b = Concat<axis = 0>(x, x) }> }",
        [{"x": _floats(n, 4)} for n in (3, 1, 6, 4, 3)],
    ),
    "an input that a branch gives and a region in it reads": (
        "(float[N,4] x, bool c, int64 k) => (float[A,B] v, float[C,D] z)"
        f" {{ {_TRUE} y, v = If(c) <"
        "then_branch = t () => (float[A,B] a, float[A,B] a2) { a = Neg(x) a2 = Exp(x) },"
        "else_branch = e () => (float[A,B] b, float[A,B] b2) { b = Identity(x)"
        " b2 = Loop(k, on, x) <"
        "body = d (int64 i, bool ci, float[N,4] h) => (bool co, float[N,4] ho)"
        " { co = Identity(ci) ho = Add(h, x) }> }> z = Concat<axis = 0>(x, y) }",
        [{"x": _floats(3, 4), "c": np.array(c), "k": np.array(2)} for c in (True, False, True)],
    ),
    "only the sizes of a result are read": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} z = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Concat<axis = 0>(x, x) },"
        "else_branch = e () => (float[A,B] b) { b = Neg(x) }>"
        " n = Shape(z) one = Constant<value_float = 1.5>() y = Expand(one, n) }",
        _SIGNS,
    ),
    "only the sizes of a result are read, beside a product with weights": (
        f"(float[N,4] x) => (float[A,B] y, float[A,B] v) {{ {_POSITIVE} z = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Concat<axis = 0>(x, x) },"
        "else_branch = e () => (float[A,B] b) { b = Neg(x) }>"
        " n = Shape(z) one = Constant<value_float = 1.5>() y = Expand(one, n) v = MatMul(x, w) }",
        _SIGNS,
    ),
    "as often as is known only outside": (
        f"(float[N] x, int64 k) => (float[A] y, float[B] z) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) ho = Neg(h) }> two = Constant<value_int = 2>()"
        " z = Loop(two, on, x) <body = b2 (int64 j, bool cj, float[N] u) => (bool cjo, float[N] uo)"
        " { cjo = Identity(cj) uo = Loop(k, on, u) <"
        "body = b3 (int64 l, bool cl, float[N] v) => (bool clo, float[N] vo)"
        " { clo = Identity(cl) vo = Add(v, v) }> }> }",
        _trips((3,), 3, 0, 1),
    ),
    "rows of weights by the iteration's number": (
        f"(float[1,4] x, int64 k) => (float[A,B] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[1,4] h) => (bool co, float[1,4] ho)"
        " { co = Identity(ci) g = Gather(w, i) p = Softmax(g) row = Constant<value_ints = [1, 4]>()"
        " q = Reshape(p, row) m = MatMul(q, w) r = ReduceMax<keepdims = 0>(m) ho = Mul(h, r) }> }",
        _trips((1, 4), 2, 0, 4),
    ),
    "no rows of a result of a branch": (
        "(float[1,4] x, bool c, int64 k) => (float[A,B] y, float[C,D] z)"
        f" {{ {_TRUE} y = If(c) <"
        "then_branch = t () => (float[1,4] a) { a = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[1,4] h) => (bool co, float[1,4] ho)"
        " { co = Identity(ci) ho = Neg(h) }> },"
        "else_branch = e () => (float[1,4] a2) { a2 = Exp(x) }>"
        " one = Constant<value_ints = [1]>() all = Constant<value_ints = [1000]>()"
        " none = Slice(y, one, all) two = Constant<value_int = 2>() z = Loop(two, on, x) <"
        "body = b2 (int64 j, bool cj, float[1,4] u) => (bool cjo, float[1,4] uo)"
        " { cjo = Identity(cj) q = Loop(k, on, none) <"
        "body = b3 (int64 l, bool cl, float[P,4] v) => (bool clo, float[Q,4] vo)"
        " { clo = Identity(cl) vo = Concat<axis = 0>(v, u) }>"
        " uo = ReduceSum<keepdims = 1>(q, axis) }> }",
        [{"c": np.array(c), **f} for c in (True, False) for f in _trips((1, 4), 2, 0)],
    ),
    "elements counted outside and inside": (
        f"(float[N] x, int64 k) => (float[A] y, float[B] z) {{ {_TRUE} e = Abs(x)"
        " limit = Constant<value_float = 0.5>() c = Greater(e, limit) y = Compress(e, c)"
        " z = Loop(k, on, y) <body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho)"
        " { co = Identity(ci) q = Neg(e) d = Compress(q, c) ho = Sub(h, d) }> }",
        [*_trips((9,), 2, 0), *_trips((4,), 3, 1)],
    ),
    "a loop over sizes alone, read in another": (
        f"(float[N] x, int64 k) => (int64[A,B] y, float[C] z) {{ {_TRUE} n = Shape(x)"
        " p, y = Loop(k, on, n) <body = b (int64 i, bool ci, int64[1] h)"
        " => (bool co, int64[1] ho, int64[1] so)"
        " { co = Identity(ci) ho = Add(h, h) so = Identity(n) }>"
        " two = Constant<value_int = 2>() z = Loop(two, on, x) <"
        "body = b2 (int64 j, bool cj, float[N] u) => (bool cjo, float[N] uo)"
        " { cjo = Identity(cj) s = ReduceSum<keepdims = 0>(y) f = Cast<to = 1>(s)"
        " uo = Add(u, f) }> }",
        _trips((3,), 2, 1, 3),
    ),
    "a loop that nothing reads": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} z = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) ho = Neg(h) }> y = Loop(k, on, x) <"
        "body = b2 (int64 j, bool cj, float[N] u) => (bool cjo, float[N] uo)"
        " { cjo = Identity(cj) uo = Add(u, u) }> }",
        _trips((3,), 3, 0, 1),
    ),
    "branches of different numbers of axes, one of them constant": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} z = If(c) <"
        "then_branch = t () => (float a) { a = Constant<value_float = 3.0>() },"
        "else_branch = e () => (float[B] b) { b = ReduceSum<keepdims = 0>(x, axis) }>"
        " y = Add(x, z) }",
        _SIGNS,
    ),
    "branches of different numbers of axes": (
        "(float[N,M] x) => (float[A] y) { n = Shape<end = 1>(x) one = Constant<value_ints = [1]>()"
        " c = Equal(n, one) y = If(c) <"
        "then_branch = t () => (float[A] a) { a = Squeeze(x, axis) },"
        "else_branch = e () => (float[A,B] b) { b = Neg(x) }> }",
        [{"x": _floats(n, 3)} for n in (1, 2, 1, 5)],
    ),
    "branches of different numbers of axes in one that makes no sense after the first": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} y = If(c) <"
        "then_branch = t () => (float[A,B] a) { most = Constant<value_float = 1000.0>()"
        " d = Greater(s, most) q = If(d) <"
        "then_branch = tt () => (float[A,B,C] aa) { one = Constant<value_ints = [1]>()"
        " aa = Unsqueeze(x, one) },"
        "else_branch = te () => (float[A,B] ab) { ab = Mul(x, x) }>"
        " r = Transpose<perm = [1, 0]>(q) a = Transpose<perm = [1, 0]>(r) },"
        "else_branch = e () => (float[A,B] b) { b = Neg(x) }> }",
        _SIGNS,
    ),
    "so many times": (
        f"(float[N,4] x) => (float[A,B] y, float[T,A,B] s) {{ {_TRUE}"
        " k = Constant<value_int = 5>() y, s = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N,M] h) => (bool co, float[N,M] ho, float[N,M] so)"
        " { co = Identity(ci) m = MatMul(h, w) ho = Tanh(m) so = Neg(ho) }> }",
        [{"x": _floats(n, 4)} for n in (3, 1, 17)],
    ),
    "as often as the data says": (
        f"(float[N,4] x, int64 k) => (float[A,B] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N,M] h) => (bool co, float[N,M] ho)"
        " { co = Identity(ci) m = MatMul(h, w) ho = Tanh(m) }> }",
        _trips((3, 4), 3, 0, 7, 1),
    ),
    "until a condition": (
        f"(float x) => (float y, float[T] s, float z) {{ {_TRUE}"
        " most = Constant<value_int = 9223372036854775807>()"
        " limit = Constant<value_float = 100.0>() y, s = Loop(most, on, x) <"
        "body = b (int64 i, bool ci, float h) => (bool co, float ho, float so)"
        " { ho = Add(h, h) co = Less(ho, limit) so = Neg(ho) }> z = ReduceSum<keepdims = 0>(s) }",
        [{"x": np.float32(v)} for v in (1.0, 60.0, 0.001, 7.0)],
    ),
    "a carried value that grows": (
        f"(float[N] x, int64 k) => (float[A] y, float[B] z) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho)"
        " { co = Identity(ci) m = ReduceMax<keepdims = 1>(h) ho = Concat<axis = 0>(h, m) }>"
        " z = Neg(y) }",
        _trips((3,), 3, 0, 40, 1),
    ),
    "a carried value that shrinks to nothing": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho)"
        " { co = Identity(ci) one = Constant<value_ints = [1]>()"
        " all = Constant<value_ints = [1000]>() m = Slice(h, one, all) ho = Neg(m) }> }",
        _trips((5,), 3, 0, 9, 1),
    ),
    "carried values that change places": (
        f"(float[N] x, float[M] v, int64 k) => (float[A] y, float[B] z) {{ {_TRUE}"
        " y, z = Loop(k, on, x, v) <"
        "body = b (int64 i, bool ci, float[P] h, float[Q] g) => (bool co, float[Q] ho, float[P] go)"
        " { co = Identity(ci) ho = Identity(g) go = Identity(h) }> }",
        [{"v": _floats(m), **f} for m in (3, 5) for f in _trips((3,), 3, 0, 4, 1)],
    ),
    "begun only if a feed says so": (
        "(float[N] x, int64 k, bool p) => (float[A] y, float[T,A] s) { y, s = Loop(k, p, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho, float[N] so)"
        " { co = Constant<value = bool {1}>() ho = Add(h, h) so = Neg(ho) }> }",
        [{"p": np.array(p), **f} for f in _trips((3,), 3, 1, 4) for p in (True, False)],
    ),
    "the iteration's number": (
        f"(float[N] x) => (float y, float[A] q) {{ {_TRUE} n = Shape(x) k = Squeeze(n)"
        " zero = Constant<value_float = 0.0>() y, q = Loop(k, on, zero) <"
        "body = b (int64 i, bool ci, float h) => (bool co, float ho, float so)"
        " { co = Identity(ci) xi = Gather(x, i) ho = Add(h, xi) so = Identity(ho) }> }",
        [{"x": _floats(n)} for n in (3, 1, 9)],
    ),
    "loops in loops": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) ho = Loop(i, ci, h) <"
        "body = b2 (int64 j, bool cj, float[N] u) => (bool cjo, float[N] uo)"
        " { cjo = Identity(cj) jf = Cast<to = 1>(j) xx = Mul(x, jf) uo = Add(u, xx) }> }> }",
        _trips((3,), 3, 0, 6, 1),
    ),
    "branches in loops": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} zero = Constant<value_float = 0.0>()"
        " y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) s = ReduceSum<keepdims = 0>(h) p = Greater(s, zero) ho = If(p) <"
        "then_branch = t () => (float[N] a) { a = Sub(h, x) },"
        "else_branch = e () => (float[N] a2) { a2 = Add(h, x) }> }> }",
        _trips((3,), 3, 0, 6, 1),
    ),
    "sizes from data in a body": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) r = Relu(h) p = NonZero(r) q = Squeeze(p, axis)"
        " g = Gather(h, q) s = ReduceSum<keepdims = 0>(g) ho = Sub(h, s) }> }",
        _trips((6,), 2, 0, 5),
    ),
    "scan": (
        "(float[4] h0, float[T,4] x) => (float[M] y, float[T,M] s) {"
        " y, s = Scan<num_scan_inputs = 1,"
        " body = b (float[M] h, float[M] xi) => (float[M] ho, float[M] so)"
        " { a = Mul(h, xi) ho = Add(a, xi) so = Neg(ho) }>(h0, x) }",
        [{"h0": _floats(4), "x": _floats(n, 4)} for n in (3, 1, 9)],
    ),
    "scan backwards of slices that a loop stacks": (
        "(float[T,2] x, int64 k) => (float[T,A,2] s) {"
        " s = Scan<num_scan_inputs = 1, scan_output_directions = [1],"
        " body = b (float[2] xi) => (float[B,2] so) {"
        " so = Loop(k, ,) <body = c (int64 i, bool ci) => (bool co, float[2] v)"
        " { co = Identity(ci) f = Cast<to = 1>(i) v = Add(xi, f) }> }>(x) }",
        [{"x": _floats(n, 2), "k": np.int64(k)} for n, k in ((3, 2), (17, 5), (1, 1), (40, 9))],
    ),
    "scan backwards, along the last axis": (
        "(float[4] h0, float[4,T] x) => (float[M] y, float[M,T] s) {"
        " y, s = Scan<num_scan_inputs = 1, scan_input_directions = [1],"
        " scan_output_directions = [1], scan_input_axes = [1], scan_output_axes = [1],"
        " body = b (float[M] h, float[M] xi) => (float[M] ho, float[M] so)"
        " { a = Mul(h, xi) ho = Add(a, xi) so = Neg(ho) }>(h0, x) }",
        [{"h0": _floats(4), "x": _floats(4, n)} for n in (3, 1, 9)],
    ),
}
#: ONNX's reference evaluator joins slices instead of stacking them, and knows no directions.
BY_HAND = {
    "so many times": lambda f: _repeated(f["x"], 5, lambda h: np.tanh(h @ _WEIGHTS["w"])),
    "begun only if a feed says so": lambda f: _repeated(
        f["x"], int(f["k"] * f["p"]), lambda h: h + h
    ),
    "until a condition": lambda f: _doubled(f["x"]),
    "the iteration's number": lambda f: [f["x"].sum(), np.cumsum(f["x"])],
    "scan backwards of slices that a loop stacks": lambda f: [
        (f["x"][::-1, None] + np.arange(f["k"], dtype=np.float32)[:, None])
    ],
    "scan backwards, along the last axis": lambda f: _scanned_backwards(f["h0"], f["x"]),
}


def _repeated(h: Any, count: int, step: Any) -> list[Any]:
    found = []
    for _ in range(count):
        h = step(h)
        found.append(-h)
    return [h, np.stack(found) if found else np.zeros((0, *h.shape), h.dtype)]


def _doubled(h: Any) -> list[Any]:
    found = []
    while not found or h < 100:
        h = h + h
        found.append(-h)
    return [h, np.array(found), np.sum(found)]


def _scanned_backwards(h: Any, x: Any) -> list[Any]:
    found = np.zeros_like(x)
    for t in reversed(range(x.shape[1])):
        h = h * x[:, t] + x[:, t]
        found[:, t] = -h
    return [h, found]


@pytest.mark.parametrize("name", CASES)
def test_control_flow(name):
    text, feeds = CASES[name]
    model = model_of(f"g {text}", {k: v for k, v in _WEIGHTS.items() if f", {k})" in text})
    if name not in BY_HAND:
        check(model, feeds)
        return
    session = sardonyx.InferenceSession(model.SerializeToString())
    for feed in feeds:
        for got, want in zip(session.run(None, feed), BY_HAND[name](feed), strict=True):
            assert_near(got, want, "float: functions near zero")


def test_nothing_happens_in_a_loop_of_no_iterations():
    text = CASES["so many times"][0].replace("value_int = 5", "value_int = 0")
    model = model_of(f"g {text}", {"w": _WEIGHTS["w"]})
    x = _floats(3, 4)
    y, s = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
    assert s.shape == (0, 3, 4)


def test_an_endless_loop_can_be_cancelled():
    text = (
        f"g (float x) => (float y) {{ {_TRUE} most = Constant<value_int = 9223372036854775807>()"
        " limit = Constant<value_float = -1.0>() y = Loop(most, on, x) <"
        "body = b (int64 i, bool ci, float h) => (bool co, float ho)"
        " { ho = Abs(h) co = Greater(ho, limit) }> }"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    options = sardonyx.RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match="cancelled"):
        session.run(None, {"x": np.float32(1)}, options)


#: What is wrong, graph, words of the error.
REFUSED = {
    "branches of different types": (
        f"(float[N,4] x) => (float[A,B] y) {{ {_POSITIVE} y = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = Neg(x) },"
        "else_branch = e () => (int64[A,B] b) { b = Cast<to = 7>(x) }> }",
        ["If", "type of output 0"],
    ),
    "a carried value of another type": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, int64[N] ho)"
        " { co = Identity(ci) ho = Cast<to = 7>(h) }> }",
        ["Loop", "changes its type"],
    ),
    "the wrong number of inputs": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci) => (bool co, float[N] ho)"
        " { co = Identity(ci) ho = Neg(x) }> }",
        ["wrong number of inputs"],
    ),
    "an endless loop": (
        f"(float[N] x) => (float[A] y) {{ {_TRUE} y = Loop(, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = Identity(ci) ho = Neg(h) }> }",
        ["Nothing ends it"],
    ),
    "a condition of no bool": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho)"
        " { co = ReduceSum<keepdims = 0>(h) ho = Neg(h) }> }",
        ["Loop", "one bool", "float[]"],
    ),
    "a condition that grows": (
        f"(float[N] x, int64 k) => (float[A] y) {{ {_TRUE} y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho)"
        " { ho = Concat<axis = 0>(h, h) co = Cast<to = 9>(ho) }> }",
        ["Loop", "one bool"],
    ),
    "slices that are no tensors": (
        "(float[N] s, float[T,N] x) => (float[N] f, float[T,N] y) { f, y = Scan(s, x) <"
        "num_scan_inputs = 1, body = b (float[N] h, float[N] e) => (float[N] ho, float[N] o)"
        " { ho = Add(h, e) o = Optional(ho) }> }",
        ["Scan", "joined", "Expected tensors"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_graphs_are_refused(name):
    text, words = REFUSED[name]
    with pytest.raises(Exception) as error:
        sardonyx.InferenceSession(model_of(f"g {text}").SerializeToString())
    assert type(error.value).__module__.startswith("sardonyx")
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_branch_that_cannot_run_ends_the_run_that_takes_it():
    text = (
        "g (float[N,3] x, int64 k) => (float[A,B] y) {"
        f" {_TRUE} five = Constant<value_int = 5>() y = Loop(k, on, x) <"
        "body = b (int64 i, bool ci, float[N,3] h) => (bool co, float[N,3] ho)"
        " { co = Identity(ci) c = Greater(i, five) q = If(c) <"
        "then_branch = t () => (float[A,B] a) { a = MatMul(x, w) },"
        "else_branch = e () => (float[A,B] a2) { a2 = Identity(x) }> ho = Add(h, q) }> }"
    )
    model = model_of(text, {"w": _WEIGHTS["w"]})
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = _floats(2, 3)
    for k in (3, 9, 5):
        feeds = {"x": x, "k": np.array(k)}
        if k > 6:
            with pytest.raises(Exception, match="then_branch cannot be taken.*MatMul"):
                session.run(None, feeds)
        else:
            assert_near(session.run(None, feeds)[0], x * (k + 1), "float: functions")


def test_slices_of_different_sizes_are_refused() -> None:
    text = (
        "g (int64 n, int64 step) => (int64[A,B] y) { zero = Constant<value_int=0>()"
        " one = Constant<value_int=1>() three = Constant<value_int=3>()"
        " y = Loop(n, ,) <body = b (int64 i, bool ci) => (bool c, int64[M] v)"
        " { c = Identity(ci) k = Mul(i, step) l = Add(k, three) v = Range(zero, l, one) }> }"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    for _ in range(2):
        with pytest.raises(errors.SardonyxError, match="different sizes"):
            session.run(None, {"n": np.int64(4), "step": np.int64(1)})
        for n in (4, 1, 0):
            (y,) = session.run(None, {"n": np.int64(n), "step": np.int64(0)})
            assert y.tolist() == [[0, 1, 2]] * n
        (y,) = session.run(None, {"n": np.int64(1), "step": np.int64(1)})
        assert y.tolist() == [[0, 1, 2]]


def test_a_binding_whose_data_want_another_plan():
    text, _ = CASES["branches of different numbers of axes, one of them constant"]
    model = model_of(f"g {text}", {"axis": _WEIGHTS["axis"]})
    session = sardonyx.InferenceSession(model.SerializeToString())
    held, out = np.empty((3, 4), np.float32), np.empty((3, 4), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", held)
    binding.bind_ortvalue_output("y", sardonyx.OrtValue.ortvalue_from_numpy(out))
    for sign in (1, 1, -1, -1, 1):
        held[...] = sign * np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        session.run_with_iobinding(binding)
        want = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": held})[0]
        np.testing.assert_array_equal(out, want)


_ENDS_BY_ITSELF = """g (int64 m, int64 k) => (int64 n, int64[s] all) {
    c = Constant<value = bool {1}>() zero = Constant<value = int64 {0}>()
    t = %s
    n, all = Loop(t, c, zero) <body = b (int64 i, bool go, int64 v)
        => (bool on, int64 w, int64 e) {
        one = Constant<value = int64 {1}>() w = Add(v, one) e = Mul(i, w) on = Less(w, k) }> }"""


@pytest.mark.parametrize("trips", ["Identity(m)", "Add(m, zero)", "Abs(m)"])
def test_any_number_of_trips_is_taken(trips: str) -> None:
    session = sardonyx.InferenceSession(
        model_of(_ENDS_BY_ITSELF % trips, opset=19).SerializeToString()
    )
    for m in (2**61 - 1, 2**61, 2**62, 2**63 - 1, 3, 0):
        n, everything = session.run(None, {"m": np.array(m), "k": np.array(5)})
        count = min(m, 5)
        assert (n, everything.tolist()) == (count, [i * (i + 1) for i in range(count)])
    if trips != "Abs(m)":
        for m in (-1, -(2**61), -(2**63)):
            n, everything = session.run(None, {"m": np.array(m), "k": np.array(5)})
            assert (n, everything.tolist()) == (0, [])


def test_any_number_of_trips_of_a_loop_inside_another() -> None:
    session = sardonyx.InferenceSession(
        model_of(
            """g (int64 m) => (int64 n) {
            c = Constant<value = bool {1}>() zero = Constant<value = int64 {0}>()
            n = Loop(m, c, zero) <body = b (int64 i, bool go, int64 v) => (bool on, int64 w) {
                three = Constant<value = int64 {3}>()
                w = Loop(m, go, v) <body = d (int64 j, bool go2, int64 u) => (bool on2, int64 x) {
                    one = Constant<value = int64 {1}>() x = Add(u, one) on2 = Less(j, i) }>
                on = Less(i, three) }> }"""
        ).SerializeToString()
    )
    assert session.run(None, {"m": np.array(2**63 - 1)}) == [1 + 2 + 3 + 4]


#: First, limit, step: distances that 64 bits with a sign do not hold.
_FAR_APART = [
    (2**62, 2**62 + 3, 1), (-(2**63), 2**63 - 1, 2**62), (2**63 - 1, -(2**63), -(2**62)),
    (-(2**63), -(2**63) + 5, 2), (2**63 - 1, -(2**63), -(2**63)), (5, 1, -2), (5, 1, 2), (0, 10, 3),
]  # fmt: skip


def test_ranges_of_numbers_far_apart() -> None:
    text = "g (int64 a, int64 b, int64 c) => (int64[n] y) { y = Range(a, b, c) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    for bounds in _FAR_APART:
        (y,) = session.run(None, dict(zip("abc", map(np.array, bounds), strict=True)))
        assert y.tolist() == [*range(*bounds)]
