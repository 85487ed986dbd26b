"""What the passes make of a graph, and that it still computes the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.passes import infer
from sardonyx.passes.pipeline import PassLook, optimise
from tests.support.tolerances import assert_near

_random = np.random.default_rng(11)


def _model(body: str, weights: dict[str, Any], opset: int = 17) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {body}')
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    return model


def _optimised(model: onnx.ModelProto, level: int = 99) -> tuple[Graph, Counter[str]]:
    graph = load(model.SerializeToString())
    optimise(graph, level, look=PassLook(verify=True))
    return graph, Counter(node.op_type for node in graph.nodes)


def _check(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    for mine, theirs in zip(got, ReferenceEvaluator(model).run(None, feeds), strict=True):
        assert_near(mine, theirs, "float: products")


#: Body, operators that are left. Inputs are `x: float[N,3,4]`.
EQUAL = {
    "the same twice": ("a = Exp(x) b = Exp(x) y = Add(a, b)", {"Exp": 1, "Add": 1}),
    "chains": (
        "a = Exp(x) b = Exp(x) c = Neg(a) d = Neg(b) y = Mul(c, d)",
        {"Exp": 1, "Neg": 1, "Mul": 1},
    ),
    "operands swapped": ("a = Add(x, z) b = Add(z, x) y = Mul(a, b)", {"Add": 1, "Mul": 1}),
    "other attributes": (
        "a = Softmax <axis = 1> (x) b = Softmax <axis = 2> (x) y = Add(a, b)",
        {"Softmax": 2, "Add": 1},
    ),
    "cast to the type it has": ("a = Cast <to = 1> (x) y = Exp(a)", {"Exp": 1}),
    "twice transposed": (
        "a = Transpose <perm = [2, 0, 1]> (x) b = Transpose <perm = [1, 2, 0]> (a) y = Exp(b)",
        {"Exp": 1},
    ),
    "transposed on": (
        "a = Transpose <perm = [2, 0, 1]> (x) b = Transpose <perm = [2, 0, 1]> (a) y = Exp(b)",
        {"Transpose": 2, "Exp": 1},
    ),
    "times one": (
        "one = Constant <value_float = 1.0> () a = Mul(x, one) b = Div(a, one) y = Exp(b)",
        {"Exp": 1},
    ),
    "plus zero": (
        "zero = Constant <value_float = 0.0> () a = Sub(x, zero) y = Exp(a)",
        {"Exp": 1},
    ),
    "to its own shape": ("s = Shape(x) a = Reshape(x, s) y = Exp(a)", {"Exp": 1}),
    "expanded to its own shape": ("s = Shape(x) a = Expand(x, s) y = Exp(a)", {"Exp": 1}),
    "there and back": (
        "f = Flatten <axis = 1> (x) s = Shape(x) a = Reshape(f, s) y = Exp(a)",
        {"Exp": 1},
    ),
    "sliced whole": (
        "b = Constant <value_ints = [0]> () e = Constant <value_ints = [9999]> () "
        "axis = Constant <value_ints = [1]> () a = Slice(x, b, e, axis) y = Exp(a)",
        {"Exp": 1},
    ),
    "dropout": ("a = Dropout(x) y = Exp(a)", {"Exp": 1}),
    "one list item": ("a = Concat <axis = 0> (x) y = Exp(a)", {"Exp": 1}),
    "padded by nothing": (
        "p = Constant <value_ints = [0, 0, 0, 0, 0, 0]> () a = Pad(x, p) y = Exp(a)",
        {"Exp": 1},
    ),
    "an output stays": ("y = Exp(x) b = Exp(x) w = Neg(b)", {"Exp": 1, "Neg": 1}),
    "outputs equal": ("y = Exp(x) w = Exp(x)", {"Exp": 2}),
    "an input given out": ("y = Identity(x)", {"Identity": 1}),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_become_one(name):
    body, left = EQUAL[name]
    outputs = "float[A,B,C] y, float[D,E,F] w" if " w = " in body else "float[A,B,C] y"
    model = _model(f"g (float[N,3,4] x, float[N,3,4] z) => ({outputs}) {{ {body} }}", {})
    assert _optimised(model)[1] == left
    feeds = {k: _random.standard_normal((2, 3, 4)).astype(np.float32) for k in "xz"}
    _check(model, feeds)


def test_nothing_is_merged_when_optimisation_is_off():
    model = _model("g (float[N] x) => (float[N] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }", {})
    assert _optimised(model, level=0)[1] == {"Exp": 2, "Add": 1}


def test_negative_zero_survives():
    body = "zero = Constant <value_float = 0.0> () a = Add(x, zero) y = Reciprocal(a)"
    model = _model(f"g (float[N] x) => (float[N] y) {{ {body} }}", {})
    session = sardonyx.InferenceSession(model.SerializeToString())
    (y,) = session.run(None, {"x": np.array([-0.0, 0.0], np.float32)})
    np.testing.assert_array_equal(y, [np.inf, np.inf])


def _statistics(channels: int, dtype: Any = np.float32) -> dict[str, Any]:
    made = {k: _random.standard_normal(channels) for k in ("gain", "shift", "mean")}
    made["variance"] = _random.uniform(0.3, 2, channels)
    return {k: v.astype(dtype) for k, v in made.items()}


def _normed(product: str, *, after: str = "", norm: str = "epsilon = 0.01", kind="float") -> str:
    return (
        f"g ({kind}[N,4,9,9] x) => ({kind}[A,B,C,D] y) {{ p = {product} "
        f"{'y' if not after else 'n'} = BatchNormalization <{norm}> "
        f"(p, gain, shift, mean, variance) {after} }}"
    )


def _weights(*shape: int, dtype: Any = np.float32) -> Any:
    return (_random.standard_normal(shape) / 4).astype(dtype)


#: Body, weights, whether the normalisation goes.
NORMS = {
    "conv": (_normed("Conv(x, w)"), {"w": _weights(6, 4, 3, 3), **_statistics(6)}, True),
    "conv with bias, then relu": (
        _normed("Conv <pads = [1,1,1,1]> (x, w, b)", after="y = Relu(n)"),
        {"w": _weights(6, 4, 3, 3), "b": _weights(6), **_statistics(6)},
        True,
    ),
    "conv in groups": (
        _normed("Conv <group = 2> (x, w, b)"),
        {"w": _weights(6, 2, 3, 3), "b": _weights(6), **_statistics(6)},
        True,
    ),
    "depthwise": (
        _normed("Conv <group = 4> (x, w)"),
        {"w": _weights(4, 1, 3, 3), **_statistics(4)},
        True,
    ),
    "transposed conv": (
        _normed("ConvTranspose <strides = [2, 2]> (x, w, b)"),
        {"w": _weights(4, 6, 3, 3), "b": _weights(6), **_statistics(6)},
        True,
    ),
    "double": (
        _normed("Conv(x, w)", kind="double"),
        {"w": _weights(6, 4, 3, 3, dtype=np.float64), **_statistics(6, np.float64)},
        True,
    ),
    "half": (
        _normed("Conv(x, w)", kind="float16"),
        {"w": _weights(6, 4, 3, 3, dtype=np.float16), **_statistics(6, np.float16)},
        False,
    ),
    "read twice": (
        _normed("Conv(x, w)", after="y = Add(n, p)"),
        {"w": _weights(6, 4, 3, 3), **_statistics(6)},
        False,
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_batch_norm_goes_into_weights(name):
    body, weights, goes = NORMS[name]
    model = _model(body, weights)
    graph, left = _optimised(model)
    assert left["BatchNormalization"] == (0 if goes else 1)
    assert all(value.shape is not None for node in graph.nodes for value in node.outputs)
    dtype = next(iter(weights.values())).dtype
    feeds = {"x": _random.standard_normal((2, 4, 9, 9)).astype(dtype)}
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    want = ReferenceEvaluator(model).run(None, feeds)[0]
    like = "half: layers" if dtype == np.float16 else "float: products"
    assert_near(got, want, like)


def test_channels_of_a_transposed_conv_in_groups_are_on_no_axis_of_the_weights():
    weights = {"w": _weights(4, 3, 3, 3), **_statistics(6)}
    model = _model(_normed("ConvTranspose <group = 2> (x, w)"), weights)
    assert _optimised(model)[1] == {"ConvTranspose": 1, "BatchNormalization": 1}


@pytest.mark.parametrize("transposed", [0, 1])
def test_batch_norm_behind_a_gemm(transposed):
    weights = {"w": _weights(*((5, 7) if transposed else (7, 5))), "b": _weights(5)}
    body = (
        f"g (float[N,7] x) => (float[N,5] y) {{ p = Gemm <transB = {transposed}> (x, w, b) "
        "y = BatchNormalization (p, gain, shift, mean, variance) }"
    )
    model = _model(body, {**weights, **_statistics(5)})
    assert _optimised(model)[1]["BatchNormalization"] == 0
    _check(model, {"x": _random.standard_normal((3, 7)).astype(np.float32)})


def test_batch_norm_whose_statistics_are_fed_stays():
    body = _normed("Conv(x, w)").replace("(float[N,4,9,9] x)", "(float[N,4,9,9] x, float[6] mean)")
    weights = {"w": _weights(6, 4, 3, 3), **_statistics(6)}
    mean = weights.pop("mean")
    model = _model(body, weights)
    assert _optimised(model)[1]["BatchNormalization"] == 1
    _check(model, {"x": _random.standard_normal((1, 4, 9, 9)).astype(np.float32), "mean": mean})


def test_the_type_of_the_model_is_kept():
    model = _model(_normed("Conv(x, w)"), {"w": _weights(6, 4, 3, 3), **_statistics(6)})
    graph, _ = _optimised(model)
    assert graph.outputs[0].name == "y"
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_batch_norm_of_doubles_has_the_epsilon_that_a_file_would_hold():
    """Defaults of float attributes are 32 bits, folded or not."""
    small = {name: np.full(2, 1e-9) for name in ("gain", "variance")}
    weights = {"w": np.ones((2, 1, 1, 1)), "shift": np.zeros(2), "mean": np.zeros(2), **small}
    model = _model(
        "g (double[1, 1, 3, 3] x) => (double[1, 2, 3, 3] y) { c = Conv (x, w) "
        "y = BatchNormalization (c, gain, shift, mean, variance) }",
        weights,
    )
    assert _optimised(model)[1]["BatchNormalization"] == 0
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    (found,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    wanted = x * 1e-9 / np.sqrt(1e-9 + float(np.float32(1e-5)))
    assert_near(found[:, :1], wanted, "double: moments")


_PADS = """
    {0}s = ConstantOfShape <value = int64[1] {{{2}}}> ({0}n) {0}p = Concat <axis = 0> ({0}w, {0}s)
    {0}r = Reshape ({0}p, {0}t) {0}q = Transpose <perm = [1, 0]> ({0}r)
    {0}f = Reshape ({0}q, {0}o) {0}y = Pad ({1}, {0}f)
"""


def _numbers(name: str, *pads: int) -> dict[str, Any]:
    lists = {"n": [2], "w": pads, "t": [3, 2], "o": [-1]}
    return {name + key: np.array(values) for key, values in lists.items()}


#: What the second of two chains of arithmetic on sizes has, and how many of its nodes are computed.
AGAIN = {
    "the same numbers": ((1, 0, 2, 1), 0, 0),
    "other numbers": ((0, 0, 2, 1), 0, 4),
    "another value": ((1, 0, 2, 1), 1, 5),
}


@pytest.mark.parametrize("name", AGAIN)
def test_arithmetic_on_sizes_is_computed_once_for_the_same_numbers(name, monkeypatch):
    pads, value, computed = AGAIN[name]
    chains = _PADS.format("a", "x", 0) + _PADS.format("b", "ay", value)
    weights = _numbers("a", 1, 0, 2, 1) | _numbers("b", *pads)
    model = _model(f"g (float[2,3,4] x) => (float[a,b,c] by) {{ {chains} }}", weights)
    asked = []

    def noted(node, *others):
        asked.append(node.output.name)
        return apply(node, *others)

    apply = infer.apply
    monkeypatch.setattr(infer, "apply", noted)
    graph = load(model.SerializeToString())
    optimise(graph, look=PassLook(verify=True))
    assert len([n for n in asked if n.startswith("b") and n != "by"]) == computed
    assert [node.op_type for node in graph.nodes] == ["Pad", "Pad"]
    monkeypatch.undo()
    _check(model, {"x": _random.standard_normal((2, 3, 4)).astype(np.float32)})


def test_numbers_of_other_types_are_others():
    body = """g (int64[N] x) => (int64[M] y, int32[K] z, bool[L] w) {
      a = Add (i, i) b = Add (j, j) y = Concat <axis = 0> (x, a)
      c = Cast <to = 6> (i) z = Concat <axis = 0> (c, b)
      d = Equal (i, i) e = Equal (j, j) f = Not (t) w = Concat <axis = 0> (d, e, f, t)
    }"""
    weights = {"i": np.array([1]), "j": np.array([1], np.int32), "t": np.array([True])}
    _check(_model(body, weights), {"x": np.array([7, 8])})
