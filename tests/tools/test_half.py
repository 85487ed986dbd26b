"""Models in half floats: types, what stays in floats, and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument
from sardonyx.tools.optimizer.model import OptimizedModel, optimize_model
from tests.support.layers import Net, bert, gpt, vit


def _half(model: Any, fuse: bool = False, **options: Any) -> tuple[OptimizedModel, Any]:
    made = optimize_model(model, only_onnxruntime=not fuse)
    made.convert_float_to_float16(**options)
    return made, sardonyx.InferenceSession(made.to_bytes())


def _feeds(session: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    types = {i.name: i.type for i in session.get_inputs()}
    return {
        name: array.astype(np.float16) if types[name] == "tensor(float16)" else array
        for name, array in feeds.items()
    }


def _check(model: Any, data: bytes, feeds: dict[str, Any]) -> None:
    want = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    sessions = [sardonyx.InferenceSession(data)]
    try:
        import onnxruntime

        sessions.append(onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))
    except ImportError:
        pass  # it is no dependency of the tests
    for session in sessions:
        for mine, theirs in zip(session.run(None, _feeds(session, feeds)), want, strict=True):
            difference = np.linalg.norm(mine.astype(np.float64) - theirs)
            assert difference <= 5e-3 * np.linalg.norm(theirs)


def resize() -> tuple[Any, dict[str, Any]]:
    net = Net()
    x = net.input("x", ["N", 3, 4, 4], net.weight(1, 3, 4, 4))
    y = net.op("Resize", net.op("Relu", x), "", np.float32([1, 1, 2, 2]), mode="linear")
    return net.model(net.op("Max", y, 0.5)), net.feeds


def makers() -> tuple[Any, dict[str, Any]]:
    net = Net()
    x = net.input("x", ["N", 3], net.weight(2, 3))
    zeros = net.op("ConstantOfShape", net.op("Shape", x))
    number = net.op("Cast", net.op("Gather", net.op("Shape", x), 0), to=1)
    return net.model(net.op("Add", net.op("Mul", x, number), net.op("Exp", zeros))), net.feeds


def branch() -> tuple[Any, dict[str, Any]]:
    net = Net()
    x = net.input("x", ["N", 3], net.weight(2, 3))
    y = net.op("Exp", x)
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node
    then = onnx.helper.make_graph([node("Neg", [y], ["a"])], "then", [], [value("a", 1, None)])
    other = onnx.helper.make_graph([node("Sqrt", [y], ["b"])], "else", [], [value("b", 1, None)])
    condition = net.op("Greater", net.op("ReduceSum", x, keepdims=0), 0.0)
    made = net.op("If", condition, then_branch=then, else_branch=other)
    return net.model(net.op("Mul", made, 2.0)), net.feeds


MODELS: list[tuple[str, Callable[[], tuple[Any, dict[str, Any]]], bool]] = [
    ("bert", bert, False), ("bert fused", bert, True), ("vit fused", vit, True),
    ("gpt", gpt, False), ("gpt fused", gpt, True), ("resize", resize, False),
    ("makers", makers, False), ("branch", branch, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "fuse"), MODELS, ids=[m[0] for m in MODELS])
def test_same_results(
    name: str, make: Callable[[], tuple[Any, dict[str, Any]]], fuse: bool
) -> None:
    model, feeds = make()
    made, session = _half(model, fuse)
    assert {o.type for o in session.get_outputs()} == {"tensor(float16)"}
    assert "tensor(float)" not in {i.type for i in session.get_inputs()}
    _check(model, made.to_bytes(), feeds)


def test_inputs_and_outputs_that_are_kept() -> None:
    model, feeds = gpt()
    made, session = _half(model, keep_io_types=True)
    faces = [*session.get_inputs(), *session.get_outputs()]
    assert {f.type for f in faces} == {"tensor(float)", "tensor(int64)"}
    assert [o.name for o in session.get_outputs()] == [o.name for o in model.graph.output]
    _check(model, made.to_bytes(), feeds)
    _, session = _half(model, keep_io_types=["key_0", model.graph.output[0].name])
    kept = [
        f.name for f in (*session.get_inputs(), *session.get_outputs()) if f.type == "tensor(float)"
    ]
    assert kept == ["key_0", model.graph.output[0].name]


def _types(made: OptimizedModel, op_type: str) -> set[str]:
    return {
        str(node.output.dtype.name) for node in made.graph.walk() if node.op_type == op_type
    }  # fmt: skip


def test_operators_and_nodes_that_are_blocked() -> None:
    model, feeds = bert()
    made, _ = _half(model)
    assert _types(made, "MatMul") == _types(made, "Softmax") == {"float16"}
    made, _ = _half(model, op_block_list=["Softmax"])
    assert (_types(made, "MatMul"), _types(made, "Softmax")) == ({"float16"}, {"float"})
    _check(model, made.to_bytes(), feeds)
    name = next(
        n.name
        for n in optimize_model(model, only_onnxruntime=True).graph.nodes
        if n.op_type == "Softmax"
    )
    made, _ = _half(model, node_block_list=[name])
    assert _types(made, "Softmax") == {"float16", "float"}


def test_weights_stay_finite_and_nonzero() -> None:
    net = Net()
    x = net.input("x", [4], np.ones(4, np.float32))
    model = net.model(net.op("Mul", x, np.float32([1e-12, -1e-12, 1e9, np.inf])))
    _, session = _half(model)
    got = session.run(None, {"x": np.ones(4, np.float16)})[0]
    np.testing.assert_array_equal(got, np.float16([5.96e-8, -5.96e-8, 65504, np.inf]))


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"keep_io_types": ["y"]}, "no input or output 'y'"),
    ({"node_block_list": ["nothing"]}, "no node 'nothing'"),
    ({"max_finite_val": 1e6}, "beyond those of half floats"),
    ({"nonsense": 1}, "nonsense"),
    ({"force_fp16_initializers": True}, "force_fp16_initializers is not supported"),
]


@pytest.mark.parametrize(("options", "text"), ERRORS, ids=[e[1] for e in ERRORS])
def test_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        _half(bert()[0], **options)
