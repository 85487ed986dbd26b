"""What loops carry: values that never change are read, those that change places are not moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.plan.plan import Command
from sardonyx.plan.steps import JumpIfLess
from tests.support.session import model_of
from tests.support.targets import TARGETS, compiled_for
from tests.support.tolerances import assert_near

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

Array = np.ndarray[Any, Any]
Rule = Callable[[dict[str, Array], int], list[Array]]

_random = np.random.default_rng(11)
_WEIGHTS = {"w": (_random.standard_normal((64, 64)) / 8).astype(np.float32)}
_W = _WEIGHTS["w"]
_FACE = "float[N,64] x, float[N,64] v, int64 k"
_TRUE = "on = Constant<value = bool {1}>() zero = Constant<value_int = 0>()"
_T, _S, _M = "float[N,64]", "float[64,64]", "float[A,B]"


def _graph(outputs: str, nodes: str) -> str:
    return f"g ({_FACE}) => ({outputs}) {{ {_TRUE} {nodes} }}"


def _loop(results: str, first: str, inputs: str, outputs: str, nodes: str, end: str = "k") -> str:
    return (
        f"{results} = Loop({end}, on, {first}) <body = b (int64 i, bool ci, {inputs})"
        f" => (bool co, {outputs}) {{ {nodes} }}>"
    )


def _steps(h: Array, count: int, w: Array = _W) -> Array:
    for _ in range(count):
        h = np.tanh(h @ w)
    return h


def _turned(values: list[Array], count: int) -> list[Array]:
    """Each takes over what the one after it was, so many times."""
    turn = count % len(values)
    return values[turn:] + values[:turn]


def _sums(x: Array, v: Array, count: int) -> list[Array]:
    for _ in range(count):
        x, v = x + v, x
    return [x, v]


def _three(x: Array, v: Array, count: int) -> list[Array]:
    a, b, c = x, v, x - v
    for _ in range(count):
        a, b, c = a + c, a, b
    return [a, b, c]


_STEP = "m = MatMul(h, u) ho = Tanh(m)"
_SCAN_BODY = "m = MatMul(h, u) t = Tanh(m) ho = Add(t, e) uo = Identity(u)"


def _scanned(x: Array, v: Array) -> list[Array]:
    h, found = x[0], []
    for e in v:
        h = np.tanh(h @ _W) + e
        found.append(_W[:1])
    return [h, np.stack(found), _W]


#: Graph; what it gives; kernels of a trip (of all loops); weights that are packed. The last two
#: are numbers of one target.
CASES: dict[str, tuple[str, Rule, int, int]] = {
    "weights handed on": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                  f"co = Identity(ci) {_STEP} uo = Identity(u)"),
        ),
        lambda f, k: [_steps(f["x"], k), _W], 1, 1,
    ),
    "weights handed on through several": (
        _graph(
            f"{_M} y",
            _loop("y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                  f"co = Identity(ci) q = Identity(u) {_STEP} uo = Identity(q)"),
        ),
        lambda f, k: [_steps(f["x"], k)], 1, 1,
    ),
    "weights as they are outside": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                  f"co = Identity(ci) {_STEP} uo = Identity(w)"),
        ),
        lambda f, k: [_steps(f["x"], k), _W], 1, 1,
    ),
    "weights that another loop hands on": (
        _graph(
            f"{_M} y",
            _loop(
                "y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                "co = Identity(ci) two = Constant<value_int = 2>() ho, uo = Loop(two, ci, h, u) <"
                f"body = d (int64 j, bool cj, {_T} p, {_S} q) => (bool cjo, {_T} po, {_S} qo)"
                " { cjo = Identity(cj) m = MatMul(p, q) po = Tanh(m) qo = Identity(q) }>",
            ),
        ),
        lambda f, k: [_steps(f["x"], 2 * k)], 3, 1,
    ),
    "weights that both branches hand on": (
        _graph(
            f"{_M} y",
            _loop(
                "y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                f"co = Identity(ci) {_STEP} s = Greater(i, zero) n, uo = If(s) <"
                f"then_branch = t () => ({_T} a, {_S} au) {{ a = Neg(h) au = Identity(u) }},"
                f"else_branch = e () => ({_T} b, {_S} bu) {{ b = Abs(h) bu = Identity(u) }}>",
            ),
        ),
        lambda f, k: [_steps(f["x"], k)], 1, 1,
    ),
    "weights that one branch changes": (
        _graph(
            f"{_M} y",
            _loop(
                "y, z", "x, w", f"{_T} h, {_S} u", f"{_T} ho, {_S} uo",
                f"co = Identity(ci) {_STEP} s = Greater(i, zero) uo = If(s) <"
                f"then_branch = t () => ({_S} au) {{ au = Neg(u) }},"
                f"else_branch = e () => ({_S} bu) {{ bu = Identity(u) }}>",
            ),
        ),
        lambda f, k: [_with_signs(f["x"], k)], 4, 0,
    ),
    "weights that a scan hands on": (
        _graph(
            f"float[A] y, float[T,A,B] s, {_M} z",
            "ax = Constant<value_ints = [0]>() first = Gather(x, zero) y, z, s ="
            f" Scan<num_scan_inputs = 1, body = b (float[64] h, {_S} u, float[64] e) =>"
            f" (float[64] ho, {_S} uo, float[1,64] so) {{ {_SCAN_BODY} one ="
            " Constant<value_ints = [1]>() so = Slice(u, ax, one) }>(first, w, v)",
        ),
        lambda f, k: _scanned(f["x"], f["v"]), 3, 1,
    ),
    "a flag that decides a branch": (
        _graph(
            f"{_M} y, {_M} z",
            "no = Constant<value = bool {0}>() "
            + _loop(
                "y, z, q", "x, v, no", f"{_T} h, {_T} g, bool p", f"{_T} ho, {_T} go, bool po",
                "co = Identity(ci) go = Identity(g) po = Identity(p) ho = If(p) <"
                f"then_branch = t () => ({_T} a) {{ a = Identity(h) }},"
                f"else_branch = e () => ({_T} b) {{ b = Add(h, g) }}>",
            ),
        ),
        lambda f, k: [_added(f["x"], f["v"], k), f["v"]], 1, 0,
    ),
    "all of it": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, v", f"{_T} h, {_T} g", f"{_T} ho, {_T} go",
                  "co = Identity(ci) ho = Identity(h) go = Identity(g)"),
        ),
        lambda f, k: [f["x"], f["v"]], 0, 0,
    ),
    "two that change places": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, v", f"{_T} h, {_T} g", f"{_T} ho, {_T} go",
                  "co = Identity(ci) ho = Identity(g) go = Identity(h)"),
        ),
        lambda f, k: _turned([f["x"], f["v"]], k), 0, 0,
    ),
    "three that go round": (
        _graph(
            f"{_M} y, {_M} z, {_M} t",
            "d = Sub(x, v) "
            + _loop("y, z, t", "x, v, d", f"{_T} h, {_T} g, {_T} l", f"{_T} ho, {_T} go, {_T} lo",
                    "co = Identity(ci) ho = Identity(g) go = Identity(l) lo = Identity(h)"),
        ),
        lambda f, k: _turned([f["x"], f["v"], f["x"] - f["v"]], k), 0, 0,
    ),
    "one that is computed": (
        _graph(
            f"{_M} y",
            _loop("y", "x", f"{_T} h", f"{_T} ho", "co = Identity(ci) ho = Softmax(h)"),
        ),
        lambda f, k: [_softmax(f["x"], k)], 1, 0,
    ),
    "one takes over what the other was": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, v", f"{_T} h, {_T} g", f"{_T} ho, {_T} go",
                  "co = Identity(ci) ho = Add(h, g) go = Identity(h)"),
        ),
        lambda f, k: _sums(f["x"], f["v"], k), 1, 0,
    ),
    "the last three values": (
        _graph(
            f"{_M} y, {_M} z, {_M} t",
            "d = Sub(x, v) "
            + _loop("y, z, t", "x, v, d", f"{_T} h, {_T} g, {_T} l", f"{_T} ho, {_T} go, {_T} lo",
                    "co = Identity(ci) ho = Add(h, l) go = Identity(h) lo = Identity(g)"),
        ),
        lambda f, k: _three(f["x"], f["v"], k), 1, 0,
    ),
    "two take over one": (
        _graph(
            f"{_M} y, {_M} z, {_M} t",
            _loop("y, z, t", "x, v, v", f"{_T} h, {_T} g, {_T} l", f"{_T} ho, {_T} go, {_T} lo",
                  "co = Identity(ci) ho = Neg(h) go = Identity(h) lo = Identity(h)"),
        ),
        lambda f, k: _doubled(f["x"], f["v"], k), 2, 0,
    ),
    "one that is a slice of a result, too": (
        _graph(
            f"{_M} y, float[T,A,B] s",
            _loop("y, s", "x", f"{_T} h", f"{_T} ho, {_T} so",
                  "co = Identity(ci) ho = Neg(h) so = Identity(ho)"),
        ),
        lambda f, k: [f["x"] * (-1) ** k, _signs(f["x"], k)], 2, 0,
    ),
    "two that change places until a condition ends it": (
        _graph(
            f"{_M} y, {_M} z",
            _loop("y, z", "x, v", f"{_T} h, {_T} g", f"{_T} ho, {_T} go",
                  "j = Sub(k, i) one = Constant<value_int = 1>() co = Greater(j, one)"
                  " ho = Identity(g) go = Neg(h)", end=""),
        ),
        lambda f, k: _negated(f["x"], f["v"], max(k, 1)), 2, 0,
    ),
}  # fmt: skip


def _with_signs(h: Array, count: int) -> Array:
    for k in range(count):
        h = _steps(h, 1, _W if k < 2 or k % 2 else -_W)
    return h


def _added(x: Array, v: Array, count: int) -> Array:
    for _ in range(count):
        x = x + v
    return x


def _softmax(h: Array, count: int) -> Array:
    for _ in range(count):
        e = np.exp(h - h.max(-1, keepdims=True))
        h = e / e.sum(-1, keepdims=True)
    return h


def _doubled(x: Array, v: Array, count: int) -> list[Array]:
    values = [x, v, v]
    for _ in range(count):
        values = [-values[0], values[0], values[0]]
    return values


def _negated(x: Array, v: Array, count: int) -> list[Array]:
    for _ in range(count):
        x, v = v, -x
    return [x, v]


def _signs(x: Array, count: int) -> Array:
    return np.array([x * (-1) ** (k + 1) for k in range(count)], x.dtype).reshape(count, *x.shape)


def _model(name: str) -> Any:
    text = CASES[name][0]
    return model_of(text, _WEIGHTS if " w" in text else {})


@pytest.mark.parametrize("name", CASES)
def test_values_after_any_number_of_trips(name: str) -> None:
    session = sardonyx.InferenceSession(_model(name).SerializeToString())
    wanted = {x.name for x in session.get_inputs()}
    for rows, count in ((3, 0), (1, 1), (3, 2), (17, 3), (3, 6), (2, 7), (3, 0)):
        given = {x: _random.standard_normal((rows, 64)).astype(np.float32) for x in ("x", "v")}
        feeds = {"x": given["x"].copy(), "v": given["v"].copy(), "k": np.array(count)}
        got = session.run(None, {x: feed for x, feed in feeds.items() if x in wanted})
        for mine, expected in zip(got, CASES[name][1](given, count), strict=True):
            assert mine.shape == expected.shape
            assert_near(mine, expected, "float: layers near zero")
            assert not any(np.shares_memory(mine, x) for x in feeds.values())
        assert all(np.array_equal(feeds[x], given[x]) for x in given)


@pytest.mark.parametrize("name", CASES)
def test_what_a_trip_does(name: str) -> None:
    compiled = compiled_for(_model(name), TARGETS["avx2"])
    commands = compiled.main.commands
    jumps = [(k, c.target) for k, c in enumerate(commands) if isinstance(c, JumpIfLess)]
    inside = {k for end, begin in jumps if begin < end for k in range(begin, end)}
    kernels = [commands[k].kernel for k in sorted(inside) if isinstance(commands[k], Command)]
    packed = [c.kernel for p in compiled.preparations for c in p.plan.commands]
    assert (len(kernels), len(packed)) == CASES[name][2:], (kernels, packed)
