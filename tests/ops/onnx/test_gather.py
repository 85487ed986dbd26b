"""Gathers, scatters, one-hot, sorting."""

import numpy as np
import pytest

import sardonyx.ops.core.references  # noqa: F401 - registers what the kernels mean
from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op

RNG = np.random.default_rng(6)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)


def integers(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(dtype, axis):
    extent = X.shape[axis]
    positions = RNG.integers(-extent, extent, (3, 4, 5)).astype(dtype)
    check_op("GatherElements", [X, positions], {"axis": axis}, 13)


def test_gather_outside():
    with pytest.raises(RuntimeException):
        check_op("GatherElements", [X, np.full((3, 4, 5), 3)], {}, 13, expected=[])


def test_gather_nd():
    for positions, batches in (
        (RNG.integers(-3, 3, (2, 6, 2)), 0),
        (RNG.integers(-3, 3, (3, 2, 1)), 1),
        (RNG.integers(-3, 3, (2, 3)), 0),
    ):
        expected = np.array(
            [
                X[(*at[:batches], *positions[at])]
                for at in np.ndindex(*positions.shape[:-1])
            ]
        )  # fmt: skip
        inner = X.shape[batches + positions.shape[-1] :]
        expected = expected.reshape(positions.shape[:-1] + inner)
        check_op("GatherND", [X, positions], {"batch_dims": batches}, 13, expected=[expected],
                 constants=[1])  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(reduction):
    positions = np.argsort(RNG.random((3, 4, 5)), axis=1)[:, :2]
    updates = RNG.standard_normal((3, 2, 5)).astype(np.float32)
    attributes = {"axis": 1, "reduction": reduction}
    check_op("ScatterElements", [X, positions, updates], attributes, 18)
    rows = RNG.standard_normal((2, 5)).astype(np.float32)
    inputs = [X, integers([0, 1], [-1, 3]), rows]
    check_op("ScatterND", inputs, {"reduction": reduction}, 18, symbolic=False)
    check_op("ScatterND", inputs, {"reduction": reduction}, 18, symbolic=True, constants=[1])


def test_scatter_does_not_fit():
    inputs = [X, integers([0, 1]), np.zeros((1, 4), np.float32)]
    with pytest.raises(InvalidGraph, match="tensor of updates"):
        check_op("ScatterND", inputs, {}, 18, symbolic=False, expected=[])


@pytest.mark.parametrize("axis", [0, -1])
def test_one_hot(axis):
    positions = integers([1, -1, 3], [9, -9, 0])
    inputs = [positions, np.int64(4), np.array([2, 5], np.float32)]
    dense = [[[5 if p in (i, i - 4) else 2 for i in range(4)] for p in row] for row in positions]
    expected = np.moveaxis(np.array(dense, np.float32), -1, axis)
    check_op("OneHot", inputs, {"axis": axis}, 11, constants=[1], expected=[expected])


@pytest.mark.parametrize(("batch_axis", "time_axis"), [(1, 0), (0, 1)])
def test_reverse_sequence(batch_axis, time_axis):
    x = RNG.standard_normal((3, 3, 2)).astype(np.float32)
    attributes = {"batch_axis": batch_axis, "time_axis": time_axis}
    check_op("ReverseSequence", [x, integers(3, 1, 2)], attributes, 10)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(axis, largest):
    x = RNG.integers(0, 4, (4, 5)).astype(np.float32)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(3), axis)
    expected = [np.take_along_axis(x, order, axis), order]
    attributes = {"axis": axis, "largest": largest}
    check_op("TopK", [x, integers(3)], attributes, 11, outputs=2, constants=[1], expected=expected)


def test_top_k_of_too_few():
    with pytest.raises(InvalidGraph, match="no 6 elements"):
        check_op("TopK", [X, integers(6)], {}, 11, outputs=2, constants=[1], expected=[])


def test_compress():
    flags = np.array([True, False, True])
    check_op("Compress", [X, flags], {"axis": 0}, 11, constants=[1])


@pytest.mark.parametrize("count", [0, 1])
def test_non_zero_of_a_scalar_has_no_rows(count):
    check_op("NonZero", [np.float32(count)], expected=[np.zeros((0, count), np.int64)])
