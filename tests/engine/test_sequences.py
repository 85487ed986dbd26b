"""Sequences and optionals: known ones that are never made, and others on the host."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: About what no target changes.
pytestmark = pytest.mark.once

_BODY = " { c = Identity(ci) f = Cast<to=1>(i) v = Add(x, f) so = SequenceInsert(si, v) }"


def _floats(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _equal(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            _equal(mine, theirs)
    elif want is None:
        assert got is None
    else:
        theirs = np.asarray(want)
        assert got.dtype == theirs.dtype
        np.testing.assert_array_equal(got, theirs)
        assert got.shape == theirs.shape


def _session(text: str, opset: int = 17) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model_of(text, opset=opset).SerializeToString())


_X = _floats(2, 3)
_CONCAT = "y = ConcatFromSequence<axis=0>(s)"

_REGULATOR = (
    "(float[N,3] x, int64[N] r) => (float[A,3] y) {{ three = Constant<value_ints = [3]>()"
    " first = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()"
    " size = Shape<end = 1>(x) n = Squeeze(size) on = Constant<value = bool {{1}}>()"
    " {split} e = SequenceEmpty() s = Loop(n, on, e) <"
    "body = b (int64 i, bool ci, seq(float[P,3]) si) => (bool c, seq(float[P,3]) so)"
    " {{ c = Identity(ci) {item} shape = Concat<axis = 0>(k, three) {repeat}"
    " so = SequenceInsert(si, v) }}> y = ConcatFromSequence<axis = 0>(s) }}"
)
_SPLIT = "sx = SplitToSequence<axis = 0>(x, {0}) sr = SplitToSequence<axis = 0>(r, {0})"
_ITEMS = "xi = SequenceAt(sx, i) k = SequenceAt(sr, i)"
_GATHER = "xi = Gather(x, i) ri = Gather(r, i) k = Unsqueeze(ri, first)"
_EXPAND = "v = Expand(xi, shape)"


def _regulated() -> list[tuple[dict[str, Any], list[Any]]]:
    """Rows, repeated as often as a second feed says."""
    found = []
    for counts in ([2, 1, 3], [1], [4, 4], [1, 0, 2, 1, 5], [2, 1, 3]):
        x, r = _floats(len(counts), 3), np.array(counts)
        found.append(({"x": x, "r": r}, [np.repeat(x, r, axis=0)]))
    return found


#: Graph, pairs of feeds and results.
CASES: dict[str, tuple[str, list[tuple[dict[str, Any], list[Any]]]]] = {
    "rows repeated in a loop": (
        _REGULATOR.format(split="", item=_GATHER, repeat=_EXPAND),
        _regulated(),
    ),
    "slices repeated in a loop": (
        _REGULATOR.format(
            split="o = Expand(one, size) " + _SPLIT.format("o"), item=_ITEMS, repeat=_EXPAND
        ),
        _regulated(),
    ),
    "slices of one length repeated in a loop": (
        _REGULATOR.format(
            split="o = Squeeze(one) " + _SPLIT.format("o"),
            item=_ITEMS,
            repeat="z = ConstantOfShape(shape) v = Add(z, xi)",
        ),
        _regulated(),
    ),
    "slices tiled in a loop": (
        _REGULATOR.format(
            split="o = ConstantOfShape<value = int64[1] {1}>(size) " + _SPLIT.format("o"),
            item=_ITEMS,
            repeat="t = Concat<axis = 0>(k, one) v = Tile(xi, t)",
        ),
        _regulated(),
    ),
    "slices of one length keep their axis": (
        "(float[N,3] x) => (float[A,B] y, int64 n) { one = Constant<value_int = 1>()"
        " last = Constant<value_int = -1>() s = SplitToSequence<axis = 1, keepdims = 0>(x, one)"
        " y = SequenceAt(s, last) n = SequenceLength(s) }",
        [({"x": _floats(n, 3)}, [_floats(n, 3)[:, 2:], np.int64(3)]) for n in (2, 4)],
    ),
    "the last slice of two is shorter": (
        "(float[N,3] x) => (float[A,B] y) { two = Constant<value_int = 2>()"
        " last = Constant<value_int = -1>() s = SplitToSequence<axis = 0>(x, two)"
        " y = SequenceAt(s, last) }",
        [({"x": _floats(n, 3)}, [_floats(n, 3)[n - (n % 2 or 2) :]]) for n in (5, 4, 1)],
    ),
    "made and read at once": (
        "(float[N,3] x) => (float[M,3] y, int64 n, float[A,B] z) { s = SequenceConstruct(x, x)"
        f" {_CONCAT} n = SequenceLength(s) k = Constant<value_int=-1>() z = SequenceAt(s, k) }}",
        [
            ({"x": _X}, [np.concatenate([_X, _X]), np.int64(2), _X]),
            ({"x": _X[:0]}, [_X[:0], np.int64(2), _X[:0]]),
        ],
    ),
    "item at a position that a run brings": (
        "(float[N] a, float[M] b, int64 k) => (float[Z] y) { s = SequenceConstruct(a, b)"
        " y = SequenceAt(s, k) }",
        [
            ({"a": _floats(3), "b": _floats(5), "k": np.int64(k)}, [_floats(n)])
            for k, n in ((0, 3), (1, 5), (-1, 5), (-2, 3))
        ],
    ),
    "inserted at a position that a run brings": (
        "(float[N] a, float[M] b, int64 k) => (seq(float[Z]) s) { r = SequenceConstruct(a, a)"
        " s = SequenceInsert(r, b, k) }",
        [
            (
                {"a": _floats(2), "b": _floats(1), "k": np.int64(k)},
                [[_floats(n) for n in lengths]],
            )
            for k, lengths in ((0, (1, 2, 2)), (1, (2, 1, 2)), (2, (2, 2, 1)), (-1, (2, 1, 2)))
        ],
    ),
    "grown in a loop": (
        "(float[N] x, int64 n) => (float[M] y, seq(float[M]) s, int64 m) { e = SequenceEmpty()"
        " s = Loop(n, , e) <body = b (int64 i, bool ci, seq(float[M]) si)"
        f" => (bool c, seq(float[M]) so) {_BODY}>"
        f" {_CONCAT} m = SequenceLength(s) }}",
        [
            (
                {"x": _floats(3), "n": np.int64(n)},
                [
                    np.concatenate([_floats(3) + np.float32(k) for k in range(n)]),
                    [_floats(3) + np.float32(k) for k in range(n)],
                    np.int64(n),
                ],
            )
            for n in (4, 1, 300)
        ],
    ),
    "a list beside what is carried and what is stacked": (
        "(float[N] x, int64 n) => (float[M] t, float[A,B] y, float[C,D] z, float[E] k) {"
        " e = SequenceEmpty() t, s, r, z = Loop(n, , x, e, e) <body = b (int64 i, bool ci,"
        " float[N] h, seq(float[M]) si, seq(float[M]) ri) => (bool c, float[N] g,"
        " seq(float[M]) so, seq(float[M]) ro, float[N] d) { c = Identity(ci) f = Cast<to=1>(i)"
        " g = Add(h, f) so = SequenceInsert(si, g) d = Neg(h) ro = SequenceInsert(ri, h) }>"
        " y = ConcatFromSequence<axis=1, new_axis=1>(s)"
        " one = Constant<value_int=-1>() k = SequenceAt(r, one) }",
        [
            (
                {"x": _floats(3), "n": np.int64(n)},
                [
                    _floats(3) + np.float32(n * (n - 1) / 2),
                    np.stack([_floats(3) + np.float32(k * (k + 1) / 2) for k in range(n)], 1),
                    np.stack([-_floats(3) - np.float32(k * (k - 1) / 2) for k in range(n)]),
                    _floats(3) + np.float32((n - 1) * (n - 2) / 2),
                ],
            )
            for n in (4, 1)
        ],
    ),
    "a list that the body looks at": (
        "(int64 n) => (int64[M] y) { e = SequenceEmpty<dtype=7>() one = Constant<value_ints=[1]>()"
        " s = Loop(n, , e) <body = b (int64 i, bool ci, seq(int64[M]) si)"
        " => (bool c, seq(int64[M]) so) { c = Identity(ci) l = SequenceLength(si)"
        " v = Reshape(l, one) so = SequenceInsert(si, v) }>"
        " y = ConcatFromSequence<axis=0>(s) }",
        [({"n": np.int64(n)}, [np.arange(n)]) for n in (5, 1)],
    ),
    "items of growing length": (
        "(int64 n) => (seq(int64[M]) s) { e = SequenceEmpty<dtype=7>()"
        " zero = Constant<value_int=0>() one = Constant<value_int=1>()"
        " s = Loop(n, , e) <body = b (int64 i, bool ci, seq(int64[M]) si)"
        " => (bool c, seq(int64[M]) so) { c = Identity(ci) v = Range(zero, i, one)"
        " so = SequenceInsert(si, v) }> }",
        [({"n": np.int64(n)}, [[np.arange(k) for k in range(n)]]) for n in (3, 0, 5)],
    ),
    "fed and given back": (
        "(seq(float[N]) s, float[N] x) => (seq(float[N]) r, int64 n) { r = SequenceInsert(s, x)"
        " n = SequenceLength(r) }",
        [
            (
                {"s": [_floats(2)] * k, "x": _floats(1)},
                [[_floats(2)] * k + [_floats(1)], np.int64(k + 1)],
            )
            for k in (0, 3)
        ],
    ),
    "erased": (
        "(seq(float[N]) s, int64 k) => (seq(float[N]) a, seq(float[N]) b) { a = SequenceErase(s, k)"
        " b = SequenceErase(s) }",
        [
            (
                {"s": [_floats(1), _floats(2), _floats(3)], "k": np.int64(k)},
                [[_floats(n) for n in left], [_floats(1), _floats(2)]],
            )
            for k, left in ((0, (2, 3)), (1, (1, 3)), (-1, (1, 2)))
        ],
    ),
    "split, lengths from a run": (
        "(float[N,3] x, int64[K] l) => (seq(float[A,B]) s) { s = SplitToSequence<axis=0>(x, l) }",
        [
            ({"x": _floats(5, 3), "l": np.array(n)}, [np.split(_floats(5, 3), np.cumsum(n)[:-1])])
            for n in ([2, 3], [5], [0, 1, 4])
        ],
    ),
    "split in equal parts": (
        "(float[N,4] x) => (seq(float[A,B]) s, float[A,B] y) { two = Constant<value_int=3>()"
        " s = SplitToSequence<axis=1>(x, two) k = Constant<value_int=1>() y = SequenceAt(s, k) }",
        [
            (
                {"x": _floats(2, 4)},
                [[_floats(2, 4)[:, :3], _floats(2, 4)[:, 3:]], _floats(2, 4)[:, 3:]],
            )
        ],
    ),
    "split in single slices": (
        "(float[N,2] x) => (seq(float[B]) s, int64 n) { s = SplitToSequence<axis=0, keepdims=0>(x)"
        " n = SequenceLength(s) }",
        [({"x": _floats(n, 2)}, [list(_floats(n, 2)), np.int64(n)]) for n in (3, 1, 0)],
    ),
    "stacked": (
        "(seq(float[N]) s) => (float[A,B] y) { y = ConcatFromSequence<axis=1, new_axis=1>(s) }",
        [({"s": [_floats(2), _floats(2) + 1]}, [np.stack([_floats(2), _floats(2) + 1], 1)])],
    ),
    "in one branch or the other": (
        "(bool c, float[N] x) => (seq(float[M]) s) { s = If(c) <then_branch = a () =>"
        " (seq(float[M]) p) { p = SequenceConstruct(x, x) }, else_branch = b () =>"
        " (seq(float[M]) q) { q = SequenceEmpty() }> }",
        [
            ({"c": np.bool_(c), "x": _floats(2)}, [[_floats(2), _floats(2)] if c else []])
            for c in (True, False)
        ],
    ),
    "items read in a loop": (
        "(seq(float[N]) s) => (float total) { n = SequenceLength(s) z = Constant<value_float=0.0>()"
        " total = Loop(n, , z) <body = b (int64 i, bool ci, float t) => (bool c, float u)"
        " { c = Identity(ci) v = SequenceAt(s, i) w = ReduceSum<keepdims=0>(v) u = Add(t, w) }> }",
        [
            (
                {"s": [_floats(k) for k in range(n)]},
                [np.float32(sum(_floats(k).sum() for k in range(n)))],
            )
            for n in (4, 1, 0, 40)
        ],
    ),
    "items of a known sequence, read in a branch": (
        "(bool c, float[N] x, float[N] z) => (float[N] y) { s = SequenceConstruct(x, z)"
        " k = Constant<value_int=1>() y = If(c) <then_branch = a () => (float[N] p)"
        " { p = SequenceAt(s, k) }, else_branch = b () => (float[N] q) { q = Neg(x) }> }",
        [
            (
                {"c": np.bool_(c), "x": _floats(3), "z": _floats(3) + 9},
                [_floats(3) + 9 if c else -_floats(3)],
            )
            for c in (True, False)
        ],
    ),
    "maps over a sequence": (
        "(seq(float[N]) s, float[1] x) => (seq(float[N]) r) { r = SequenceMap(s, x) <body = b"
        " (float[N] a, float[1] d) => (float[N] e) { e = Add(a, d) }> }",
        [
            (
                {"s": [_floats(k) for k in range(n)], "x": np.ones(1, np.float32)},
                [[_floats(k) + 1 for k in range(n)]],
            )
            for n in (3, 0)
        ],
    ),
    "strings in sequences": (
        "(string[N] x, string[N] y) => (string[M] z, seq(string[N]) s) {"
        " s = SequenceConstruct(x, y) k = Constant<value_int=0>() e = SequenceErase(s, k)"
        " z = ConcatFromSequence<axis=0>(s) }",
        [
            (
                {"x": np.array(["a", "b"], object), "y": np.array(["b", ""], object)},
                [
                    np.array(["a", "b", "b", ""], object),
                    [np.array(["a", "b"], object), np.array(["b", ""], object)],
                ],
            )
        ],
    ),
    "optional that is there or not": (
        "(optional(float[N]) o) => (bool h, float s) { h = OptionalHasElement(o)"
        " s = If(h) <then_branch = a () => (float p) { v = OptionalGetElement(o)"
        " p = ReduceSum<keepdims=0>(v) }, else_branch = b () => (float q)"
        " { q = Constant<value_float=-1.0>() }> }",
        [
            ({"o": _floats(4)}, [np.bool_(True), np.float32(6)]),
            ({"o": None}, [np.bool_(False), np.float32(-1)]),
            ({}, [np.bool_(False), np.float32(-1)]),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sequences(name: str) -> None:
    text, runs = CASES[name]
    for _ in range(2):  # compiled, then from the cache
        session = _session(f"g {text}", 18)
        for feeds, want in runs:
            for mine, theirs in zip(session.run(None, feeds), want, strict=True):
                _equal(mine, theirs)


def test_lists_of_loops_are_never_made() -> None:
    text = CASES["a list beside what is carried and what is stacked"][0]
    assert "of Python" not in _session(f"g {text}", 18).explain()
    looked_at = CASES["a list that the body looks at"][0]
    assert "of Python" in _session(f"g {looked_at}", 18).explain()


def test_a_recurrent_network_as_torch_exports_a_loop() -> None:
    """`exported/loop_rnn.onnx`: a scripted loop that appends to a list; torch's results beside."""
    folder = Path(__file__).parent / "exported"
    session = sardonyx.InferenceSession(folder / "loop_rnn.onnx")
    stored = np.load(folder / "loop_rnn.npz")
    assert "of Python" not in session.explain()
    for length in (7, 1, 40):
        y, h = session.run(None, {"x": stored[f"x{length}"]})
        assert_near(y, stored[f"y{length}"], "float: functions near zero")
        assert_near(h, stored[f"h{length}"], "float: functions near zero")


def test_known_sequences_are_never_made() -> None:
    session = _session(f"g {CASES['made and read at once'][0]}", 18)
    assert "host." not in session.explain()
    session = _session(f"g {CASES['item at a position that a run brings'][0]}", 18)
    assert "host.sequence.at" in session.explain()
    assert "3 calls of Python" in session.explain()  # one makes it, one looks, one takes
    inside = CASES["items of a known sequence, read in a branch"][0]
    assert "of Python" not in _session(f"g {inside}").explain()


#: Graph, feeds, part of the message.
REFUSED_IN_A_RUN: dict[str, tuple[str, dict[str, Any], str]] = {
    "position outside": (
        "(seq(float[N]) s, int64 k) => (float[M] y) { y = SequenceAt(s, k) }",
        {"s": [_floats(1)], "k": np.int64(1)},
        "has 1 items",
    ),
    "nothing to join": (
        "(seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence<axis=0>(s) }",
        {"s": []},
        "empty",
    ),
    "items that do not fit": (
        "(seq(float[N,M]) s) => (float[A,B] y) { y = ConcatFromSequence<axis=0>(s) }",
        {"s": [_floats(1, 2), _floats(1, 3)]},
        "cannot be joined",
    ),
    "item of another rank": (
        "(seq(float[N]) s, int64 k) => (float[M] y) { y = SequenceAt(s, k) }",
        {"s": [_floats(2, 2)], "k": np.int64(0)},
        "number of axes",
    ),
    "no element": (
        "(optional(float[N]) o) => (float[N] y) { y = OptionalGetElement(o) }",
        {"o": None},
        "no element",
    ),
    "negative length": (
        "(float[N] x, int64[2] l) => (seq(float[M]) s) { s = SplitToSequence(x, l) }",
        {"x": _floats(3), "l": np.array([4, -1])},
        "make up the axis",
    ),
}


@pytest.mark.parametrize("name", REFUSED_IN_A_RUN)
def test_errors_name_the_node_and_the_session_goes_on(name: str) -> None:
    text, feeds, part = REFUSED_IN_A_RUN[name]
    session = _session(f"g {text}", 18)
    for _ in range(3):
        with pytest.raises(errors.RuntimeException, match=part) as caught:
            session.run(None, feeds)
        assert "node " in str(caught.value)


#: Graph, feeds, part of the message.
REFUSED_FEEDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no sequence": ("(seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }", {"s": 3}, "seq"),
    "items of another type": (
        "(seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }",
        {"s": [np.zeros(2)]},
        "float32",
    ),
    "missing": ("(seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }", {}, "missing"),
    "fewer slices than there are": (
        "(float[N] x, float[M] o) => (int64 n) { one = Constant<value_ints = [1]>() m = Shape(o)"
        " l = Expand(one, m) s = SplitToSequence<axis = 0>(x, l) n = SequenceLength(s) }",
        {"x": _floats(4), "o": _floats(3)},
        "do not make up the axis, in node SplitToSequence",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FEEDS)
def test_feeds_of_the_wrong_type(name: str) -> None:
    text, feeds, part = REFUSED_FEEDS[name]
    with pytest.raises(errors.InvalidArgument, match=part):
        _session(f"g {text}", 18).run(None, feeds)


#: Graphs that cannot be, and part of the message.
REFUSED_MODELS = {
    "arithmetic on a sequence": (
        "(seq(float[N]) s, float[N] x) => (float[N] y) { y = Add(s, x) }",
        "Expected numbers, got seq",
    ),
    "items of two types": (
        "(float[N] x, int64[N] y) => (seq(float[N]) s) { s = SequenceConstruct(x, y) }",
        "differs from that of inputs. Expected float, got int64",
    ),
    "no such item": (
        "(float[N] x) => (float[N] y) { s = SequenceConstruct(x) k = Constant<value_int=1>()"
        " y = SequenceAt(s, k) }",
        "1 items",
    ),
}


@pytest.mark.parametrize("name", REFUSED_MODELS)
def test_models_that_cannot_be(name: str) -> None:
    text, part = REFUSED_MODELS[name]
    with pytest.raises(errors.SardonyxError, match=part):
        _session(f"g {text}", 18)


def test_results_share_no_memory_with_feeds() -> None:
    session = _session(
        "g (seq(float[N]) s, float[N] x) => (seq(float[N]) r) { r = SequenceInsert(s, x) }"
    )
    fed = [_floats(3)]
    x = _floats(2)
    (got,) = session.run(None, {"s": fed, "x": x})
    got[0][:] = 7
    got[1][:] = 7
    np.testing.assert_array_equal(fed[0], _floats(3))
    np.testing.assert_array_equal(x, _floats(2))


def test_runs_at_once_have_tables_of_their_own() -> None:
    text, _ = CASES["grown in a loop"]
    session = _session(f"g {text}", 18)
    wrong: list[object] = []

    def work(number: int) -> None:
        for n in range(1, 30):
            _, items, _ = session.run(None, {"x": _floats(number), "n": np.int64(n)})
            if [len(x) for x in items] != [number] * n:
                wrong.append((number, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
