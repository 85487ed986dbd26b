"""int8 matrices that lie row by row, against NumPy by the schemas' text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(31)
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def codes(*shape: int) -> Array:
    return RANDOM.integers(-100, 100, shape).astype(np.int8)


def one(value: float) -> Array:
    return np.array(value, np.float32)


def rounded(x: Array, scale: float) -> Array:
    return np.clip(np.rint(x / scale), -128, 127)


def test_quantize_and_dequantize() -> None:
    x, orders = floats(3, 5) * 3, {"order_input": 1, "order_output": 1}
    check_contrib("QuantizeWithOrder", [x, one(0.05)], orders, [rounded(x, 0.05)], engine=False,
                  step=1)  # fmt: skip
    y = codes(3, 5)
    check_contrib("DequantizeWithOrder", [y, one(0.05)], {**orders, "to": 1}, [y * 0.05],
                  engine=False)  # fmt: skip


def test_gelu() -> None:
    x = codes(4, 6)
    wide = x * 0.04
    erf = np.vectorize(math.erf)(wide / np.sqrt(2))
    expected = rounded(wide * 0.5 * (1 + erf), 0.05)
    check_contrib("QOrderedGelu", [x, one(0.04), one(0.05)], {}, [expected], engine=False, step=1)


def test_layer_normalization() -> None:
    x, gamma, beta = codes(3, 8), floats(8), floats(8)
    wide = x * 0.04
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    inputs = [x, one(0.04), gamma, beta, one(0.05)]
    check_contrib("QOrderedLayerNormalization", inputs, {}, [rounded(normal * gamma + beta, 0.05)],
                  engine=False, step=1, symbolic=False)  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_mat_mul(turned: bool) -> None:
    a, weights, c, bias = codes(2, 3, 8), codes(5, 8), codes(1, 3, 5), floats(5) * 10
    scales = np.abs(floats(5)) / 50 + np.float32(0.01)
    total = a.astype(float) @ weights.T.astype(float) * 0.02 * scales + bias + c * 0.1
    b = weights if turned else weights.reshape(8, 5)
    inputs = [a, one(0.02), b, scales, one(0.3), bias, c, one(0.1)]
    facts = {"order_A": 1, "order_B": 0, "order_Y": 1}
    check_contrib("QOrderedMatMul", inputs, facts, [rounded(total, 0.3)], engine=False, step=1,
                  symbolic=False)  # fmt: skip


@pytest.mark.parametrize(
    "op_type, inputs, facts",
    [
        ("QuantizeWithOrder", [floats(3, 5), one(1)], {"order_input": 1, "order_output": 2}),
        ("QOrderedLayerNormalization", [codes(3, 8), one(1), floats(8), None, one(1)],
         {"order_X": 2, "order_Y": 2}),
        ("QOrderedMatMul", [codes(1, 3, 8), one(1), codes(8, 5), one(1), one(1)],
         {"order_A": 2, "order_B": 3, "order_Y": 2}),
    ],
)  # fmt: skip
def test_tiles_are_refused(op_type: str, inputs: list[Any], facts: dict[str, int]) -> None:
    with pytest.raises(NotImplemented, match="order_.* asks for an order of cuBLASLt"):
        check_contrib(op_type, inputs, facts, [None], engine=False, symbolic=False)
