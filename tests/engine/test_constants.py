"""What is computed once, beside what is computed in every run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(5)
TABLE = RNG.standard_normal((4, 6)).astype(np.float32)


def _run(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], x: np.ndarray, outputs: list[str]
) -> list[np.ndarray]:
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    wanted = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, wanted, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return sardonyx.InferenceSession(model.SerializeToString()).run(outputs, {"x": x})


def test_reduction_of_constants_whose_elements_meet_a_feed() -> None:
    nodes = [
        helper.make_node("MeanVarianceNormalization", ["table"], ["n"], axes=[1]),
        helper.make_node("ArgMin", ["n"], ["least"], axis=1),
        helper.make_node("Add", ["x", "n"], ["sum"]),
        helper.make_node("MatMul", ["row", "least"], ["product"]),
    ]
    constants = {"table": TABLE, "row": np.array([[1, 2, 3, 4]])}
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    total, product = _run(nodes, constants, x, ["sum", "product"])
    normal = TABLE - TABLE.mean(1, keepdims=True)
    normal /= np.sqrt((normal**2).mean(1, keepdims=True))
    assert_near(total, x + normal, "float: sums")
    assert product.tolist() == [[np.arange(1, 5) @ TABLE.argmin(1)]]


def test_constant_invocation_of_which_one_result_is_given_out() -> None:
    nodes = [
        helper.make_node("TopK", ["table", "count"], ["values", "where"]),
        helper.make_node("Cast", ["where"], ["weights"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "weights"], ["product"]),
    ]
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    constants = {"table": TABLE, "count": np.array([2])}
    values, product = _run(nodes, constants, x, ["values", "product"])
    order = np.argsort(-TABLE, 1)[:, :2]
    np.testing.assert_array_equal(values, np.take_along_axis(TABLE, order, 1))
    assert_near(product, x @ order.astype(np.float32), "float: sums")


def test_constant_product_that_is_added_to_a_feed() -> None:
    nodes = [
        helper.make_node("MatMul", ["table", "column"], ["constant"]),
        helper.make_node("Add", ["x", "constant"], ["sum"]),
    ]
    column = np.arange(6, dtype=np.float32).reshape(6, 1)
    x = RNG.standard_normal((4, 1)).astype(np.float32)
    (total,) = _run(nodes, {"table": TABLE, "column": column}, x, ["sum"])
    assert_near(total, x + TABLE @ column, "float: sums")


@pytest.mark.parametrize("limit", [0, 2, 4])
def test_choices_among_known_elements(limit: int) -> None:
    """What becomes a known element while expressions are put into each other is no load."""
    text = f"""graph () => (bool[A] y) <int64 zero = {{0}}, int64[1] limit = {{{limit}}},
        int64 one = {{1}}, int64[1] axes = {{0}}, int64 four = {{4}}> {{
        l = Squeeze(limit, axes) r = Range(zero, four, one) below = LessOrEqual(l, r)
        y = Compress<axis = 0>(below, below) }}"""
    session = sardonyx.InferenceSession(model_of(text, None, 19).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {})[0], np.full(4 - limit, True))
