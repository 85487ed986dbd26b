"""Operands whose shapes do not fit are refused, and nothing outside of an operand is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base import errors
from tests.support.ops import one_node_model
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def codes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 9, shape).astype(np.uint8)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


MISFITS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Conv", [floats(1, 3, 5, 5), floats(8, 3, 1, 1), floats(3)], {}),
    ("ConvTranspose", [floats(1, 3, 5, 5), floats(3, 8, 1, 1), floats(3)], {}),
    ("ConvTranspose", [floats(1, 3, 5, 5), floats(3, 8, 1, 1)], {"strides": [0, 0]}),
    ("ConvInteger", [codes(1, 3, 5, 5), codes(8, 3, 1, 1), codes(), codes(3)], {}),
    ("MatMulInteger", [codes(4, 5), codes(5, 8), codes(), codes(3)], {}),
    (
        "QLinearMatMul",
        [codes(4, 5), floats(), codes(), codes(5, 8), floats(3), codes(3), floats(), codes()],
        {},
    ),
    (
        "QLinearConv",
        [codes(1, 3, 5, 5), floats(), codes(), codes(8, 3, 1, 1), floats(), codes(), floats(),
         codes(), np.zeros(3, np.int32)],
        {},
    ),
    ("QuantizeLinear", [floats(4, 8), floats(8), codes(3)], {}),
    ("DequantizeLinear", [codes(4, 8), floats(8), codes(3)], {}),
    ("DequantizeLinear", [codes(4, 8), floats(2, 4), codes(2, 4)], {"block_size": 2}),
    ("ReverseSequence", [floats(4, 8), zeros(3)], {}),
    ("GatherElements", [floats(4, 8), zeros(4, 12)], {}),
    ("GatherND", [floats(2, 8, 4), zeros(5, 3, 1)], {"batch_dims": 1}),
    ("ScatterElements", [floats(4, 8), zeros(4, 8), floats(4, 6)], {}),
    ("ScatterND", [floats(3, 4), zeros(5, 1), floats(5, 3)], {}),
    ("GridSample", [floats(1, 2, 4, 4), floats(3, 5, 5, 2)], {}),
    ("GridSample", [floats(1, 2, 4, 4), floats(1, 5, 5, 1)], {}),
    ("Attention", [floats(2, 2, 5, 4)] + [floats(2, 2, 6, 4)] * 2 + [floats(3, 3, 2, 6)], {}),
    ("Attention", [floats(4, 2, 5, 4)] + [floats(1, 2, 6, 4)] * 2, {}),
    ("Attention", [floats(2, 2, 5, 4), floats(2, 2, 9, 4), floats(2, 2, 6, 4)], {}),
    ("Attention", [floats(4, 2, 5, 4)] * 3 + [None, None, None, zeros(1)], {}),
    ("RotaryEmbedding", [floats(2, 3, 5, 8), floats(2, 3, 4), floats(2, 3, 4)], {}),
    ("RotaryEmbedding", [floats(2, 3, 5, 8), floats(9, 2), floats(9, 2), zeros(2, 5)], {}),
    ("RotaryEmbedding", [floats(2, 3, 5, 8), floats(9, 4), floats(9, 4), zeros(2, 3)], {}),
    ("LayerNormalization", [floats(1, 4), floats(3, 4)], {}),
    ("BatchNormalization", [floats(2, 1, 4), *[floats(3)] * 4], {}),
    ("InstanceNormalization", [floats(2, 1, 4), floats(3), floats(3)], {}),
    ("PRelu", [floats(1, 4), floats(3, 4)], {}),
    ("Gemm", [floats(1, 4), floats(4, 5), floats(3, 5)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"), MISFITS, ids=lambda x: x if isinstance(x, str) else ""
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_operands_that_do_not_fit(
    op_type: str, operands: list[Any], attributes: dict[str, Any], symbolic: bool
) -> None:
    model = one_node_model(op_type, operands, attributes, 24, symbolic=symbolic)
    feeds = {f"x{k}": x for k, x in enumerate(operands) if x is not None}
    with pytest.raises((errors.InvalidGraph, errors.InvalidArgument, errors.NotImplemented)):
        sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)


def test_a_factor_of_einsum_that_is_broadcast_in_a_run() -> None:
    operands = [floats(5, 17, 5), floats(1)]
    model = one_node_model("Einsum", operands, {"equation": "ijk,k->ij"}, 21)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "N"
    session = sardonyx.InferenceSession(model.SerializeToString())
    result = session.run(None, {"x0": operands[0], "x1": operands[1]})[0]
    assert_near(result, operands[0].sum(2) * operands[1], "float: sums")


@pytest.mark.parametrize("op", ["Div", "GatherElements"])
def test_what_padding_hides_is_not_read(op: str) -> None:
    """A value of a whole row is not read for rows in the padding, where it might be a fault."""
    rows, width = 5, 9
    around = np.full(rows + 6, 0 if op == "Div" else 99)
    second = around[3:-3].reshape(rows, 1)
    second[...] = np.array([4, 1, 2, 3, 1]).reshape(rows, 1)
    first = np.arange(rows * (width if op == "Div" else 1)).reshape(rows, -1)
    pads, shape = np.array([3, 2, 3, 2]), np.array([rows, width])
    attributes = {} if op == "Div" else {"axis": 0}
    nodes = [
        helper.make_node(op, ["x", "y"], ["q"], **attributes),
        helper.make_node("Expand", ["q", "shape"], ["wide"]),
        helper.make_node("Pad", ["wide", "pads"], ["z"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT64, x.shape)
        for name, x in (("x", first), ("y", second))
    ]
    constants = [numpy_helper.from_array(pads, "pads"), numpy_helper.from_array(shape, "shape")]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="z")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    result = sardonyx.InferenceSession(model.SerializeToString()).run(
        None, {"x": first, "y": second}
    )[0]
    known = first // second if op == "Div" else first[second[:, 0]]
    expected = np.pad(np.broadcast_to(known, (rows, width)), ((3, 3), (2, 2)))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_parts_without_elements(order: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["moved"], perm=order),
        helper.make_node("Split", ["moved", "lengths"], ["a", "b"], axis=-1),
        helper.make_node("Tile", ["b", "repeats"], ["c"]),
    ]
    x = floats(2, 3, 4)
    moved = x.transpose(order)
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    constants = [
        numpy_helper.from_array(np.array([moved.shape[-1], 0]), "lengths"),
        numpy_helper.from_array(np.array([2, 1, 3]), "repeats"),
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in "abc"]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    results = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(results[0], moved)
    assert results[1].shape == (*moved.shape[:-1], 0)
    assert results[2].shape == (2 * moved.shape[0], moved.shape[1], 0)
