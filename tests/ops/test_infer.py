"""Shape inference: shape arithmetic as exporters write it, errors, folding, whole models."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import InvalidGraph
from sardonyx.loader.load import load
from sardonyx.ops.core import registry
from sardonyx.ops.core.lower import lower
from sardonyx.passes.fold_shapes import fold_shapes
from sardonyx.passes.infer import infer
from tests.support.ops import run_model

N, S, P = (sizes.symbol(name) for name in "NSP")


def model_of(nodes, inputs, outputs, constants=None, opset=17):
    """A model from (op_type, inputs, output, attributes) rows."""
    made = [
        helper.make_node(op_type, reads.split(), result.split(), **attributes)
        for op_type, reads, result, attributes in nodes
    ]
    declared = [
        helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(made, "g", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


FLOAT = TensorProto.FLOAT
ONE = {"i0": np.int64(0), "i1": np.int64(1), "axis0": np.array([0])}


def heads_of_attention():
    """x.view(x.shape[0], x.shape[1], 12, 64).transpose(1, 2) as torch exports it."""
    nodes = [
        ("Shape", "x", "s", {}),
        ("Gather", "s i0", "n", {"axis": 0}),
        ("Shape", "x", "t", {}),
        ("Gather", "t i1", "l", {"axis": 0}),
        ("Unsqueeze", "n axis0", "n1", {}),
        ("Unsqueeze", "l axis0", "l1", {}),
        ("Concat", "n1 l1 heads width", "shape", {"axis": 0}),
        ("Reshape", "x shape", "v", {}),
        ("Transpose", "v", "y", {"perm": [0, 2, 1, 3]}),
    ]
    constants = {**ONE, "heads": np.array([12]), "width": np.array([-1])}
    return model_of(nodes, {"x": (FLOAT, ["N", "S", 768])}, ["y"], constants)


def test_heads_of_attention():
    graph = load(heads_of_attention())
    assert infer(graph) == {}
    assert graph.outputs[0].shape == (N, 12, S, 64)
    assert graph.value("shape").elements == (N, S, 12, -1)
    lowered = lower(graph)
    (y,) = lowered.outputs.values()
    inner = y.body.tensor
    # Within the group (768) <-> (12, 64) the index is affine; N and S pass through.
    i0, i1, i2, i3 = (sizes.numbered_index(d, k, "i") for k, d in enumerate(inner.shape))
    assert inner.body.at == (i0, i1, 64 * i2 + i3)
    assert not lowered.assumptions
    x = np.random.default_rng(0).standard_normal((2, 3, 768)).astype(np.float32)
    (result,) = run_model(heads_of_attention(), {"x": x})
    np.testing.assert_array_equal(result, x.reshape(2, 3, 12, 64).transpose(0, 2, 1, 3))


def test_expand_with_where():
    """torch's expand: Where(shape == -1, ones, shape), ones by ConstantOfShape and Mul."""
    nodes = [
        ("Shape", "x", "s", {}),
        ("Gather", "s i0", "n", {"axis": 0}),
        ("Unsqueeze", "n axis0", "n1", {}),
        ("Concat", "n1 minus minus2", "wanted", {"axis": 0}),
        ("Shape", "wanted", "rank", {}),
        ("ConstantOfShape", "rank", "ones", {"value": numpy_helper.from_array(np.array([1]))}),
        ("Mul", "ones minus", "negative", {}),
        ("Equal", "wanted negative", "is_kept", {}),
        ("Where", "is_kept ones wanted", "target", {}),
        ("Expand", "token target", "y", {}),
    ]
    constants = {
        **ONE,
        "minus": np.array([-1]),
        "minus2": np.array([-1]),
        "token": np.ones((1, 1, 8), np.float32),
    }
    graph = load(model_of(nodes, {"x": (FLOAT, ["N", 3])}, ["y"], constants))
    infer(graph)
    assert graph.value("target").elements == (N, 1, 1)
    assert graph.outputs[0].shape == (N, 1, 8)


def test_past_and_present():
    """Positions of a decoder: Range(P, P + S), a causal mask from two ranges."""
    nodes = [
        ("Shape", "past", "p", {"start": 2, "end": 3}),
        ("Shape", "ids", "s", {"start": 1, "end": 2}),
        ("Squeeze", "p axis0", "p0", {}),
        ("Squeeze", "s axis0", "s0", {}),
        ("Add", "p0 s0", "end", {}),
        ("Range", "p0 end i1", "positions", {}),
        ("Range", "i0 end i1", "keys", {}),
        ("Unsqueeze", "positions axis1", "column", {}),
        ("LessOrEqual", "keys column", "mask", {}),
        ("Slice", "past minus end2 axis2", "last", {}),
    ]
    constants = {
        **ONE,
        "axis1": np.array([1]),
        "axis2": np.array([2]),
        "minus": np.array([-1]),
        "end2": np.array([2**63 - 1]),
    }
    inputs = {"past": (FLOAT, ["N", 12, "P", 64]), "ids": (TensorProto.INT64, ["N", "S"])}
    graph = load(model_of(nodes, inputs, ["mask", "last"], constants))
    infer(graph)
    assert graph.value("positions").shape == (S,)
    assert graph.value("mask").shape == (S, P + S)
    assert graph.value("mask").dtype is dtypes.BOOL
    assert graph.value("last").shape == (N, 12, 1, 64)


def test_scales_of_a_resize():
    """Sizes by way of float: Cast(Floor(Cast(size) * 2.0))."""
    nodes = [
        ("Shape", "x", "s", {"start": 2}),
        ("Cast", "s", "f", {"to": FLOAT}),
        ("Mul", "f two", "g", {}),
        ("Floor", "g", "h", {}),
        ("Cast", "h", "sizes", {"to": TensorProto.INT64}),
        ("ConstantOfShape", "sizes", "y", {}),
    ]
    constants = {"two": np.array([2.0, 1.5], np.float32)}
    graph = load(model_of(nodes, {"x": (FLOAT, ["N", 3, 10, 7])}, ["y"], constants))
    infer(graph)
    assert graph.outputs[0].shape == (20, 10)
    assert fold_shapes(graph) > 0
    assert [node.op_type for node in graph.nodes] == ["ConstantOfShape"]


def test_product_of_sizes_and_quotient():
    nodes = [
        ("Shape", "x", "s", {}),
        ("Gather", "s i0", "n", {"axis": 0}),
        ("Gather", "s i1", "c", {"axis": 0}),
        ("Mul", "n c", "nc", {}),
        ("Div", "c two", "half", {}),
        ("Mod", "c two", "odd", {}),
        ("Unsqueeze", "nc axis0", "nc1", {}),
        ("Unsqueeze", "half axis0", "half1", {}),
        ("Concat", "nc1 half1", "shape", {"axis": 0}),
        ("ConstantOfShape", "shape", "y", {}),
    ]
    graph = load(
        model_of(nodes, {"x": (FLOAT, ["N", "S"])}, ["y", "odd"], {**ONE, "two": np.int64(2)})
    )
    infer(graph)
    assert graph.value("y").shape == (N * S, integer.floordiv(S, 2))
    assert graph.value("odd").elements == (integer.modulo(S, 2),)


def test_fold_shapes_keeps_names_of_outputs():
    nodes = [("Shape", "x", "y", {}), ("Relu", "x", "z", {})]
    graph = load(model_of(nodes, {"x": (FLOAT, [2, 3])}, ["y", "z"]))
    infer(graph)
    fold_shapes(graph)
    assert [v.name for v in graph.outputs] == ["y", "z"]
    assert graph.outputs[0].constant.array().tolist() == [2, 3]


def test_declared_shapes_between_are_ignored():
    model = model_of([("Relu", "x", "y", {}), ("Neg", "y", "z", {})], {"x": (FLOAT, [2])}, ["z"])
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.INT8, [9, 9]))
    graph = load(model)
    infer(graph)
    assert graph.value("y").dtype is dtypes.FLOAT
    assert graph.value("z").shape == (2,)


def test_equal_names_are_equal_sizes_and_others_are_assumed():
    inputs = {"a": (FLOAT, ["N", 4]), "b": (FLOAT, ["N", 4]), "c": (FLOAT, ["M", 4])}
    graph = load(model_of([("Add", "a b", "x", {}), ("Add", "x c", "y", {})], inputs, ["y"]))
    infer(graph)
    assert list(lower(graph).assumptions) == [(N, sizes.symbol("M"))]


def test_sizes_from_data_are_symbols():
    inputs = {"x": (FLOAT, ["N"]), "shape": (TensorProto.INT64, [2])}
    nodes = [("Reshape", "x shape", "y", {}), ("Relu", "y", "z", {})]
    graph = load(model_of(nodes, inputs, ["z"]))
    assert not infer(graph)
    assert all(sizes.is_measured(d) for d in graph.outputs[0].shape)
    measured = lower(graph).measured
    assert [m.position for m in measured.values()] == [0, 1]
    assert set(measured) == set(graph.outputs[0].shape)


def test_error_names_node_and_shapes():
    inputs = {"a": (FLOAT, [2, 3]), "b": (FLOAT, [4, 2])}
    graph = load(model_of([("MatMul", "a b", "y", {})], inputs, ["y"]))
    with pytest.raises(InvalidGraph) as error:
        infer(graph)
    assert str(error.value) == (
        "[node MatMul_0 (MatMul)] [matmul] The inner sizes differ. Expected 3, got 4."
        " Its inputs are float[2, 3], float[4, 2]."
    )


def test_origins_name_the_nodes():
    graph = load(heads_of_attention())
    infer(graph)
    lowered = lower(graph)
    (y,) = lowered.outputs.values()
    assert lowered.origins[y] == ("Transpose_8",)


# -- whole models: a folder of ONNX files, named by the environment --------------------------------

_FOLDER = os.environ.get("SARDONYX_TEST_MODELS", "")
_FILES = sorted(Path(_FOLDER).glob("*.onnx")) if _FOLDER else []
_SIZES = {"N": 2, "S": 5, "P": 3, "H": 12, "W": 16}


@pytest.mark.parametrize("path", _FILES, ids=lambda p: p.stem)
def test_models_agree_with_onnxruntime(path):
    graph = load(path, allow_missing_data=True)
    missing = {n.op_type for n in graph.nodes if not registry.find(n.op_type, n.domain, n.version)}
    if missing:
        pytest.skip(f"these operators are not there yet: {', '.join(sorted(missing))}")
    assert infer(graph) == {}
    fold_shapes(graph)
    assert infer(graph) == {}
    for node in graph.nodes:
        for value in node.outputs:
            assert value.is_omitted or (value.dtype is not None and value.shape is not None), value
    for value, shape in zip(graph.outputs, _shapes_in_onnxruntime(path), strict=True):
        assert tuple(sizes.evaluate(d, _SIZES) for d in value.shape) == shape, value


def _shapes_in_onnxruntime(path):
    import onnxruntime

    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT and not tensor.raw_data and not tensor.float_data:
            tensor.raw_data = bytes(4 * int(np.prod(tensor.dims)))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    feeds = {
        i.name: np.ones([_SIZES.get(d, d) for d in i.shape], kinds[i.type])
        for i in session.get_inputs()
    }
    return [result.shape for result in session.run(None, feeds)]
