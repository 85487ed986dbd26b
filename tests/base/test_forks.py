"""Locks that a fork renews, and what a handler of signals raises while one is taken."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from sardonyx.base import forks
from sardonyx.base.forks import RenewedLock


class Stop(Exception):
    """What the handler raises."""


def is_open(lock: RenewedLock) -> bool:
    """Whether another thread gets it."""
    taken = threading.Event()

    def take() -> None:
        with lock:
            taken.set()

    threading.Thread(target=take, daemon=True).start()
    return taken.wait(0.1)


def test_it_may_be_taken_again_by_its_thread() -> None:
    lock = RenewedLock()
    with lock, lock:
        assert not is_open(lock)
    assert is_open(lock)


@pytest.mark.parametrize("step", range(1, 30))
def test_an_exception_of_a_handler_leaves_it_open(step: int) -> None:
    lock, seen = RenewedLock(), 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        seen += event == "opcode"
        if event == "opcode" and seen == step:
            raise Stop
        return local

    def trace(frame: FrameType, *_: Any) -> Any:
        frame.f_trace_opcodes = frame.f_code.co_filename == forks.__file__
        return local if frame.f_trace_opcodes else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with lock:
            pass
    except Stop:
        pass
    finally:
        sys.settrace(before)
    assert is_open(lock)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_finds_it_open() -> None:
    lock = RenewedLock()
    with lock:
        process = os.fork()
        if process == 0:
            os._exit(0 if is_open(lock) else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert is_open(lock)
