import gc
import os
import threading

import pytest

from sardonyx.base.collector import paused


@pytest.fixture(autouse=True)
def enabled():
    gc.enable()
    yield
    gc.enable()


def test_it_goes_on_when_the_last_pause_ends():
    first, second = paused(), paused()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_ends_a_pause():
    with pytest.raises(ValueError), paused():
        raise ValueError
    assert gc.isenabled()


def test_what_the_program_had_stopped_stays_stopped():
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="written for systems that fork")
def test_a_forked_process_collects():
    begun, ends = threading.Event(), threading.Event()

    def pause():
        with paused():
            begun.set()
            ends.wait(30)

    thread = threading.Thread(target=pause)
    thread.start()
    begun.wait(30)
    process = os.fork()
    if process == 0:
        os._exit(0 if gc.isenabled() else 1)
    ends.set()
    thread.join()
    assert os.waitpid(process, 0)[1] == 0
