"""The tensor language: simple index maps, broadcasting, reductions, sharing, contents."""

import gc

import numpy as np
import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import InvalidGraph
from sardonyx.tensor import assumptions, scalar, tensor
from sardonyx.tensor import language as t
from sardonyx.tensor.evaluate import evaluate
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import buffer, indices
from tests.support.tolerances import assert_near

N, S = sizes.symbol("N"), sizes.symbol("S")


def floats(*shape, dtype=dtypes.FLOAT):
    return buffer(f"x{shape}", shape, dtype)


@pytest.mark.parametrize(
    ("old", "new", "source"),
    [
        ((N, S, 768), (N, S, 12, 64), lambda a, b, c, d: (a, b, c * 64 + d)),
        (
            (N, S, 12, 64),
            (N, S, 768),
            lambda a, b, c: (a, b, integer.floordiv(c, 64), integer.modulo(c, 64)),
        ),
        ((N, S, 8), (N * S, 8), lambda a, b: (integer.floordiv(a, S), integer.modulo(a, S), b)),
        ((N * S, 8), (N, S, 8), lambda a, b, c: (a * S + b, c)),
        ((N, 1, S), (N, S, 1), lambda a, b, c: (a, 0, b)),
        (
            (N, 6, 4),
            (N, 4, 6),
            lambda a, b, c: (a, integer.floordiv(b * 6 + c, 4), integer.modulo(b * 6 + c, 4)),
        ),
        ((N, 3, S), (3 * N, S), lambda a, b: (integer.floordiv(a, 3), integer.modulo(a, 3), b)),
    ],
)
def test_reshape_matches_groups_of_axes(old, new, source):
    result = t.reshape(floats(*old), new)
    assert result.body.at == source(*indices(new))


def test_equal_structure_is_one_object():
    x = floats(N, 4)
    assert x * 2.0 + 1.0 is x * 2.0 + 1.0
    assert x.sum(1) is x.sum(-1)
    assert x * 2.0 is not x * 3.0


def test_unused_tensors_are_forgotten():
    gc.collect()
    before = len(tensor._TENSORS), len(scalar._NODES)
    x = floats(N, 4)
    y = x
    for number in range(5000):
        y = y + number / 7
    y = t.transpose(y).sum(0) @ x
    assert len(tensor._TENSORS) > 5000
    del x, y
    gc.collect()
    assert (len(tensor._TENSORS), len(scalar._NODES)) <= before


def test_broadcast_assumes_what_it_cannot_prove():
    with assumptions.collect() as found:
        assert (floats(N, 4) + floats(1, 4)).shape == (N, 4)
        assert (floats(N, 4) + floats(3, 1)).shape == (3, 4)
        assert (floats(N) + floats(S, 1)).shape == (S, N)
        assert (floats(S + 2, 4) + floats(S, 4)).shape == (S + 2, 4)
    assert list(found) == [(N, 3), (S, 1)]
    for a, b in (((2,), (3,)), ((N + 4, 4), (N + 2, 4))):
        with pytest.raises(InvalidGraph, match="do not fit"):
            floats(*a) + floats(*b)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis, keepdims):
    x = floats(N, 3, 4)
    array = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    for name in ("sum", "prod", "max", "min", "mean"):
        result = evaluate(getattr(x, name)(axis, keepdims), {x: array}, {"N": 2})
        expected = getattr(array, name)(axis=axis, keepdims=keepdims)
        assert_near(result, expected, "float: functions")
        assert result.dtype == np.float32


def test_half_floats_are_added_in_float():
    x = floats(4096, dtype=dtypes.FLOAT16)
    ones = np.ones(4096, np.float16)
    assert evaluate(x.sum(), {x: ones}) == 4096  # half floats would stop at 2048
    assert x.sum().dtype is dtypes.FLOAT16
    assert t.matmul(x, x).accumulator is dtypes.FLOAT


@pytest.mark.parametrize("function", [t.argmax, t.argmin])
@pytest.mark.parametrize("last", [False, True])
def test_positions_of_extremes(function, last):
    x = floats(2, 4)
    array = np.array([[1, 3, 3, 1], [5, 5, 5, 5]], np.float32)
    found = evaluate(function(x, 1, last=last), {x: array}).tolist()
    highest = [2, 3] if last else [1, 0]
    lowest = [3, 3] if last else [0, 0]
    assert found == (highest if function is t.argmax else lowest)


def test_slices_of_symbolic_axes():
    x = floats(S)
    with assumptions.collect() as found:
        assert t.slice_axis(x, 0, -1, None).shape == (1,)
        assert t.slice_axis(x, 0, 0, -1).shape == (S - 1,)
        assert t.slice_axis(x, 0, None, 2**63 - 1) is x
    assert all(sizes.evaluate(a, {"S": 3}) == sizes.evaluate(b, {"S": 3}) for a, b in found)
    assert any(sizes.evaluate(a, {"S": 0}) != sizes.evaluate(b, {"S": 0}) for a, b in found)
    head = t.slice_axis(x, 0, None, 5)
    for length in (3, 5, 9):
        array = np.arange(length, dtype=np.float32)
        np.testing.assert_array_equal(evaluate(head, {x: array}, {"S": length}), array[:5])


def test_elements_by_index():
    x, i = floats(4, 3), buffer("i", (2,), dtypes.INT64)
    picked = t.compute((2,), lambda k: x[i[k], 1])
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert evaluate(picked, {x: array, i: np.array([3, -4])}).tolist() == [10, 1]


def test_contents_of_shape_arithmetic():
    shape = t.size_tensor((N, S, 64))
    assert elements_of(shape * 2) == (2 * N, 2 * S, 128)
    assert elements_of(shape.prod()) == (64 * N * S,)
    assert elements_of(t.flip(shape, 0)) == (64, S, N)
    assert elements_of(t.concat([shape, t.size_tensor((-1,))], 0)) == (N, S, 64, -1)
    assert elements_of(t.where(t.equal(shape, -1), 1, shape)) == (N, S, 64)
    assert elements_of(shape.cast(dtypes.FLOAT)) is None
    assert elements_of(shape + buffer("y", (3,), dtypes.INT64)) is None


def test_evaluator_skips_what_is_not_chosen():
    x = floats(3)
    padded = t.pad(x, (2,), (1,))
    array = np.arange(1, 4, dtype=np.float32)
    assert evaluate(padded, {x: array}).tolist() == [0, 0, 1, 2, 3, 0]


def test_evaluator_in_double():
    x = floats(1, dtype=dtypes.FLOAT16)
    third = evaluate(x / 3.0, {x: np.ones(1, np.float16)}, double=True)
    assert third.dtype == np.float64
    assert third[0] == 1 / 3
