import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.base import dtypes
from sardonyx.base.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile
from sardonyx.base.sizes import symbol
from sardonyx.ir.text import graph_text
from sardonyx.ir.verify import verify
from sardonyx.loader.load import load
from tests.loader import models


def float_value(name, shape=("N", 4)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes, inputs=("x",), outputs=("y",), initializers=(), **options):
    graph = helper.make_graph(
        nodes,
        "g",
        [float_value(n) for n in inputs],
        [float_value(n) for n in outputs],
        list(initializers),
    )
    imports = options.pop("opset_imports", [helper.make_opsetid("", 17)])
    return helper.make_model(
        graph, opset_imports=imports, ir_version=options.pop("ir_version", 10), **options
    )


def test_small_model_as_text():
    graph = load(models.mlp())
    verify(graph)
    assert graph_text(graph).splitlines() == [
        "graph mlp(%x: float[N,4])  # ai.onnx 17",
        "  %w = float[4,3]{...}",
        "  %b = float[3]{0.5, -1.0, 2.0}",
        "  %axes = int64[1]{-1}",
        "  %h: ?[?] = Gemm(%x, %w, %b, alpha=0.5)  # gemm",
        "  %r: ?[?] = Relu(%h)  # Relu_2",
        "  %y: ?[?] = ReduceSum(%r, %axes, keepdims=0)  # Relu_2_1",
        "  return %y",
    ]
    assert graph.inputs[0].shape == (symbol("N"), 4)
    assert graph.outputs[0].declared_dtype is dtypes.FLOAT
    assert graph.value("axes").elements == (-1,)
    assert graph.opset == {"": 17}
    header = graph.header
    assert (header.producer_name, header.model_version, graph.metadata) == ("maker", 3, {"k": "v"})


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "bytearray", "memoryview", "proto"])
def test_sources(tmp_path, kind):
    model = models.mlp()
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    data = model.SerializeToString()
    source = {
        "path": path,
        "str": str(path),
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "proto": model,
    }[kind]
    assert len(load(source).nodes) == 3


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (3, InvalidArgument, "a path, bytes or a ModelProto, got int"),
        ("/nowhere/m.onnx", NoSuchFile, "There is no such file"),
        ("a\0b", InvalidArgument, "not a path"),
        (".", InvalidArgument, "not a regular file"),
        (b"", InvalidGraph, "It is empty"),
    ],
)
def test_bad_sources(source, error, text):
    with pytest.raises(error, match=text):
        load(source)


@pytest.mark.parametrize(
    ("version", "kind"), [(15, Fail), (-1, InvalidGraph), (None, InvalidGraph)]
)
def test_unsupported_format_versions(version, kind):
    model = models.mlp()
    model.ClearField("ir_version")
    if version is not None:
        model.ir_version = version
    with pytest.raises(kind, match=f"ir_version up to 14, got {version or 'none'}"):
        load(model)


def test_unsorted_nodes_are_sorted_and_names_made_unique():
    nodes = [
        helper.make_node("Relu", ["b"], ["y"], "n"),
        helper.make_node("Neg", ["a"], ["b"], "n"),
        helper.make_node("Abs", ["x"], ["a"]),
    ]
    graph = load(model_of(nodes))
    verify(graph)
    assert [n.op_type for n in graph.nodes] == ["Abs", "Neg", "Relu"]
    assert sorted(n.name for n in graph.nodes) == ["Abs_2", "n", "n_1"]


def relu(read, computed, name=""):
    return helper.make_node("Relu", [read], [computed], name)


def weight(name="w", values=(1.0,)):
    return numpy_helper.from_array(np.array(values, np.float32), name)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (model_of([relu("x", "y", "p"), relu("x", "y", "q")]), r"'y'.*node p \(Relu\).*node q"),
        (model_of([relu("x", "y")], inputs=["x", "x"]), "'x'.*inputs of the graph.*inputs"),
        (model_of([helper.make_node("Split", ["x"], ["y", "y"], "p")]), "'y'.*node p.*node p"),
        (model_of([relu("x", "x", "p")], outputs=["x"]), "'x'.*inputs of the graph.*node p"),
        (model_of([relu("z", "y", "p")]), r"node p \(Relu\).*Nothing computes its input 'z'"),
        (model_of([relu("x", "z")]), "Nothing computes its output 'y'"),
        (model_of([relu("a", "y", "p"), relu("y", "a", "q")]), "wait for each other: p <- q <- p"),
        (model_of([relu("x", "w"), relu("w", "y")], initializers=[weight()]), "'w'.*initializers"),
        (model_of([relu("x", "y")], opset_imports=[]), "imports no"),
        (model_of([relu("x", "y")], opset_imports=[helper.make_opsetid("", 0)]), "imports no"),
        (model_of([helper.make_node("", ["x"], ["y"])]), "no op_type"),
    ],
)
def test_invalid_graphs(model, text):
    with pytest.raises(InvalidGraph, match=text):
        load(model)


def test_unknown_and_unused_domains_are_left_to_later_stages():
    node = helper.make_node("Anything", ["x"], ["y"], domain="far.away")
    graph = load(model_of([node], opset_imports=[helper.make_opsetid("unused", 9)]))
    (loaded,) = graph.nodes
    assert (loaded.domain, loaded.version, graph.opset) == ("far.away", 0, {"unused": 9})


@pytest.mark.parametrize(("ir_version", "overridable"), [(3, []), (4, ["w"])])
def test_initializers_among_the_inputs(ir_version, overridable):
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = load(
        model_of([node], inputs=["x", "w"], initializers=[weight()], ir_version=ir_version)
    )
    verify(graph)
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.overridable] == overridable
    assert graph.value("w").constant.array().tolist() == [1.0]


def test_dimensions_without_a_name():
    model = model_of([relu("x", "y")])
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].Clear()
    dims[1].dim_value = -1
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "x.0"
    assert load(model).inputs[0].shape == (symbol("x.0_1"), symbol("x.1"))


def test_subgraphs_read_outer_values_and_names_stay_unique():
    graph = load(models.branches())
    verify(graph)
    (node,) = (n for n in graph.nodes if n.op_type == "If")
    then, otherwise = node.attributes["then_branch"], node.attributes["else_branch"]
    outer = graph.value("outer")
    assert [n.graph for n, _ in outer.uses] == [otherwise, then]
    assert list(node.captures()) == [outer]
    assert [otherwise.outputs[0].name, then.outputs[0].name] == ["t", "t_1"]
    assert outer.producer.is_before(node)


def test_omitted_operands():
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["", "", "c"], hidden_size=1)
    graph = load(model_of([node], inputs=["x", "w", "r", "h"], outputs=["c"]))
    verify(graph)
    (loaded,) = graph.nodes
    assert [v and v.name for v in loaded.inputs] == ["x", "w", "r", None, None, "h"]
    assert [v.is_omitted for v in loaded.outputs] == [True, True, False]


def test_shared_models_without_their_weights():
    for path in models.shared():
        graph = load(path, allow_missing_data=True)
        verify(graph)
        stripped = [v for v in graph.initializers.values() if not v.constant.has_data]
        assert stripped
        with pytest.raises(InvalidGraph, match="does not fit"):
            load(path)


def test_equal_attributes_and_constants_of_nodes_are_each_nodes_own():
    nodes = []
    for k in range(3):
        values = numpy_helper.from_array(np.array([1, -1], np.int64))
        nodes += [
            helper.make_node("Constant", [], [f"shape{k}"], f"c{k}", value=values),
            helper.make_node("Transpose", ["x"], [f"t{k}"], f"t{k}", perm=[1, 0]),
            helper.make_node("Reshape", [f"t{k}", f"shape{k}"], [f"r{k}"], f"r{k}"),
        ]
    # Longer than what is shared, and different in its end alone.
    long = [list(range(40)), [*range(39), 0]]
    nodes += [
        helper.make_node("Own", ["x"], [f"o{k}"], f"o{k}", domain="d", long=one, name2=f"n{k}")
        for k, one in enumerate(long)
    ]
    graph = load(model_of(nodes, outputs=("r0",)))
    by_name = {node.name: node for node in graph.nodes}
    by_name["t0"].attributes["perm"].append(7)
    assert [by_name[f"t{k}"].attributes["perm"] for k in range(3)] == [[1, 0, 7], [1, 0], [1, 0]]
    values = [graph.value(f"shape{k}") for k in range(3)]
    assert [v.elements for v in values] == [(1, -1)] * 3
    assert len(set(values)) == 3
    assert [by_name[f"o{k}"].attributes for k in range(2)] == [
        {"long": long[k], "name2": f"n{k}"} for k in range(2)
    ]
    again = load(model_of(nodes, outputs=("r0",)))
    assert {n.name: n.attributes.get("perm") for n in again.nodes if n.name[0] == "t"} == {
        f"t{k}": [1, 0] for k in range(3)
    }
