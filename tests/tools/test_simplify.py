"""Rewritings in ONNX's own operators: what is left, and that it computes the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.tools.optimizer.model import optimize_model
from tests.support.layers import Net
from tests.support.tolerances import assert_near
from tests.tools.test_fusions import check_same


def _image(net: Net, channels: int = 3) -> str:
    return net.input("x", ["N", channels, 6, 7], net.weight(2, channels, 6, 7))


def _filters(net: Net) -> np.ndarray:
    return net.weight(4, 3, 3, 3)


def pad(net: Net) -> str:
    wide = net.op("Pad", _image(net), np.array([0, 0, 1, 2, 0, 0, 1, 0]), 0.0)
    return net.op("Conv", wide, _filters(net), net.weight(4), pads=[0, 1, 0, 0])


def pad_of_ones(net: Net) -> str:
    wide = net.op("Pad", _image(net), np.array([0, 0, 1, 1, 0, 0, 1, 1]), 1.0)
    return net.op("Conv", wide, _filters(net))


def pad_that_reflects(net: Net) -> str:
    wide = net.op("Pad", _image(net), np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect")
    return net.op("Conv", wide, _filters(net))


def pad_of_channels(net: Net) -> str:
    wide = net.op("Pad", _image(net), np.array([0, 1, 1, 1, 0, 0, 1, 1]), 0.0)
    return net.op("Conv", wide, net.weight(4, 4, 3, 3))


def scaled_conv(net: Net) -> str:
    y = net.op("Conv", _image(net), _filters(net), net.weight(4))
    y = net.op("Mul", y, net.weight(4, 1, 1))
    return net.op("Add", y, net.weight(1, 4, 1, 1))


def scaled_by_columns(net: Net) -> str:
    return net.op("Mul", net.op("Conv", _image(net), _filters(net)), net.weight(5))


def batch_norm(net: Net) -> str:
    y = net.op("Conv", _image(net), _filters(net))
    gain, shift, mean = (net.weight(4) for _ in range(3))
    return net.op("BatchNormalization", y, gain, shift, mean, np.abs(net.weight(4)) + 0.1)


def gemm(net: Net) -> str:
    x = net.input("x", ["N", 5], net.weight(3, 5))
    return net.linear(x, 5, 7)


def product_of_three_axes(net: Net) -> str:
    x = net.input("x", ["N", 2, 5], net.weight(3, 2, 5))
    return net.linear(x, 5, 7)


def turned_gemm(net: Net) -> str:
    x = net.input("x", [5, "N"], net.weight(5, 3))
    return net.op("Gemm", net.op("Transpose", x, perm=[1, 0]), net.weight(5, 7), net.weight(7))


def turns(net: Net) -> str:
    y = net.op("Transpose", _image(net), perm=[0, 2, 3, 1])
    return net.op("Relu", net.op("Transpose", y, perm=[3, 0, 1, 2]))


def reshapes(net: Net) -> str:
    x = net.input("x", ["N", "S", 6], net.weight(2, 4, 6))
    y = net.op("Reshape", net.split(x, 2, 3), np.array([-1, 3]))
    return net.op("Relu", net.op("Reshape", y, np.array([-1])))


def constants(net: Net) -> str:
    x = net.input("x", ["N", 6], net.weight(2, 6))
    row = net.op("Sqrt", net.op("Abs", net.op("MatMul", net.weight(1, 6), net.weight(6, 6))))
    return net.op("Mul", x, net.op("Cast", row, to=1))


def nothing_done(net: Net) -> str:
    x = net.input("x", ["N", 6], net.weight(2, 6))
    y = net.op("Dropout", net.op("Identity", net.op("Mul", x, 1.0)))
    return net.op("Add", net.op("Exp", y), net.op("Exp", net.op("Cast", y, to=1)))


def random_numbers(net: Net) -> str:
    x = net.input("x", ["N", 6], np.zeros((2, 6), np.float32))
    drawn = net.op("RandomNormalLike", net.weight(1, 6), dtype=1)
    return net.op("Mul", x, drawn)


def large_result(net: Net) -> str:
    x = net.input("x", [2000, 2000], net.weight(2000, 2000))
    return net.op("Add", x, net.op("Expand", 2.0, np.array([2000, 2000])))


#: Network, operators that are left of it.
CASES: list[tuple[Callable[[Net], str], dict[str, int]]] = [
    (pad, {"Conv": 1}),
    (pad_of_ones, {"Pad": 1, "Conv": 1}),
    (pad_that_reflects, {"Pad": 1, "Conv": 1}),
    (pad_of_channels, {"Pad": 1, "Conv": 1}),
    (scaled_conv, {"Conv": 1}),
    (scaled_by_columns, {"Conv": 1, "Mul": 1}),
    (batch_norm, {"Conv": 1}),
    (gemm, {"Gemm": 1}),
    (product_of_three_axes, {"MatMul": 1, "Add": 1}),
    (turned_gemm, {"Gemm": 1}),
    (turns, {"Transpose": 1, "Relu": 1}),
    (reshapes, {"Reshape": 2, "Transpose": 1, "Relu": 1}),
    (constants, {"Mul": 1}),
    (nothing_done, {"Exp": 1, "Add": 1}),
    (random_numbers, {"RandomNormalLike": 1, "Mul": 1}),
    (large_result, {"Expand": 1, "Add": 1}),
]


@pytest.mark.parametrize(("write", "left"), CASES, ids=[c[0].__name__ for c in CASES])
def test_left(write: Callable[[Net], str], left: dict[str, int]) -> None:
    net = Net()
    model = net.model(write(net))
    result = optimize_model(model, only_onnxruntime=True)
    assert result.get_operator_statistics() == left
    onnx.checker.check_model(result.to_bytes())
    check_same(model, result, net.feeds)


def test_level_0_changes_nothing() -> None:
    net = Net()
    model = net.model(nothing_done(net))
    result = optimize_model(model, opt_level=0, only_onnxruntime=True)
    assert sum(result.get_operator_statistics().values()) == len(model.graph.node)


def test_old_versions() -> None:
    net = Net(opset=8)
    y = net.op("Pad", _image(net), pads=[0, 0, 1, 1, 0, 0, 1, 1])
    y = net.op("Conv", y, _filters(net))
    model = net.model(net.op("Transpose", net.op("Unsqueeze", y, axes=[0]), perm=[0, 2, 1, 3, 4]))
    result = optimize_model(model)
    assert result.get_operator_statistics() == {"Conv": 1, "Unsqueeze": 1, "Transpose": 1}
    check_same(model, result, net.feeds)


def test_branches_are_simplified_and_fused() -> None:
    net, inner = Net(), Net()
    x = net.input("x", ["N", 4], net.weight(2, 4))
    for _ in range(4):  # so that no name is that of a constant outside
        inner.constant(0.0)
    y = inner.gelu(x)
    value = onnx.helper.make_tensor_value_info
    outputs = [value(y, 1, None)]
    branch = onnx.helper.make_graph(inner.nodes, "then", [], outputs, inner.weights)
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", [x], ["minus"])], "else", [], [value("minus", 1, None)]
    )
    condition = net.op("Greater", net.op("ReduceSum", x, keepdims=0), 0.0)
    model = net.model(net.op("If", condition, then_branch=branch, else_branch=other))
    result = optimize_model(model)
    assert result.get_operator_statistics(include_domain=True)["com.microsoft:Gelu"] == 1
    for sign in (1, -1):
        feeds = {"x": sign * np.abs(net.feeds["x"])}
        check_same(model, result, feeds)


def test_overridable_initializers_stay_inputs() -> None:
    net = Net()
    x = net.input("x", ["N", 4], net.weight(2, 4))
    name = net.constant(net.weight(4))
    model = net.model(net.op("Mul", x, net.op("Sqrt", net.op("Abs", name))))
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, [4]))
    result = optimize_model(model)
    assert result.get_operator_statistics() == {"Abs": 1, "Sqrt": 1, "Mul": 1}
    feeds = {**net.feeds, name: np.float32([1, 4, 9, 16])}
    got = sardonyx.InferenceSession(result.to_bytes()).run(None, feeds)
    assert_near(got[0], feeds["x"] * [1, 2, 3, 4], "float: one operation")


def test_what_only_a_run_decides_is_not_guessed() -> None:
    net = Net()
    x = net.input("x", ["N", 4], net.weight(1, 4))
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    first = onnx.helper.make_graph(
        [node("Squeeze", [x, net.constant(np.array([0]))], ["a"])],
        "then",
        [],
        [value("a", 1, None)],
    )
    second = onnx.helper.make_graph(
        [node("Identity", [x], ["b"])], "else", [], [value("b", 1, None)]
    )  # fmt: skip
    count = net.op("Gather", net.op("Shape", x), 0)
    one = net.op("If", net.op("Equal", count, 1), then_branch=first, else_branch=second)
    rank = net.op("Cast", net.op("Size", net.op("Shape", one)), to=1)
    model = net.model(net.op("Mul", one, rank))
    result = optimize_model(model)
    for items in (1, 3):
        check_same(model, result, {"x": net.random.random((items, 4), np.float32)})
    assert any(name == "optimisation" for name, _ in result.report.refused)
