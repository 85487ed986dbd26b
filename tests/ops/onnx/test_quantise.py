"""Quantised tensors: conversions and products."""

import ml_dtypes
import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op

RNG = np.random.default_rng(8)


def floats(*shape):
    return (RNG.standard_normal(shape) * 4).astype(np.float32)


def scales(*shape):
    return np.asarray(RNG.random(shape) * 0.1 + 0.01, np.float32)


def codes(*shape, dtype=np.uint8):
    info = np.iinfo(dtype)
    return np.asarray(RNG.integers(info.min // 2, info.max // 2, shape), dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize(("shape", "axis"), [((), 1), ((3,), 1), ((4,), -1)])
def test_quantize(dtype, shape, axis):
    inputs = [floats(2, 3, 4), scales(*shape), codes(*shape, dtype=dtype)]
    check_op("QuantizeLinear", inputs, {"axis": axis}, 21)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize(("shape", "axis"), [((), 1), ((3,), 1), ((4,), -1)])
def test_dequantize(dtype, shape, axis):
    inputs = [codes(2, 3, 4, dtype=dtype), scales(*shape), codes(*shape, dtype=dtype)]
    check_op("DequantizeLinear", inputs, {"axis": axis}, 21)


def test_halves_round_to_even_and_ends_saturate():
    x = np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9], np.float32)
    inputs = [x, np.float32(1), np.uint8(3)]
    expected = np.array([3, 5, 5, 3, 255, 0], np.uint8)
    check_op("QuantizeLinear", inputs, {}, 13, expected=[expected])


def test_without_zero_point():
    check_op("QuantizeLinear", [floats(2, 3), scales()], {}, 21)
    check_op("DequantizeLinear", [codes(2, 3), scales()], {}, 21)
    check_op("DequantizeLinear", [codes(2, 3, dtype=np.int32) // 1000, scales()], {}, 21)


def test_blocks():
    parameters = [scales(2, 6), codes(2, 6)]
    check_op("QuantizeLinear", [floats(4, 6), *parameters], {"axis": 0, "block_size": 2}, 21)
    parameters = [scales(4, 2), codes(4, 2)]
    check_op("DequantizeLinear", [codes(4, 6), *parameters], {"axis": 1, "block_size": 3}, 21)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_small_floats(dtype):
    x = np.array([0.3, -2.7, 1e6, -1e6], np.float32)
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(x * 2, -largest, largest).astype(dtype)
    inputs = [x, np.float32(0.5), np.zeros((), dtype)]
    check_op("QuantizeLinear", inputs, {}, 19, expected=[expected])
    back = [expected.astype(np.float32) * np.float32(0.5)]
    check_op("DequantizeLinear", [expected, *inputs[1:]], {}, 19, expected=back)


def test_scale_of_wrong_rank():
    with pytest.raises(InvalidGraph, match="wrong rank"):
        check_op("QuantizeLinear", [floats(4, 6), scales(4, 6)], {}, 13, expected=[])


@pytest.mark.parametrize("x", [floats(3, 4), np.abs(floats(3, 4)), np.zeros((2, 2), np.float32)])
def test_dynamic(x):
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = np.uint8(np.clip(np.round(-low / scale), 0, 255))
    y = np.clip(np.round(x / scale) + zero, 0, 255).astype(np.uint8)
    check_op("DynamicQuantizeLinear", [x], {}, 11, outputs=3, expected=[y, scale, zero])


# -- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((4,), (4, 5))])
def test_mat_mul_integer(shapes):
    a, b = codes(*shapes[0]), codes(*shapes[1], dtype=np.int8)
    expected = (a.astype(np.int32) - 7) @ (b.astype(np.int32) + 3)
    zeros = [np.uint8(7), np.int8(-3)]
    check_op("MatMulInteger", [a, b, *zeros], {}, 10, expected=[expected])
    expected = a.astype(np.int32) @ b.astype(np.int32)
    check_op("MatMulInteger", [a, b], {}, 10, expected=[expected])


def test_zero_points_per_row_and_column():
    a, b = codes(3, 4), codes(4, 5)
    rows, columns = codes(3), codes(5)
    expected = (a.astype(np.int32) - rows[:, None]) @ (b.astype(np.int32) - columns)
    check_op("MatMulInteger", [a, b, rows, columns], {}, 10, expected=[expected.astype(np.int32)])


def requantised(total, factor, zero, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.round(total * factor) + zero, info.min, info.max).astype(dtype)


def test_q_linear_mat_mul():
    a, b, factors = codes(2, 3, 4), codes(2, 4, 5, dtype=np.int8), scales(3)
    total = (a.astype(np.int32) - 9) @ (b.astype(np.int32) - 4)
    y_scale = np.float32(2.5)
    factor = factors[0] * factors[1] / y_scale
    inputs = [a, factors[0], np.uint8(9), b, factors[1], np.int8(4), y_scale, np.uint8(100)]
    expected = requantised(total.astype(np.float32), factor, 100, np.uint8)
    check_op("QLinearMatMul", inputs, {}, 21, expected=[expected])


def test_q_linear_conv():
    x, w, bias = codes(1, 3, 5, 5), codes(4, 3, 1, 1, dtype=np.int8), codes(4, dtype=np.int16)
    bias = bias.astype(np.int32)
    x_scale, w_scale, y_scale = scales(), scales(4), np.float32(3)
    total = np.einsum("nchw,mc->nmhw", x.astype(np.int32) - 11, w[:, :, 0, 0].astype(np.int32))
    total = (total + bias.reshape(1, 4, 1, 1)).astype(np.float32)
    factor = (x_scale * w_scale / y_scale).reshape(1, 4, 1, 1)
    zeros = np.zeros(4, np.int8)
    inputs = [x, x_scale, np.uint8(11), w, w_scale, zeros, y_scale, np.int8(5), bias]
    inputs[7] = np.uint8(5)
    expected = requantised(total, factor, 5, np.uint8)
    check_op("QLinearConv", inputs, {}, 10, expected=[expected])
