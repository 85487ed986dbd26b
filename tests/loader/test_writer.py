import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import EmptyList, Node
from sardonyx.ir.text import graph_text
from sardonyx.ir.value import Value
from sardonyx.ir.verify import verify
from sardonyx.loader.load import load
from sardonyx.loader.writer import VERSIONED_DOMAIN, write
from tests.loader import models


def digests(graph):
    return {v.name: v.constant.digest() for g in graph.graphs() for v in g.initializers.values()}


@pytest.mark.parametrize("build", [models.mlp, models.branches, models.every_attribute])
def test_own_models_survive(build):
    graph = load(build())
    data = write(graph)
    onnx.checker.check_model(onnx.load_from_string(data))
    again = load(data)
    verify(again)
    assert graph_text(again) == graph_text(graph)
    assert digests(again) == digests(graph)
    assert write(again) == data
    for field in ("header", "metadata", "opset"):
        assert getattr(again, field) == getattr(graph, field)


def test_shared_models_survive(tmp_path):
    for path in models.shared():
        graph = load(path, allow_missing_data=True)
        data = write(graph)
        assert graph_text(load(data, allow_missing_data=True)) == graph_text(graph)
        # The weights were stripped, so the checker gets them from a file without contents.
        model = onnx.load_from_string(data)
        for tensor in model.graph.initializer:
            if not tensor.HasField("raw_data"):
                tensor.data_location = TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="zeros")
        (tmp_path / "zeros").write_bytes(b"")
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        onnx.checker.check_model(str(tmp_path / "m.onnx"))


def test_attribute_kinds_survive():
    again = load(write(load(models.every_attribute())))
    (node,) = again.nodes
    attributes = node.attributes
    assert (attributes["f"], attributes["i"], attributes["s"]) == (0.25, -7, "text")
    assert attributes["raw"] == b"\xff\x00"
    assert attributes["is"] == [1, -(2**63), 2**63 - 1]
    assert attributes["fs"] == [1.0, -0.5]
    assert attributes["ss"] == ["a", b"\xfe"]
    assert attributes["t"].array().tolist() == [0, 1, 2]
    assert attributes["sp"].array().tolist() == [[0, 5], [0, 6]]
    assert isinstance(attributes["no_floats"], EmptyList)
    assert attributes["no_floats"].kind == "FLOATS"
    assert attributes["g"].parent is again
    assert str(attributes["tp"]) == "seq(tensor(int64))"


@pytest.mark.parametrize(
    ("value", "text"),
    [({"a": 1}, "no attribute for a dict"), ([1, "a"], "items of many types")],
)
def test_attributes_that_onnx_does_not_have(value, text):
    graph = load(models.mlp())
    next(iter(graph.nodes)).attributes["bad"] = value
    with pytest.raises(InvalidArgument, match=text):
        write(graph)


def test_external_data(tmp_path):
    graph = load(models.mlp())
    big = np.arange(5000, dtype=np.float64)
    graph.add_constant("big", Constant.from_array(big))
    path = tmp_path / "m.onnx"
    data = write(graph, path, external_data=40)
    assert path.read_bytes() == data
    assert (tmp_path / "m.onnx.data").stat().st_size == 4096 + big.nbytes
    onnx.checker.check_model(str(path))
    again = load(path)
    assert digests(again) == digests(graph)
    borrowed = {v.name for v in again.initializers.values() if v.constant.is_borrowed}
    assert borrowed == {"w", "big"}
    write(again, path, external_data=True)
    assert digests(load(path)) == digests(graph)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_external_data_needs_a_path():
    with pytest.raises(InvalidArgument, match="needs a path"):
        write(load(models.mlp()), None, external_data=True)


def test_models_that_others_cannot_read_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("sardonyx.loader.writer._PROTOBUF_LIMIT_BYTES", 100)
    with pytest.raises(InvalidArgument, match="external_data=True"):
        write(load(models.mlp()), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.onnx"
    graph = load(models.mlp())
    before = write(graph, path, external_data=True)
    next(iter(graph.nodes)).attributes["bad"] = {}
    with pytest.raises(InvalidArgument):
        write(graph, path, external_data=True)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_nodes_of_other_versions_become_functions():
    graph = load(models.mlp())
    relu = next(n for n in graph.nodes if n.op_type == "Relu")
    relu.version = 6
    data = write(graph)
    # The checker's own rule is stricter: it wants operators that did not change in between.
    onnx.checker.check_model(onnx.load_from_string(data), skip_opset_compatibility_check=True)
    (function,) = onnx.load_from_string(data).functions
    assert (function.domain, function.opset_import[0].version) == (VERSIONED_DOMAIN, 6)
    again = load(data)
    verify(again)
    assert [(n.op_type, n.version) for n in again.nodes] == [
        ("Gemm", 17),
        ("Relu", 6),
        ("ReduceSum", 17),
    ]
    assert [v.name for v in again.outputs] == ["y"]


def test_other_versions_with_subgraphs_are_refused():
    graph = load(models.branches())
    next(n for n in graph.nodes if n.op_type == "If").version = 11
    with pytest.raises(errors.NotImplemented, match="node if .If.*version 11 and subgraphs"):
        write(graph)


def test_outputs_that_onnx_forbids_go_through_identity():
    graph = load(models.branches())
    branch = next(n for n in graph.nodes if n.op_type == "If").attributes["then_branch"]
    branch.outputs[0] = graph.value("outer")
    data = write(graph)
    onnx.checker.check_model(onnx.load_from_string(data))
    again = load(data)
    inner = next(n for n in again.nodes if n.op_type == "If").attributes["then_branch"]
    assert inner.outputs[0].producer.op_type == "Identity"


def test_overridable_initializers_stay_so():
    model = models.mlp()
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]))
    again = load(write(load(model)))
    assert [v.name for v in again.overridable] == ["b"]
    assert [v.name for v in again.inputs] == ["x"]


@pytest.mark.parametrize(
    "type_proto",
    [
        helper.make_tensor_type_proto(TensorProto.INT4, ["N", 2, "x.1"]),
        helper.make_tensor_type_proto(TensorProto.FLOAT, None),
        helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3]),
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, ["A"])),
        helper.make_optional_type_proto(
            helper.make_sequence_type_proto(helper.make_tensor_type_proto(9, []))
        ),
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(1, None)),
    ],
    ids=lambda t: t.WhichOneof("value"),
)
def test_types_survive(type_proto):
    value = helper.make_value_info("x", type_proto)
    model = helper.make_model(
        helper.make_graph([], "g", [value], [value]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10,
    )
    written = onnx.load_from_string(write(load(model)))
    assert written.graph.input[0].type == type_proto
    assert written.graph.output[0].type == type_proto


def test_a_graph_made_by_hand():
    graph = Graph("made", opset={"": 17})
    x = graph.add_input(Value("x", *_float(2)))
    half = graph.add_constant("half", Constant.from_array(np.float32(0.5)))
    y = graph.new_value("y", *_float(2))
    graph.add_node(Node("Mul", "", (x, half), (y,)))
    graph.outputs.append(y)
    verify(graph)
    model = onnx.load_from_string(write(graph))
    onnx.checker.check_model(model, full_check=True)
    assert numpy_helper.to_array(model.graph.initializer[0]) == 0.5


def _float(*shape):
    from sardonyx.base.dtypes import FLOAT

    return FLOAT, shape


def test_sparse_weights_stay_sparse():
    model = models.mlp()
    values = helper.make_tensor("few", TensorProto.FLOAT, [2], [5.0, 6.0])
    places = helper.make_tensor("", TensorProto.INT64, [2], [1 << 39, 7])
    sparse = helper.make_sparse_tensor(values, places, [1 << 20, 1 << 20])
    model.graph.sparse_initializer.append(sparse)
    model.graph.output.append(helper.make_sparse_tensor_value_info("few", 1, [1 << 20, 1 << 20]))
    written = load(write(load(model))).value("few")
    assert [x.tolist() for x in written.constant.parts()] == [[6, 5], [7, 1 << 39]]
    assert written.constant.shape == (1 << 20, 1 << 20)
