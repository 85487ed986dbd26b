from __future__ import annotations

import numpy as np
import pytest

from sardonyx.quantization import QuantType
from sardonyx.quantization.arithmetic import (
    Parameters,
    parameters_of_range,
    parameters_of_weights,
    quantise,
    quantise_bias,
    restricted_parameters,
    widened_for_bias,
)
from tests.support.tolerances import assert_near

Q = QuantType


@pytest.mark.parametrize(
    ("low", "high", "type", "options", "scale", "zero"),
    [
        (-1, 3, Q.QUInt8, {}, 4 / 255, 64),
        (-1, 3, Q.QInt8, {}, 4 / 255, -64),
        (1, 3, Q.QUInt8, {}, 3 / 255, 0),  # zero is always inside
        (-4, -1, Q.QUInt8, {}, 4 / 255, 255),
        (-1, 3, Q.QInt8, {"symmetric": True}, 6 / 254, 0),
        (-1, 3, Q.QUInt8, {"symmetric": True}, 6 / 255, 128),
        (-1, 3, Q.QInt8, {"reduce": True}, 4 / 128, -32),
        (-1, 3, Q.QUInt8, {"reduce": True}, 4 / 127, 32),
        (-1, 3, Q.QUInt16, {}, 4 / 65535, 16384),
        (-1, 3, Q.QInt16, {"symmetric": True}, 6 / 65534, 0),
        (-1, 3, Q.QInt4, {}, 4 / 15, -4),
        (0, 0, Q.QUInt8, {}, 1, 0),
        (0, 0.1, Q.QUInt8, {"least": 1.0}, 1 / 255, 0),
    ],
)
def test_a_range(low, high, type, options, scale, zero) -> None:
    found = parameters_of_range(np.float32(low), np.float32(high), type, **options)
    assert_near(found.scale, scale, "float: one operation")
    assert int(found.zero_point) == zero
    assert found.scale.dtype == np.float32 and found.zero_point.dtype == type.dtype.numpy


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero"),
    [(0, 2, 2 / 255, 0), (-1, 2, 2 / 127, 128), (-2, 1, 2 / 128, 128), (0, 0, 1 / 255, 0)],
)
def test_zero_points_that_are_restricted(low, high, scale, zero) -> None:
    found = restricted_parameters(low, high)
    assert_near(found.scale, scale, "float: one operation")
    assert int(found.zero_point) == zero


def test_channels_and_blocks() -> None:
    weights = np.array([[1, -2, 0, 4], [0.5, 0.25, -8, 1]], np.float32)
    rows = parameters_of_weights(weights, Q.QInt8, symmetric=True, axis=0)
    np.testing.assert_allclose(rows.scale, np.float32([4, 8]) / 127)
    blocks = parameters_of_weights(weights, Q.QInt8, symmetric=True, axis=1, block=3)
    np.testing.assert_allclose(blocks.scale, np.float32([[2, 4], [8, 1]]) / 127)
    assert quantise(weights, rows).tolist() == [[32, -64, 0, 127], [8, 4, -127, 16]]
    assert quantise(weights, blocks).tolist() == [[64, -127, 0, 127], [8, 4, -127, 127]]


def test_codes_round_halves_to_even_and_are_clipped() -> None:
    parameters = Parameters(np.float32(2), np.uint8(3), Q.QUInt8)
    numbers = np.array([-100, -1, 1, 3, 5, 1000], np.float32)
    assert quantise(numbers, parameters).tolist() == [0, 3, 3, 5, 5, 255]


def test_a_bias_that_does_not_fit_widens_the_scale() -> None:
    scale, bias = np.float32([1e-9, 1e-2]), np.float32([4.0, 4.0])
    found = widened_for_bias(scale, np.float32(0.5), bias)
    assert found[1] == scale[1] and found[0] > 3e-9
    codes = quantise_bias(bias, found * np.float32(0.5))
    assert abs(int(codes[0])) < 2**31 - 1 and int(codes[1]) == 800
