"""The search, with made-up measurements: what it tries, what wins, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.optimizers import KEY as DISABLED
from sardonyx.api.providers import CPU
from sardonyx.api.settings import Settings
from sardonyx.base.errors import Fail, InvalidArgument
from sardonyx.tools.tune import TuneOptions
from sardonyx.tools.tune.inputs import Facts
from sardonyx.tools.tune.journal import Journal
from sardonyx.tools.tune.outcome import DEFAULT, LAYOUTS, Outcome, Report, name_of
from sardonyx.tools.tune.plot import drawing
from sardonyx.tools.tune.process import TrialFailed
from sardonyx.tools.tune.search import OutOfTime
from sardonyx.tools.tune.statistics import interval, median, percentile
from sardonyx.tools.tune.tuner import search
from sardonyx.tools.tune.worker import largest_error

#: Cost of settings, in ms; the latency is the same unless a pair gives it beside.
Cost = Callable[[Settings], Any]


class FakeBench:
    """Costs that a function says; ratios to the defaults spread by 1 % around them."""

    def __init__(self, cost: Cost, options: TuneOptions, final: Cost | None = None) -> None:
        self._cost, self._final, self._options = cost, final or cost, options
        self.tried: list[str] = []
        self.finals: list[str] = []
        self.kernels: tuple[Mapping[str, Any], ...] = ()

    def trial(self, settings: Settings, best: Outcome) -> Outcome:
        self.tried.append(name_of(settings))
        return self._outcome(settings, self._cost)

    def tuned_kernels(self, settings: Settings) -> tuple[Mapping[str, Any], ...]:
        self.tried.append("tuning")
        return self.kernels

    def final(self, settings: Settings) -> Outcome:
        self.finals.append(name_of(settings))
        return self._outcome(settings, self._final)

    def _outcome(self, settings: Settings, function: Cost) -> Outcome:
        own, base = function(settings), function(DEFAULT)
        if isinstance(own, str):
            return Outcome(settings, failure=own)
        cost, latency = own if isinstance(own, tuple) else (own, own)
        ratio = cost / (base[0] if isinstance(base, tuple) else base)
        bound = self._options.max_latency_ms
        spread = (0.99, 1.0, 1.01) if settings.key != DEFAULT.key else (1.0,)
        return Outcome(
            settings, tuple(ratio * x for x in spread), (latency / 1000,), 1000 / cost,
            latency=latency / 1000, is_slow=bound is not None and latency > bound,
        )  # fmt: skip


def _threads(settings: Settings, processors: int) -> int:
    return settings.session_options.get("intra_op_num_threads", processors)


def _callers(settings: Settings) -> tuple[float, float]:
    """Eight processors; threads of one caller share badly, callers share well."""
    callers, threads = settings.concurrency, _threads(settings, 8)
    latency = 8 / threads + 0.5 * threads + max(0, callers * threads - 8)
    return latency / callers, latency


def _batched(settings: Settings) -> tuple[float, float]:
    size = settings.batch_size
    latency = 4 + 2 * size + (5 * (size - 12) if size > 12 else 0)
    return latency / size, latency


def _has(settings: Settings, key: str) -> bool:
    return settings.extra_session_config.get(key) == "1"


PLAIN = Facts(False, False, False)
#: What it shows; cost; options; facts; processors; what wins.
SEARCHES: list[tuple[str, Cost, TuneOptions, Facts, int, str]] = [
    ("nothing helps", lambda s: 10, TuneOptions(), Facts(), 4, "default"),
    ("a valley of threads", lambda s: 10 + abs(_threads(s, 16) - 6), TuneOptions(), PLAIN, 16,
     "threads=6"),
    ("one thread", lambda s: _threads(s, 4), TuneOptions(), PLAIN, 4, "threads=1"),
    ("threads that were given", lambda s: abs(_threads(s, 8) - 5) + 1,
     TuneOptions(threads=(2, 4)), PLAIN, 8, "threads=4"),
    ("parallel branches, three of them",
     lambda s: 10 if not s.session_options.get("execution_mode")
     else 3 + abs(s.session_options.get("inter_op_num_threads", 8) - 3),
     TuneOptions(), Facts(), 8, "parallel branches=3"),
    ("no parallel branches without branches",
     lambda s: 1 if s.session_options.get("execution_mode") else 10, TuneOptions(), PLAIN, 8,
     "default"),
    ("direct convolutions", lambda s: 7 if _has(s, "session.disable_winograd") else 10,
     TuneOptions(), Facts(), 2, "no winograd"),
    ("layouts of the file",
     lambda s: 7 if s.extra_session_config.get(DISABLED) == LAYOUTS else 10, TuneOptions(),
     Facts(), 2, "layouts of the file"),
    ("precision is not lowered unasked",
     lambda s: 1 if _has(s, "session.allow_bfloat16_products") else 10, TuneOptions(), Facts(), 2,
     "default"),
    ("precision within a tolerance",
     lambda s: 1 if _has(s, "session.allow_bfloat16_products") else 10,
     TuneOptions(tolerance=0.01), Facts(), 2, "bfloat16"),
    ("what fails does not win",
     lambda s: "its error is 0.2" if _has(s, "session.allow_bfloat16_products") else 10,
     TuneOptions(tolerance=0.01), Facts(), 2, "default"),
    ("several at once",
     lambda s: (10 - 3 * s.io_bind) / (2 if _threads(s, 2) == 1 else 1), TuneOptions(), PLAIN, 2,
     "threads=1 binding"),
    ("no optimisation", lambda s: 5 if "graph_optimization_level" in s.session_options else 10,
     TuneOptions(), PLAIN, 2, "level=0"),
    ("skipped", lambda s: 5 if s.io_bind else 10, TuneOptions(skip=frozenset({"binding"})), PLAIN,
     2, "default"),
    ("callers with a thread each", _callers, TuneOptions(throughput=True, max_concurrency=8),
     PLAIN, 8, "threads=1 concurrency=8"),
    ("batches below a bound", _batched, TuneOptions(throughput=True, max_latency_ms=25),
     Facts(False, False, False, ("x",)), 1, "batch=10"),
    ("batches without one", _batched, TuneOptions(throughput=True),
     Facts(False, False, False, ("x",)), 1, "batch=12"),
    ("no batches of what has none", _batched, TuneOptions(throughput=True), PLAIN, 1, "default"),
    ("at most so many", _batched, TuneOptions(throughput=True, max_batch=6),
     Facts(False, False, False, ("x",)), 1, "batch=6"),
    ("defaults above the bound lose to what is slower but below it",
     lambda s: (20, 5) if s.io_bind else (10, 10),
     TuneOptions(throughput=True, max_latency_ms=6), PLAIN, 1, "binding"),
]  # fmt: skip


def _run(bench: FakeBench, options: TuneOptions, path: Path, **others: Any) -> Report:
    known: dict[str, Any] = {"facts": PLAIN, "processors": 2, "providers": (CPU,), **others}
    journal = Journal(path / "journal", {"a": 1}, bench, options.resume)
    return search(bench, journal, options, known["facts"], known["providers"], known["processors"])


@pytest.mark.parametrize(
    ("cost", "options", "facts", "processors", "expected"),
    [s[1:] for s in SEARCHES], ids=[s[0] for s in SEARCHES],
)  # fmt: skip
def test_search(
    cost: Cost, options: TuneOptions, facts: Facts, processors: int, expected: str, tmp_path: Path
) -> None:
    bench = FakeBench(cost, options)
    report = _run(bench, options, tmp_path, facts=facts, processors=processors)
    assert report.best.name == expected
    assert len(bench.tried) == len(set(bench.tried)), "nothing is measured twice"


def test_threads_are_found_in_few_trials(tmp_path: Path) -> None:
    skip = frozenset({"blocks", "mode", "kernels", "level", "binding"})
    options = TuneOptions(skip=skip)
    bench = FakeBench(lambda s: 100 + abs(_threads(s, 64) - 37), options)
    report = _run(bench, options, tmp_path, processors=64)
    assert report.best.name in ("threads=37", "threads=38", "threads=36")
    assert len(bench.tried) <= 14


def _on_gpu(settings: Settings) -> float:
    if settings.execution_provider != CUDA:
        return 10
    return (8 if settings.provider_options == {"use_tf32": "0"} else 4) - settings.io_bind


#: Providers that are there, cost, tolerance, what wins.
PROVIDERS: list[tuple[tuple[str, ...], Cost, float, str]] = [
    ((CUDA, CPU), _on_gpu, 0.0, "cuda binding"),
    ((CUDA, CPU), _on_gpu, 0.01, "cuda tf32 binding"),
    ((CPU,), _on_gpu, 0.01, "default"),
    ((CUDA,), _on_gpu, 0.0, "cuda binding"),
    ((CUDA, CPU), lambda s: 30 - _on_gpu(s), 0.01, "default"),
    ((CUDA, CPU), lambda s: "no kernels" if s.execution_provider == CUDA else 10, 0.0, "default"),
]


@pytest.mark.parametrize(("providers", "cost", "tolerance", "expected"), PROVIDERS)
def test_providers(
    providers: tuple[str, ...], cost: Cost, tolerance: float, expected: str, tmp_path: Path
) -> None:
    options = TuneOptions(tolerance=tolerance)
    bench = FakeBench(cost, options)
    report = _run(bench, options, tmp_path, providers=providers, facts=Facts())
    assert report.best.name == expected


def test_tuned_kernels_are_a_setting(tmp_path: Path) -> None:
    bench = FakeBench(lambda s: 8 if s.tuning_results else 10, TuneOptions())
    bench.kernels = ({"ep": CPU, "results": {}, "validators": {}},)
    report = _run(bench, TuneOptions(), tmp_path)
    assert report.best.settings.tuning_results == bench.kernels


def test_kernels_that_take_too_long_are_noted(tmp_path: Path) -> None:
    class Slow(FakeBench):
        def tuned_kernels(self, settings: Settings) -> tuple[Mapping[str, Any], ...]:
            raise TrialFailed("It took longer than there was time")

    report = _run(Slow(lambda s: 8 if s.io_bind else 10, TuneOptions()), TuneOptions(), tmp_path)
    assert report.notes == ["kernels were not tuned: It took longer than there was time"]
    assert report.best.name == "binding"


def test_luck_does_not_pass_the_final_comparison(tmp_path: Path) -> None:
    def lucky(settings: Settings) -> float:
        return 5 if settings.io_bind else 8 if _threads(settings, 2) == 1 else 10

    def really(settings: Settings) -> float:
        return 10 if settings.io_bind else lucky(settings)

    bench = FakeBench(lucky, TuneOptions(), really)
    report = _run(bench, TuneOptions(), tmp_path)
    assert bench.finals == ["threads=1 binding", "threads=1"]
    assert report.best.name == "threads=1"
    assert report.notes == ["threads=1 binding was not better than the defaults in the end"]
    bench = FakeBench(lucky, TuneOptions(), lambda s: 10)
    assert _run(bench, TuneOptions(), tmp_path).best.name == "default"


def test_a_failure_in_the_end_is_no_end(tmp_path: Path) -> None:
    """The next best settings are compared, as many as if nothing had failed."""

    def cost(settings: Settings) -> float:
        return (3 if settings.io_bind else 5) * _threads(settings, 4)

    def really(settings: Settings) -> Any:
        return "it died by a signal" if settings.io_bind else cost(settings)

    bench = FakeBench(cost, TuneOptions(), really)
    report = _run(bench, TuneOptions(), tmp_path, processors=4)
    assert bench.finals == ["threads=1 binding", "threads=1"]
    assert report.best.name == "threads=1" and report.final == report.best
    assert report.notes == ["threads=1 binding failed in the final comparison: it died by a signal"]
    bench = FakeBench(cost, TuneOptions(), lambda s: 1 if s == DEFAULT else "it died")
    report = _run(bench, TuneOptions(), tmp_path, processors=4)
    assert report.best.name == "default" and report.final is None
    assert len(bench.finals) == len(report.notes) > 2


def test_a_noisy_trial_is_not_gone_on_from(tmp_path: Path) -> None:
    class Noisy(FakeBench):
        def trial(self, settings: Settings, best: Outcome) -> Outcome:
            found = super().trial(settings, best)
            noisy = settings.session_options == {"intra_op_num_threads": 1}
            return replace(found, ratios=(0.5, 0.8, 1.1)) if noisy else found

    bench = Noisy(lambda s: 10, TuneOptions())
    _run(bench, TuneOptions(), tmp_path)
    assert [name for name in bench.tried if "threads" in name] == ["threads=1"]


def test_what_is_not_surely_better_loses(tmp_path: Path) -> None:
    bench = FakeBench(lambda s: 9 if s.io_bind else 10, TuneOptions(), lambda s: 9.95)
    assert _run(bench, TuneOptions(), tmp_path).best.name == "default"


class _Ends(FakeBench):
    """Ends with an exception after so many trials."""

    def __init__(self, cost: Cost, after: int, error: type[BaseException]) -> None:
        super().__init__(cost, TuneOptions())
        self._after, self._error = after, error

    def trial(self, settings: Settings, best: Outcome) -> Outcome:
        if not self._after:
            raise self._error
        self._after -= 1
        return super().trial(settings, best)


def _one_thread(settings: Settings) -> float:
    return 5 if _threads(settings, 2) == 1 else 10


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    report = _run(_Ends(_one_thread, 3, KeyboardInterrupt), TuneOptions(), tmp_path)
    assert report.is_interrupted
    assert report.best.name == "threads=1"
    with pytest.raises(KeyboardInterrupt):
        _run(_Ends(_one_thread, 0, KeyboardInterrupt), TuneOptions(), tmp_path)


def test_the_end_of_time_is_noted(tmp_path: Path) -> None:
    report = _run(_Ends(_one_thread, 2, OutOfTime), TuneOptions(), tmp_path)
    assert report.best.name == "threads=1"
    assert report.notes == ["there was no time for: level, binding, kernels"]


def test_defaults_that_fail_end_it(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="default settings"):
        _run(FakeBench(lambda s: "no such operator", TuneOptions()), TuneOptions(), tmp_path)
    assert not list(tmp_path.iterdir()), "a search that found nothing leaves nothing"


def test_resumed(tmp_path: Path) -> None:
    bench = _Ends(_one_thread, 4, KeyboardInterrupt)
    bench.kernels = ({"ep": CPU, "results": {}, "validators": {}},)
    _run(bench, TuneOptions(), tmp_path)
    with open(tmp_path / "journal", "a") as file:
        file.write('{"torn')
    again = FakeBench(_one_thread, TuneOptions())
    report = _run(again, TuneOptions(resume=True), tmp_path)
    tried = ["default", "threads=1", "threads=1 level=0", "threads=1 binding"]
    assert bench.tried == [*tried, "tuning"]
    assert again.tried == ["threads=1 kernels"]
    assert [o.name for o in report.outcomes] == [*tried, *again.tried]
    assert report.best.name == "threads=1"
    more = FakeBench(_one_thread, TuneOptions())
    _run(more, TuneOptions(resume=True), tmp_path)
    assert more.tried == []
    with pytest.raises(InvalidArgument, match="another search"):
        Journal(tmp_path / "journal", {"a": 2}, more, True)
    header = (tmp_path / "journal").read_bytes().split(b"\n")[0]
    for content, said in (
        (b"no journal\n", "another search"), (b"\xff\n", "another search"),
        (header + b"\n{}\n", "damaged"), (header + b"\n3\n", "damaged"),
        (header + b'\n{"kernels": []}\n', "damaged"),
    ):  # fmt: skip
        (tmp_path / "journal").write_bytes(content)
        with pytest.raises(InvalidArgument, match=said):
            _run(more, TuneOptions(resume=True), tmp_path)


#: Numbers, what holds their median: all up to seven, all but the ends up to ten.
INTERVALS: list[tuple[list[float], tuple[float, float]]] = [
    ([3], (3, 3)), ([1, 2, 3], (1, 3)), ([5, 1, 2, 3, 4, 9, 7], (1, 9)),
    ([1, 2, 3, 4, 5, 6, 7, 8], (2, 7)), (list(range(21)), (6, 14)),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "expected"), INTERVALS)
def test_interval(numbers: list[float], expected: tuple[float, float]) -> None:
    assert interval(numbers) == expected


def test_percentile_and_median() -> None:
    assert [percentile(range(1, 11), share) for share in (0.5, 0.9, 0.95, 0.01)] == [5, 9, 10, 1]
    assert (median([3, 1, 2]), median([4, 1, 2, 3])) == (2, 2.5)


ERRORS: list[tuple[Any, Any, float]] = [
    ([np.float32([1, -4])], [np.float32([1, -4])], 0.0),
    ([np.float32([1.5, -4])], [np.float32([1, -4])], 0.125),
    ([np.float32([1, np.nan])], [np.float32([1, np.nan])], 0.0),
    ([np.float32([1, np.nan])], [np.float32([1, 2])], float("inf")),
    ([np.float32([1, np.inf])], [np.float32([1, np.inf])], 0.0),
    ([np.float32([1])], [np.float32([1, 2])], float("inf")),
    ([np.array(["a"], object)], [np.array(["b"], object)], float("inf")),
    ([np.array([True])], [np.array([True])], 0.0),
    ([[{"a": 1.0}]], [[{"a": 2.0}]], 0.5),
    ([np.complex64([3 + 4j])], [np.complex64([3 + 3j])], 1 / abs(3 + 3j)),
    ([np.float32([1])], [np.float32([0])], float("inf")),
]  # fmt: skip


@pytest.mark.parametrize(("found", "wanted", "expected"), ERRORS)
def test_largest_error(found: Any, wanted: Any, expected: float) -> None:
    assert largest_error(found, wanted) == pytest.approx(expected)


def test_drawing() -> None:
    outcomes = [
        Outcome(DEFAULT, (1.0,)),
        Outcome(Settings(io_bind=True), (0.5, 0.6, 0.7)),
        Outcome(Settings(concurrency=2), failure="it has <no> memory"),
    ]
    text = drawing(outcomes, outcomes[1], "a & b")
    assert text.startswith("<svg") and text.endswith("</svg>\n")
    assert 'class="best"' in text and "0.600" in text
    assert "a &amp; b" in text and "&lt;no&gt;" in text


def test_outcomes_are_what_was_written() -> None:
    kernels = {"ep": CPU, "results": {}, "validators": {}}
    config = {"session.disable_winograd": "1"}
    settings = Settings(CUDA, {"use_tf32": "1"}, {"execution_mode": 1}, config, (kernels,), True)
    outcome = Outcome(settings, (0.5, 0.7), (0.1,), 3.0, 1.0, 0.01, "", 0.1, True)
    assert Outcome.from_json(outcome.to_json()) == outcome
    with pytest.raises(InvalidArgument, match="'nonsense' may not be set"):
        Settings.from_json({"session_options": {}, "nonsense": 1})
