"""Measures several ways to compute each kernel of a model, and keeps the fastest.

The model is compiled once for each variant (`selection.variants.CANDIDATES`) that can matter to it.
Its runs alternate with runs of the model as the cost model would have it, and native code notes how
long each kernel took (`runtime.timing`): so a kernel is measured where it will run, with the caches
as the kernels before it leave them, and with all threads of the session.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.collector import paused
from sardonyx.base.errors import InvalidArgument, OutOfMemory, SardonyxError, message
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.log import get_logger
from sardonyx.base.object_types import ObjectType
from sardonyx.base.records import dataclass
from sardonyx.compiler.cached_engines import write_engine
from sardonyx.compiler.drive import build_for, state_of, units_for
from sardonyx.cpu.threads import team_of
from sardonyx.plan.identity import Identities
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.timing import KernelTimes
from sardonyx.selection import matmul
from sardonyx.selection.loop_nests import COPY
from sardonyx.selection.variants import CANDIDATES, DEFAULT, Choices, Variant
from sardonyx.store.tuning_choices import Chosen, Everywhere, Tuned, keep

if TYPE_CHECKING:
    from sardonyx.compiler.options import EngineOptions
    from sardonyx.runtime.declared import ValueInfo
    from sardonyx.runtime.provider import Provider
    from sardonyx.store.cache import Cache

_logger = get_logger("tuning")

#: A variant has to take less than this share of the default's time.
_WORTH = 0.97
#: Runs of each: at least, and at most, if all of them together take no longer than the seconds.
_LEAST_RUNS, _MOST_RUNS, _SECONDS = 5, 50, 2.0
#: How names of kernels begin that a number of a variant can change.
_CHANGES: Mapping[str, tuple[str, ...]] = {
    "winograd": (matmul.WINOGRAD, matmul.PRODUCT),
    "rows": (matmul.PRODUCT, matmul.INTEGERS, matmul.HALVES),
    "vectors": (matmul.PRODUCT, matmul.INTEGERS, matmul.HALVES),
    "elements": (COPY, "map", "rows"),
}


@dataclass(slots=True)
class _Trial:
    """A model compiled with one variant everywhere.

    Attributes:
        times: Runs it.
        inputs: What it is fed.
        names: The name of the structure behind each kernel.
        codes: By structure, what tells its kernel from others.
        facts: What else decides on how a structure is built.
        ticks: The least time of each structure's kernels, all together, in one run.
    """

    times: KernelTimes
    inputs: Sequence[ValueInfo]
    names: Mapping[str, str]
    codes: Mapping[str, object]
    facts: str
    ticks: dict[str, float] = field(default_factory=dict)

    def run(self, feeds: Sequence[Any]) -> None:
        """Run once, and note how long kernels took."""
        sums: dict[str, float] = {}
        for kernel, ticks in self.times.run(feeds).items():
            name = self.names.get(kernel)
            if name is not None:
                sums[name] = sums.get(name, 0.0) + ticks
        for name, ticks in sums.items():
            self.ticks[name] = min(ticks, self.ticks.get(name, ticks))


def tune(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    cache: Cache,
    key: str,
    feeds: Sequence[Any] | None = None,
) -> Tuned | None:
    """Measure a model, and keep what was found; None where it cannot be measured.

    Args:
        source: A path, or bytes.
        options: How sessions of it are made.
        provider: What runs it.
        cache: Where results are kept.
        key: Of the model.
        feeds: For all inputs, in order; None for random ones, if all sizes are known.
    """
    start = time.perf_counter()
    if provider.accelerator is not None or not options.optimization_level:
        _logger.warning("nothing is tuned: %s", "kernels are chosen on the processor alone")
        return None
    base = _trial(source, options, provider, cache, Everywhere(DEFAULT))
    try:
        given = example_feeds(base.inputs, options) if feeds is None else feeds
        base.run(given)
    except SardonyxError as error:
        _logger.warning("the model is not tuned: %s", error)
        return None
    best = dict.fromkeys(base.names.values(), (_WORTH, DEFAULT))
    for variant in CANDIDATES:
        checkpoint()
        if not _matters(variant, base.names):
            continue
        try:
            tried = _trial(source, options, provider, cache, Everywhere(variant))
        except OutOfMemory as error:
            _logger.warning("%s is not tried: %s", variant, error)
            continue
        gc.collect()  # a session that is made pauses the collector
        for name, share in _shares(base, tried, given, _SECONDS).items():
            if share < best[name][0]:
                best[name] = share, variant
    found = {name: variant for name, (_, variant) in best.items() if variant != DEFAULT}
    # The best of many measurements is often luck: those count that are better once more.
    again = _trial(source, options, provider, cache, Chosen(found))
    shares = _shares(base, again, given, 2 * _SECONDS)
    tuned = Tuned({name: v for name, v in found.items() if shares.get(name, 1.0) < _WORTH})
    saved = sum(base.ticks[name] * (1 - shares[name]) for name in tuned.variants)
    _logger.info(
        "tuned in %.1f s: %d of %d structures are computed otherwise, which saves %.1f %%",
        time.perf_counter() - start, len(tuned.variants), len(best),
        100 * saved / (sum(base.ticks.values()) or 1.0),
    )  # fmt: skip
    keep(cache, key, tuned, base.facts)
    return tuned


def _trial(
    source: Any, options: EngineOptions, provider: Provider, cache: Cache, choices: Choices
) -> _Trial:
    budget, identities = Budget(options.memory_limit_bytes), Identities()
    own = replace(options, choices=choices, budget=budget)
    with paused(), units_for(cache, source, state_of(source)) as units:
        built = build_for(source, own, provider, {}, budget, units)
        team = team_of(options.threads, options.branches, options.share, options.setup)
        engine = write_engine(built, provider, team, {}, budget)
        names, codes = dict[str, str](), dict[str, object]()
        for key, kernel in built.kernels.items():
            name = identities.of(key)
            if name is not None:
                symbol = kernel.program.name
                names[symbol] = name
                codes[name] = units.places([symbol]), repr(kernel.blocks)
    return _Trial(KernelTimes(engine), engine.inputs, names, codes, built.facts)


def _matters(variant: Variant, kernels: Mapping[str, str]) -> bool:
    """Whether any kernel may be another one in a variant."""
    starts = tuple(s for number in variant.to_numbers() for s in _CHANGES[number])
    return any(kernel.startswith(starts) for kernel in kernels)


def _shares(base: _Trial, tried: _Trial, feeds: Sequence[Any], seconds: float) -> dict[str, float]:
    """For structures whose kernels differ, the share of the first one's time."""
    differ = [n for n, code in tried.codes.items() if n in base.codes and code != base.codes[n]]
    if not differ:
        return {}
    tried.run(feeds)  # what is done once only is not measured
    tried.ticks.clear()
    base.ticks.clear()
    end = time.perf_counter() + seconds
    for number in range(_MOST_RUNS):
        if number >= _LEAST_RUNS and time.perf_counter() > end:
            break
        checkpoint()
        base.run(feeds)
        tried.run(feeds)
    return {n: tried.ticks[n] / base.ticks[n] for n in differ if base.ticks.get(n)}


def example_feeds(
    inputs: Sequence[ValueInfo], options: EngineOptions
) -> list[np.ndarray[Any, Any]]:
    """Random feeds: normally distributed floats, and zeros of all other types.

    Raises:
        InvalidArgument: A size is unknown, or an input is no tensor of numbers.
    """
    random = np.random.default_rng(0)
    found = []
    for info in inputs:
        dtype = info.dtype
        if isinstance(dtype, ObjectType) or dtype is dtypes.STRING:
            raise _unknown(info, "it is no tensor of numbers")
        if info.name in options.ranks or info.shape is None:
            raise _unknown(info, "its rank is unknown")
        known = [options.free_dimension_overrides.get(str(d), d) for d in info.shape]
        sizes = [d for d in known if isinstance(d, int)]
        if len(sizes) < len(known):
            raise _unknown(info, f"its shape {info.shape} has sizes that only a run knows")
        if dtype.is_float:
            found.append(random.standard_normal(sizes).astype(dtype.numpy))
        else:
            found.append(np.zeros(sizes, dtype.numpy))
    return found


def _unknown(info: ValueInfo, why: str) -> InvalidArgument:
    return InvalidArgument(
        message(
            f"input {info.name}", f"There is nothing to measure with: {why}",
            do="Use add_free_dimension_override_by_name, or call sardonyx.tune with real inputs",
        )
    )  # fmt: skip
