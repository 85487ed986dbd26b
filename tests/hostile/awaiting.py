"""Awaited runs that are ended at any moment, many at once: what is left is right, and at rest.

python -m tests.hostile.awaiting --seconds 3600   # until then; defects are printed with seeds
python -m tests.hostile.awaiting --seed 17 --count 1

A round makes an event loop and begins runs of several sessions, short and endless, through
`run_async`, OrtValues and pipelines. Some end by themselves, and give the right values; others are
cancelled, time out, are terminated by their options, or their loop is closed. Afterwards no thread
of the package runs, within seconds, and every session gives the right values.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

import numpy as np

import sardonyx
from sardonyx.base.errors import EngineError, SardonyxError
from sardonyx.runtime import run_threads
from tests.support.session import model_of

_DOUBLED = """g (float[N] x, int64 n) => (float[N] y) { k = Constant <value_int=1> ()
    c = Cast <to=9> (k) y = Loop (n, c, x) <body = b (int64 i, bool k2, float[N] a)
    => (bool o, float[N] r) { o = Identity(k2) r = Add(a, a) }> }"""
_ENDLESS = 2**40
#: Far more than a kernel needs to see its flag, and than a busy machine makes of that.
_REST_SECONDS = 20.0
_X = np.array([1.0, 3.0], np.float32)


@cache
def _sessions() -> list[sardonyx.InferenceSession]:
    data = model_of(_DOUBLED).SerializeToString()
    return [sardonyx.InferenceSession(data) for _ in range(3)]


def _feeds(trips: int) -> dict[str, Any]:
    return {"x": _X, "n": np.array(trips)}


def _running() -> int:
    return len(run_threads._threads._running)


def _is_right(found: Any, trips: int) -> bool:
    return bool(np.array_equal(np.asarray(found), _X * 2**trips))


async def _plain(session: Any, trips: int, options: Any) -> Any:
    return (await session.run_async(None, _feeds(trips), run_options=options))[0]


async def _values(session: Any, trips: int, options: Any) -> Any:
    given = {k: sardonyx.OrtValue.ortvalue_from_numpy(v) for k, v in _feeds(trips).items()}
    return np.asarray((await session.run_async(None, given, run_options=options))[0])


async def _streamed(session: Any, trips: int, _options: Any) -> Any:
    feeds = [_feeds(trips), _feeds(trips)]
    found = [results async for results in session.pipeline().map(feeds)]
    return found[0]


_WAYS: list[Callable[[Any, int, Any], Coroutine[Any, Any, Any]]] = [_plain, _values, _streamed]


async def _one(rnd: random.Random, defects: list[str]) -> None:
    """One run, and how it ends."""
    session, way = rnd.choice(_sessions()), rnd.choice(_WAYS)
    await asyncio.sleep(rnd.choice((0, 0, 0.001, 0.01)) * rnd.random())
    options = sardonyx.RunOptions()
    how = rnd.choice(("end", "end", "cancel", "time out", "terminate"))
    if how == "terminate" and way is _streamed:
        how = "cancel"
    trips = rnd.randrange(12) if how == "end" or rnd.random() < 0.2 else _ENDLESS
    task = asyncio.ensure_future(way(session, trips, options))
    delay = rnd.random() ** 3 * 0.05
    try:
        if how == "end":
            if not _is_right(await task, trips):
                defects.append(f"another value: {way.__name__} {trips}")
            return
        if how == "time out":
            await asyncio.wait_for(task, delay)
        else:
            await asyncio.sleep(delay)
            if how == "cancel":
                task.cancel()
            else:
                options.terminate = True
            await task
        if trips == _ENDLESS:
            defects.append(f"an endless run gave values: {how}")
    except (TimeoutError, asyncio.CancelledError):
        if how not in ("cancel", "time out"):
            raise
    except EngineError:
        raise
    except SardonyxError:
        if how != "terminate":
            raise


def run_round(seed: int) -> str:
    """The defect of a round; none if it is empty."""
    rnd, defects = random.Random(seed), list[str]()

    async def work() -> None:
        tasks = [asyncio.ensure_future(_one(rnd, defects)) for _ in range(rnd.randrange(1, 24))]
        if rnd.random() < 0.2:  # everything is left behind when the loop ends
            await asyncio.sleep(rnd.random() * 0.02)
            return
        await asyncio.gather(*tasks)

    try:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(work())
    except Exception:  # noqa: BLE001 - whatever is raised is the defect
        defects.append(traceback.format_exc())
    until = time.monotonic() + _REST_SECONDS
    while _running() and time.monotonic() < until:
        time.sleep(0.001)
    if _running():
        defects.append("runs go on")
    for session in _sessions():
        if not _is_right(session.run(None, _feeds(3))[0], 3):
            defects.append("the session went bad")
    return "\n".join(defects)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.awaiting")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many rounds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long")
    options = parser.parse_args()
    until, rounds, found = time.monotonic() + options.seconds, 0, 0
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() > until:
            break
        defect = run_round(seed)
        rounds += 1
        if defect:
            found += 1
            sys.stdout.write(f"DEFECT {seed}: {defect}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{rounds} rounds from seed {options.seed}, {found} defects\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
