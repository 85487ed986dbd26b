"""Runs in threads of the package: cancelled, left in the queue, more than there are threads."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.runtime import run_threads
from tests.support.decoders import decoder
from tests.support.life_cycle import FORKS
from tests.support.session import model_of

ROOT = Path(__file__).resolve().parents[2]
#: y = x, doubled n times.
_DOUBLED = """g (float[N] x, int64 n) => (float[N] y) { k = Constant <value_int=1> ()
    c = Cast <to=9> (k) y = Loop (n, c, x) <body = b (int64 i, bool k2, float[N] a)
    => (bool o, float[N] r) { o = Identity(k2) r = Add(a, a) }> }"""
_ENDLESS = np.array(2**40)
_X = np.array([1.0, 3.0], np.float32)
#: Far more than a kernel needs to see its flag, and than a busy machine makes of that.
_SOON = 5.0


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(model_of(_DOUBLED).SerializeToString())


@pytest.fixture(autouse=True)
def clear(session: ort.InferenceSession) -> Iterator[None]:
    """Every test leaves the threads without work, and the session right."""
    yield
    _wait_until_idle()
    np.testing.assert_array_equal(session.run(None, {"x": _X, "n": np.array(3)})[0], 8 * _X)


def _wait_until_idle() -> None:
    until = time.monotonic() + _SOON
    while _running() and time.monotonic() < until:
        time.sleep(0.0005)
    assert not _running()


def _feeds(n: Any = _ENDLESS) -> dict[str, Any]:
    return {"x": _X, "n": np.asarray(n)}


def _running() -> int:
    return len(run_threads._threads._running)


async def _begun(count: int = 1) -> None:
    while _running() < count:
        await asyncio.sleep(0.001)


async def _only(count: int) -> None:
    """Wait until no more run: a thread gives a result before it leaves the count."""
    until = time.monotonic() + _SOON
    while _running() > count and time.monotonic() < until:
        await asyncio.sleep(0.001)
    assert _running() == count


def _decoding() -> Any:
    """A decoder whose steps take as long as the input `n` says."""
    model = onnx.load_from_string(decoder())
    loop = model_of(
        """g (float[A,B,C] scores, int64 n) => (float[A,B,C] logits) {
        k = Constant <value_int=1> () c = Cast <to=9> (k)
        logits = Loop (n, c, scores) <body = b (int64 i, bool k2, float[A,B,C] a)
        => (bool o, float[A,B,C] r) { o = Identity(k2) r = Add(a, a) }> }"""
    )
    for node in model.graph.node:
        node.output[:] = ["scores" if name == "logits" else name for name in node.output]
    model.graph.node.extend(loop.graph.node)
    model.graph.input.append(loop.graph.input[1])
    return ort.InferenceSession(model.SerializeToString())


#: Ways to wait for a run that does not end.
AWAITED: dict[str, Callable[[ort.InferenceSession], Coroutine[Any, Any, Any]]] = {
    "a run": lambda s: s.run_async(_feeds()),
    "named outputs": lambda s: s.run_async(["y"], _feeds()),
    "into memory": lambda s: s.run_async(None, _feeds(), out=[np.zeros_like(_X)]),
    "options": lambda s: s.run_async(None, _feeds(), run_options=ort.RunOptions()),
    "a limit": lambda s: s.run_async(None, _feeds(), timeout=1000),
    "values": lambda s: s.run_async(
        {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in _feeds().items()}
    ),
    "a pipeline": lambda s: s.pipeline().map([_feeds()]).__anext__(),
    "a generation": lambda _: ort.generate(
        _decoding(), [5, 17], max_new_tokens=3, inputs={"n": _ENDLESS}
    ).__anext__(),
}  # fmt: skip


@pytest.mark.parametrize("way", AWAITED)
def test_who_cancels_ends_the_run(way: str, session: ort.InferenceSession) -> None:
    ended: list[float] = []

    async def work() -> None:
        waiting = asyncio.ensure_future(AWAITED[way](session))
        await _begun()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0.02)
        ended.append(time.monotonic())
        _wait_until_idle()
        assert waiting.cancelled()

    asyncio.run(work())
    assert time.monotonic() - ended[0] < _SOON


def test_a_loop_that_is_closed_ends_the_run(session: ort.InferenceSession) -> None:
    loop = asyncio.new_event_loop()  # one that is stopped while a run is under way, and closed
    task = loop.create_task(session.run_async(_feeds()))
    loop.run_until_complete(_begun())
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()


def test_sessions_do_not_wait_for_each_other(session: ort.InferenceSession) -> None:
    other = ort.InferenceSession(model_of(_DOUBLED).SerializeToString())

    async def work() -> None:
        most = run_threads.MOST_OF_ONE
        endless = [asyncio.ensure_future(session.run_async(_feeds())) for _ in range(most + 4)]
        await _begun(most)
        (found,) = await asyncio.wait_for(other.run_async(_feeds(4)), 60)
        np.testing.assert_array_equal(found, 16 * _X)
        names = [t.name for t in threading.enumerate() if t.name == "sardonyx-run"]
        assert most < len(names) <= run_threads.MOST_THREADS
        await _only(most)
        for task in endless:
            task.cancel()
        assert all(
            isinstance(x, asyncio.CancelledError)
            for x in await asyncio.gather(*endless, return_exceptions=True)
        )
        (found,) = await session.run_async(_feeds(2))
        np.testing.assert_array_equal(found, 4 * _X)

    asyncio.run(work())


def test_what_is_cancelled_in_the_queue_never_begins(session: ort.InferenceSession) -> None:
    out = np.zeros_like(_X)

    async def work() -> None:
        most = run_threads.MOST_OF_ONE
        endless = [asyncio.ensure_future(session.run_async(_feeds())) for _ in range(most)]
        await _begun(most)
        queued = asyncio.ensure_future(session.run_async(None, _feeds(1), out=[out]))
        later = asyncio.ensure_future(session.run_async(_feeds(1)))
        await asyncio.sleep(0.01)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
        np.testing.assert_array_equal((await later)[0], 2 * _X)

    asyncio.run(work())
    assert not out.any()


def test_more_runs_than_threads_are_all_done(session: ort.InferenceSession) -> None:
    async def work() -> None:
        runs = (session.run_async(_feeds(k % 5)) for k in range(200))
        for k, (found,) in enumerate(await asyncio.gather(*runs)):
            np.testing.assert_array_equal(found, 2 ** (k % 5) * _X)

    asyncio.run(work())


def test_options_end_the_run_and_are_not_changed_by_a_cancelled_one(
    session: ort.InferenceSession,
) -> None:
    async def work() -> None:
        options = ort.RunOptions()
        first, second = (
            asyncio.ensure_future(session.run_async(None, _feeds(), run_options=options))
            for _ in range(2)
        )
        await _begun(2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not options.terminate and not second.done()
        options.terminate = True
        with pytest.raises(errors.Fail, match="cancelled"):
            await second

    asyncio.run(work())


def test_a_callback_is_told_that_its_run_was_ended(session: ort.InferenceSession) -> None:
    told, said, options = threading.Event(), list[Any](), ort.RunOptions()

    def tell(*given: Any) -> None:
        said.append((*given, threading.current_thread().name))
        told.set()

    session.run_async(None, _feeds(), tell, 7, options)
    options.terminate = True
    assert told.wait(60)
    assert said == [([], 7, "[run] The run was cancelled.", "sardonyx-run")]


def test_a_callback_that_fails_does_not_take_the_thread_along(
    session: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, told = list[Any](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda given: seen.append(given.exc_value))
    for _ in range(run_threads.MOST_OF_ONE + 1):
        session.run_async(None, _feeds(1), lambda *_: 1 // 0)
    session.run_async(None, _feeds(1), lambda *_: told.set())
    assert told.wait(60)
    deadline = time.monotonic() + 60  # of several threads, one may say it after the last call
    while len(seen) <= run_threads.MOST_OF_ONE and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(seen) == run_threads.MOST_OF_ONE + 1
    assert all(isinstance(error, ZeroDivisionError) for error in seen)


def test_a_row_ends_with_its_block(session: ort.InferenceSession) -> None:
    ended = threading.Event()

    def work(results: Any) -> None:
        with pytest.raises(errors.Fail, match="cancelled"):
            next(results)
        ended.set()

    with session.pipeline() as pipe:
        results = pipe.map([_feeds(1), _feeds()])
        np.testing.assert_array_equal(next(results), 2 * _X)
        threading.Thread(target=work, args=(results,)).start()
        time.sleep(0.05)
    assert ended.wait(_SOON)
    closed = session.pipeline().map([_feeds()])
    thread = threading.Thread(target=work, args=(closed,))
    ended.clear()
    thread.start()
    time.sleep(0.05)
    closed.close()
    assert ended.wait(_SOON)


def test_rows_and_texts_for_loops_that_await(session: ort.InferenceSession) -> None:
    async def work() -> None:
        found = [y async for y in session.pipeline().map(_feeds(k) for k in range(3))]
        np.testing.assert_array_equal(found, [_X, 2 * _X, 4 * _X])
        made = ort.generate(_decoding(), [5, 17], max_new_tokens=3, inputs={"n": np.array(0)})
        tokens = [token async for token in made]
        assert tokens == ort.generate(decoder(), [5, 17], max_new_tokens=3).tokens

    asyncio.run(work())


def test_context_variables_are_seen(session: ort.InferenceSession) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen, told = list[int](), threading.Event()

    def tell(*_: Any) -> None:
        told.set()

    class Feed:
        def __array__(self, *_: Any, **__: Any) -> Any:
            seen.append(variable.get())
            return _X

    variable.set(5)
    session.run_async(None, {"x": Feed(), "n": np.array(1)}, tell)
    assert told.wait(60)
    assert seen == [5]


def test_no_thread_can_be_started(
    session: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(run_threads, "_threads", run_threads.Threads())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(errors.ResourceError, match=r"run_async.*no thread.*ulimit -u"):
            asyncio.run(session.run_async(_feeds(1)))
    np.testing.assert_array_equal(asyncio.run(session.run_async(_feeds(1)))[0], 2 * _X)


PRELUDE = """
import asyncio, os, sys, time
import numpy as np
import sardonyx as ort
session = ort.InferenceSession(sys.argv[1])
def feeds(n=2**40):
    return {"x": np.array([1, 3], np.float32), "n": np.array(n)}
"""
PROGRAMS = {
    "a limit": """
async def work():
    try:
        await asyncio.wait_for(session.run_async(feeds()), 0.1)
    except asyncio.TimeoutError:
        print("over")
asyncio.run(work())
""",
    "runs that nobody waits for": """
async def work():
    tasks = [asyncio.ensure_future(session.run_async(feeds())) for _ in range(6)]
    await asyncio.sleep(0.1)
asyncio.run(work())
print("over")
""",
    "callbacks, queued ones too": """
for _ in range(20):
    session.run_async(None, feeds(), lambda *_: print("never"))
time.sleep(0.1)
print("over")
""",
    "a forked process": """
async def endless():
    tasks = [asyncio.ensure_future(session.run_async(feeds())) for _ in range(20)]
    await asyncio.sleep(0.1)
    process = os.fork()
    if not process:
        asyncio.events._set_running_loop(None)
        assert asyncio.new_event_loop().run_until_complete(session.run_async(feeds(1)))[0][1] == 6
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
asyncio.run(endless())
print("over")
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="written for systems that fork")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_end(name: str, tmp_path: Path) -> None:
    path = tmp_path / "doubled.onnx"
    path.write_bytes(model_of(_DOUBLED).SerializeToString())
    found = subprocess.run(
        [sys.executable, "-W", FORKS, "-c", PRELUDE + PROGRAMS[name], str(path)],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout, found.stderr) == (0, "over\n", "")
