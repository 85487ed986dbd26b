"""Indices outside of their axes, and divisors of 0, are refused even if nothing depends on them."""

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


#: Type of y, constants, nodes: y has no element that hangs on `q`, elements of `v` at `i`, as each
#: has an operand that decides nothing.
UNDECIDED: dict[str, tuple[str, str, str]] = {
    "equal choices": ("float[K]", "", "c = Greater(q, n) y = Where(c, w, w)"),
    "equal choices of sizes that are known":
        ("float[2]", "float[2] u = {1, 2}", "c = Greater(s, n) y = Where(c, u, u)"),
    "equal numbers": ("float[K]", "float z = {4}", "c = Greater(q, n) y = Where(c, z, z)"),
    "choices that fall together":
        ("float[K]", "", "k = Greater(q, n) c = Not(k) o = Neg(w) p = Neg(o) m = Neg(o)"
         " y = Where(c, p, m)"),
    "what a sum decides": ("float[K]", "", "c = Greater(s, n) y = Where(c, w, w)"),
    "what rows decide":
        ("float[K]", "float z = {0}", "r = Softmax(q) c = Greater(r, z) y = Where(c, w, w)"),
    "what a product decides":
        ("float", "float[2,2] m = {1, 2, 3, 4}, float z = {0}, int64[2] t = {-1, 2}",
         "r = Reshape(q, t) o = MatMul(r, m) u = ReduceSum<keepdims = 0>(o) c = Greater(u, z)"
         " y = Where(c, n, n)"),
    "what an extreme decides":
        ("float[K]", "int64 z = {0}",
         "r = ArgMax<keepdims = 0>(q) c = Greater(r, z) y = Where(c, w, w)"),
    "never both": ("bool[K]", "bool f = {0}", "c = Greater(q, n) y = And(c, f)"),
    "never both, turned": ("bool[K]", "bool f = {0}", "c = Greater(q, n) y = And(f, c)"),
    "never both, of sizes that are known":
        ("bool[2]", "bool[2] f = {0, 0}", "c = Greater(s, n) y = And(f, c)"),
    "always one": ("bool[K]", "bool f = {1}", "c = Greater(q, n) y = Or(c, f)"),
    "no infinity counts":
        ("bool[K]", "", "y = IsInf<detect_positive = 0, detect_negative = 0>(q)"),
    "a condition of a condition":
        ("float[K]", "", "c = Greater(q, n) o = Where(c, w, w) d = Greater(o, n)"
         " y = Where(d, w, w)"),
    "inside a branch":
        ("float[K]", "bool f = {0}", "b = Greater(n, n) y = If(b) <then_branch = has () =>"
         " (float[K] p) { p = Identity(w) }, else_branch = not () => (float[K] o) {"
         " c = Greater(q, n) o = Where(c, w, w) }>"),
    "inside a loop":
        ("float[K]", "int64 two = {2}, bool on = {1}",
         "y = Loop(two, on, w) <body = b (int64 k, bool a, float[K] g) => (bool o, float[K] h) {"
         " o = Identity(a) c = Greater(q, n) u = Where(c, w, w) h = Add(g, u) }>"),
}  # fmt: skip


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("case", UNDECIDED)
def test_what_decides_nothing_is_checked(case: str, level: str) -> None:
    kind, constants, nodes = UNDECIDED[case]
    values = f"<{constants}>" if constants else ""
    text = f"""g (float n, float[N] v, int64[K] i) => ({kind} y) {values} {{
        q = Gather(v, i) s = ReduceSum<keepdims = 0>(q) w = Cast<to = 1>(i) {nodes} }}"""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    session = sardonyx.InferenceSession(model_of(text, opset=20).SerializeToString(), options)
    feeds = {"n": FEEDS["n"], "v": FEEDS["v"]}
    (want,) = session.run(None, feeds | {"i": np.array([0, 1])})
    assert want.size <= 2
    for wrong in (2, -3):
        with pytest.raises(_OFF, match=f"Gather_0.*index {wrong} is out of range for an axis of"):
            session.run(None, feeds | {"i": np.array([0, wrong])})
    (got,) = session.run(None, feeds | {"i": np.array([0, 1])})
    assert got.tolist() == want.tolist()


#: Node that refuses and nodes: `whole`, int64[K], of `i` and divisors `by`, int64[K].
QUOTIENTS: dict[str, tuple[str, str]] = {
    "a quotient": ("Div_0", "whole = Div(i, by)"),
    "a remainder": ("Mod_0", "whole = Mod(i, by)"),
    "a remainder of bytes":
        ("(Mod_2|Cast_0)",
         "byte = Cast<to = 2>(i) other = Cast<to = 2>(by) rest = Mod(byte, other)"
         " whole = Cast<to = 7>(rest)"),
    "what is gathered at a remainder": ("Mod_0", "at = Mod(i, by) whole = Gather(i, at)"),
    "a quotient by a difference":
        ("Div_1", "less = Sub(by, i) often = Div(i, less) whole = Abs(often)"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("quotient", "level"),
    [
        *((quotient, "ORT_ENABLE_ALL") for quotient in QUOTIENTS),
        ("what is gathered at a remainder", "ORT_DISABLE_ALL"),
    ],
)
@pytest.mark.parametrize("case", UNDECIDED)
def test_a_divisor_that_decides_nothing_is_checked(case: str, quotient: str, level: str) -> None:
    kind, constants, nodes = UNDECIDED[case]
    node, quotients = QUOTIENTS[quotient]
    values = f"<{constants}>" if constants else ""
    text = f"""g (float n, int64[K] i, int64[K] by) => ({kind} y) {values} {{
        {quotients} q = Cast<to = 1>(whole) s = ReduceSum<keepdims = 0>(q) w = Cast<to = 1>(i)
        {nodes} }}"""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    session = sardonyx.InferenceSession(model_of(text, opset=20).SerializeToString(), options)
    bad = 1 if "difference" in quotient else 0
    right = {"n": FEEDS["n"], "i": np.array([0, 1]), "by": np.array([2, 3])}
    (want,) = session.run(None, right)
    assert want.size <= 2
    with pytest.raises(errors.DivisionByZero, match=f"{node}.*integer division by zero"):
        session.run(None, right | {"by": np.array([2, bad])})
    (got,) = session.run(None, right)
    assert got.tolist() == want.tolist()


#: Type of y and nodes: y reads `q`, elements of `v` at `i`, not at all, or none of its elements.
UNREAD: dict[str, tuple[str, str]] = {
    "its shape": ("int64[1]", "y = Shape(q)"),
    "how many": ("int64", "y = Size(q)"),
    "its type": ("float[K]", "w = Cast<to = 1>(i) u = Sub(w, w) y = CastLike(u, q)"),
    "what a constant leaves out": ("float[K]", "y = Where(f, n, q)"),
    "what is cut off": ("float[L]", "y = Slice(q, z, z)"),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_is_not_read_is_not_checked(case: str) -> None:
    kind, nodes = UNREAD[case]
    text = f"""g (float n, float[N] v, int64[K] i) => ({kind} y)
        <bool f = {{1}}, int64[1] z = {{0}}>
        {{ q = Gather(v, i) {nodes} }}"""
    session = sardonyx.InferenceSession(model_of(text, opset=20).SerializeToString())
    feeds = {"n": FEEDS["n"], "v": FEEDS["v"]}
    found = [session.run(None, feeds | {"i": np.array([0, k])})[0].tolist() for k in (1, 9)]
    assert found[0] == found[1]


#: Axis of `x`, type of y, constants, nodes: y is made of what TopK gives, or decides nothing by it.
COUNTED: dict[str, tuple[str, str, str, str]] = {
    "equal choices":
        ("N", "float[L]", "float z = {0}", "s = ReduceSum<keepdims = 0>(q) c = Greater(s, z)"
         " y = Where(c, x, x)"),
    "equal choices by places":
        ("N", "float[L]", "int64 z = {9}", "s = ReduceSum<keepdims = 0>(p) c = Greater(s, z)"
         " y = Where(c, x, x)"),
    "never both":
        ("N", "bool[K]", "float z = {0}, bool f = {0}", "c = Greater(q, z) y = And(c, f)"),
    "always one": ("N", "bool[K]", "float z = {0}, bool f = {1}", "c = Greater(q, z) y = Or(c, f)"),
    "what is read": ("N", "float[K]", "", "y = Neg(q)"),
    "what is read of a known axis": ("3", "float[K]", "", "y = Neg(q)"),
    "places of a known axis": ("3", "int64[K]", "", "y = Neg(p)"),
    "the shape of a known axis": ("3", "int64[1]", "", "y = Shape(q)"),
    "how many along a known axis": ("3", "int64", "", "y = Size(p)"),
}  # fmt: skip


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("case", COUNTED)
def test_a_count_beyond_the_axis_is_refused(case: str, level: str) -> None:
    axis, kind, constants, nodes = COUNTED[case]
    values = f"<{constants}>" if constants else ""
    text = f"""g (float[{axis}] x, int64[1] k) => ({kind} y) {values} {{
        q, p = TopK(x, k) {nodes} }}"""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    session = sardonyx.InferenceSession(model_of(text, opset=18).SerializeToString(), options)
    x = np.array([5, 7, 6], np.float32)
    (want,) = session.run(None, {"x": x, "k": np.array([3])})
    for wrong in (4, 9):
        with pytest.raises(_OFF, match=f"node TopK_0.* {wrong}.* 3\\b"):
            session.run(None, {"x": x, "k": np.array([wrong])})
    (got,) = session.run(None, {"x": x, "k": np.array([3])})
    assert got.tolist() == want.tolist()
