"""Memory of large results: never that of a result which anybody holds, and no more than needed."""

from __future__ import annotations

import gc
import threading
from collections import deque

import numpy as np
import pytest

import sardonyx
from sardonyx.runtime.recycled import LARGE_BYTES, Recycled
from tests.support.session import model_of

F32 = np.dtype(np.float32)
LARGE = LARGE_BYTES // 4
#: Two results, one of them large, of sizes that the feed decides.
TEXT = "t (float[N] x) => (float[N] y, float[2] z) { y = Neg(x) s = Shape(x) z = Cast<to=1>(s) }"


def _addresses(arrays):
    return [a.__array_interface__["data"][0] for a in arrays]


def _expecting(*shapes):
    recycled = Recycled()
    recycled.expect([None if s is None else (s, F32) for s in shapes])
    return recycled


def test_what_is_small_or_not_known_is_left_alone():
    recycled = _expecting((3,), None, (LARGE - 1,), (0, LARGE))
    assert not recycled.is_needed
    small, unknown, less, empty = recycled.arrays()
    assert unknown is None and small.flags.owndata and less.flags.owndata
    assert (small.shape, less.shape, empty.shape) == ((3,), (LARGE - 1,), (0, LARGE))


@pytest.mark.parametrize("hold", ["result", "view", "reshaped", "dlpack", "buffer"])
def test_memory_goes_on_only_when_nobody_holds_it(hold):
    recycled = _expecting((LARGE,), (2, LARGE))
    assert recycled.is_needed
    first, second = recycled.arrays()
    held = {
        "result": lambda a: a,
        "view": lambda a: a[5:9],
        "reshaped": lambda a: a.reshape(-1, 2).T[1:],
        "dlpack": np.from_dlpack,
        "buffer": memoryview,
    }[hold](first)
    first[:] = second[:] = 7
    before = _addresses([first, second])
    del first, second
    third, fourth = recycled.arrays()
    third[:] = fourth[:] = 8
    after = _addresses([third, fourth])
    assert np.asarray(held).ravel()[0] == 7
    assert before[0] != after[0] and before[1] == after[1]
    del held, third
    fifth, _ = recycled.arrays()
    assert _addresses([fifth])[0] in (before[0], after[0])


def test_no_more_is_kept_than_one_run_has():
    recycled = _expecting((LARGE,), (LARGE,))
    many = [recycled.arrays() for _ in range(10)]
    assert len({a for pair in many for a in _addresses(pair)}) == 20
    (blocks,) = [b for b in recycled._returned.values() if b.maxlen]
    assert len(blocks) == 0
    many.clear()
    assert len(blocks) == 2
    recycled.expect([((3,), F32)])
    assert not recycled.is_needed and all(not b.maxlen for b in recycled._returned.values())


def test_sizes_that_grow_mostly_fit():
    recycled = Recycled()
    addresses = set()
    for rows in range(1000, 1064):
        recycled.expect([((rows, 64), F32)])
        (result,) = recycled.arrays()
        assert result.shape == (rows, 64) and result.flags.aligned and result.flags.c_contiguous
        result[:] = rows  # all of it is there
        addresses.update(_addresses([result]))
        del result
    assert len(addresses) <= 3


@pytest.mark.parametrize("size_bytes", [LARGE_BYTES, LARGE_BYTES + 4, 99_996, 2**20, 2**20 + 4])
def test_blocks_are_an_eighth_larger_at_most(size_bytes):
    recycled = _expecting((size_bytes // 4,))
    (capacity,) = filter(None, recycled._returned)
    assert size_bytes <= capacity <= size_bytes * 1.125 + 1


def test_a_changed_number_of_results_keeps_what_fits():
    recycled = _expecting((LARGE,))
    (result,) = recycled.arrays()
    before = _addresses([result])[0]
    del result
    recycled.expect([((LARGE,), F32)] * 2)
    assert before in _addresses(recycled.arrays())


def test_there_is_no_memory():
    with pytest.raises((MemoryError, ValueError)):
        _expecting((2**60,)).arrays()


def test_results_of_runs():
    session = sardonyx.InferenceSession(model_of(TEXT).SerializeToString())
    x = np.arange(LARGE, dtype=np.float32)
    kept = [session.run(None, {"x": x + k})[0] for k in range(4)]
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y, -(x + k))
        assert y.flags.writeable
    last = _addresses(kept)
    view = kept[3][7:]
    del kept, y
    y, z = session.run(None, {"x": x})
    assert _addresses([y])[0] in last[:3]
    np.testing.assert_array_equal(view, -(x + 3)[7:])
    np.testing.assert_array_equal(z, [LARGE, 0][: z.size])


def test_results_fed_again():
    """A decoder's cache: what is read is not what is written, though all is dropped."""
    text = "t (float[N] past, float[1] x) => (float[M] y) { y = Concat<axis=0>(past, x) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    past = np.arange(LARGE, dtype=np.float32)
    for step in range(40):
        (past,) = session.run(None, {"past": past, "x": np.float32([LARGE + step])})
    np.testing.assert_array_equal(past, np.arange(LARGE + 40))


def test_threads_have_results_of_their_own():
    text = "t (float[N] x) => (float[N] y) { y = Neg(x) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    failures = deque()

    def work(number):
        x = np.full(LARGE, number, np.float32)
        held = deque(maxlen=3)
        for _ in range(200):
            held.append(session.run(None, {"x": x})[0])
            if any((y != -number).any() for y in held):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_trim_gives_all_back():
    text = "t (float[N] x) => (float[N] y) { y = Neg(x) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    x = np.zeros(16 * LARGE, np.float32)
    session.run(None, {"x": x})
    session.run(None, {"x": x})
    gc.collect()
    assert _kept(session) == 1
    session.trim()
    assert _kept(session) == 0


def _kept(session):
    from sardonyx.runtime.recycled import _Block

    gc.collect()
    return sum(isinstance(found, _Block) for found in gc.get_objects())
