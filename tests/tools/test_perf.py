"""Measuring: requests, rounds, statistics, files of inputs, processes."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from sardonyx.base import errors
from sardonyx.tools import perf
from sardonyx.tools.perf.bench import Bench, Round
from sardonyx.tools.perf.data import difference
from sardonyx.tools.perf.process import Process
from sardonyx.tools.perf.settings import PerfSettings
from tests.support.session import model_of
from tests.tools.engines import fake

TEXT = "double (float[N] x) => (float[N] y) {y = Add (x, x)}"


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "double.onnx"
    onnx.save(model_of(TEXT), path)
    return str(path)


def test_times(model: str) -> None:
    told: list[tuple[float, int]] = []
    found = perf.measure(model, times=7, free_dims={"N": 5}, progress=lambda *a: told.append(a))
    assert found.requests == 7
    assert found.inputs == {"x": "float32[5]"}
    assert found.data_sets == ["made up"]
    assert 0 < min(found.latencies_s) <= found.first_s
    assert sum(found.latencies_s) <= found.wall_s
    assert found.peak_memory_bytes > 1 << 20
    lines = found.lines()
    assert lines[3] == "Total inference requests: 7"
    assert lines[6].startswith("Number of inferences per second: ")


def test_seconds() -> None:
    told: list[tuple[float, int]] = []
    engine = fake(seconds=0.03)
    bench = _bench(engine)
    found = bench.round(seconds=0.3, progress=lambda part, done: told.append((part, done)))
    assert 0.3 <= found.wall_s < 2
    assert 1 <= len(found.latencies_s) <= 10
    assert min(found.latencies_s) >= 0.03
    assert 0 < len(told) <= 5
    assert told == sorted(told)


def _bench(engine: Any, **settings: Any) -> Bench:
    sys.modules["fake_engine"] = engine
    try:
        bench = Bench("nowhere.onnx", PerfSettings(engine="fake_engine", **settings))
    finally:
        del sys.modules["fake_engine"]
    bench.warm_up()
    return bench


def test_concurrency() -> None:
    engine = fake(seconds=0.02)
    found = _bench(engine, concurrency=4).round(times=12)
    assert engine.most == 4
    assert len(found.latencies_s) == 12
    assert found.wall_s < sum(found.latencies_s)


@pytest.mark.parametrize("threads", [1, 3])
def test_failing_requests(threads: int) -> None:
    with pytest.raises(errors.Fail, match=r"\[fake_engine\] RuntimeError: not today"):
        _bench(fake(fail_at=5), concurrency=threads).round(times=100)


def test_warm_up() -> None:
    engine = fake()
    _bench(engine, warmup=6)
    assert engine.runs == 6


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"graph_optimization_level": 99, "execution_mode": 0, "enable_cpu_mem_arena": True}),
    ({"level": 1}, {"graph_optimization_level": 1}),
    ({"parallel": True, "inter_threads": 3}, {"execution_mode": 1, "inter_op_num_threads": 3}),
    ({"intra_threads": 2}, {"intra_op_num_threads": 2}),
    ({"arena": False, "pattern": False},
     {"enable_cpu_mem_arena": False, "enable_mem_pattern": False}),
    ({"config": {"a": "b"}}, {"config": {"a": "b"}}),
    ({"optimized_model": "o.onnx"}, {"optimized_model_filepath": "o.onnx"}),
    ({"verbose": True}, {"log_severity_level": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), OPTIONS, ids=lambda x: str(x)[:40])
def test_options(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    engine = fake()
    _bench(engine, **settings)
    _, options, providers = engine.made[0]
    assert {name: getattr(options, name) for name in expected} == expected
    assert providers == ["CPUExecutionProvider"]


def test_provider_that_is_not_there() -> None:
    with pytest.raises(errors.EPFail, match="CUDAExecutionProvider is not available"):
        _bench(fake(), provider="cuda")


def test_our_own_session_says_why_a_provider_is_not_there(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sardonyx.api.providers.cuda_is_missing", lambda number=0: "No driver")
    with pytest.raises(errors.EPFail, match="CUDAExecutionProvider' is not.* No driver"):
        perf.measure(model, times=1, provider="gpu")


def test_binding_on_a_device() -> None:
    engine = fake(there=("CUDA", "CPU"))
    bound: list[Any] = []

    class Binding:
        def bind_ortvalue_input(self, name: str, value: Any) -> None:
            bound.append((name, value))

        def bind_output(self, *arguments: Any) -> None:
            bound.append(arguments)

        def synchronize_outputs(self) -> None:
            bound.append("waited")

    engine.OrtValue.ortvalue_from_numpy = lambda array, *device: device
    engine.InferenceSession.io_binding = lambda session: Binding()
    engine.InferenceSession.run_with_iobinding = lambda session, binding: None
    _bench(engine, provider="cuda", provider_options={"device_id": "1"}, binding=True)
    assert bound == [("x", ("cuda", 1)), ("y", "cuda", 1), "waited"]


def test_made_up_inputs_that_fail(model: str, tmp_path: Path) -> None:
    text = r"made up: .*not today.* Nobody gave N \(1\). Try --dim N=N"
    with pytest.raises(errors.Fail, match=text):
        _bench(fake(fail_at=1))
    _data_set(tmp_path, 0, np.ones((2, 2)), [1])
    with pytest.raises(errors.InvalidArgument, match=r"^(?!.*made up)"):
        perf.measure(model, times=1)


def test_provider_options() -> None:
    engine = fake(there=("CUDA", "CPU"))
    _bench(engine, provider="cuda", provider_options={"use_tf32": "0"})
    assert engine.made[0][2] == [("CUDAExecutionProvider", {"use_tf32": "0"})]


@pytest.mark.parametrize(
    ("name", "value"),
    [("times", -1), ("seconds", 0), ("warmup", 0), ("concurrency", 0), ("level", 4),
     ("provider", "tpu"), ("intra_threads", -1), ("tme", 1)],
)  # fmt: skip
def test_bad_settings(name: str, value: Any, model: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=name):
        perf.measure(model, **{name: value})


def test_percentiles() -> None:
    latencies = [float(k) for k in reversed(range(1000))]
    found = perf.Measurement("m", PerfSettings(), latencies_s=latencies, wall_s=10.0, cpu_s=5.0)
    assert found.percentiles() == {
        "min": 0, "p50": 500, "p90": 900, "p95": 950, "p99": 990, "p99.9": 999, "max": 999,
    }  # fmt: skip
    assert found.per_second == 100
    assert math.isclose(found.mean_s, 499.5)
    text = found.statistics_lines()
    assert "Runs:1000" in text
    assert "P999 Latency: 999 s" in text


def test_csv_is_appended_and_json_replaced(tmp_path: Path) -> None:
    found = perf.Measurement("a/m.onnx", PerfSettings(), latencies_s=[0.5, 0.25], wall_s=1.0)
    found.peak_memory_bytes = 7
    for _ in range(2):
        perf.write_result(found, str(tmp_path / "r.csv"))
        perf.write_result(found, str(tmp_path / "r.json"))
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert lines == ["m.onnx,0.5,7,0,0", "m.onnx,0.25,7,0,1"] * 2
    held = json.loads((tmp_path / "r.json").read_text())
    assert held["latencies_s"] == [0.5, 0.25]
    assert PerfSettings.of(held["settings"]) == found.settings
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.csv", "r.json"]


# -- files of inputs ----------------------------------------------------------------------------


def _data_set(folder: Path, number: int, x: Any, y: Any, names: bool = True) -> Path:
    path = folder / f"test_data_set_{number}"
    path.mkdir()
    for side, name, array in (("input", "x", x), ("output", "y", y)):
        proto = numpy_helper.from_array(np.asarray(array, np.float32), name if names else "")
        (path / f"{side}_0.pb").write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("names", [True, False])
def test_data_sets(names: bool, model: str, tmp_path: Path) -> None:
    _data_set(tmp_path, 10, [1, 2], [2, 4], names)
    _data_set(tmp_path, 2, [3], [6.5], names)
    found = perf.measure(model, times=2)
    assert found.data_sets == ["test_data_set_2", "test_data_set_10"]
    assert found.checked == 2
    assert found.mismatches == [
        "test_data_set_2, output y: 1 of 1 elements are off, by up to 0.5"
    ]  # fmt: skip
    assert perf.measure(model, times=1, generate=True).data_sets == ["made up"]
    assert not perf.measure(model, times=1, tolerance=0.1).mismatches


def test_other_folder_and_arrays(model: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _data_set(other, 0, [1], [2])
    assert perf.measure(model, times=1, data=str(other)).data_sets == ["test_data_set_0"]
    np.savez(tmp_path / "x.npz", x=np.ones(4, np.float32))
    found = perf.measure(model, times=1, inputs=str(tmp_path / "x.npz"))
    assert found.inputs == {"x": "float32[4]"}


def test_bad_files(model: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"data": str(tmp_path / "empty")}, errors.NoSuchFile, "no folder test_data_set_N"),
        ({"inputs": "missing.npz"}, errors.NoSuchFile, "missing.npz"),
        ({"inputs": model}, errors.InvalidArgument, "no .npz file"),
        ({"free_dims": {"M": 3}}, errors.InvalidArgument, "No input has a dimension 'M'"),
        ({"free_denotations": {"B": 3}}, errors.InvalidArgument, "denotes 'B'"),
    ]
    for settings, kind, text in cases:
        with pytest.raises(kind, match=text):
            perf.measure(model, times=1, **settings)
    path = _data_set(tmp_path, 0, [1], [2])
    (path / "input_0.pb").write_bytes(b"\xff\xff")
    with pytest.raises(errors.InvalidArgument, match="input_0.pb"):
        perf.measure(model, times=1)
    (path / "input_0.pb").unlink()
    with pytest.raises(errors.InvalidArgument, match="There is nothing for x"):
        perf.measure(model, times=1)
    with pytest.raises(errors.NoSuchFile, match="nowhere"):
        perf.measure("nowhere.onnx")


def test_denotations(tmp_path: Path) -> None:
    made = model_of(TEXT)
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    path = tmp_path / "m.onnx"
    onnx.save(made, path)
    found = perf.measure(path, times=1, free_denotations={"DATA_BATCH": 6})
    assert found.inputs == {"x": "float32[6]"}


DIFFERENCES: list[tuple[Any, Any, str]] = [
    (np.ones(2, np.float32), np.ones(2, np.float32), ""),
    (np.ones(2, np.float32), np.ones((2, 1), np.float32), "shape"),
    (np.ones(2, np.float64), np.ones(2, np.float32), "type"),
    (np.array([1, np.nan], np.float32), np.array([1, np.nan], np.float32), ""),
    (np.array([1, np.nan], np.float32), np.array([1, 2], np.float32), "1 of 2"),
    (np.array([1, np.inf], np.float32), np.array([1, 2], np.float32), "1 of 2"),
    (np.array([1.0005, 1000], np.float32), np.array([1, 1000], np.float32), ""),
    (np.array([1.1, 1000], np.float32), np.array([1, 1000], np.float32), "1 of 2"),
    (np.array([1.005], np.float16), np.array([1], np.float16), ""),
    (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
    (np.array(["a"], object), np.array(["a"], object), ""),
]


@pytest.mark.parametrize(("got", "want", "text"), DIFFERENCES)
def test_difference(got: Any, want: Any, text: str) -> None:
    found = difference(got, want, 1e-3)
    assert text in found
    assert bool(found) == bool(text)


# -- processes ----------------------------------------------------------------------------------


def test_two_engines_in_turns(model: str) -> None:
    seen: list[int] = []
    found = perf.measure_against(
        model, "sardonyx", rounds=3, times=30, seen=lambda number, *_: seen.append(number)
    )
    assert seen == [0, 1, 2]
    assert len(found.ratios) == 3
    assert found.ours.requests == found.theirs.requests == 30
    assert 0.01 < found.ratio < 100
    assert found.ours.peak_memory_bytes > 1 << 20
    assert found.csv().count("double.onnx@sardonyx") == 60
    assert found.to_json()["ratios"] == found.ratios


@pytest.mark.parametrize(("concurrency", "ratio"), [(1, 3.0), (2, 5.0)])
def test_turns(concurrency: int, ratio: float, model: str, monkeypatch: Any) -> None:
    turns: list[tuple[str, float]] = []

    class Noted:
        """Requests take 1 s in ours, 3 s in the other one, which throttles besides."""

        load_s = 0.5

        def __init__(self, model: str, settings: PerfSettings) -> None:
            self._settings = settings

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def warm_up(self) -> dict[str, Any]:
            return {"first_s": 2.0}

        def round(self, *, seconds: float, times: int, progress: Any = None) -> Round:
            engine = self._settings.engine
            turns.append((engine, seconds))
            if progress is not None:
                progress(0.5, 1)
            latency, wall = (1.0, 2.0) if engine == "sardonyx" else (3.0, 10.0)
            return Round([latency, latency], wall, 0.1)

        def finish(self) -> dict[str, Any]:
            return {"peak_memory_bytes": 5}

    monkeypatch.setattr("sardonyx.tools.perf.measuring.Process", Noted)
    told: list[tuple[float, int]] = []
    found = perf.measure_against(
        model, "other", rounds=3, seconds=6, concurrency=concurrency,
        progress=lambda *done: told.append(done),
    )  # fmt: skip
    names = [name for name, _ in turns]
    assert names[:2] == ["sardonyx", "other"]  # these do not count
    assert names[2:] == ["sardonyx", "other", "other", "sardonyx", "sardonyx", "other"]
    assert {seconds for _, seconds in turns} == {2.0}
    assert found.ratios == [ratio] * 3
    assert found.ours.latencies_s == [1.0] * 6
    assert found.theirs.wall_s == 30.0
    assert found.theirs.settings.engine == "other"
    assert told == [((2 * k + 1) / 12, 2 * k + 1) for k in range(6)]


def test_fresh_process(model: str) -> None:
    found = perf.measure(model, fresh_process=True, times=5, concurrency=2)
    assert found.requests == 5
    assert found.inputs == {"x": "float32[1]"}
    with pytest.raises(errors.InvalidArgument, match="No input has a dimension 'M'"):
        perf.measure(model, fresh_process=True, free_dims={"M": 3})
    with pytest.raises(errors.NotFound, match="no module 'nonsense' here.*InferenceSession"):
        perf.measure_against(model, "nonsense")
    with pytest.raises(errors.InvalidArgument, match="rounds"):
        perf.measure_against(model, "sardonyx", rounds=0)


def test_a_process_that_ends(model: str) -> None:
    with Process(model, PerfSettings()) as process:
        process._child.kill()
        with pytest.raises(errors.EngineError, match="ended by signal 9"):
            process.warm_up()


def test_settings_survive_json() -> None:
    settings = PerfSettings(times=3, config={"a": "b"}, free_dims={"N": 2})
    assert PerfSettings.of(json.loads(json.dumps(settings.to_json()))) == settings
    assert dataclasses.replace(settings, times=4) != settings
