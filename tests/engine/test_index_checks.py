"""An index outside of its axis is refused even where no element depends on the index."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of

#: (size, type of y, constants, nodes): y is made of elements at `i`, int64[K], of an axis of that
#: size, along which all elements are equal.
ALIKE: dict[str, tuple[int, str, str, str]] = {
    "a shape of one axis": (1, "int64[K]", "", "s = Shape(v) y = Gather(s, i)"),
    "a constant of one element": (1, "float[K]", "float[1] c = {5}", "y = Gather(c, i)"),
    "an expanded number": (3, "float[K]", "int64[1] t = {3}", "e = Expand(n, t) y = Gather(e, i)"),
    "expanded rows": (3, "float[K,2]", "int64[2] t = {3, 2}", "e = Expand(x, t) y = Gather(e, i)"),
    "of any size": (2, "float[K]", "", "s = Shape(v) e = ConstantOfShape(s) y = Gather(e, i)"),
    "by element":
        (3, "float[K]", "int64[1] t = {3}", "e = Expand(n, t) y = GatherElements(e, i)"),
    "by tuple":
        (3, "float[K]", "int64[1] t = {3}, int64[1] o = {1}",
         "e = Expand(n, t) p = Unsqueeze(i, o) y = GatherND(e, p)"),
    "a tile":
        (4, "float[K]", "int64[1] t = {4}, int64[1] o = {0}",
         "l = Unsqueeze(n, o) e = Tile(l, t) y = Gather(e, i)"),
    "an image made large":
        (4, "float[2,K]", "float[0] r = {}, float[2] f = {1, 4}",
         'm = Transpose(x) e = Resize<mode = "nearest">(m, r, f) y = Gather<axis = 1>(e, i)'),
    "rows that are not chosen":
        (2, "float[2,K]", "bool[2,1] c = {0, 0}, float z = {0.0}",
         "w = Where(c, x, z) y = Gather<axis = 1>(w, i)"),
    "gathered twice":
        (3, "float[K]", "int64[1] t = {9}, int64[3] j = {8, 0, 3}",
         "e = Expand(n, t) g = Gather(e, j) y = Gather(g, i)"),
    "what a product reads":
        (3, "float[K,2]", "int64[2] t = {3, 2}, float[2,2] m = {1, 2, 3, 4}",
         "e = Expand(x, t) g = Gather(e, i) y = MatMul(g, m)"),
    "what a sum reads":
        (3, "float", "int64[1] t = {3}",
         "e = Expand(n, t) g = Gather(e, i) y = ReduceSum<keepdims = 0>(g)"),
    "rows":
        (3, "float[K]", "int64[1] t = {3}", "e = Expand(n, t) g = Gather(e, i) y = Softmax(g)"),
    "half floats":
        (3, "float16[K]", "int64[1] t = {3}",
         "h = Cast<to = 10>(n) e = Expand(h, t) y = Gather(e, i)"),
    "whether numbers are equal":
        (3, "bool[K]", "int64[1] t = {3}", "e = Expand(n, t) g = Gather(e, i) y = Equal(g, g)"),
    "strings":
        (3, "string[K]", "int64[1] t = {3}",
         "s = Cast<to = 8>(n) e = Expand(s, t) y = Gather(e, i)"),
    "what a size is made of":
        (1, "float[A,B]", "int64[1] m = {-1}",
         "s = Shape(v) k = Gather(s, i) q = Concat<axis = 0>(k, m) y = Reshape(v, q)"),
    "what a branch takes":
        (3, "float[K]", "int64[1] t = {3}, float z = {0}",
         "b = Greater(n, z) y = If(b) <then_branch = has () => (float[K] p) {"
         "e = Expand(n, t) p = Gather(e, i) }, else_branch = not () => (float[L] p) {"
         "p = Identity(v) }>"),
}  # fmt: skip
FEEDS = {
    "n": np.array(3, np.float32),
    "x": np.array([[1, 2]], np.float32),
    "v": np.array([4, 5], np.float32),
}


def model_with(case: str, constant: int | None = None) -> bytes:
    """A case as a file; `i` is an input, or a constant of one index."""
    _, kind, constants, nodes = ALIKE[case]
    inputs = "float n, float[1,2] x, float[N] v"
    if constant is None:
        inputs += ", int64[K] i"
    else:
        constants = ", ".join(filter(None, [constants, f"int64[1] i = {{{constant}}}"]))
    values = f"<{constants}>" if constants else ""
    model = model_of(f"g ({inputs}) => ({kind} y) {values} {{ {nodes} }}", opset=19)
    written: bytes = model.SerializeToString()
    return written


_OFF = errors.IndexOutOfRange


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("case", ALIKE)
def test_fed_indices(case: str, level: str) -> None:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    session = sardonyx.InferenceSession(model_with(case), options)
    size = ALIKE[case][0]
    (want,) = session.run(None, FEEDS | {"i": np.array([0])})
    for wrong in (size, size + 6, -size - 1):
        with pytest.raises(_OFF, match=f"index {wrong} is out of range for an axis of size {size}"):
            session.run(None, FEEDS | {"i": np.array([wrong])})
    for right in (size - 1, -size):
        (got,) = session.run(None, FEEDS | {"i": np.array([right])})
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("case", ALIKE)
def test_constant_indices(case: str) -> None:
    size = ALIKE[case][0]
    for wrong in (size, -size - 1):
        session = sardonyx.InferenceSession(model_with(case, wrong))
        with pytest.raises(_OFF, match=f"index {wrong} is out of range for an axis of size {size}"):
            session.run(None, FEEDS)
    sardonyx.InferenceSession(model_with(case, -size)).run(None, FEEDS)


def test_what_is_not_chosen_is_not_checked() -> None:
    text = """g (float n, bool c, int64[K] i) => (float[K] y) <int64[1] t = {3}, float z = {0}> {
        e = Expand(n, t) g = Gather(e, i) y = Where(c, g, z) }"""
    session = sardonyx.InferenceSession(model_of(text, opset=19).SerializeToString())
    feeds = {"n": FEEDS["n"], "i": np.array([0, 9])}
    assert session.run(None, feeds | {"c": np.array(False)})[0].tolist() == [0, 0]
    with pytest.raises(_OFF, match="index 9"):
        session.run(None, feeds | {"c": np.array(True)})
