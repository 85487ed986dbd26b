"""Reductions, positions of extremes and running sums against onnx's reference."""

import numpy as np
import pytest

import sardonyx.ops.core.references  # noqa: F401 - registers what the kernels mean
from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op

RNG = np.random.default_rng(5)
NAMES = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()


def positive(*shape, dtype=np.float32):
    return (np.abs(RNG.standard_normal(shape)) + 0.1).astype(dtype)


def axes(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_as_attribute(name, keepdims):
    x = positive(2, 3, 4)
    check_op(f"Reduce{name}", [x], {"axes": [0, -1], "keepdims": keepdims}, 11)
    check_op(f"Reduce{name}", [x], {"keepdims": keepdims}, 11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_as_input(name, keepdims):
    x = positive(2, 3, 4)
    attributes = {"keepdims": keepdims}
    check_op(f"Reduce{name}", [x, axes(1, -1)], attributes, 18, constants=[1])
    check_op(f"Reduce{name}", [x, axes()], attributes, 18, constants=[1])
    check_op(f"Reduce{name}", [x], attributes, 18)


@pytest.mark.parametrize("name", NAMES)
def test_no_axes_and_noop(name):
    x = positive(2, 3)
    check_op(f"Reduce{name}", [x], {"noop_with_empty_axes": 1}, 18)


@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Prod", "L1"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_types(name, dtype):
    x = RNG.integers(-4, 5, (3, 4)).astype(dtype)
    check_op(f"Reduce{name}", [x, axes(1)], {}, 18, constants=[1])


def test_log_sum_exp_of_large_and_infinite():
    x = np.array([[1000.0, 999.0], [-np.inf, -np.inf], [np.inf, 0.0]], np.float32)
    expected = np.array([1000 + np.log1p(np.exp(-1)), -np.inf, np.inf], np.float32)
    attributes = {"keepdims": 0}
    check_op("ReduceLogSumExp", [x, axes(1)], attributes, 18, constants=[1], expected=[expected])


def test_half_floats_are_added_in_float():
    x = np.full((2, 5000), 0.1, np.float16)
    expected = x.astype(np.float64).mean(1, keepdims=True).astype(np.float16)
    check_op(
        "ReduceMean",
        [x, axes(1)],
        {},
        18,
        constants=[1],
        expected=[expected],
        tolerance="float: sums that cancel",
    )


def test_axis_out_of_range():
    with pytest.raises(InvalidGraph, match="no such axis"):
        check_op("ReduceMax", [positive(2, 3), axes(2)], {}, 18, constants=[1], expected=[])


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes(op_type, keepdims, last):
    x = RNG.integers(0, 3, (3, 4, 5)).astype(np.float32)
    attributes = {"axis": -2, "keepdims": keepdims, "select_last_index": last}
    check_op(op_type, [x], attributes, 13)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums(exclusive, reverse, axis):
    x = positive(3, 4, 2)
    attributes = {"exclusive": exclusive, "reverse": reverse}
    check_op("CumSum", [x, np.array(axis)], attributes, 14, constants=[1])
