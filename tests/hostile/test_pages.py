"""A fixed range of cases at the ends of memory; see `pages`."""

from __future__ import annotations

import faulthandler
import os
import signal

import numpy as np
import pytest

from tests.hostile.pages import campaign
from tests.support.guarded import Guarded, is_here, room

pytestmark = pytest.mark.skipif(not is_here(), reason="pages are protected by POSIX's mprotect")
#: Enough for an idle machine; a busy one does fewer cases in the time that there is.
_CASES, _SECONDS = 150, 12.0


def test_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    said: list[str] = []
    tally = campaign(range(_CASES), _SECONDS, said.append, with_onnx=False)
    assert not said and tally["ran"] >= 10


@pytest.mark.parametrize(("at_end", "place"), [(True, 40), (False, -1)])
def test_who_reads_beyond_them_crashes(at_end: bool, place: int) -> None:
    """What the campaign rests on."""
    memory = Guarded(40, at_end=at_end)
    beyond = np.lib.stride_tricks.as_strided(memory.bytes, (41,), (1,), writeable=False)
    if place < 0:
        beyond = np.lib.stride_tricks.as_strided(memory.bytes[:1], (2,), (-1,), writeable=False)
        place = 1
    child = os.fork()
    if not child:
        faulthandler.disable()
        np.add(beyond[place], 1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


def test_arrays_in_them_are_those_of_their_shape() -> None:
    for at_end in (False, True):
        x = room((3, 5), np.dtype(np.float32), at_end=at_end)
        x[...] = np.arange(15).reshape(3, 5)
        assert x.sum() == 105 and x.flags.c_contiguous
