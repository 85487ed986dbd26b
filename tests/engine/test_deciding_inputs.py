"""Lists whose length, and sequences whose tensors, decide how many axes a model's tensors have.

The length or the rank comes with the feeds, as a rank that is not declared does: see
`test_unranked`.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors, knobs
from sardonyx.compiler import ranks
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(5)


def of(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def model(text: str, *unshaped: str) -> onnx.ModelProto:
    """A model, some inputs and outputs of which say nothing of the shape of their tensors."""
    made = model_of(text, opset=18)
    for info in (*made.graph.input, *made.graph.output):
        if info.name in unshaped:
            kind = info.type
            while kind.WhichOneof("value") != "tensor_type":
                kind = getattr(kind, kind.WhichOneof("value")).elem_type
            kind.tensor_type.ClearField("shape")
    return made


RESHAPE = "g (float[A, B] x, int64[R] s) => (float[n] y) { y = Reshape(x, s) }"
#: Name, model, feeds, names of the plans that are made for them.
CASES: dict[str, tuple[onnx.ModelProto, list[dict[str, Any]], list[str]]] = {
    "Reshape": (
        model(RESHAPE, "y"),
        [
            {"x": of(4, 6), "s": s}
            for s in (ints(-1), ints(0, -1), ints(2, -1, 2), ints(24), ints(1, 1, 24, 1))
        ],
        [f"s of length {k}" for k in (1, 2, 3, 4)],
    ),
    "a number": (model(RESHAPE, "y"), [{"x": of(1, 1), "s": ints()}], ["s of length 0"]),
    "Expand": (
        model("g (float[A, B] x, int64[R] s) => (float[n] y) { y = Expand(x, s) }", "y"),
        [{"x": of(1, 3), "s": s} for s in (ints(4, 3), ints(1), ints(2, 1, 1), ints(0, 3))],
        [f"s of length {k}" for k in (2, 1, 3)],
    ),
    "ConstantOfShape": (
        model("g (int64[R] s) => (float[n] y) { y = ConstantOfShape(s) }", "y"),
        [{"s": s} for s in (ints(2, 3), ints(0), ints())],
        [f"s of length {k}" for k in (2, 1, 0)],
    ),
    "what is known of a shape is used": (
        model(
            "g (float[A, B] x, int64[R] s) => (int64[n] y)"
            " { r = Reshape(x, s) t = Transpose(r) y = Shape(t) }",
            "y",
        ),
        [{"x": of(4, 6), "s": ints(2, 3, 4)}, {"x": of(4, 6), "s": ints(8, 3)}],
        ["s of length 3", "s of length 2"],
    ),
    "other lists keep any length": (
        model(
            "g (float[A, B] x, int64[I] ids, int64[R] s) => (float[n] y)"
            " { r = Gather(x, ids) y = Reshape(r, s) }",
            "y",
        ),
        [{"x": of(4, 6), "ids": ints(*range(k)), "s": ints(2, -1)} for k in (1, 2, 3)],
        ["s of length 2"],
    ),
    "two lists": (
        model(
            "g (float[A, B] x, int64[R] s, int64[Q] t) => (float[n] y, float[m] z)"
            " { y = Reshape(x, s) z = Expand(x, t) }",
            *"yz",
        ),
        [{"x": of(4, 6), "s": ints(24), "t": ints(2, 4, 6)}],
        ["s of length 1, t of length 3"],
    ),
    "two lists of different lengths": (
        model(
            "g (float[A, B] x, int64[R] s, int64[Q] t) => (float[n] y, float[m] z) {"
            " a = Reshape(x, s) y = Transpose<perm = [2, 0, 1]>(a)"
            " b = Reshape(x, t) z = Transpose<perm = [1, 0]>(b) }",
            *"yz",
        ),
        [{"x": of(4, 6), "s": ints(2, 3, 4), "t": ints(12, 2)}],
        ["s of length 3, t of length 2"],
    ),
    "three lists, one behind another": (
        model(
            "g (float[A, B] x, int64[R] s, int64[Q] t, int64[U] u) => (float[n] y, float[m] z) {"
            " a = Reshape(x, s) y = Transpose<perm = [2, 0, 1]>(a)"
            " b = Reshape(x, t) c = Transpose<perm = [1, 0]>(b)"
            " d = Reshape(c, u) z = Transpose<perm = [3, 0, 1, 2]>(d) }",
            *"yz",
        ),
        [{"x": of(4, 6), "s": ints(2, 3, 4), "t": ints(12, 2), "u": ints(1, 2, 3, 4)}],
        ["s of length 3, t of length 2, u of length 4"],
    ),
    "nine axes": (
        model(
            "g (float[A, B] x, int64[R] s) => (float[n] y) { a = Reshape(x, s)"
            " y = Transpose<perm = [8, 0, 1, 2, 3, 4, 5, 6, 7]>(a) }",
            "y",
        ),
        [{"x": of(4, 6), "s": ints(2, 1, 2, 1, 1, 2, 1, 1, 3)}],
        ["s of length 9"],
    ),
    "beside a tensor of undeclared rank": (
        model(
            "g (float[A, B] x, int64[R] s) => (float[n] y)"
            " { a = Reshape(x, s) y = Transpose<perm = [2, 0, 1]>(a) }",
            *"xy",
        ),
        [{"x": of(4, 6), "s": ints(2, 3, 4)}, {"x": of(24), "s": ints(2, 3, 4)}],
        ["x of rank 2", "x of rank 1"],
    ),
    "a list of undeclared rank": (
        model(RESHAPE, *"sy"),
        [{"x": of(4, 6), "s": ints(2, 3, 4)}, {"x": of(4, 6), "s": ints(3, 8)}],
        ["s of rank 1"],
    ),
    "items beside a tensor of undeclared rank": (
        model(
            "g (float[A] x, seq(float[n]) s, int64 i) => (float[n] y)"
            " { a = SequenceAt(s, i) y = Add(a, x) }",
            *"xsy",
        ),
        [{"x": of(3), "s": [of(2, 3)], "i": np.array(0)}],
        ["x of rank 1"],
    ),
    "captured by a branch": (
        model(
            "g (float[A, B] x, int64[R] s, bool c) => (float[n] y) {"
            " y = If (c) <then_branch = t () => (float[p] a) { a = Reshape(x, s) },"
            " else_branch = e () => (float[q] b) { n = Neg(x) b = Reshape(n, s) }> }",
            "y",
        ),
        [{"x": of(4, 6), "s": ints(3, 8), "c": np.array(c)} for c in (True, False)],
        ["s of length 2"],
    ),
    "items of a sequence": (
        model("g (seq(float[n]) s, int64 i) => (float[n] y) { y = SequenceAt(s, i) }", *"sy"),
        [
            {"s": [of(2, 3), of(4, 5)], "i": np.array(-1)},
            {"s": [of(2, 3), of(4, 5)], "i": np.array(0)},
            {"s": [of(7)], "i": np.array(0)},
        ],
        ["s of rank 2", "s of rank 1"],
    ),
    "a sequence in one": (
        model(
            "g (seq(float[n]) s) => (float[n] y) { y = ConcatFromSequence<axis=0, new_axis=1>(s) }",
            *"sy",
        ),
        [{"s": [of(2, 3), of(2, 3)]}, {"s": [np.float32(1), np.float32(2)]}],
        ["s of rank 2", "s of rank 0"],
    ),
    "an optional": (
        model("g (optional(float[n]) o) => (float[n] y) { y = OptionalGetElement(o) }", *"oy"),
        [{"o": of(3)}, {"o": of(2, 3)}],
        ["o of rank 1", "o of rank 2"],
    ),
    "nothing needs the rank": (
        model("g (seq(float[n]) s) => (int64 y) { y = SequenceLength(s) }", "s"),
        [{"s": [of(2, 3), of(4)]}, {"s": []}],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    made, feeds, plans = CASES[name]
    session = sardonyx.InferenceSession(made.SerializeToString())
    reference = ReferenceEvaluator(made)
    for feed in (*feeds, *feeds):
        for mine, theirs in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            assert mine.shape == np.shape(theirs)
            assert mine.dtype == np.asarray(theirs).dtype
            np.testing.assert_array_equal(mine, theirs)
    assert list(inspect(session).variants) == plans


def test_an_empty_sequence() -> None:
    made = model(
        "g (seq(float[n]) s, float[1] t) => (seq(float[n]) y) {"
        " y = SequenceMap(s, t) <body = b (float[n] a, float[m] c) => (float[k] d)"
        " { d = Add(a, c) }> }",
        *"sy",
    )
    body = made.graph.node[0].attribute[0].g
    for info in (*body.input, *body.output):
        info.type.tensor_type.ClearField("shape")
    session = sardonyx.InferenceSession(made.SerializeToString())
    one = np.float32([1])
    assert session.run(None, {"s": [], "t": one}) == [[]]
    (found,) = session.run(None, {"s": [np.float32([[1, 2]]), np.float32([[3]])], "t": one})
    assert [x.tolist() for x in found] == [[[2, 3]], [[4]]]


def test_the_face() -> None:
    session = sardonyx.InferenceSession(model(RESHAPE, "y").SerializeToString())
    assert [(v.name, v.type, v.shape) for v in session.get_inputs()] == [
        ("x", "tensor(float)", ["A", "B"]),
        ("s", "tensor(int64)", ["R"]),
    ]
    assert [(v.name, v.type, v.shape) for v in session.get_outputs()] == [
        ("y", "tensor(float)", [])
    ]
    assert "the lengths or ranks of s come with runs" in session.explain()
    session.run(None, {"x": of(4, 6), "s": ints(3, 8)})
    assert "another plan, for s of length 2:" in session.explain()


SEQUENCE = "g (seq(float[n]) s, int64 i) => (float[n] y) { y = SequenceAt(s, i) }"
ONE = np.array(1)
#: Model, feeds, what is wrong with them.
REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "rank of a list": (
        RESHAPE, {"x": of(1, 1), "s": ints(1).reshape(1, 1)}, errors.InvalidArgument,
        r"input s.*wrong rank.*Expected 1, got 2\. Feed a list of numbers",
    ),
    "type of a list": (
        RESHAPE, {"x": of(1, 1), "s": np.ones(1)}, errors.InvalidArgument, r"input s.*type",
    ),
    "a shape of another size": (
        RESHAPE, {"x": of(2, 2), "s": ints(5)}, errors.InvalidArgument, "node Reshape_0",
    ),
    "items of different ranks": (
        SEQUENCE, {"s": [of(1), of(1, 1)], "i": ONE}, errors.InvalidArgument,
        r"input s.*different numbers of axes\. Expected one number, got \[1, 2\]\. Feed tensors",
    ),
    "no sequence": (
        SEQUENCE, {"s": of(3), "i": ONE}, errors.InvalidArgument,
        r"input s.*no list\. Expected list, got ndarray\. Feed a list of arrays",
    ),
    "type of an item": (
        SEQUENCE, {"s": [np.ones(1)], "i": ONE}, errors.InvalidArgument, r"input s.*type",
    ),
    "no such item": (
        SEQUENCE, {"s": [of(1)], "i": ONE}, errors.IndexOutOfRange, "SequenceAt_0.*1 items",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_feeds(name: str) -> None:
    text, feeds, error, part = REFUSED[name]
    unshaped = "ys" if text is SEQUENCE else "y"
    session = sardonyx.InferenceSession(model(text, *unshaped).SerializeToString())
    for _ in range(2):
        with pytest.raises(error, match=part):
            session.run(None, feeds)


def test_lengths_that_contradict_each_other() -> None:
    """What is there for no length is refused when it is loaded; the text says what to declare."""
    text = """g (float[A, B] x, int64[R] s) => (float[n] y) { a = Reshape(x, s)
        b = Transpose<perm = [2, 0, 1]>(a) c = Transpose<perm = [1, 0]>(a) y = Add(b, c) }"""
    part = r"^\[input s\] .*no number that was tried fits: \[node Transpose_2.*Declare how many"
    with pytest.raises(errors.NotImplemented, match=part):
        sardonyx.InferenceSession(model(text, "y").SerializeToString())


def test_a_length_that_the_model_cannot_take_is_named() -> None:
    text = """g (float[A, B] x, int64[R] s) => (float[n] y)
        { r = Reshape(x, s) y = Transpose<perm = [1, 0]>(r) }"""
    session = sardonyx.InferenceSession(model(text, "y").SerializeToString())
    assert session.run(None, {"x": of(4, 6), "s": ints(3, 8)})[0].shape == (8, 3)
    with pytest.raises(errors.InvalidArgument, match="take s of length 1.*node Transpose_1"):
        session.run(None, {"x": of(4, 6), "s": ints(24)})


def chain(count: int) -> str:
    """Lists of 2, 3 and 4 elements, each of which decides for all that follows."""
    lists = ", ".join(f"int64[R{k}] s{k}" for k in range(count))
    body, last = "", "x"
    for k in range(count):
        axes = ", ".join(map(str, reversed(range(2 + k % 3))))
        body += f" r{k} = Reshape({last}, s{k}) t{k} = Transpose<perm = [{axes}]>(r{k})"
        last = f"t{k}"
    return f"g (float[A, B] x, {lists}) => (float[n] y) {{ {body} y = Identity({last}) }}"


def clash(count: int) -> str:
    """Lists no lengths of which fit, all of which the node that says so depends on."""
    lists = ", ".join(f"int64[R{k}] s{k}" for k in range(count))
    body, last = "", "x"
    for k in range(count):
        body += f" r{k} = Reshape({last}, s{k})"
        last = f"r{k}"
    return (
        f"g (float[A, B] x, {lists}) => (float[n] y) {{ {body} a = Transpose<perm = [0, 1]>({last})"
        f" b = Transpose<perm = [2, 0, 1]>({last}) y = Add(a, b) }}"
    )


@pytest.mark.parametrize(("count", "most"), [(1, 8), (4, 24), (10, 40)])
def test_few_trials_find_lengths_and_the_log_says_so(
    count: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    with knobs.override("SARDONYX_CACHE", "off"), caplog.at_level(logging.INFO, "sardonyx"):
        session = sardonyx.InferenceSession(model(chain(count), "y").SerializeToString())
    names = ", ".join(f"s{k}" for k in range(count))
    first, last = (r.getMessage() for r in caplog.records if "trie" in r.msg or "trial" in r.msg)
    assert first.startswith(f"Lengths or ranks of {names} are tried, as without them: [node Resh")
    (trials,) = re.fullmatch(
        rf"After (\d+) trials: plans wait for .* ranks of {names}", last
    ).groups()
    assert int(trials) <= most
    given = {f"s{k}": ints(24, *[1] * (1 + k % 3)) for k in range(count)}
    assert session.run(None, {"x": of(4, 6)} | given)[0].size == 24


def test_trials_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks._MOST_TRIALS == 256
    monkeypatch.setattr(ranks, "_MOST_TRIALS", 64)  # the same error, in a quarter of the time
    part = (
        r"^\[input s0, s1, s2, s3 and 36 more\] .*too many inputs: 64 trials"
        r" .*node Reshape_0 \(Reshape\).*Declare how many elements"
    )
    with pytest.raises(errors.NotImplemented, match=part) as error:
        sardonyx.InferenceSession(model(clash(40), "y").SerializeToString())
    assert "s4" not in str(error.value)


@pytest.mark.parametrize(
    ("count", "named"), [(2, "s1, s0"), (4, "s3, s2, s1, s0"), (6, "s5, s4, s3, s2 and 2 more")]
)
def test_few_inputs_are_named_where_no_lengths_fit(count: int, named: str) -> None:
    what = r"no number that was tried fits: \[node Transpose_\d \(Transpose\)\]"
    part = rf"^\[input {named}\] .*{what}.*Declare how many elements"
    with pytest.raises(errors.NotImplemented, match=part):
        sardonyx.InferenceSession(model(clash(count), "y").SerializeToString())


def test_errors_that_no_length_mends() -> None:
    text = "g (int64[R] s) => (float[n] y) { c = ConstantOfShape(s) y = Nonsense(c) }"
    with pytest.raises(errors.InvalidGraph, match="Nonsense"):
        sardonyx.InferenceSession(model(text, "y").SerializeToString())


def test_a_list_of_another_input_does_not_wait_for_an_operator() -> None:
    """An operator that is not there is an error of the model, whatever lists it has."""
    node = helper.make_node("Nonsense", ["x"], ["y"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.INT64, ["N"])], [info("y", TensorProto.INT64, ["N"])]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(errors.InvalidGraph, match="Nonsense"):
        sardonyx.InferenceSession(made.SerializeToString())


def test_a_list_that_decides_is_no_longer_than_arrays_have_axes() -> None:
    session = sardonyx.InferenceSession(model(RESHAPE, "y").SerializeToString())
    for length in (65, 129, 10**7):
        given = np.broadcast_to(np.int64(1), (length,))  # no memory of the caller's
        part = rf"^\[input s\] .*too long. Expected at most 64 elements, got {length}\. Feed as"
        with pytest.raises(errors.InvalidArgument, match=part):
            session.run(None, {"x": of(1, 1), "s": given})
    one = np.ones((1, 1), np.float32)
    for most in (1, 64):
        found = session.run(None, {"x": one, "s": ints(*[1] * most)})[0]
        np.testing.assert_array_equal(found, one.reshape([1] * most))


def test_items_of_a_sequence_are_arrays() -> None:
    text = "g (seq(float[A]) q) => (float[B] y) { y = ConcatFromSequence<axis=0>(q) }"
    session = sardonyx.InferenceSession(model(text, "q", "y").SerializeToString())
    with pytest.raises(errors.InvalidArgument, match="input q.*no array"):
        session.run(None, {"q": [[[1.0, 2.0], [3.0]]]})


@pytest.mark.parametrize("count", [1, 2, 7, 16])
@pytest.mark.parametrize("needed", [(), (0,), (3, 4), (6, 0, 15)])
def test_few_trials_find_what_must_be_known(count: int, needed: tuple[int, ...]) -> None:
    names = tuple(f"s{k}" for k in range(count))
    wanted = {f"s{k}" for k in needed if k < count} or {names[-1]}
    asked = []

    def suffice(known: tuple[str, ...]) -> bool:
        asked.append(known)
        return wanted <= set(known)

    assert set(ranks._needed((), names, suffice)) == wanted
    assert len(asked) <= 2 * len(wanted) * (1 + count.bit_length())
