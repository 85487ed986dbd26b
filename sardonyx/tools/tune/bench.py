"""Measures settings in fresh processes that take turns with one that has the defaults."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sardonyx.api.settings import Settings
from sardonyx.base.errors import Fail, message
from sardonyx.tools.tune.inputs import Facts
from sardonyx.tools.tune.options import TuneOptions
from sardonyx.tools.tune.outcome import DEFAULT, Outcome, name_of
from sardonyx.tools.tune.process import (
    BaseFailed,
    TrialFailed,
    Worker,
    WorkerProcess,
    read_only_reply,
)
from sardonyx.tools.tune.search import OutOfTime
from sardonyx.tools.tune.statistics import percentile

#: Pairs of measurements of a trial, and of the final comparison: at least, and at most.
_PAIRS, _FINAL_PAIRS = (3, 9), (9, 21)
#: How long one measurement is, if runs are short; how many runs it has, at least and at most.
_CHUNK_SECONDS, _CHUNK_RUNS = 0.1, (3, 400)
_THROUGHPUT_SECONDS = 0.25
#: Of the time that is left, what one trial's measurements may take.
_SHARE_OF_REST = 0.15
#: Of the budget, what the final comparison may take; of the rest, what measuring kernels may.
_FINAL_SHARE, _KERNELS_SHARE = 0.2, 0.75
#: What one of at most two final comparisons takes of the time that is left.
_FINAL_SHARE_OF_REST = 0.7

_FAILED = "Give valid inputs with --inputs, sizes with --dim, or more time with --budget"

Progress = Callable[[str], None]


class Outside(NamedTuple):
    """What a bench has of the system.

    Attributes:
        spawn: Makes a process with variables of its own.
        clock: Seconds.
    """

    spawn: Callable[[Mapping[str, str]], Worker] = WorkerProcess
    clock: Callable[[], float] = time.monotonic


_REAL = Outside()


class Contest(NamedTuple):
    """How settings are compared with the defaults.

    Attributes:
        least: So many pairs at least.
        most: So many at most.
        seconds: So long at most.
    """

    least: int
    most: int
    seconds: float


class ProcessBench:
    """See `search.TrialBench`.

    Args:
        model: The model's file.
        folder: For files that processes share; `feeds` is in it.
        options: The measure, and how long all may take.
        facts: What may be fed several times in one run.
        report: Told what is being done.
        outside: Processes and time.
    """

    def __init__(
        self,
        model: str,
        folder: Path,
        options: TuneOptions,
        facts: Facts,
        report: Progress,
        outside: Outside = _REAL,
    ) -> None:
        self._model, self._folder, self._options, self._facts = model, folder, options, facts
        self._report, (self._spawn, self._clock) = report, outside
        self._end = self._clock() + options.budget_seconds
        self._search_end = self._end - _FINAL_SHARE * options.budget_seconds
        self._base: Worker | None = None
        self._base_reply: dict[str, Any] = {}
        self._count = 0

    def trial(self, settings: Settings, best: Outcome) -> Outcome:
        """See `search.TrialBench`.

        Raises:
            Fail: The defaults themselves do not work, or take all of the time.
        """
        self._count += 1
        self._report(f"trial {self._count}: {name_of(settings)}")
        try:
            return self._trial(settings, best)
        except BaseFailed:
            self.close()
        try:
            return self._trial(settings, best)  # with a fresh process to compare with
        except BaseFailed as error:
            self.close()
            return Outcome(settings, failure=str(error))

    def _trial(self, settings: Settings, best: Outcome) -> Outcome:
        base = self._default()
        if settings.key == DEFAULT.key:
            return self._measured_default(base)
        left = self._search_end - self._clock()
        if left <= 0:
            raise OutOfTime
        worker = self._spawn({})
        try:
            reply = self._load(worker, settings, left)
            outcome = Outcome(settings, load_seconds=reply["load_seconds"])
            if outcome.is_less_precise:
                outcome = self._checked(worker, base, outcome)
            if outcome.works:
                seconds = max(0.5, _SHARE_OF_REST * (self._search_end - self._clock()))
                limits = Contest(*_PAIRS, seconds)
                outcome = self._pairs((worker, reply), base, outcome, limits, best)
        except TrialFailed as error:
            if self._clock() >= self._search_end:
                raise OutOfTime from None
            if isinstance(error, BaseFailed):
                raise
            outcome = Outcome(settings, failure=str(error))
        finally:
            worker.close()
        return outcome

    def final(self, settings: Settings) -> Outcome:
        """Compare settings with the defaults, both in fresh processes."""
        self._report(f"final comparison: {name_of(settings)}")
        self.close()
        left = max(1.0, self._end - self._clock())
        worker: Worker | None = None
        try:
            base, worker = self._default(), self._spawn({})
            # The budget is for the search: what it found has been loaded before, from the cache.
            reply = self._load(worker, settings, max(left, 60.0))
            outcome = Outcome(settings, load_seconds=reply["load_seconds"])
            seconds = max(1.0, _FINAL_SHARE_OF_REST * (self._end - self._clock()))
            limits = Contest(*_FINAL_PAIRS, seconds)
            return self._pairs((worker, reply), base, outcome, limits, None)
        except Fail as error:  # of the defaults, which have worked before, too
            return Outcome(settings, failure=str(error))
        finally:
            if worker is not None:
                worker.close()

    def tuned_kernels(self, settings: Settings) -> tuple[Mapping[str, Any], ...]:
        """See `search.TrialBench`; with a cache of its own, so other sessions stay the same."""
        left = self._search_end - self._clock()
        if left <= 0:
            raise OutOfTime
        self._report("measuring kernels")
        worker = self._spawn({"SARDONYX_CACHE": str(self._folder / "cache")})
        request = {
            "do": "kernels", "model": self._model, "settings": settings.to_json(),
            "feeds": str(self._folder / "feeds"),
        }  # fmt: skip
        return tuple(read_only_reply(worker, _KERNELS_SHARE * left, **request)["results"])

    def close(self) -> None:
        """End the process that has the defaults."""
        if self._base is not None:
            self._base.close()
            self._base = None

    # -- parts --------------------------------------------------------------------------------

    def _default(self) -> Worker:
        if self._base is None:
            self._base = self._spawn({})
            try:
                left = max(1.0, self._end - self._clock())
                self._base_reply = self._load(self._base, DEFAULT, left)
            except TrialFailed as error:
                what = f"The model does not run with default settings: {error}"
                text = message("tune", what, do=_FAILED)
                raise Fail(text) from None
        return self._base

    def _load(self, worker: Worker, settings: Settings, timeout: float) -> dict[str, Any]:
        return worker.ask(
            timeout, do="load", model=self._model, settings=settings.to_json(),
            feeds=str(self._folder / "feeds"), batched=list(self._facts.batched),
            warmup=self._options.warmup,
        )  # fmt: skip

    def _checked(self, worker: Worker, base: Worker, outcome: Outcome) -> Outcome:
        """The outcome with the error that lower precision makes."""
        path = str(self._folder / "outputs")
        self._ask(base, self._patience, do="outputs", path=path)
        share = worker.ask(self._patience, do="compare", path=path)["error_share"]
        failure = "" if share <= self._options.tolerance else f"its error is {share:.2g}"
        return replace(outcome, error_share=share, failure=failure)

    @property
    def _patience(self) -> float:
        return max(60.0, self._end - self._clock())

    def _measured_default(self, base: Worker) -> Outcome:
        _, seconds, rate = self._measure(base, self._base_reply["run_seconds"], 1)
        outcome = Outcome(
            DEFAULT, (1.0,), tuple(seconds), rate, self._base_reply["load_seconds"]
        )  # fmt: skip
        return self._bounded(outcome)

    def _pairs(
        self,
        loaded: tuple[Worker, Mapping[str, Any]],
        base: Worker,
        outcome: Outcome,
        limits: Contest,
        best: Outcome | None,
    ) -> Outcome:
        """Take turns, until it is clear which one is better, or the time is over.

        Args:
            loaded: The process that has the settings, and its reply when it loaded the model.
            base: The one that has the defaults.
            outcome: Of the settings, as far as it is known.
            limits: How many turns there are.
            best: What they have to beat; None where that does not matter.
        """
        (worker, reply), (least, most, seconds) = loaded, limits
        end = self._clock() + seconds
        ratios: list[float] = []
        times: list[float] = []
        rates: list[float] = []
        size = outcome.settings.batch_size
        while len(ratios) < most and (len(ratios) < least or self._clock() < end):
            turn = [(base, self._base_reply, 1), (worker, reply, size)]
            # Who goes first changes, so that what grows or fades with time favours nobody.
            order = turn if len(ratios) % 2 == 0 else turn[::-1]
            found = {id(w): self._measure(w, r["run_seconds"], n) for w, r, n in order}
            cost, more, rate = found[id(worker)]
            ratios.append(cost / found[id(base)][0])
            times.extend(more)
            rates.append(rate)
            outcome = replace(outcome, ratios=tuple(ratios), seconds=tuple(times))
            outcome = self._bounded(replace(outcome, items_per_second=sum(rates) / len(rates)))
            if best is not None and len(ratios) >= least and self._is_lost(outcome, best):
                break
            if self._clock() > self._end + seconds:
                break
        return outcome

    @staticmethod
    def _is_lost(outcome: Outcome, best: Outcome) -> bool:
        if best.is_slow or not best.ratios:
            return False
        return outcome.is_slow or outcome.bounds[0] > best.ratio

    def _bounded(self, outcome: Outcome) -> Outcome:
        latency = percentile(outcome.seconds, self._options.share)
        bound = self._options.max_latency_ms
        return replace(
            outcome, latency=latency, is_slow=bound is not None and 1000 * latency > bound
        )

    def _measure(self, worker: Worker, run: float, size: int) -> tuple[float, list[float], float]:
        """The cost, the time of each run, and items a second, of one measurement."""
        if self._options.throughput:
            seconds = max(_THROUGHPUT_SECONDS, 4 * run)
            reply = self._ask(worker, seconds + self._patience, do="load_up", seconds=seconds)
            cost = reply["total"] / (size * len(reply["seconds"]))
            return cost, reply["seconds"], 1 / cost
        share = self._options.share
        # A percentile needs runs beyond it.
        fewest = max(_CHUNK_RUNS[0], round(1 / (1 - share)))
        count = min(max(fewest, round(_CHUNK_SECONDS / max(run, 1e-6))), _CHUNK_RUNS[1])
        times = self._ask(worker, self._patience, do="measure", runs=count)["seconds"]
        return percentile(times, share), times, size * len(times) / sum(times)

    def _ask(self, worker: Worker, timeout: float, **request: Any) -> dict[str, Any]:
        """The reply; where there is none, the error says which of the two processes failed."""
        try:
            return worker.ask(timeout, **request)
        except TrialFailed as error:
            if worker is self._base:
                raise BaseFailed(f"the defaults: {error}") from None
            raise
