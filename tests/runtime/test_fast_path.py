"""Runs that are like the last one: taken where they are, left alone where they are not."""

import threading

import numpy as np
import pytest

from sardonyx.base.errors import RuntimeException
from sardonyx.runtime import frame
from sardonyx.runtime.try_run import Completion, KeptItems, never
from tests.runtime.test_executable import numbers, pick_plan
from tests.support.plans import executable, sum_plan


@pytest.fixture(params=["short", "long", "two threads"])
def make(request, monkeypatch):
    """Executables of runs that are short, or that let go of Python's lock."""
    if request.param != "short":
        monkeypatch.setattr(frame, "SHORT_NS", -1)
    threads = 2 if request.param == "two threads" else 1

    def made(plan):
        return executable(plan, threads=threads)

    return made


def bound(e, feeds, outputs):
    """What does the same run again and again; gives whether the fast path did it."""
    given, made = KeptItems(feeds), KeptItems(outputs)
    return lambda: e.try_run(given, made) is not None


def test_the_first_run_is_not_again(make):
    e = make(sum_plan(5000))
    assert e.try_run((numbers(3, 4),)) is None
    e.run([numbers(3, 4)])
    (y,) = e.try_run((numbers(3, 4) * 2,))
    np.testing.assert_array_equal(y, 6 * numbers(3, 4))
    (z,) = e.try_run((numbers(3, 4),))
    assert y.base is None and not np.shares_memory(y, z)
    e.trim()
    assert e.try_run((numbers(3, 4),)) is None


OTHERS = {
    "shape": numbers(4, 4),
    "rank": numbers(12),
    "type": numbers(3, 4).astype(np.float64),
    "order of bytes": numbers(3, 4).astype(">f4"),
    "order of axes": numbers(4, 3).T,
    "kind": numbers(3, 4).view(np.recarray),
    "list": numbers(3, 4).tolist(),
    "nothing": None,
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_feeds_are_left_to_run(make, what):
    e = make(sum_plan(5000))
    e.run([numbers(3, 4)])
    out = np.zeros((3, 4), np.float32)
    assert e.try_run((OTHERS[what],)) is None
    assert not bound(e, (OTHERS[what],), (out,))()
    assert not out.any()
    np.testing.assert_array_equal(e.run([numbers(3, 4)])[0], 3 * numbers(3, 4))


def resize(array):
    array.resize((2, 2), refcheck=False)


def reshape(array):
    array.shape = (4, 3)


def retype(array):
    array.dtype = np.int32


OUTPUTS = {
    "smaller": resize,
    "of another shape": reshape,
    "of another type": retype,
    "read-only": lambda array: array.setflags(write=False),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_outputs_are_looked_at_in_every_run(make, what):
    e = make(sum_plan(5000))
    x, out = numbers(3, 4), np.zeros((3, 4), np.float32)
    run = bound(e, (x,), (out,))
    assert not run()
    e.run_into([x], [out])
    out[:] = 0
    assert run()
    np.testing.assert_array_equal(out, 3 * x)
    out[:] = 0
    OUTPUTS[what](out)
    assert not run() and not out.any()


def test_the_last_run_may_have_been_another(make):
    e = make(sum_plan(5000))
    x, out = numbers(3, 4), np.zeros((3, 4), np.float32)
    run = bound(e, (x,), (out,))
    for rows in (3, 5, 3):
        e.run([numbers(rows, 4)])
        assert run() is (rows == 3)
    # Feeds are read anew, and so are the shapes of those that change in place.
    x *= 2
    assert run()
    np.testing.assert_array_equal(out, 6 * numbers(3, 4))
    x.shape = 4, 3
    e.run([x])
    assert not run()


def test_faults(make):
    e = make(pick_plan())
    x, index = numbers(5), np.array(3)
    e.run([x, index])
    out = np.zeros((), np.float32)
    run = bound(
        e,
        (
            x,
            index,
        ),
        (out,),
    )
    for bad in (9, -1):
        index[...] = bad
        with pytest.raises(RuntimeException, match=f"index {bad} is out of range"):
            e.try_run((x, index))
        with pytest.raises(RuntimeException, match=f"index {bad} is out of range"):
            run()
        index[...] = 4
        assert e.try_run((x, index))[0] == 4
        assert run() and out == 4


def test_threads(make):
    e = make(sum_plan(5000))
    failures, done = [], []

    def work(number):
        x = numbers(3 + number % 2, 4) + number
        out = np.zeros_like(x)
        run = bound(e, (x,), (out,))
        for _ in range(300):
            again = e.try_run((x,))
            y = e.run([x])[0] if again is None else again[0]
            out[:] = 0
            if not run():
                e.run_into([x], [out])
            done.append(again is not None)
            if not (np.array_equal(y, 3 * x) and np.array_equal(out, 3 * x)):
                failures.append(number)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures and any(done)


@pytest.mark.parametrize("completion", [Completion.WAIT, Completion.FETCH, Completion.LEAVE])
def test_results_of_the_processor_are_there_in_any_case(make, completion):
    e = make(sum_plan(5000))
    x = numbers(3, 4)
    assert e.try_run((x,), None, completion) is None
    e.run([x])
    (y,) = e.try_run((x,), None, completion)
    np.testing.assert_array_equal(y, 3 * x)


def test_outputs_of_the_caller_are_the_results(make):
    e = make(sum_plan(5000))
    feeds, outputs = KeptItems([numbers(3, 4)]), KeptItems([np.zeros((3, 4), np.float32)])
    e.run([*feeds])
    assert e.try_run(feeds, outputs) is outputs
    np.testing.assert_array_equal(outputs[0], 3 * feeds[0])
    assert never(feeds, outputs) is None
