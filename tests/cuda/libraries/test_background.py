"""The order of what is done in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from sardonyx.cuda.libraries import background
from tests.support.fake_provider import installed


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[background.Background]:
    monkeypatch.setattr(background, "_IDLE_SECONDS", 0.05)
    with installed():
        yield background.Background("a test", lambda: None)


def test_what_can_wait_is_done_last_and_all_else_in_its_order(
    worker: background.Background,
) -> None:
    done: list[str] = []
    may_go, is_done = threading.Event(), threading.Event()

    def first() -> None:
        assert may_go.wait(10)
        # What somebody waits for, asked for by what can wait or not, goes before the rest.
        worker.do(lambda: done.append("soon 3"))

    worker.do(first)
    worker.do(lambda: done.append("later 1"), can_wait=True)
    worker.do(lambda: done.append("soon 1"))
    worker.do(lambda: done.append("later 2"), can_wait=True)
    worker.do(is_done.set, can_wait=True)
    worker.do(lambda: done.append("soon 2"))
    may_go.set()
    assert is_done.wait(10)
    assert done == ["soon 1", "soon 2", "soon 3", "later 1", "later 2"]


def test_the_end_does_not_wait_for_what_is_left(worker: background.Background) -> None:
    done: list[int] = []
    has_begun, may_go = threading.Event(), threading.Event()

    def first() -> None:
        has_begun.set()
        assert may_go.wait(10)

    worker.do(first)
    for number in range(3):
        worker.do(partial(done.append, number))
    assert has_begun.wait(10)
    threading.Timer(0.05, may_go.set).start()
    worker._close()
    assert done == []


def _begin(worker: background.Background, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the thread running, on a busy machine, too: what does not wait is done at once."""
    monkeypatch.setattr(background, "_IDLE_SECONDS", 10)
    has_begun = threading.Event()
    worker.do(has_begun.set)
    assert has_begun.wait(10)


def test_work_waits_for_runs(
    worker: background.Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    _begin(worker, monkeypatch)
    is_done = threading.Event()
    with background.WALKS:
        with background.WALKS:
            worker.do(is_done.set)
            assert not is_done.wait(0.05)
        assert not is_done.wait(0.05)
    assert is_done.wait(10)


def test_work_does_not_wait_for_runs_without_end(
    worker: background.Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 0.1)
    began, done = time.monotonic(), list[float]()
    is_done = threading.Event()
    with background.WALKS:
        for _ in range(3):
            worker.do(lambda: done.append(time.monotonic() - began))
        worker.do(is_done.set)
        assert is_done.wait(10)
    assert min(done) > 0.09
    assert max(done) < 5  # what was asked for at once waits at the same time


def test_a_moment_between_two_runs_is_no_end(
    worker: background.Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    monkeypatch.setattr(background, "_QUIET_SECONDS", 2)
    _begin(worker, monkeypatch)
    is_done = threading.Event()
    with background.WALKS:
        worker.do(is_done.set)
    with background.WALKS:
        assert not is_done.wait(0.3)
    assert is_done.wait(10)


def test_a_forked_process_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    made = background.Background("a test", lambda: closed.append(True))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        made._close()
    assert not closed
    made._close()
    assert closed


def test_a_failure_ends_nothing_else(worker: background.Background) -> None:
    is_done = threading.Event()

    def fail() -> None:
        raise OSError("of a library")

    worker.do(fail)
    worker.do(is_done.set)
    assert is_done.wait(10)


def test_without_threads_the_caller_is_told_and_may_try_again(
    worker: background.Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    is_done = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert not worker.do(is_done.set)
    worker._close()
    assert worker.do(is_done.set)
    assert is_done.wait(10)
