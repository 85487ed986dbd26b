"""Values of the processor that grow where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base.errors import InvalidArgument, OutOfMemory
from sardonyx.runtime.growable_values import GrownView, new_growable
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: `sums` reads old rows and new ones; `twice` of the input comes behind `past`.
TEXT = """g (float[B,2,P,4] past, float[B,2,S,4] x) => (float[B,2,T,4] present, float[B,2,4] sums) {
    twice = Add(x, x)
    present = Concat<axis=2>(past, twice)
    sums = ReduceSum<keepdims=0>(present, axes)
}"""


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    model = model_of(TEXT, {"axes": np.array([2])})
    return ort.InferenceSession(model.SerializeToString())


def _step(session: ort.InferenceSession, past: ort.OrtValue, x: Any) -> ort.OrtValue:
    """One more value; both outputs are right."""
    present, sums = session.run_with_ort_values(None, {"past": past, "x": ort.OrtValue(x)})
    expected = np.concatenate([past.numpy(), 2 * x], 2)
    np.testing.assert_array_equal(present.numpy(), expected)
    assert_near(sums.numpy(), expected.sum(2), "float: sums")
    return present


def _new(count: int, batch: int = 1) -> Any:
    random = np.random.default_rng(count)
    return random.standard_normal((batch, 2, count, 4)).astype(np.float32)


def _empty(room: int, batch: int = 1, length: int = 0) -> ort.OrtValue:
    return ort.OrtValue(new_growable((batch, 2, length, 4), np.dtype(np.float32), 2, room))


@pytest.mark.parametrize("batch", [1, 3])
def test_nothing_moves(session: ort.InferenceSession, batch: int) -> None:
    values = [_empty(16, batch)]
    for count in (5, 1, 1, 2):
        values.append(_step(session, values[-1], _new(count, batch)))
    assert len({v.data_ptr() for v in values}) == 1
    assert all(type(v._array) is GrownView for v in values)
    longest = values[-1].numpy()
    for value in values:  # what an earlier step gave stays what it was
        np.testing.assert_array_equal(value.numpy(), longest[:, :, : value.shape()[2]])


def test_room_by_the_public_name(session: ort.InferenceSession) -> None:
    start = ort.OrtValue.ortvalue_with_room([1, 2, 0, 4], np.float32, 2, 8, "cpu")
    first = _step(session, start, _new(3))
    second = _step(session, first, _new(5))
    assert start.data_ptr() == first.data_ptr() == second.data_ptr()
    assert _step(session, second, _new(1)).data_ptr() != start.data_ptr()


@pytest.mark.parametrize(
    ("kind", "axis", "room", "where", "expected"),
    [
        (np.float32, 3, 8, "cpu", "no axis 3 of size 8"),
        (np.float32, 1, 1, "cpu", "no axis 1 of size 1"),
        (np.float32, 0, 1 << 60, "cpu", "too large|larger"),
        (np.str_, 0, 8, "cpu", "[Ss]trings"),
    ],
)
def test_rooms_that_cannot_be(kind: Any, axis: int, room: int, where: str, expected: str) -> None:
    with pytest.raises((InvalidArgument, OutOfMemory), match=expected):
        ort.OrtValue.ortvalue_with_room([2, 3, 4], kind, axis, room, where)


def test_a_value_is_continued_twice(session: ort.InferenceSession) -> None:
    start = _step(session, _empty(16), _new(3))
    first = _step(session, start, _new(1))
    kept = first.numpy().copy()
    second = _step(session, start, _new(2))
    assert second.data_ptr() != first.data_ptr() == start.data_ptr()
    np.testing.assert_array_equal(first.numpy(), kept)


def test_a_room_that_is_too_small(session: ort.InferenceSession) -> None:
    start = _step(session, _empty(4), _new(3))
    longer = _step(session, start, _new(2))
    assert longer.data_ptr() != start.data_ptr()
    again = _step(session, longer, _new(9))
    assert again.data_ptr() == longer.data_ptr()


def test_failed_runs_take_no_rows(session: ort.InferenceSession) -> None:
    start = _step(session, _empty(8), _new(2))
    with pytest.raises(InvalidArgument, match="input x"):
        wrong = ort.OrtValue(np.zeros((1, 2, 1, 5), np.float32))
        session.run_with_ort_values(None, {"past": start, "x": wrong})
    assert _step(session, start, _new(1)).data_ptr() == start.data_ptr()


def test_other_runs_take_such_values(session: ort.InferenceSession) -> None:
    value, x = _step(session, _empty(8), _new(2)), _new(1)
    expected = np.concatenate([value.numpy(), 2 * x], 2)
    for found in (
        session.run(["present"], {"past": value, "x": x})[0],
        session(value.numpy(), x)[0],
    ):
        np.testing.assert_array_equal(found, expected)
        assert type(found) is np.ndarray
    with pytest.raises(InvalidArgument, match="read-only"):
        value.update_inplace(np.zeros((1, 2, 2, 4), np.float32))
    made_of_it = value.numpy()[:, :, :1]
    assert getattr(made_of_it, "room", None) is None
