"""What a handler of signals raises in the middle of a run, wherever that is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.life_cycle import in_child, session
from tests.support.session import model_of

#: One segment, and several.
PLAIN = "g (float[a,b] x) => (float[a,a] y) { t = Transpose(x) m = MatMul(x, t) y = Softmax(m) }"
MEASURED = """g (float[a,b] x) => (float[n,n] y) { z = NonZero(x) f = Cast <to=1> (z)
t = Transpose(f) m = MatMul(t, f) y = Softmax(m) }"""


class Stop(Exception):
    """What the handler raises."""


def feeds(*shape: int) -> dict[str, Any]:
    """Numbers that are all different from 0."""
    return {"x": np.linspace(0.1, 1, num=shape[0] * shape[1], dtype=np.float32).reshape(shape)}


def interrupted(work: Callable[[], Any], line: int) -> bool:
    """Work that is interrupted before a line of the run time, unless it is over by then."""
    seen = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == line:
            raise Stop
        return local

    def trace(frame: FrameType, *_: Any) -> Any:
        path = frame.f_code.co_filename
        return local if "/runtime/" in path or "/cpu/" in path else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("text", [PLAIN, MEASURED], ids=["one segment", "several"])
@pytest.mark.parametrize("shape", [(40, 9), (3, 2)], ids=["new shapes", "the shapes of the last"])
def test_runs_after_one_that_was_interrupted(text: str, shape: tuple[int, int]) -> None:
    made = session(model_of(text).SerializeToString(), 1)
    small, given = feeds(3, 2), feeds(*shape)
    want = sardonyx.InferenceSession(model_of(text).SerializeToString()).run(None, given)[0]

    def sweep() -> None:
        for line in range(1, 10_000):
            made.run(None, small)
            if not interrupted(lambda: made.run(None, given), line):
                assert line > 10
                return
            for _ in range(2):
                assert np.array_equal(made.run(None, given)[0], want)
            made.trim()  # the next run has a new frame

    made.run(None, small)
    in_child(sweep)
