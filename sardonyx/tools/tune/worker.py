"""A process that makes one session and measures it when it is told to.

Requests and replies are lines of JSON, on standard input and on what was standard output.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.iobinding import IOBinding
from sardonyx.api.options import SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.session import InferenceSession
from sardonyx.api.settings import Settings
from sardonyx.base.errors import SardonyxError

Feeds = Mapping[str, Any]


class _Worker:
    """What requests ask for; each method takes the fields of one, and gives those of the reply."""

    def __init__(self) -> None:
        self._session: InferenceSession | None = None
        self._runs: list[Callable[[], Any]] = []

    def load(
        self, model: str, settings: Any, feeds: str, batched: list[str], warmup: int
    ) -> dict[str, Any]:
        """Make the session, run it; how long both took."""
        wanted = Settings.from_json(settings)
        given = _batch(_read(feeds), batched, wanted.batch_size)
        start = time.perf_counter()
        options = SessionOptions()
        options.fill(wanted.session_options, wanted.extra_session_config)
        session = InferenceSession(model, options, providers=wanted.providers_for(None))
        if wanted.tuning_results:
            session.set_tuning_results([dict(entry) for entry in wanted.tuning_results])
        loaded = time.perf_counter()
        if session.get_providers()[0] != wanted.execution_provider:
            return {"error": f"{wanted.execution_provider} cannot run the model"}
        self._session = session
        self._runs = [_runner(session, given, wanted) for _ in range(wanted.concurrency)]
        self._feeds = given
        for run in self._runs:
            run()
        seconds = min(_seconds(self._runs[0]) for _ in range(1 + warmup))
        return {"load_seconds": loaded - start, "run_seconds": seconds}

    def outputs(self, path: str) -> dict[str, Any]:
        """Write what the model gives."""
        assert self._session is not None
        found = self._session.run(None, self._feeds)
        with open(path, "wb") as file:
            pickle.dump(found, file)
        return {}

    def compare(self, path: str) -> dict[str, Any]:
        """The largest error, relative to an output's largest number, of all outputs."""
        assert self._session is not None
        found, wanted = self._session.run(None, self._feeds), _read(path)
        errors = [largest_error(a, b) for a, b in zip(found, wanted, strict=True)]
        return {"error_share": max(errors, default=0.0)}

    def measure(self, runs: int) -> dict[str, Any]:
        """How long each of some runs took, one after the other."""
        run = self._runs[0]
        return {"seconds": [_seconds(run) for _ in range(runs)]}

    def load_up(self, seconds: float) -> dict[str, Any]:
        """Run in all threads for some time: how long runs took, and all of it."""
        times: list[list[float]] = [[] for _ in self._runs]
        failures: list[str] = []
        start = time.perf_counter()
        end = start + seconds

        def work(run: Callable[[], Any], own: list[float]) -> None:
            try:
                while not own or time.perf_counter() < end:
                    own.append(_seconds(run))
            except (SardonyxError, MemoryError) as error:
                failures.append(f"{type(error).__name__}: {error}")

        pairs = zip(self._runs, times, strict=True)
        threads = [threading.Thread(target=work, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = time.perf_counter() - start
        if failures:
            return {"error": failures[0]}
        return {"seconds": [t for own in times for t in own], "total": total}

    def kernels(self, model: str, settings: Any, feeds: str) -> dict[str, Any]:
        """Measure several ways to compute each kernel; what `set_tuning_results` takes."""
        return {"results": _kernels(model, Settings.from_json(settings), _read(feeds))}


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _read(path: str) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def _batch(feeds: Feeds, batched: list[str], copies: int) -> dict[str, Any]:
    """The feeds, as often as asked for along the first axis."""
    if copies == 1:
        return dict(feeds)
    return {
        name: np.concatenate([value] * copies) if name in batched else value
        for name, value in feeds.items()
    }


def _runner(session: InferenceSession, feeds: Feeds, settings: Settings) -> Callable[[], Any]:
    """Runs the session once, as the settings say."""
    if not settings.io_bind:
        given = dict(feeds)
        return lambda: session.run(None, given)
    binding = IOBinding(session)
    is_on_gpu = settings.execution_provider == CUDA
    place = "cuda" if is_on_gpu else "cpu"
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(value, place, 0))
    names = [node.name for node in session.get_outputs()]
    for name, value in zip(names, session.run(None, dict(feeds)), strict=True):
        binding.bind_ortvalue_output(name, OrtValue.ortvalue_from_numpy(value.copy(), place, 0))
    return lambda: session.run_with_iobinding(binding)


def largest_error(found: Any, wanted: Any) -> float:
    """The largest difference of numbers over the largest number; infinite where others differ."""
    a, b = list(_arrays(found)), list(_arrays(wanted))
    if [x.shape for x in a] != [x.shape for x in b]:
        return float("inf")
    return max((_error(x, y) for x, y in zip(a, b, strict=True)), default=0.0)


def _arrays(value: Any) -> Iterator[Any]:
    """Arrays of a tensor, a list or a map."""
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _arrays(part)
    else:
        yield np.asarray(value)


def _error(found: Any, wanted: Any) -> float:
    if wanted.dtype.kind in "OUSb":
        return 0.0 if bool((found == wanted).all()) else float("inf")
    # Types of ml_dtypes are of kind V: they become doubles, too.
    a, b = (x.astype(complex if x.dtype.kind == "c" else float) for x in (found, wanted))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    difference = np.abs(np.where(same, 0, a - b)).max()
    largest = np.abs(np.where(np.isfinite(b), b, 0)).max()
    return float(difference / largest) if np.isfinite(difference) and largest else float("inf")


def _kernels(model: str, settings: Settings, feeds: Feeds) -> list[Any]:
    """Results of tuning; [] where nothing is better than what is done anyway."""
    from sardonyx.api.tuning_results import written
    from sardonyx.compiler.options import EngineOptions
    from sardonyx.compiler.tuning import tune
    from sardonyx.cpu.provider import CpuProvider
    from sardonyx.store.cache import default_cache

    config = settings.extra_session_config
    options = EngineOptions(
        threads=settings.session_options.get("intra_op_num_threads", 0),
        winograd=config.get("session.disable_winograd") != "1",
        bf16_products=config.get("session.allow_bfloat16_products") == "1",
    )
    tuned = tune(model, options, CpuProvider(), default_cache(), "trial", list(feeds.values()))
    return written(tuned) if tuned is not None and tuned.variants else []


def main() -> int:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = _Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, request.pop("do"))(**request)
        except (SardonyxError, MemoryError, OSError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
