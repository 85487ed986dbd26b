"""Which settings to try next: one dimension after the other, from the best found so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.optimizers import KEY as DISABLED
from sardonyx.api.providers import CPU
from sardonyx.api.settings import Settings
from sardonyx.tools.tune.inputs import Facts
from sardonyx.tools.tune.options import DIMENSIONS, TuneOptions
from sardonyx.tools.tune.outcome import DEFAULT, EXACT, LAYOUTS, Outcome
from sardonyx.tools.tune.process import TrialFailed

#: A trial has to take less than this share of the best one's time to be gone on from. What is only
#: lucky there does not pass the final comparison.
_WORTH = 0.98
#: Steps of the search between a number that is better and its double, which is not.
_REFINEMENTS = 3
_LEVEL = "graph_optimization_level"


class OutOfTime(Exception):
    """There is no time for another trial."""


class TrialBench(Protocol):
    """Measures settings."""

    def trial(self, settings: Settings, best: Outcome) -> Outcome:
        """Measure, until it is clear whether the settings are better than the best ones.

        Raises:
            OutOfTime: There is none left to begin.
        """

    def tuned_kernels(self, settings: Settings) -> tuple[Mapping[str, Any], ...]:
        """Results of tuning; () if nothing is better than what is done anyway.

        Raises:
            OutOfTime: There is none left to begin.
            TrialFailed: They could not be measured, or not in time.
        """


class Search:
    """A search for the settings of least cost.

    Args:
        bench: Measures.
        options: What to search.
        facts: What may matter to the model.
        processors: How many there are.
        providers: Those that are there.

    Attributes:
        best: The best outcome so far.
        outcomes: All, in order; the first one is the defaults'.
        notes: What was not searched, and why.
    """

    def __init__(
        self,
        bench: TrialBench,
        options: TuneOptions,
        facts: Facts,
        processors: int,
        providers: tuple[str, ...],
    ) -> None:
        self._bench, self._options, self._facts = bench, options, facts
        self._processors, self._providers = processors, providers
        self.best = Outcome(DEFAULT)
        self.outcomes: list[Outcome] = []
        self.notes: list[str] = []

    def run(self) -> None:
        """Search until everything was tried, or there is no time."""
        steps: Mapping[str, Callable[[], None]] = {
            name: getattr(self, f"_{name}") for name in DIMENSIONS
        }
        left = [name for name in DIMENSIONS if name not in self._options.skip]
        try:
            self.best = self._measured(DEFAULT)
            while left and self.best.works:  # without defaults there is nothing to compare with
                steps[left[0]]()
                left.pop(0)
        except OutOfTime:
            self.notes.append(f"there was no time for: {', '.join(left)}")

    def _measured(self, settings: Settings) -> Outcome:
        for outcome in self.outcomes:
            if outcome.settings.key == settings.key:
                return outcome
        found = self._bench.trial(settings, self.best)
        self.outcomes.append(found)
        return found

    def _try(self, **changes: Any) -> bool:
        """Measure the best settings with these changes; whether they are better."""
        found = self._measured(replace(self.best.settings, **changes))
        if found.settings.key == self.best.settings.key or not found.beats(self.best, _WORTH):
            return False
        if not self.best.is_slow and self.best.ratios and found.bounds[1] >= self.best.ratio:
            return False
        self.best = found
        return True

    def _session(self, **values: int) -> dict[str, Any]:
        """Changes of properties; 0 takes one away."""
        merged = dict(self.best.settings.session_options) | values
        return {"session_options": {k: v for k, v in merged.items() if v or k not in values}}

    def _try_entry(self, key: str, value: str) -> bool:
        merged = dict(self.best.settings.extra_session_config) | {key: value}
        return self._try(extra_session_config=merged)

    @property
    def _is_on_processor(self) -> bool:
        return self.best.settings.execution_provider == CPU

    # -- dimensions ---------------------------------------------------------------------------

    def _provider(self) -> None:
        """A GPU, as exact as the processor; runs on it become graphs by themselves."""
        if CUDA not in self._providers:
            return
        changes: dict[str, Any] = {"execution_provider": CUDA, "provider_options": EXACT}
        if CPU in self._providers:
            self._try(**changes)
        else:
            self.best = self._measured(replace(self.best.settings, **changes))

    def _threads(self) -> None:
        if self._is_on_processor:
            self._number("intra_op_num_threads", self._options.threads, 1)

    def _number(self, name: str, given: tuple[int, ...] | None, least: int) -> None:
        """Numbers that were given, or a binary search: cost first falls, then rises."""
        if given is not None:
            for number in given:
                self._try(**self._session(**{name: self._own(number)}))
            return
        low, high = least, self._processors
        while low < high:
            middle = (low + high) // 2
            fewer, more = (
                self._measured(
                    replace(self.best.settings, **self._session(**{name: self._own(number)}))
                )
                for number in (middle, middle + 1)
            )
            if more.beats(fewer):
                low = middle + 1
            else:
                high = middle
        self._try(**self._session(**{name: self._own(low)}))

    def _own(self, number: int) -> int:
        """As many as there are processors is what is done anyway."""
        return 0 if number == self._processors else number

    def _blocks(self) -> None:
        threads = self.best.settings.session_options.get("intra_op_num_threads", self._processors)
        if self._is_on_processor and threads > 1:
            self._try_entry("session.dynamic_block_base", "4")

    def _concurrency(self) -> None:
        if not self._options.throughput:
            return
        most = self._options.max_concurrency or 2 * self._processors
        self._double("concurrency", most, self._shared_threads)

    def _shared_threads(self, callers: int) -> dict[str, Any]:
        """A share of the processors for each caller."""
        share = max(1, self._processors // callers)
        return self._session(intra_op_num_threads=self._own(share)) if self._is_on_processor else {}

    def _batch(self) -> None:
        if self._options.throughput and self._facts.batched:
            self._double("batch_size", self._options.max_batch, None)

    def _double(self, name: str, most: int, more: Callable[[int], dict[str, Any]] | None) -> None:
        """Double a number while that helps, then halve the distance to the one that did not."""

        def is_better(number: int) -> bool:
            found = self._try(**{name: number})
            return self._try(**{name: number}, **more(number)) or found if more else found

        low = getattr(self.best.settings, name)
        high = 2 * low
        while high <= most and is_better(high):
            low, high = high, 2 * high
        high = min(high, most + 1)
        for _ in range(_REFINEMENTS):
            middle = (low + high) // 2
            if middle in (low, high):
                return
            low, high = (middle, high) if is_better(middle) else (low, middle)

    def _mode(self) -> None:
        wanted = "parallel" in self._options.modes and self._processors > 1
        if not wanted or not self._facts.has_branches or not self._is_on_processor:
            return
        if self._try(**self._session(execution_mode=1)) and self._processors > 2:
            self._number("inter_op_num_threads", self._options.branches, 2)

    def _winograd(self) -> None:
        if self._facts.has_convolutions and self._is_on_processor:
            self._try_entry("session.disable_winograd", "1")

    def _layout(self) -> None:
        """The layouts of the file, instead of those that the planner chooses and copies into."""
        if self._facts.has_convolutions and self._is_on_processor:
            self._try_entry(DISABLED, LAYOUTS)

    def _precision(self) -> None:
        if not self._options.tolerance or not self._facts.has_products:
            return
        if self._is_on_processor:
            self._try_entry("session.allow_bfloat16_products", "1")
        else:
            self._try(provider_options={})

    def _level(self) -> None:
        # All levels but 0 are one.
        if 0 in self._options.levels and self._is_on_processor:
            self._try(session_options=dict(self.best.settings.session_options) | {_LEVEL: 0})

    def _binding(self) -> None:
        self._try(io_bind=True)

    def _kernels(self) -> None:
        # Without optimisation there is one way to compute each kernel.
        if not self._is_on_processor or _LEVEL in self.best.settings.session_options:
            return
        try:
            results = self._bench.tuned_kernels(self.best.settings)
        except TrialFailed as error:
            self.notes.append(f"kernels were not tuned: {error}")
            return
        if results:
            self._try(tuning_results=results)
