"""Operators from before ONNX's first release, against NumPy and onnxruntime if it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.ops import check_op, one_node_model
from tests.support.tolerances import assert_near

RANDOM = np.random.default_rng(28)
X = RANDOM.standard_normal((2, 3, 6, 5)).astype(np.float32)
HALF = X.astype(np.float16)
#: Later ones call them deprecated, or have others of the same name.
OPSET = 8


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def normal(x: Any, axes: tuple[int, ...]) -> Any:
    return (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)


BIAS = [0.5, -1.0, 2.0]
STATE = RANDOM.standard_normal((1, 4, 3)).astype(np.float32)
GATES = RANDOM.standard_normal((1, 4, 9)).astype(np.float32)
LENGTHS, STEP = np.array([1, 3, 2, 5], np.float32), np.array([2], np.float32)
UPDATE = sigmoid(GATES[..., 3:6])
NEXT = STATE * UPDATE + np.tanh(GATES[..., 6:]) * (1 - UPDATE)
GOING = (STEP < LENGTHS)[None, :, None]

#: Operator, inputs, attributes, result, whether onnxruntime has a kernel.
CASES: list[tuple[str, Sequence[Any], Mapping[str, Any], Any, bool]] = [
    ("Affine", [X], {"alpha": 2.0, "beta": -0.5}, X * 2 - 0.5, True),
    ("Affine", [X], {}, X, True),
    ("Scale", [X], {"scale": 0.25}, X * 0.25, True),
    ("Scale", [HALF], {"scale": 3.0}, HALF * np.float16(3), False),
    ("ScaledTanh", [X], {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(X / 2), True),
    ("ParametricSoftplus", [X], {"alpha": 2.0, "beta": 0.5},
     2 * np.log(np.exp(X / 2) + 1), True),
    ("ParametricSoftplus", [X * 100], {"alpha": 1.0, "beta": 3.0},
     np.logaddexp(X * 300, 0), False),
    ("ThresholdedRelu", [X], {"alpha": 0.3}, np.where(np.float32(0.3) < X, X, 0), True),
    ("Crop", [X], {"border": [1, 2, 0, 1]}, X[:, :, 2:5, 1:], True),
    ("Crop", [X], {"border": [1, 2, 0, 0], "scale": [3, 2]}, X[:, :, 2:5, 1:3], True),
    ("ImageScaler", [X], {"scale": 2.0, "bias": BIAS},
     X * 2 + np.array(BIAS, np.float32)[:, None, None], True),
    ("MeanVarianceNormalization", [X], {}, normal(X, (0, 2, 3)), True),
    ("MeanVarianceNormalization", [X], {"across_channels": 1}, normal(X, (0, 1, 2, 3)), True),
    ("MeanVarianceNormalization", [X], {"normalize_variance": 0},
     X - X.mean((0, 2, 3), keepdims=True), True),
    ("DynamicSlice", [X, np.array([1, -3]), np.array([2, 100]), np.array([0, 2])], {},
     X[1:2, :, -3:], True),
    ("DynamicSlice", [X, np.array([0, 1, 2, 3], np.int32), np.array([1, 3, -1, 4], np.int32)], {},
     X[:1, 1:, 2:-1, 3:4], True),
    ("GivenTensorFill", [], {"shape": [2, 2], "values": [1.0, 2.0, 3.0, 4.0]},
     np.array([[1, 2], [3, 4]], np.float32), False),
    ("GivenTensorFill", [X[0, :, 0, 0]], {"extra_shape": [1], "values": BIAS},
     np.array(BIAS, np.float32)[:, None], False),
    ("GivenTensorFill", [np.array([3.0], np.float32)], {"input_as_shape": 1, "values": BIAS},
     np.array(BIAS, np.float32), False),
    ("GRUUnit", [STATE, GATES, LENGTHS, STEP], {}, np.where(GOING, NEXT, STATE), False),
    ("GRUUnit", [STATE, GATES, LENGTHS, STEP], {"drop_states": 1}, np.where(GOING, NEXT, 0), False),
    ("MemcpyToHost", [X], {}, X, False),
    ("MemcpyFromHost", [X], {}, X, False),
]  # fmt: skip


@pytest.mark.parametrize("op_type, inputs, attributes, expected, engine", CASES)
def test_former(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], expected: Any, engine: bool
) -> None:
    symbolic = None if len(inputs) == 1 and op_type != "GivenTensorFill" else False
    expected = expected.astype(inputs[0].dtype if inputs else np.float32)
    check_op(op_type, inputs, attributes, OPSET, expected=[expected], symbolic=symbolic)
    if not engine:
        return
    try:
        import onnxruntime
    except ImportError:
        return
    onnxruntime.set_default_logger_severity(4)
    model = one_node_model(op_type, inputs, attributes, OPSET)
    feeds = {f"x{k}": x for k, x in enumerate(inputs)}
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert_near(expected, theirs, "float: layers near zero")


@pytest.mark.parametrize(
    "op_type, inputs, attributes, text",
    [
        ("Crop", [X], {"border": [1, 2, 0]}, "four borders"),
        ("Crop", [X], {"border": [1, 2, 0, 0], "scale": [6, 2]}, "too short"),
        ("Crop", [X[0]], {"border": [1, 2, 0, 0]}, "four axes"),
        ("ImageScaler", [X], {"bias": [1.0]}, "needs a bias"),
        ("GivenTensorFill", [], {"shape": [2, 3], "values": BIAS}, "do not fill"),
        ("GRUUnit", [STATE, GATES[..., :6], LENGTHS, STEP], {}, "gates"),
        ("ScaledTanh", [X], {"alpha": 1.0}, "'beta' is missing"),
    ],
)
def test_what_is_refused(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], text: str
) -> None:
    model = one_node_model(op_type, inputs, attributes, OPSET).SerializeToString()
    with pytest.raises(errors.InvalidGraph, match=text):
        sardonyx.InferenceSession(model)
