"""Bodies of branches and loops in which data decides how many axes there are.

The session decides first which branch is taken, or how often a loop goes round, and makes a plan in
which its nodes stand in the graph around. Values are NumPy's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors, knobs
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

X = np.arange(24, dtype=np.float32).reshape(4, 6)
S = np.array([2, 9, 3, 4])
P = np.array([True, False, True, True])
Z = np.float32([0, 1, 1])
YES, NO = np.array(True), np.array(False)
Given = Mapping[str, Any]

#: S where P holds: 2, 3, 4.
PICKED = "{0} = Compress<axis = 0>(s, p)"
LISTS = "float[4,6] x, int64[4] s, bool[4] p"
TRUE = "Constant<value_int = 1>()"


def model(inputs: str, body: str, opset: int = 18) -> onnx.ModelProto:
    """A model whose output y has no declared rank."""
    made = model_of(f"g ({inputs}) => (float[n] y) {{ {body} }}", opset=opset)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def branches(then: str, otherwise: str, result: str = "y", condition: str = "c") -> str:
    """An If; the branches give v and w, with names of their own."""
    return (
        f"{result} = If ({condition}) <then_branch = a () => (float[k] v_{result})"
        f" {{ {then.replace('@', f'v_{result}')} }}, else_branch = b () => (float[l] w_{result})"
        f" {{ {otherwise.replace('@', f'w_{result}')} }}>"
    )


def loop(carried: str, inputs: str, outputs: str, body: str, results: str = "y") -> str:
    """A Loop of n trips, as long as o is true."""
    return (
        f"{results} = Loop(n, c, {carried}) <body = t (int64 i, bool o, {inputs}) =>"
        f" (bool go, {outputs}) {{ go = Identity(o) {body} }}>"
    )


def axes(x: Any, *shape: int) -> Any:
    return np.asarray(x, np.float32).reshape(shape)


def grown(f: Given) -> Any:
    """What a loop gives that reshapes by a list to which each trip adds a 1."""
    shape = [*f["s"], *[1] * (int(f["n"]) - 1)]
    return f["x"].reshape(shape) if f["n"] > 0 else f["x"]


def lists(**more: Any) -> dict[str, Any]:
    return {"x": X, "s": S, "p": P, **more}


RESHAPED = f"{PICKED.format('f')} @ = Reshape(x, f)"
OTHER = f"{PICKED.format('g')} h = Neg(x) @ = Reshape(h, g)"
GROWS = "e = Constant<value_ints = [1]>() j = Concat<axis = 0>(l, e) w = Reshape(v, l)"
PLAIN = f"q = {TRUE} t = Cast<to = 9>(q)"
#: Inputs, body, feeds, what y is, names of the plans that are made.
Case = tuple[str, str, list[dict[str, Any]], Callable[[Given], Any], list[str]]
BRANCH = "the values branch of If_0"
LOOP = "the values iterations of Loop_0"
CASES: dict[str, Case] = {
    "both branches": (
        f"{LISTS}, bool c", branches(RESHAPED, OTHER), [lists(c=YES), lists(c=NO)],
        lambda f: axes(f["x"] if f["c"] else -f["x"], 2, 3, 4),
        [BRANCH, "the then_branch of If_0", "the else_branch of If_0"],
    ),
    "one branch: planned once it is taken": (
        f"{LISTS}, bool c", branches(RESHAPED, "@ = Neg(x)"), [lists(c=NO), lists(c=YES)],
        lambda f: axes(f["x"], 2, 3, 4) if f["c"] else -f["x"],
        ["branches that are decided first"],
    ),
    "the other branch": (
        f"{LISTS}, bool c", branches("@ = Neg(x)", RESHAPED), [lists(c=YES), lists(c=NO)],
        lambda f: -f["x"] if f["c"] else axes(f["x"], 2, 3, 4),
        ["branches that are decided first"],
    ),
    "a condition that is computed": (
        LISTS,
        "q = ReduceSum<keepdims = 0>(x) o = Constant<value_float = 0.0>() c = Greater(q, o) "
        + branches(RESHAPED, OTHER),
        [lists(), lists(x=-X)], lambda f: axes(X, 2, 3, 4),
        ["the values branch of If_3", "the then_branch of If_3", "the else_branch of If_3"],
    ),
    "a condition that is constant": (
        LISTS, f"{PLAIN} " + branches(RESHAPED, "@ = Neg(x)", condition="t"), [lists()],
        lambda f: axes(f["x"], 2, 3, 4), ["the values branch of If_2", "the then_branch of If_2"],
    ),
    "Expand": (
        f"{LISTS}, bool c",
        branches(
            f"{PICKED.format('f')} r = ReduceSum<keepdims = 0>(x) @ = Expand(r, f)",
            f"{PICKED.format('g')} @ = ConstantOfShape(g)",
        ),
        [lists(c=YES), lists(c=NO)],
        lambda f: np.full((2, 3, 4), 276 if f["c"] else 0, np.float32),
        [BRANCH, "the then_branch of If_0", "the else_branch of If_0"],
    ),
    "Slice to a bound that is fed": (
        "float[4,6] x, int64[4] s, int64[1] k, bool c",
        "z = Constant<value_ints = [0]>() "
        + branches("f = Slice(s, z, k) @ = Reshape(x, f)", "g = Slice(s, z, k) @ = Expand(x, g)"),
        [{"x": X, "s": np.array([2, 4, 3, 1]), "k": np.array([k]), "c": YES} for k in (3, 4)]
        + [{"x": X, "s": np.array([3, 4, 6, 9]), "k": np.array([3]), "c": NO}],
        lambda f: axes(f["x"], *f["s"][: f["k"][0]])
        if f["c"] else np.broadcast_to(f["x"], (3, 4, 6)),
        ["the values branch of If_1", "the then_branch of If_1", "the else_branch of If_1"],
    ),
    "Tile": (
        f"{LISTS}, bool c",
        branches(
            f"{PICKED.format('f')} z = Constant<value_ints = [1]>()"
            " e = Constant<value_ints = [3]>() k = Slice(f, z, e) @ = Tile(x, k)",
            "@ = Neg(x)",
        ),
        [lists(c=YES), lists(c=NO)],
        lambda f: np.tile(f["x"], (3, 4)) if f["c"] else -f["x"], [],
    ),
    "a rank from outside": (
        f"{LISTS}, bool c", f"{PICKED.format('f')} r = Reshape(x, f) "
        + branches("@ = Neg(r)", "@ = Abs(r)"),
        [lists(c=YES), lists(c=NO)], lambda f: axes(-f["x"] if f["c"] else f["x"], 2, 3, 4),
        ["the values f", "f of length 3"],
    ),
    "a branch in a branch": (
        f"{LISTS}, bool c, bool d",
        branches(branches(RESHAPED, OTHER, "@", "d").replace("v_@", "v2").replace("w_@", "w2"),
                 "@ = Abs(x)"),
        [lists(c=c, d=d) for c in (YES, NO) for d in (YES, NO)],
        lambda f: axes(f["x"] if f["d"] else -f["x"], 2, 3, 4) if f["c"] else f["x"],
        ["branches that are decided first"],
    ),
    "behind a list that is fed": (
        f"{LISTS}, bool c, int64[b] d, int64[e] i",
        "r = Reshape(x, d) m = Gather(x, i) u = ReduceMin<keepdims = 0>(m) t = Add(r, u) "
        + branches(RESHAPED.replace("(x,", "(t,"), OTHER.replace("(x)", "(t)")),
        [lists(c=c, d=np.array([3, 8]), i=np.zeros(100, np.int64)) for c in (YES, NO)],
        lambda f: axes(f["x"] if f["c"] else -f["x"], 2, 3, 4), ["d of length 2"],
    ),
    "a list that grows in each trip": (
        "float[4,6] x, int64[a] s, int64 n, bool c",
        loop("x, s", "float[k] v, int64[r] l", "float[q] w, int64[z] j", GROWS, "y, f"),
        [{"x": X, "s": np.array([2, 12]), "n": np.array(n), "c": YES} for n in (3, 1, 0)],
        grown, [LOOP, *(f"{n} iterations of Loop_0" for n in (3, 1, 0))],
    ),
    "a loop that does not begin": (
        "float[4,6] x, int64[a] s, int64 n, bool c",
        loop("x, s", "float[k] v, int64[r] l", "float[q] w, int64[z] j", GROWS, "y, f"),
        [{"x": X, "s": np.array([2, 12]), "n": np.array(3), "c": NO}],
        lambda f: f["x"], [LOOP, "0 iterations of Loop_0"],
    ),
    "a loop that a condition ends": (
        "float[4,6] x, int64[a] s, int64 n",
        f"zero = Constant<value_int = 0>() {PLAIN} y, f, u = Loop(\"\", t, x, s, zero) <body = b"
        " (int64 i, bool o, float[k] v, int64[r] l, int64 m) =>"
        " (bool go, float[q] w, int64[z] j, int64 h) {"
        f" one = {TRUE} h = Add(m, one) go = Less(h, n) {GROWS} }}>",
        [{"x": X, "s": np.array([2, 12]), "n": np.array(n)} for n in (3, 1)], grown,
        ["the values iterations of Loop_3", "3 iterations of Loop_3", "1 iterations of Loop_3"],
    ),
    "an axis more in each trip": (
        "float[4,6] x, int64 n, bool c",
        loop("x", "float[k] v", "float[q] w",
             "e = Constant<value_ints = [0]>() w = Unsqueeze(v, e)"),
        [{"x": X, "n": np.array(n), "c": YES} for n in (2, 0)],
        lambda f: axes(f["x"], *[1] * int(f["n"]), 4, 6),
        [LOOP, "2 iterations of Loop_0", "0 iterations of Loop_0"],
    ),
    "a list of data in a loop": (
        f"{LISTS}, int64 n, bool c",
        loop("x", "float[k] v", "float[q] w",
             f"{PICKED.format('f')} r = Reshape(v, f) w = Add(r, r)"),
        [lists(n=np.array(n), c=YES) for n in (2, 0)],
        lambda f: axes(4 * f["x"], 2, 3, 4) if f["n"] else f["x"],
        [LOOP, "2 iterations of Loop_0", "0 iterations of Loop_0"],
    ),
    "what iterations give": (
        f"{LISTS}, int64 n, bool c",
        loop("x", "float[4,6] v", "float[4,6] w, float[2,3,4] m",
             f"{PICKED.format('f')} w = Add(v, v) m = Reshape(v, f)", "last, y"),
        [lists(n=np.array(n), c=YES) for n in (2, 0)],
        lambda f: axes([f["x"] * 2**k for k in range(int(f["n"]))], int(f["n"]), 2, 3, 4),
        [LOOP, "2 iterations of Loop_0", "0 iterations of Loop_0"],
    ),
    "a branch in a loop": (
        f"{LISTS}, int64 n, bool c",
        loop("x", "float[k] v", "float[q] w",
             f"one = {TRUE} b = Equal(i, one) "
             + branches(RESHAPED.replace("(x,", "(v,"), "@ = Neg(v)", "w", "b")),
        [lists(n=np.array(n), c=YES) for n in (1, 2, 3)],
        lambda f: {1: -f["x"], 2: axes(-f["x"], 2, 3, 4), 3: axes(f["x"], 2, 3, 4)}[int(f["n"])],
        ["branches that are decided first"],
    ),
    "a loop in a branch": (
        f"{LISTS}, int64 n, bool c",
        branches(
            loop("x", "float[k] v", "float[q] w",
                 f"{PICKED.format('f')} w = Reshape(v, f)", "@"),
            "@ = Neg(x)",
        ),
        [lists(n=np.array(2), c=c) for c in (YES, NO)],
        lambda f: axes(f["x"], 2, 3, 4) if f["c"] else -f["x"],
        ["branches that are decided first"],
    ),
    "Scan, backwards, along other axes": (
        "float[2,4,3] x, float[4,3] s, bool[4] p, int64[4] d",
        "last, y = Scan<num_scan_inputs = 1, scan_input_axes = [2], scan_output_axes = [1],"
        " scan_input_directions = [1], scan_output_directions = [1],"
        " body = t (float[a,b] v, float[2,4] u) => (float[c,e] w, float[f,g,h] m) {"
        " i = Compress<axis = 0>(d, p) r = Reshape(u, i) k = ReduceSum<keepdims = 0>(v)"
        " m = Add(r, k) j = ReduceMax<keepdims = 0>(u) w = Add(v, j) }>(s, x)",
        [{"x": np.arange(24, dtype=np.float32).reshape(2, 4, 3), "s": np.ones((4, 3), np.float32),
          "p": P, "d": np.array([2, 9, 2, 2])}],
        lambda f: np.stack(
            [f["x"][:, :, t].reshape(2, 2, 2)
             + f["s"].sum() + 12 * sum(f["x"][:, :, u].max() for u in range(t + 1, 3))
             for t in range(3)], axis=1,
        ),
        ["the values iterations of Scan_0", "3 iterations of Scan_0"],
    ),
}  # fmt: skip


def session_for(
    name: str, options: sardonyx.SessionOptions | None = None
) -> sardonyx.InferenceSession:
    """A session of a case, whose values are checked."""
    inputs, body, feeds, expected, _ = CASES[name]
    session = sardonyx.InferenceSession(model(inputs, body).SerializeToString(), options)
    for feed in (*feeds, *feeds):
        (y,) = session.run(["y"], feed)
        wanted = expected(feed)
        assert y.shape == wanted.shape
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, wanted)
    return session


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    session = session_for(name)
    assert list(inspect(session).variants) == CASES[name][-1]


@pytest.mark.parametrize(
    "name",
    ["both branches", "one branch: planned once it is taken", "a rank from outside",
     "a loop that a condition ends"],
)  # fmt: skip
def test_graphs_that_are_left_as_they_are(name: str) -> None:
    """Nodes that nothing reads stay there, but not where a list is computed that they wait for."""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session_for(name, options)


def test_a_list_that_never_changes_is_one_list() -> None:
    """Each further one would be tried, and there would be too many of them."""
    inputs, body, feeds, expected, _ = CASES["a list of data in a loop"]
    session = sardonyx.InferenceSession(model(inputs, body).SerializeToString())
    feed = {**feeds[0], "n": np.array(20)}
    (y,) = session.run(None, feed)
    np.testing.assert_array_equal(y, 2.0**20 * X.reshape(2, 3, 4))
    plans = inspect(session).variants["20 iterations of Loop_0"].variants
    assert list(plans) == ["the values f_1", "f_1 of length 3"]


def test_what_is_drawn_in_iterations_differs() -> None:
    drawn = "u = Reshape(x, f) m = RandomUniformLike(u) w = Identity(u)"
    outputs = "float[q] w, float[r] m"
    body = loop("x", "float[k] v", outputs, f"{PICKED.format('f')} {drawn}", "last, y")
    session = sardonyx.InferenceSession(
        model(f"{LISTS}, int64 n, bool c", body).SerializeToString()
    )
    (y,) = session.run(["y"], lists(n=np.array(3), c=YES))
    assert y.shape == (3, 2, 3, 4)
    assert len(np.unique(y)) > 60


def test_the_face() -> None:
    inputs, body, feeds, *_ = CASES["a list that grows in each trip"]
    session = sardonyx.InferenceSession(model(inputs, body).SerializeToString())
    assert [v.name for v in session.get_inputs()] == ["x", "s", "n", "c"]
    assert [(v.name, v.type) for v in session.get_outputs()] == [("y", "tensor(float)")]
    assert "no plan of its own: runs decide on the iterations of Loop_0" in session.explain()
    session.run(None, feeds[0])
    assert "another plan, for 3 iterations of Loop_0:" in session.explain()


def test_the_log_says_what_plans_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    inputs, body, feeds, *_ = CASES["both branches"]
    with knobs.override("SARDONYX_CACHE", "off"), caplog.at_level(logging.INFO, "sardonyx"):
        session = sardonyx.InferenceSession(model(inputs, body).SerializeToString())
        session.run(None, feeds[0])
    said = [r.getMessage() for r in caplog.records]
    start = "Plans wait for branch of If_0, as without it: [node If_0 (If)] [node Reshape_1"
    assert any(text.startswith(start) for text in said)
    assert "A plan is compiled for the then_branch of If_0." in said


def test_a_fault_in_a_body_that_is_written_out_names_its_node() -> None:
    inputs, body, feeds, *_ = CASES["a list of data in a loop"]
    session = sardonyx.InferenceSession(model(inputs, body).SerializeToString())
    with pytest.raises(errors.InvalidArgument, match=r"node Reshape_2"):
        session.run(None, {**feeds[0], "s": np.array([2, 9, 3, 5])})


#: Inputs, body, feeds, error, what it says. A session is made, unless feeds are None.
REFUSED: dict[str, tuple[str, str, dict[str, Any] | None, type[Exception], str]] = {
    "too many iterations": (
        f"{LISTS}, int64 n, bool c", CASES["a list of data in a loop"][1],
        lists(n=np.array(2**40), c=YES), errors.NotImplemented,
        r"over 1024 iterations of Loop_0: \[node Loop_0 \(Loop\)\] Data decides how many axes.*"
        r"4 each.*Expected at most 1024 iterations, got over 1024\. Make shapes in the body",
    ),
    "an axis too many": (
        *CASES["an axis more in each trip"][:2], {"x": X, "n": np.array(63), "c": YES},
        errors.InvalidArgument,
        r"cannot take 63 iterations of Loop_0: \[node Unsqueeze_2 \(Unsqueeze\)\] No array has"
        r" so many axes as its output\. Expected at most 64, got 65\.",
    ),
    "an end that depends on what has no plan": (
        "float[4,6] x, int64[a] s",
        f"{PLAIN} y, f = Loop(\"\", t, x, s) <body = b (int64 i, bool o, float[k] v, int64[r] l) =>"
        " (bool go, float[q] w, int64[z] j) { d = Size(l) u = ReduceSum<keepdims = 0>(w)"
        f" zero = Constant<value_float = 0.0>() go = Less(u, zero) {GROWS} }}>",
        None, errors.NotImplemented,
        r"node Loop_2 \(Loop\)\] \[node Reshape_\d+ \(Reshape\)\] A shape depends on data:"
        r" The number of axes.*Let the number of elements of l follow from the inputs' shapes\.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, body, feeds, error, part = REFUSED[name]
    made = model(inputs, body).SerializeToString()
    if feeds is None:
        with pytest.raises(error, match=part):
            sardonyx.InferenceSession(made)
        return
    session = sardonyx.InferenceSession(made)
    for _ in range(2):
        with pytest.raises(error, match=part):
            session.run(None, feeds)


def test_no_iterations_of_undeclared_rank() -> None:
    """What they would give is declared, or nobody knows how many axes it has."""
    inputs, body, feeds, *_ = CASES["what iterations give"]
    made = model(inputs, body)
    loop_body = made.graph.node[0].attribute[0].g
    loop_body.output[2].type.tensor_type.ClearField("shape")
    session = sardonyx.InferenceSession(made.SerializeToString())
    assert session.run(["y"], feeds[0])[0].shape == (2, 2, 3, 4)
    part = r"node Loop_0 \(Loop\)\] It goes round 0 times, and 'm'.*Declare the shape of 'm'"
    with pytest.raises(errors.NotImplemented, match=part):
        session.run(["y"], feeds[1])
