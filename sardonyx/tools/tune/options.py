"""What to search, for how long, by which measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sardonyx.base.errors import InvalidArgument, message

#: What may be searched, in the order of the search: what needs no compilation comes first, and
#: what takes as much time as there is comes last.
DIMENSIONS = (
    "provider", "threads", "blocks", "concurrency", "batch", "mode", "winograd", "layout",
    "precision",
    "level", "binding", "kernels",
)  # fmt: skip

_MOST_THREADS = 4096


@dataclass(frozen=True)
class TuneOptions:
    """How a model is tuned.

    Attributes:
        budget_seconds: How long all of it may take, the final comparison included.
        throughput: Whether to look for most runs a second, not for the least latency.
        percentile: Of latencies, 0 to 1: the measure, or with `throughput` what is bounded.
        max_latency_ms: With `throughput`, what the percentile may be; None for anything.
        tolerance: Largest error, relative to an output's largest number, that lower precision may
            make; with 0 it is not tried.
        providers: Those to try; None for all that are there.
        threads: Numbers of threads to try; None for a binary search from 1 to all processors.
        branches: Numbers of branches at once, where branches run in parallel; None for a search.
        levels: Optimisation levels to try.
        modes: Execution modes to try.
        max_batch: Most copies of the feeds in one run.
        max_concurrency: Most threads that call `run`; 0 for twice the processors.
        skip: Members of `DIMENSIONS` that are not searched.
        inputs: A file .npz, or a folder with inputs as files .pb; "" for random ones.
        dims: Sizes of named dimensions of random inputs.
        seed: Of random inputs.
        warmup: Runs of each process that are not measured.
        resume: Whether to go on with the journal of a search that was interrupted.
    """

    budget_seconds: float = 150.0
    throughput: bool = False
    percentile: float | None = None
    max_latency_ms: float | None = None
    tolerance: float = 0.0
    providers: tuple[str, ...] | None = None
    threads: tuple[int, ...] | None = None
    branches: tuple[int, ...] | None = None
    levels: tuple[int, ...] = (0, 99)
    modes: tuple[str, ...] = ("sequential", "parallel")
    max_batch: int = 64
    max_concurrency: int = 0
    skip: frozenset[str] = frozenset()
    inputs: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    warmup: int = 2
    resume: bool = False

    def __post_init__(self) -> None:
        self._check("--budget", 0 < self.budget_seconds < 1e7, "a positive number of seconds")
        self._check("--percentile", 0 < self.share < 1, "a number between 0 and 1")
        self._check("--tolerance", 0 <= self.tolerance < math.inf, "0 or more")
        latency = 1.0 if self.max_latency_ms is None else self.max_latency_ms
        self._check("--max-latency-ms", 0 < latency < math.inf, "a positive number")
        bounded = self.max_latency_ms is None or self.throughput
        self._check("--max-latency-ms", bounded, "--throughput beside it")
        self._check("--warmup", self.warmup >= 0, "0 or more")
        self._check("--max-batch", self.max_batch >= 1, "1 or more")
        threads = f"0 to {_MOST_THREADS}"
        self._check("--max-concurrency", 0 <= self.max_concurrency <= _MOST_THREADS, threads)
        for number in (*(self.threads or ()), *(self.branches or ())):
            self._check("threads", 0 <= number <= _MOST_THREADS, threads)
        self._check("--skip", self.skip <= set(DIMENSIONS), ", ".join(DIMENSIONS))
        self._check("modes", set(self.modes) <= {"sequential", "parallel"}, "sequential, parallel")
        self._check("levels", set(self.levels) <= {0, 1, 2, 3, 99}, "0, 1, 2, 3 or 99")

    @property
    def share(self) -> float:
        """The percentile in use: without a choice the median, or 0.95 where it is a bound."""
        if self.percentile is not None:
            return self.percentile
        return 0.95 if self.throughput else 0.5

    @staticmethod
    def _check(name: str, is_fine: bool, expected: str) -> None:
        if not is_fine:
            raise InvalidArgument(message(name, "No such value", expected=expected))
