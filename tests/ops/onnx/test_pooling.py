"""Pooling against onnx's reference, and against the definition where that is wrong."""

import itertools

import numpy as np
import pytest

from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.ops.onnx.pooling import max_pool
from sardonyx.tensor.tensor import buffer
from tests.support.ops import check_op

RNG = np.random.default_rng(2)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


WINDOWS = [
    {},
    {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "ceil_mode": 1},
    {"strides": [2, 3], "pads": [1, 1, 0, 1], "ceil_mode": 1},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 3], "auto_pad": "SAME_LOWER"},
    {"dilations": [2, 3], "pads": [1, 1, 1, 1]},
]


def pooled(x, op, *, kernel_shape, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), ceil_mode=0,
           auto_pad="", count_include_pad=0, storage_order=0, p=2):  # fmt: skip
    """Window by window. Gives the result, and flat positions for the largest."""
    space = x.shape[2:]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    low, high, out = list(pads[:2]), list(pads[2:]), []
    for a in range(2):
        if auto_pad:
            out.append(-(-space[a] // strides[a]))
            total = max((out[a] - 1) * strides[a] + extent[a] - space[a], 0)
            low[a] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            high[a] = total - low[a]
            continue
        steps = (space[a] + low[a] + high[a] - extent[a]) / strides[a]
        count = int(np.ceil(steps) if ceil_mode else np.floor(steps)) + 1
        out.append(count - (ceil_mode and (count - 1) * strides[a] >= space[a] + low[a]))
    result = np.zeros((*x.shape[:2], *out))
    positions = np.zeros(result.shape, np.int64)
    for at in np.ndindex(*result.shape):
        values, counted = [], 0
        for tap in itertools.product(*map(range, kernel_shape)):
            y, z = (at[2 + a] * strides[a] - low[a] + tap[a] * dilations[a] for a in range(2))
            counted += y < space[0] + high[0] and z < space[1] + high[1]
            if 0 <= y < space[0] and 0 <= z < space[1]:
                flat = y + z * space[0] if storage_order else y * space[1] + z
                values.append((x[at[0], at[1], y, z], flat))
        numbers = np.array([v for v, _ in values], np.float64)
        if op == "max":
            best = int(numbers.argmax())
            result[at] = numbers[best]
            image = at[0] * x.shape[1] + at[1]
            positions[at] = image * space[0] * space[1] + values[best][1]
        elif op == "mean":
            result[at] = numbers.sum() / (counted if count_include_pad else len(numbers))
        else:
            result[at] = (np.abs(numbers) ** p).sum() ** (1 / p)
    return result.astype(x.dtype), positions


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_largest(window, storage_order):
    x = floats(2, 2, 6, 7)
    attributes = {"kernel_shape": [3, 2], **window}
    expected = pooled(x, "max", storage_order=storage_order, **attributes)
    check_op("MaxPool", [x], attributes, 12, expected=expected[:1])
    attributes["storage_order"] = storage_order
    check_op("MaxPool", [x], attributes, 12, outputs=2, expected=expected)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_mean(window, count_include_pad):
    x = floats(2, 2, 6, 7)
    attributes = {"kernel_shape": [3, 2], **window, "count_include_pad": count_include_pad}
    expected, _ = pooled(x, "mean", **attributes)
    check_op("AveragePool", [x], attributes, 19, expected=[expected])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norm(window, p):
    x = floats(2, 2, 6, 7)
    attributes = {"kernel_shape": [3, 2], **window, "p": p}
    expected, _ = pooled(x, "norm", **attributes)
    check_op("LpPool", [x], attributes, 18, expected=[expected])


def test_integers_and_other_ranks():
    x = RNG.integers(0, 255, (1, 2, 6, 7)).astype(np.uint8)
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    check_op("MaxPool", [x], attributes, 12, expected=pooled(x, "max", **attributes)[:1])
    check_op("MaxPool", [floats(1, 2, 9)], {"kernel_shape": [3], "strides": [2]}, 12)
    check_op("AveragePool", [floats(1, 2, 4, 5, 6)], {"kernel_shape": [2, 3, 2]}, 19)


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global(op_type):
    check_op(op_type, [floats(2, 3, 4, 5)], {}, 17)


def test_global_norm():
    x = floats(2, 3, 4, 5)
    expected = (np.abs(x.astype(np.float64)) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    check_op("GlobalLpPool", [x], {"p": 3}, 17, expected=[expected.astype(np.float32)])


def test_without_padding_nothing_is_selected():
    h, w = sizes.symbol("h"), sizes.symbol("w")
    result, _ = max_pool(buffer("x", (1, 3, h, w), FLOAT), kernel_shape=[2, 2], strides=[2, 2])
    assert result.body.op == "load"
    assert result.extents == (2, 2)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [2, 2, 2, 2]},
        {"pads": [4, 1, 0, 3], "ceil_mode": 1},
        {"kernel_shape": [7, 9], "strides": [2, 2], "pads": [3, 4, 3, 4]},
        {"dilations": [2, 1], "auto_pad": "SAME_LOWER"},
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.float16])
def test_large_windows_of_maxima(attributes, dtype):
    """These are taken axis by axis; a NaN spreads as in a whole window."""
    x = (RNG.standard_normal((2, 3, 14, 17)) * 40).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[0, 1, 6, 7] = np.nan
    attributes = {"kernel_shape": [5, 5], **attributes}
    expected, _ = pooled(x.astype(np.float64), "max", **attributes)
    check_op("MaxPool", [x], attributes, 12, expected=[expected.astype(dtype)])
