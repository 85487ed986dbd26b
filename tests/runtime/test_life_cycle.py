"""Forks, threads, signals and garbage collection around sessions that work."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors, knobs
from tests.support import life_cycle
from tests.support.inside import engine_of
from tests.support.life_cycle import SUM, X, check, in_child, long_feeds, session

SHORT, LONG, UNRANKED = life_cycle.short(), life_cycle.long(), life_cycle.unranked()
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@contextmanager
def busy(work: Callable[[], Any], count: int = 2) -> Iterator[None]:
    """Threads that repeat something, all without error, while the block runs."""
    stop, wrong = threading.Event(), []

    def repeat() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - looked at below
            wrong.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


# -- forks --------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.parametrize("used", [False, True])
def test_fork_before_and_after_use(used: bool) -> None:
    made = session(SHORT)
    if used:
        check(made)

    def work() -> None:
        check(made)
        check(session(SHORT))
        check(session(SHORT, 3))
        in_child(lambda: check(made))

    in_child(work)
    check(made)


@needs_fork
def test_fork_while_other_threads_run() -> None:
    made = session(SHORT)
    with busy(lambda: check(made), 3):
        for _ in range(10):
            in_child(lambda: (check(made), check(made)))
    check(made)


@needs_fork
def test_fork_while_other_threads_make_sessions() -> None:
    made = session(SHORT)
    with knobs.override("SARDONYX_CACHE", "off"), busy(lambda: check(session(SHORT))):
        for _ in range(4):
            in_child(lambda: (check(made), check(session(SHORT))))


@needs_fork
def test_fork_while_another_plan_is_compiled() -> None:
    made = session(UNRANKED)
    feeds = [{"x": np.full([1] * rank, 4, np.float32)} for rank in range(8)]

    def run_all() -> None:
        for feed in feeds:
            assert made.run(None, feed)[0].sum() == 2

    with knobs.override("SARDONYX_CACHE", "off"):
        first = threading.Thread(target=run_all)
        first.start()
        forks = 0
        while first.is_alive():
            forks += 1
            in_child(partial(made.run, None, feeds[forks % 8]))
        first.join()
    run_all()


@needs_fork
def test_fork_while_a_run_has_the_pool() -> None:
    made, endless = session(SHORT), session(LONG)
    check(made)
    options = sardonyx.RunOptions()
    with ended(endless, options):
        for _ in range(3):
            in_child(lambda: (check(made), endless.run(None, long_feeds(3))))


@needs_fork
def test_forks_from_many_threads() -> None:
    made = session(SHORT)
    check(made)
    with busy(lambda: (check(made), in_child(lambda: check(made)), check(made)), 3):
        time.sleep(0.5)


def total(job: tuple[sardonyx.InferenceSession, Any]) -> float:
    made, x = job
    return float(made.run(None, {"x": x})[0].sum())


@pytest.mark.parametrize("start", multiprocessing.get_all_start_methods())
def test_multiprocessing(start: str) -> None:
    made = session(SHORT)
    check(made)
    with multiprocessing.get_context(start).Pool(2) as pool:
        assert pool.map(total, [(made, X)] * 4) == [SUM] * 4
    check(made)


# -- threads and cancelled runs -----------------------------------------------------------------


def test_sessions_come_and_go_while_others_run() -> None:
    made = session(SHORT)
    with busy(lambda: check(made), 3):
        for number in range(20):
            check(session(SHORT, 2 + number % 3))
            if number % 5 == 0:
                gc.collect()


@contextmanager
def ended(made: sardonyx.InferenceSession, options: sardonyx.RunOptions) -> Iterator[list[Any]]:
    """A run that does not end by itself, for the time of the block; collects how it ended."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(made.run(None, long_feeds(), options))
        except errors.Fail as error:
            results.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.1)
    try:
        yield results
    finally:
        options.terminate = True
        thread.join()
    assert results == ["[run] The run was cancelled."]


@pytest.mark.parametrize("threads", [1, 4])
def test_only_the_run_that_is_cancelled_ends(threads: int) -> None:
    made = session(LONG, threads)
    first, second = sardonyx.RunOptions(), sardonyx.RunOptions()
    with ended(made, first) as others:
        with ended(made, second):
            start = time.perf_counter()
        assert time.perf_counter() - start < 2
        assert not others
    with pytest.raises(errors.Fail, match="cancelled"):
        made.run(None, long_feeds(), first)  # it stays set until it is cleared
    first.terminate = False
    assert made.run(None, long_feeds(2), first)[0].shape == (128, 128)


def test_a_cancelled_binding() -> None:
    made, options = session(LONG), sardonyx.RunOptions()
    binding = made.io_binding()
    for name, array in long_feeds().items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    threading.Timer(0.2, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(errors.Fail, match="cancelled"):
        made.run_with_iobinding(binding, options)
    binding.bind_cpu_input("n", np.array(2))
    made.run_with_iobinding(binding)
    want = made.run(None, long_feeds(2))[0]
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], want)


# -- garbage collection -------------------------------------------------------------------------


def test_cycles_are_collected() -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.itself, holder.session = holder, session(SHORT)
    check(holder.session)
    holder.binding, holder.run = holder.session.io_binding(), holder.session.run
    engine = engine_of(holder.session)
    gone = [weakref.ref(x) for x in (holder.session, engine, engine.executable, holder.binding)]
    del holder, engine
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


def test_what_a_session_gave_outlives_it() -> None:
    made = session(SHORT)
    array = made.run(None, {"x": X})[0]
    value = made.run_with_ort_values(None, {"x": sardonyx.OrtValue.ortvalue_from_numpy(X)})[0]
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    made.run_with_iobinding(binding)
    bound, run, inputs = binding.get_outputs()[0], made.run, made.get_inputs()
    del made
    gc.collect()
    overwritten = [np.ones(10**6) for _ in range(8)]
    for kept in (array, value.numpy(), bound.numpy()):
        assert kept.sum() == SUM
    binding.run()
    assert run(None, {"x": X})[0].sum() == SUM
    del binding, run, overwritten
    gc.collect()
    assert bound.numpy().sum() == SUM
    assert inputs[0].name == "x"


def test_dropped_while_another_thread_runs_it() -> None:
    for number in range(5):
        made, started, sums = session(SHORT, 2 + number % 3), threading.Event(), []

        def run(made: Any, started: Any = started, sums: Any = sums) -> None:
            started.set()
            sums.extend(made.run(None, {"x": X})[0].sum() for _ in range(20))

        thread = threading.Thread(target=run, args=(made,))
        thread.start()
        started.wait()
        del made
        gc.collect()
        thread.join()
        assert sums == [SUM] * 20


def test_collections_in_the_middle_of_runs() -> None:
    made, before = session(SHORT), gc.get_threshold()

    def churn() -> None:
        cycle: dict[str, Any] = {"session": session(SHORT, 3)}
        cycle["itself"] = cycle
        check(cycle["session"])
        del cycle
        gc.collect()

    gc.set_threshold(1)
    try:
        with busy(churn, 1):
            for _ in range(50):
                check(made)
    finally:
        gc.set_threshold(*before)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the system does not tell")
def test_nothing_is_left_of_sessions() -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        time.sleep(0.1)  # threads of a pool end after the session
        with open("/proc/self/maps") as maps:
            return threading.active_count(), len(os.listdir("/proc/self/fd")), len(list(maps))

    for _ in range(5):
        check(session(SHORT))
    before = held()
    for _ in range(50):
        check(session(SHORT))
    threads, files, maps = held()
    assert threads <= before[0]
    assert files <= before[1]
    assert maps <= before[2] + 20


# -- signals ------------------------------------------------------------------------------------


class Stop(Exception):
    """What a handler raises."""


@contextmanager
def handled(handler: Callable[..., Any], after_seconds: float, count: int = 1) -> Iterator[None]:
    """Signals to this process, by another thread, during the block."""
    before = signal.signal(signal.SIGUSR1, handler)
    over = threading.Event()

    def send() -> None:
        for _ in range(count):
            if over.wait(after_seconds):
                return
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def stop(*_: Any) -> None:
    raise Stop


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("threads", [1, 4])
def test_an_exception_of_a_handler_ends_a_run(threads: int) -> None:
    made = session(LONG, threads)
    for _ in range(3):
        start = time.perf_counter()
        with handled(stop, 0.2), pytest.raises(Stop):
            made.run(None, long_feeds())
        assert time.perf_counter() - start < 3
        assert made.run(None, long_feeds(2))[0].shape == (128, 128)
    check(session(SHORT, threads))


def test_control_c_ends_a_run() -> None:
    made = session(LONG)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        made.run(None, long_feeds())
    check(session(SHORT))


def test_control_c_ends_compilation() -> None:
    interrupted = 0
    with knobs.override("SARDONYX_CACHE", "off"):
        for _ in range(6):
            # Python drops what a handler raises inside a finalizer: one attempt says little.
            with contextlib.suppress(KeyboardInterrupt), handled(interrupt, 0.02):
                for _ in range(10):
                    session(SHORT)
                interrupted -= 1
            interrupted += 1
    assert interrupted >= 3
    check(session(SHORT))


def test_a_handler_that_runs_the_session_which_it_interrupts() -> None:
    made, other, options, runs = session(LONG), session(SHORT), sardonyx.RunOptions(), []

    def handler(*_: Any) -> None:
        check(other)
        runs.append(made.run(None, long_feeds(3))[0])
        options.terminate = len(runs) >= 3

    with handled(handler, 0.1, 10**6), pytest.raises(errors.Fail, match="cancelled"):
        made.run(None, long_feeds(), options)
    assert len(runs) >= 3
    assert np.array_equal(runs[0], made.run(None, long_feeds(3))[0])


def test_a_storm_of_signals() -> None:
    made, seen = session(SHORT), []
    with handled(lambda *_: seen.append(1), 0.0005, 10**6):
        for _ in range(100):
            check(made)
        check(session(SHORT))
    assert seen
