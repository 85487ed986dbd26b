"""`measure` and `measure_against`: one engine, or two in turns."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import check_file
from sardonyx.tools.perf.bench import Bench, Progress, Round
from sardonyx.tools.perf.process import Process
from sardonyx.tools.perf.result import Comparison, Measurement
from sardonyx.tools.perf.settings import PerfSettings

#: Told of each round: its number, what a request took in ours and in the other engine, in seconds.
RoundSeen = Callable[[int, float, float], None]


def measure(
    model: str | os.PathLike[str],
    *,
    fresh_process: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Measurement:
    """Make a session and time requests to it.

    Args:
        model: A path.
        fresh_process: In a process of its own, which ends afterwards: memory and times are the
            model's alone.
        progress: Told how much is done.
        settings: See `PerfSettings`.

    Raises:
        InvalidArgument: A setting is none, or files of inputs do not fit the model.
        SardonyxError: The session cannot be made, or a request fails.
    """
    return measured(_path(model), PerfSettings.of(settings), fresh_process, progress)


def measured(
    model: str, settings: PerfSettings, fresh_process: bool, progress: Progress | None
) -> Measurement:
    """`measure`, with settings as one object."""
    found = Measurement(model, settings)
    if not fresh_process:
        bench = Bench(model, settings)
        bench.warm_up()
        found.load_s, found.first_s = bench.load_s, bench.first_s
        found.inputs, found.data_sets = bench.inputs, bench.sets
        found.checked, found.mismatches = bench.checked, bench.mismatches
        found.sizes = bench.sizes
        _add(found, _whole(bench, settings, progress))
        _set(found, bench.finish())
        return found
    with Process(model, settings) as process:
        found.load_s = process.load_s
        _set(found, process.warm_up())
        _add(found, _whole(process, settings, progress))
        _set(found, process.finish())
    return found


def measure_against(
    model: str | os.PathLike[str],
    against: str = "onnxruntime",
    *,
    rounds: int = 10,
    progress: Progress | None = None,
    seen: RoundSeen | None = None,
    **settings: Any,
) -> Comparison:
    """Time requests to two engines, each in a process of its own, in turns.

    A round is a turn of each, and the one that begins changes from round to round: what the machine
    does besides meets both. A turn of each that does not count comes first: engines may choose
    kernels in their first requests. `seconds`, or `times`, is what each has in all rounds together.

    Args:
        model: A path.
        against: The other engine: a module with onnxruntime's names.
        rounds: How many.
        progress: Told how much is done.
        seen: Told of each round.
        settings: See `PerfSettings`, for both engines; a profile and an optimised model are ours.

    Raises:
        InvalidArgument: A setting is none, or files of inputs do not fit the model.
        NotFound: There is no such engine.
        SardonyxError: A session cannot be made, or a request fails.
    """
    return compared(_path(model), PerfSettings.of(settings), against, rounds, progress, seen)


def compared(
    model: str, settings: PerfSettings, against: str, rounds: int,
    progress: Progress | None = None, seen: RoundSeen | None = None,
) -> Comparison:  # fmt: skip
    """`measure_against`, with settings as one object."""
    if rounds < 1:
        what = "The number of rounds is not positive"
        raise InvalidArgument(message("--rounds", what, got=str(rounds)))
    other = dataclasses.replace(settings, engine=against, profile="", optimized_model="")
    found = Comparison(Measurement(model, settings), Measurement(model, other))
    with Process(model, settings) as first, Process(model, other) as second:
        sides = [(found.ours, first), (found.theirs, second)]
        for measurement, process in sides:
            measurement.load_s = process.load_s
            _set(measurement, process.warm_up())
        times, seconds = -(-settings.times // rounds), settings.seconds / rounds
        for _, process in sides:
            process.round(seconds=seconds, times=times)
        for number in range(rounds):
            costs = {}
            for turn, (measurement, process) in enumerate(sides[:: -1 if number % 2 else 1]):
                tell = _within(progress, 2 * number + turn, 2 * rounds, found)
                done = process.round(seconds=seconds, times=times, progress=tell)
                _add(measurement, done)
                costs[measurement.settings.engine, process] = _cost(done, settings)
            ours, theirs = (costs[m.settings.engine, p] for m, p in sides)
            found.ratios.append(theirs / ours)
            if seen is not None:
                seen(number, ours, theirs)
        for measurement, process in sides:
            _set(measurement, process.finish())
    return found


def _within(progress: Progress | None, turn: int, turns: int, found: Comparison) -> Progress | None:
    """What tells the progress of the whole, told that of one turn."""
    if progress is None:
        return None
    before = found.ours.requests + found.theirs.requests
    return lambda part, done: progress((turn + part) / turns, before + done)


def _cost(done: Round, settings: PerfSettings) -> float:
    """Seconds for a request, as one who waits for it sees it, or as throughput has it."""
    if settings.concurrency == 1:
        return statistics.median(done.latencies_s)
    return done.wall_s / len(done.latencies_s)


def _whole(bench: Bench | Process, settings: PerfSettings, progress: Progress | None) -> Round:
    return bench.round(seconds=settings.seconds, times=settings.times, progress=progress)


def _add(found: Measurement, done: Round) -> None:
    found.latencies_s += done.latencies_s
    found.wall_s += done.wall_s
    found.cpu_s += done.cpu_s


def _set(found: Measurement, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(found, name, value)


def _path(model: str | os.PathLike[str]) -> str:
    path = os.fspath(model)
    check_file(path)
    return path
