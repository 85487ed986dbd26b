"""A model that is ready, and rounds of requests that are timed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import SardonyxError, message
from sardonyx.base.files import read_file
from sardonyx.tools.engines import engine_module
from sardonyx.tools.made_up import explained
from sardonyx.tools.perf.data import DataSet, data_sets, difference, free_sizes
from sardonyx.tools.perf.settings import LEVELS, PerfSettings
from sardonyx.tools.perf.usage import peak_memory_bytes
from sardonyx.tools.providers import PROVIDERS, only

#: Told how much of the whole is done (0 to 1), and how many requests that were.
Progress = Callable[[float, int], None]
#: Progress is told so often.
_REPORT_NS = 100_000_000


@dataclass
class Round:
    """Requests, one after the other or side by side.

    Attributes:
        latencies_s: Of each request, in the order in which they ended.
        wall_s: From the first request's beginning to the last one's end.
        cpu_s: What the process computed meanwhile, on all processors.
    """

    latencies_s: list[float]
    wall_s: float
    cpu_s: float


class Bench:
    """A session, its inputs, and what its first requests took.

    Args:
        model: A path.
        settings: How to make the session, and what to feed it.

    Attributes:
        load_s: What making the session took.
        first_s: What the first request took.
        mismatches: Outputs that are not what the files of expected ones say, in words.
        inputs: Types and shapes of the first inputs, in words, by name.
        sets: Names of the data sets.
        checked: How many outputs were compared with expected ones.
        sizes: A line about the sizes of made-up inputs that nobody gave; "" for none.

    Raises:
        SardonyxError: The session cannot be made, inputs do not fit, or the first request fails.
    """

    def __init__(self, model: str, settings: PerfSettings) -> None:
        self._settings = settings
        self._module = engine_module(settings.engine)
        self.first_s = 0.0
        self.mismatches: list[str] = []
        self.checked = 0
        self.sizes = ""
        sizes = free_sizes(model, settings)
        source: Any = read_file(model) if settings.from_memory else model
        with _errors_of(settings.engine):
            options = self._options(sizes.named)
            begin = time.perf_counter()
            self.session = self._module.InferenceSession(
                source, options, providers=self._providers(options)
            )
            self.load_s = time.perf_counter() - begin
        self._model, self._sizes = model, sizes
        self._sets: list[DataSet] = []
        self._run_options = self._options_of_runs()

    def warm_up(self) -> None:
        """Read or make inputs, send the first requests, and check what they give."""
        self._sets = data_sets(self.session, self._model, self._settings, self._sizes)
        self.sets = [s.name for s in self._sets]
        self.inputs = {
            name: f"{array.dtype}{list(array.shape)}" for name, array in self._sets[0].feeds.items()
        }
        self.sizes = self._sets[0].sizes.told()
        names = [node.name for node in self.session.get_outputs()]
        with _errors_of(self._settings.engine):
            for number, held in enumerate(self._sets):
                begin = time.perf_counter()
                results = self._first(held)
                if not number:
                    self.first_s = time.perf_counter() - begin
                for name, got in zip(names, results, strict=True):
                    if name in held.expected:
                        wrong = difference(got, held.expected[name], self._settings.tolerance)
                        self.checked += 1
                        if wrong:
                            self.mismatches.append(f"{held.name}, output {name}: {wrong}")
        left = self._settings.warmup - len(self._sets)
        if left > 0 or self._settings.binding:
            self.round(times=max(left, 1))

    def _first(self, held: DataSet) -> list[Any]:
        """The results of a data set's first request."""
        with explained(held.sizes), _errors_of(self._settings.engine):
            results: list[Any] = self.session.run(None, held.feeds, *self._run_options)
        return results

    def round(
        self, *, seconds: float = 0.0, times: int = 0, progress: Progress | None = None
    ) -> Round:
        """Send requests for so long, or so many if `times` is not 0, and time each.

        Raises:
            SardonyxError: A request failed.
        """
        threads = self._settings.concurrency
        return _Requests([self._calls() for _ in range(threads)], seconds, times, progress).run(
            self._settings.engine
        )

    def finish(self) -> dict[str, Any]:
        """Write a profile if there is one; gives peak memory, and the profile's path."""
        path = self.session.end_profiling() if self._settings.profile else ""
        return {"peak_memory_bytes": peak_memory_bytes(), "profile": path}

    # -- options ------------------------------------------------------------------------------

    def _options(self, sizes: Mapping[str, int]) -> Any:
        module, s = self._module, self._settings
        options = module.SessionOptions()
        options.graph_optimization_level = getattr(module.GraphOptimizationLevel, LEVELS[s.level])
        mode = "ORT_PARALLEL" if s.parallel else "ORT_SEQUENTIAL"
        options.execution_mode = getattr(module.ExecutionMode, mode)
        options.intra_op_num_threads = s.intra_threads
        options.inter_op_num_threads = s.inter_threads
        options.enable_cpu_mem_arena = s.arena
        options.enable_mem_pattern = s.pattern
        if s.verbose:
            options.log_severity_level = 0
        if s.profile:
            options.enable_profiling = True
            options.profile_file_prefix = s.profile
        if s.optimized_model:
            options.optimized_model_filepath = s.optimized_model
        for name, size in sizes.items():
            options.add_free_dimension_override_by_name(name, size)
        for key, value in s.config.items():
            options.add_session_config_entry(key, value)
        return options

    def _providers(self, options: Any) -> list[Any]:
        s = self._settings
        name = PROVIDERS[s.provider]
        if s.engine == "sardonyx":
            only(options, s.provider)  # the session says why it is not there
        elif name not in (there := self._module.get_available_providers()):
            what = f"The provider {name} is not available"
            raise errors.EPFail(message(s.engine, what, expected=", ".join(there)))
        return [(name, dict(s.provider_options)) if s.provider_options else name]

    def _options_of_runs(self) -> tuple[Any, ...]:
        if not self._settings.run_config:
            return ()
        options = self._module.RunOptions()
        for key, value in self._settings.run_config.items():
            options.add_run_config_entry(key, value)
        return (options,)

    # -- requests -----------------------------------------------------------------------------

    def _calls(self) -> list[Callable[[], object]]:
        """What sends a request, for each data set; of one thread."""
        return [self._call(held) for held in self._sets]

    def _call(self, held: DataSet) -> Callable[[], object]:
        session, options, feeds = self.session, self._run_options, held.feeds
        if not self._settings.binding:
            return lambda: session.run(None, feeds, *options)
        device, number = "cpu", 0
        if self._settings.provider == "cuda":
            device, number = "cuda", int(self._settings.provider_options.get("device_id", "0"))
        binding = session.io_binding()
        for name, array in feeds.items():
            value = self._module.OrtValue.ortvalue_from_numpy(array, device, number)
            binding.bind_ortvalue_input(name, value)
        for node in session.get_outputs():
            binding.bind_output(node.name, device, number)

        def request() -> None:
            session.run_with_iobinding(binding, *options)
            binding.synchronize_outputs()

        return request


class _Requests:
    """Threads that send requests until time or tickets are over."""

    def __init__(
        self,
        calls: list[list[Callable[[], object]]],
        seconds: float,
        times: int,
        progress: Progress | None,
    ) -> None:
        self._calls, self._seconds, self._times = calls, seconds, times
        self._progress = progress
        self._tickets: Iterator[int] = itertools.count()
        self._begin = 0
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._latencies: list[int] = []

    def run(self, engine: str) -> Round:
        """All of them; raises what one of them raised."""
        cpu = time.process_time()
        self._begin = time.perf_counter_ns()
        try:
            if len(self._calls) == 1:
                with _errors_of(engine):
                    self._send(self._calls[0], self._progress)
            else:
                self._send_from_threads(engine)
        finally:
            self._is_over.set()
        wall = time.perf_counter_ns() - self._begin
        return Round([ns / 1e9 for ns in self._latencies], wall / 1e9, time.process_time() - cpu)

    def _send_from_threads(self, engine: str) -> None:
        threads = [
            threading.Thread(target=self._guarded, args=(calls,), daemon=True)
            for calls in self._calls
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(_REPORT_NS / 1e9 / len(threads))
                if self._progress is not None:
                    self._tell(self._progress)
        finally:
            self._is_over.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self._failure is not None:
            with _errors_of(engine):
                raise self._failure

    def _guarded(self, calls: list[Callable[[], object]]) -> None:
        try:
            self._send(calls, None)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._failure = self._failure or error
            self._is_over.set()

    def _send(self, calls: list[Callable[[], object]], progress: Progress | None) -> None:
        clock, latencies, times, count = time.perf_counter_ns, self._latencies, self._times, 0
        end = self._begin + int(self._seconds * 1e9)
        told = self._begin
        while not self._is_over.is_set():
            number = next(self._tickets)
            if times and number >= times:
                return
            call = calls[number % len(calls)]
            begin = clock()
            if not times and count and begin >= end:
                return
            call()
            after = clock()
            latencies.append(after - begin)
            count += 1
            if progress is not None and after - told >= _REPORT_NS:
                told = after
                self._tell(progress)

    def _tell(self, progress: Progress) -> None:
        done = len(self._latencies)
        passed = (time.perf_counter_ns() - self._begin) / 1e9
        progress(min(1.0, done / self._times if self._times else passed / self._seconds), done)


class _errors_of:  # noqa: N801 - used as a function
    """What another engine raises becomes an error of ours, with its name."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, (SardonyxError, OSError)):
            text = " ".join(str(error).split())
            what = f"{type(error).__name__}: {text}"
            raise errors.Fail(message(self._engine, what)) from error
