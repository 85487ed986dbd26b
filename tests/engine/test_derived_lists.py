"""Lists of sizes that are computed, and whose length decides how many axes there are.

If the length follows from the inputs' shapes, plans wait for those; else the list is computed
first, and plans wait for what its length turns out to be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

X = np.arange(24, dtype=np.float32).reshape(4, 6)
ONE = np.ones((1, 1), np.float32)


def ints(values: Any) -> Any:
    return np.array(values, np.int64)


def bools(*values: int) -> Any:
    return np.array(values, bool)


def model(inputs: str, body: str, opset: int = 18) -> onnx.ModelProto:
    """A model whose outputs, and inputs called u, have no declared rank."""
    made = model_of(f"g ({inputs}) => (float[n] y) {{ {body} }}", opset=opset)
    for info in (*made.graph.output, *(v for v in made.graph.input if v.name == "u")):
        info.type.tensor_type.ClearField("shape")
    return made


FLAT = "m = Constant<value_ints = [-1]>() f = Reshape(s, m)"
PICKED = "f = Compress<axis = 0>(s, p)"
S, P = ints([2, 9, 3, 4]), bools(1, 0, 1, 1)
#: Name, inputs, body, feeds, names of the plans that are made for them.
CASES: dict[str, tuple[str, str, list[dict[str, Any]], list[str]]] = {
    "Reshape of a matrix": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Reshape(x, f)",
        [{"x": X, "s": ints([[2, 3, 4]])}, {"x": X, "s": ints([[2], [12]])}],
        ["s of shape [1, 3]", "s of shape [2, 1]"],
    ),
    "of three axes": (
        "float[4,6] x, int64[a,b,c] s", f"{FLAT} r = Reshape(x, f) y = Transpose<perm=[1,0,2]>(r)",
        [{"x": X, "s": ints([[[2], [3], [4]]])}], ["s of shape [1, 3, 1]"],
    ),
    "Flatten, Squeeze": (
        "float[4,6] x, int64[a,b] s",
        "z = Constant<value_ints = [0]>() f = Flatten<axis = 0>(s) q = Squeeze(f, z)"
        " y = Reshape(x, q)",
        [{"x": X, "s": ints([[2, 3, 4]])}], ["s of shape [1, 3]"],
    ),
    "a row": (
        "float[4,6] x, int64[a,b] s, int64 i", "f = Gather(s, i) y = Reshape(x, f)",
        [{"x": X, "s": ints([[2, 3, 4], [4, 3, 2]]), "i": ints(1)}], ["s of shape [2, 3]"],
    ),
    "a column": (
        "float[4,6] x, int64[a,b] s, int64 i",
        "f = Gather<axis = 1>(s, i) r = Reshape(x, f) y = Transpose<perm = [2, 0, 1]>(r)",
        [{"x": X, "s": ints([[2, 4], [3, 3], [4, 2]]), "i": ints(1)}], ["s of shape [3, 2]"],
    ),
    "Cast": (
        "float[4,6] x, float[a] s", "f = Cast<to = 7>(s) y = Reshape(x, f)",
        [{"x": X, "s": np.float32([2, 3, 4])}], ["s of length 3"],
    ),
    "Mul, Where": (
        "float[1,1] x, int64[a,b] s, bool[a,b] c",
        "o = Constant<value_int = 1>() w = Where(c, s, o) d = Mul(w, w)"
        " m = Constant<value_ints = [-1]>() f = Reshape(d, m) y = Expand(x, f)",
        [{"x": ONE, "s": ints([[2, 3]]), "c": np.array([[True, False]])}],
        ["s of shape [1, 2], c of shape [1, 2]"],
    ),
    "Concat of a matrix and a list": (
        "float[4,6] x, int64[a,b] s, int64[c] t", f"{FLAT} j = Concat<axis = 0>(f, t)"
        " y = Reshape(x, j)",
        [{"x": X, "s": ints([[2, 3]]), "t": ints([4])}], ["t of length 1, s of shape [1, 2]"],
    ),
    "as many sizes as an input has rows": (
        "float[1,1] x, float[k,2] z",
        "a = Shape<end = 1>(z) t = Constant<value_ints = [2]>() f = Expand(t, a)"
        " y = Expand(x, f)",
        [{"x": ONE, "z": np.zeros((3, 2), np.float32)}], ["z of shape [3, 2]"],
    ),
    "ConstantOfShape": (
        "int64[a,b] s", f"{FLAT} y = ConstantOfShape(f)",
        [{"s": ints([[3], [2]])}], ["s of shape [2, 1]"],
    ),
    "Tile": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Tile(x, f)", [{"x": X, "s": ints([[2, 3]])}], [],
    ),
    "Pad": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Pad(x, f)",
        [{"x": X, "s": ints([[1, 1], [2, 0]])}], [],
    ),
    "Slice": (
        "float[4,6] x, int64[a,b] s, int64[a,b] e",
        f"{FLAT} g = Reshape(e, m) y = Slice(x, f, g)",
        [{"x": X, "s": ints([[1, 2]]), "e": ints([[3, 5]])}],
        ["s of shape [1, 2], e of shape [1, 2]"],
    ),
    "Split": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y, z = Split(x, f)",
        [{"x": X, "s": ints([[1], [3]])}], ["s of shape [2, 1]"],
    ),
    "reduced axes that go": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = ReduceSum<keepdims = 0>(x, f)",
        [{"x": X, "s": ints([[1]])}, {"x": X, "s": ints([[1, 0]])}],
        ["s of shape [1, 1]", "s of shape [1, 2]"],
    ),
    "Unsqueeze": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Unsqueeze(x, f)",
        [{"x": X, "s": ints([[1, 0]])}], ["s of shape [1, 2]"],
    ),
    "Squeeze": (
        "float[1,24] x, int64[a,b] s", f"{FLAT} y = Squeeze(x, f)",
        [{"x": X.reshape(1, 24), "s": ints([[0]])}], ["s of shape [1, 1]"],
    ),
    "in branches": (
        "float[4,6] x, int64[a,b] s, bool c",
        f"y = If (c) <then_branch = t () => (float[k] v) {{ {FLAT} v = Reshape(x, f) }},"
        " else_branch = e () => (float[l] w) { n = Constant<value_ints = [-1]>()"
        " h = Reshape(s, n) w = Reshape(x, h) }>",
        [{"x": X, "s": ints([[2, 3, 4]]), "c": np.array(c)} for c in (True, False)],
        ["s of shape [1, 3]"],
    ),
    "in a loop": (
        "float[2,3,4] x, int64[a,b] s, int64 n, bool c",
        "y = Loop(n, c, x) <body = t (int64 i, bool o, float[k] v) => (bool p, float[l] w) {"
        f" p = Identity(o) {FLAT} r = Reshape(v, f) w = Add(r, r) }}>",
        [{"x": X.reshape(2, 3, 4), "s": ints([[2, 3, 4]]), "n": ints(2), "c": np.array(True)}],
        ["s of shape [1, 3]"],
    ),
    "chosen by data": (
        "float[4,6] x, int64[4] s, bool[4] p", f"{PICKED} y = Reshape(x, f)",
        [{"x": X, "s": S, "p": P}, {"x": X, "s": ints([24, 3, 8, 1]), "p": bools(0, 1, 1, 0)}],
        ["the values f", "f of length 3", "f of length 2"],
    ),
    "Slice to a bound that is fed": (
        "float[4,6] x, int64[4] s, int64[1] k",
        "z = Constant<value_ints = [0]>() f = Slice(s, z, k) y = Reshape(x, f)",
        [{"x": X, "s": ints([2, 3, 4, 9]), "k": ints([3])}], ["the values f", "f of length 3"],
    ),
    "from floats": (
        "float[4,6] x, float[k] z",
        "q = NonZero(z) m = Constant<value_ints = [-1]>() f = Reshape(q, m)"
        " o = Constant<value_ints = [1]>() g = Add(f, o) t = ReduceSum(x) y = Expand(t, g)",
        [{"x": X, "z": np.float32([0, 1, 1])}, {"x": X, "z": np.float32([0, 1, 1, 5])}],
        ["the values g", "g of length 2", "g of length 3"],
    ),
    "items of a sequence, joined": (
        "float[4,6] x, seq(int64[a]) s", "f = ConcatFromSequence<axis = 0>(s) y = Reshape(x, f)",
        [{"x": X, "s": [ints([2, 3]), ints([4])]}], ["the values f", "f of length 3"],
    ),
    "an item of a sequence": (
        "float[4,6] x, seq(int64[a]) s, int64 i", "f = SequenceAt(s, i) y = Reshape(x, f)",
        [{"x": X, "s": [ints([2, 3]), ints([4, 6])], "i": ints(1)}],
        ["the values f", "f of length 2"],
    ),
    "of one branch or the other": (
        "float[4,6] x, int64[2] s, int64[3] t, bool c",
        "f = If (c) <then_branch = a () => (int64[k] v) { v = Identity(s) },"
        " else_branch = b () => (int64[l] w) { w = Identity(t) }> y = Reshape(x, f)",
        [{"x": X, "s": ints([4, 6]), "t": ints([2, 3, 4]), "c": c} for c in bools(0, 1)],
        ["the values f", "f of length 3", "f of length 2"],
    ),
    "captured by a branch": (
        "float[4,6] x, int64[4] s, bool[4] p, bool c",
        f"{PICKED} y = If (c) <then_branch = a () => (float[k] v) {{ v = Reshape(x, f) }},"
        " else_branch = b () => (float[l] w) { h = Neg(x) w = Reshape(h, f) }>",
        [{"x": X, "s": S, "p": P, "c": np.array(c)} for c in (True, False)],
        ["the values f", "f of length 3"],
    ),
    "two lists, the second of which needs the first": (
        "float[4,6] x, int64[4] s, bool[4] p, int64[1] k",
        f"{PICKED} r = Reshape(x, f) h = Shape(r) z = Constant<value_ints = [0]>()"
        " q = Slice(h, z, k) m = Constant<value_ints = [-1]>() g = Concat<axis = 0>(q, m)"
        " y = Reshape(r, g)",
        [{"x": X, "s": S, "p": P, "k": ints([k])} for k in (2, 1)],
        ["the values f, g", "f of length 3, g of length 3", "f of length 3, g of length 2"],
    ),
    "beside a tensor of undeclared rank": (
        "float[n] u, int64[4] s, bool[4] p", f"{PICKED} y = Reshape(u, f)",
        [{"u": X, "s": S, "p": P}], ["u of rank 2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    inputs, body, feeds, plans = CASES[name]
    made = model(inputs, body)
    session = sardonyx.InferenceSession(made.SerializeToString())
    reference = ReferenceEvaluator(made)
    for feed in (*feeds, *feeds):
        (mine,), (theirs,) = session.run(["y"], feed), reference.run(["y"], feed)
        assert mine.shape == np.shape(theirs)
        assert mine.dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(mine, theirs)
    assert list(inspect(session).variants) == plans


def test_a_list_that_a_loop_stacks() -> None:
    """Not compared with ONNX's evaluator, which stacks numbers as a matrix."""
    made = model(
        "float[4,6] x, int64 n, bool c",
        "f = Loop(n, c) <body = t (int64 i, bool o) => (bool p, int64 w) { p = Identity(o)"
        " e = Constant<value_int = 1>() w = Add(e, i) }>"
        " t = ReduceMax<keepdims = 0>(x) y = Expand(t, f)",
    )
    session = sardonyx.InferenceSession(made.SerializeToString())
    for count in (3, 1, 4):
        (y,) = session.run(None, {"x": X, "n": ints(count), "c": np.array(True)})
        assert y.shape == tuple(range(1, count + 1))
        assert (y == 23).all()


def test_a_list_that_is_an_output_too() -> None:
    made = model("float[4,6] x, int64[4] s, bool[4] p", f"{PICKED} y = Reshape(x, f)")
    made.graph.output.append(onnx.helper.make_tensor_value_info("f", onnx.TensorProto.INT64, None))
    session = sardonyx.InferenceSession(made.SerializeToString())
    y, f = session.run(None, {"x": X, "s": S, "p": P})
    assert f.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(y, X.reshape(2, 3, 4))


def test_the_face() -> None:
    made = model("float[4,6] x, int64[4] s, bool[4] p", f"{PICKED} y = Reshape(x, f)")
    session = sardonyx.InferenceSession(made.SerializeToString())
    assert [v.name for v in session.get_inputs()] == ["x", "s", "p"]
    assert "the lengths or ranks of f come with runs" in session.explain()
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match="node Reshape_1.*"):
            session.run(None, {"x": X, "s": S, "p": bools(1, 1, 1, 1)})


#: Inputs, body, feeds, error, what it says.
REFUSED: dict[str, tuple[str, str, dict[str, Any], type[Exception], str]] = {
    "more sizes than arrays have axes": (
        "float[k] z", "q = NonZero(z) m = Constant<value_ints = [-1]>() f = Reshape(q, m)"
        " y = ConstantOfShape(f)",
        {"z": np.ones(70, np.float32)}, errors.InvalidArgument,
        r"f of length 70: \[node ConstantOfShape_3 \(ConstantOfShape\)\] \[The shape\].*"
        r"at most 64 elements, got 70\. Let it have one element for each axis",
    ),
    "more elements than any node reads": (
        "float[k] z", "q = NonZero(z) m = Constant<value_ints = [-1]>() f = Reshape(q, m)"
        " y = ConstantOfShape(f)",
        {"z": np.ones(1025, np.float32)}, errors.InvalidArgument,
        r"value f.*at most 1024 elements, got 1025\. Compute as many",
    ),
    "of another rank": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Reshape(x, f)",
        {"x": X, "s": ints([24])}, errors.InvalidArgument, r"input s.*Expected 2, got 1\.",
    ),
    "of another type": (
        "float[4,6] x, int64[a,b] s", f"{FLAT} y = Reshape(x, f)",
        {"x": X, "s": np.ones((1, 1), np.float32)}, errors.InvalidArgument, "input s.*type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_feeds(name: str) -> None:
    inputs, body, feeds, error, part = REFUSED[name]
    session = sardonyx.InferenceSession(model(inputs, body).SerializeToString())
    for _ in range(2):
        with pytest.raises(error, match=part):
            session.run(None, feeds)
