"""Runs that a profile gets later than they end: none is missing, whenever somebody looks."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from sardonyx.cpu import recording
from sardonyx.profiling.profile import Profile
from tests.support.session import model_of

_TEXT = "g (float[N,8] x, int64[2] k) => (float[2,8] y) { [abs] a = Abs(x) y = Gather(a, k) }"


def _session(**settings: Any) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for name, value in settings.items():
        setattr(options, name, value)
    return sardonyx.InferenceSession(model_of(_TEXT, {}, 17).SerializeToString(), options)


def _run(session: sardonyx.InferenceSession, times: int, rows: int = 4, row: int = 0) -> None:
    feeds = {"x": np.ones((rows, 8), np.float32), "k": np.array([0, row])}
    for _ in range(times):
        session.run(None, feeds)


def _sizes(profile: Profile) -> list[int]:
    return [trace.sizes["N"] for trace in profile.traces]


@pytest.mark.parametrize("times", [1, 2, recording._MOST_WAITING, 3 * recording._MOST_WAITING + 5])
def test_each_look_finds_all_runs(times: int) -> None:
    session = _session()
    with session.profile() as p:
        _run(session, times)
        assert len(p.traces) == times
        assert p.table().runs == times
        _run(session, times)
        assert p.dropped == ""
        assert repr(p).startswith(f"Profile({2 * times} runs, ")
    assert len(p.traces) == 2 * times
    assert len({len(run.calls) for run in p.runs()}) == 1


def test_runs_lie_between_those_that_were_noted_at_once() -> None:
    """Runs with other sizes, and those that fail, do not wait."""
    session = _session()
    rows = [4, 4, 4, 6, 6, 4, 4]
    with session.profile() as p:
        for n in rows:
            _run(session, 1, n)
        _run(session, 3)
        with pytest.raises(errors.SardonyxError, match="out of range"):
            _run(session, 1, row=9)
        _run(session, 2)
    assert _sizes(p) == [*rows, 4, 4, 4, 4, 4, 4]
    assert [bool(t.error) for t in p.traces] == [False] * 10 + [True] + [False] * 2
    times = [(t.started_ns, t.ended_ns) for t in p.traces]
    assert times == sorted(times)
    assert all(a[1] <= b[0] for a, b in zip(times, times[1:], strict=False))


def test_each_profile_has_the_runs_of_its_time() -> None:
    session = _session()
    with session.profile() as first:
        _run(session, 3, 4)
        with session.profile() as second:
            _run(session, 3, 5)
        _run(session, 3, 6)
    _run(session, 3, 7)
    assert _sizes(second) == [5] * 3
    assert _sizes(first) == [4] * 3 + [5] * 3 + [6] * 3


def test_threads_that_run_and_one_that_looks() -> None:
    session, times = _session(), 150
    seen: list[int] = []
    with session.profile() as p:
        threads = [threading.Thread(target=_run, args=(session, times)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(len(p.traces))
        for thread in threads:
            thread.join()
    traces = p.traces
    assert seen == sorted(seen)
    assert len(traces) == 4 * times
    assert [t.ended_ns for t in traces] == sorted(t.ended_ns for t in traces)
    assert {len(run.calls) for run in p.runs()} == {len(next(p.runs()).calls)}
    per_thread = [sum(t.thread == one for t in traces) for one in {t.thread for t in traces}]
    # Identities of threads that have ended may be given again.
    assert sum(per_thread) == 4 * times
    assert not any(t.dropped for t in traces)


@pytest.mark.parametrize("how", ["end_profiling", "session goes"])
def test_the_file_has_those_that_wait(tmp_path: Path, how: str) -> None:
    session = _session(enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    _run(session, 7)
    alive = weakref.ref(session)
    if how == "end_profiling":
        session.end_profiling()
    else:
        del session
        gc.collect()
        assert alive() is None
    (path,) = tmp_path.iterdir()
    events = json.loads(path.read_text())
    assert sum(e["name"] == "model_run" for e in events) == 7


def test_a_limit_counts_those_that_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SARDONYX_PROFILE_EVENTS", "20")
    session = _session()
    with session.profile() as p:
        _run(session, 30)
    assert 0 < len(p.traces) < 30
    assert p.dropped == f"{30 - len(p.traces)} runs"
    assert "Maximum number of events" in caplog.text
