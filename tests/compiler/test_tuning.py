"""Kernels computed otherwise than the cost model would: same results; measured, kept, handed on."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import knobs
from sardonyx.base.errors import Fail, InvalidArgument
from sardonyx.compiler.cached_engines import write_engine
from sardonyx.compiler.drive import build_for, units_for
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from sardonyx.cpu.threads import team_of
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.timing import KernelTimes
from sardonyx.selection.variants import CANDIDATES, DEFAULT, Variant
from sardonyx.store.tuning_choices import Everywhere, Tuned
from tests.support.inside import engine_of
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_RANDOM = np.random.default_rng(5)
_TEXT = """
convolutions (float[1, 20, 15, 17] x) => (float[1, 40] y) {
    a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = Conv <kernel_shape = [1, 1]> (b, v)
    d = Tanh (c)
    e = ReduceMean <axes = [2, 3], keepdims = 0> (d)
    y = MatMul (e, m)
}
"""
_WEIGHTS = {
    "w": _RANDOM.standard_normal((24, 20, 3, 3), np.float32) / 8,
    "v": _RANDOM.standard_normal((70, 24, 1, 1), np.float32) / 5,
    "m": _RANDOM.standard_normal((70, 40), np.float32),
}
_X = _RANDOM.standard_normal((1, 20, 15, 17), np.float32)


def _model() -> bytes:
    data: bytes = model_of(_TEXT, _WEIGHTS).SerializeToString()
    return data


def _result(variant: Variant) -> tuple[Any, list[str]]:
    options = replace(EngineOptions(), choices=Everywhere(variant))
    with units_for(None, b"", None) as units:
        built = build_for(_model(), options, CpuProvider(), {}, Budget(None), units)
        team = team_of(1, None, 0)
        engine = write_engine(built, CpuProvider(), team, {}, Budget(None))
    return engine.run([_X])[0], [k.program.name for k in built.kernels.values()]


def test_every_variant_computes_the_same() -> None:
    """Winograd's filters round otherwise; blocks and tiles change no order of sums."""
    want, _ = _result(DEFAULT)
    for variant in CANDIDATES:
        got, _ = _result(variant)
        assert_near(got, want, "float: direct sums")


@pytest.mark.parametrize(("outputs", "name"), [(0, "product"), (2, "winograd2"), (4, "winograd4")])
def test_convolutions_have_the_form_that_was_chosen(outputs: int, name: str) -> None:
    _, structures = _result(Variant(winograd=outputs))
    forms = sorted(kernel.rpartition("_")[0] for kernel in structures)
    assert name in forms
    assert sum(form.startswith("winograd") for form in forms) == bool(outputs)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """Kernels take as long as a test says, by how their names begin; a cache of its own."""
    seconds: dict[str, float] = {}

    def run(times: KernelTimes, feeds: Any) -> dict[str, float]:
        kernels = real(times, feeds)
        return {kernel: seconds.get(kernel.rpartition("_")[0], 1.0) for kernel in kernels}

    real = KernelTimes.run
    monkeypatch.setattr(KernelTimes, "run", run)
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    monkeypatch.setenv("SARDONYX_TUNE", "1")
    return seconds


def test_what_is_faster_is_kept_and_found_again(
    timed: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's sessions have it, and those of a new model with such a convolution."""
    timed.update({"winograd4": 4.0, "winograd2": 2.0, "product": 3.0})
    session = sardonyx.InferenceSession(_model())
    want = session.run(None, {"x": _X})[0]
    (entry,) = session.get_tuning_results()
    assert {"winograd": 2} in entry["results"].values()
    assert "winograd2" in session.explain(verbose=True)
    monkeypatch.delenv("SARDONYX_TUNE")
    again = sardonyx.InferenceSession(_model())
    assert again.get_tuning_results() == session.get_tuning_results()
    np.testing.assert_array_equal(again.run(None, {"x": _X})[0], want)
    other = model_of(_TEXT.replace("Tanh", "Sigmoid"), _WEIGHTS).SerializeToString()
    assert "winograd2" in sardonyx.InferenceSession(other).explain(verbose=True)


def test_what_is_not_faster_stays(timed: dict[str, float]) -> None:
    timed.update({"winograd4": 1.0, "winograd2": 0.99, "product": 0.98})
    session = sardonyx.InferenceSession(_model())
    assert session.get_tuning_results()[0]["results"] == {}


def test_results_are_handed_on(timed: dict[str, float], tmp_path: Path) -> None:
    """They survive JSON, and another cache."""
    timed.update({"winograd4": 4.0, "winograd2": 2.0, "product": 3.0})
    results = json.loads(json.dumps(sardonyx.InferenceSession(_model()).get_tuning_results()))
    with (
        knobs.override("SARDONYX_TUNE", "0"),
        knobs.override("SARDONYX_CACHE", str(tmp_path / "b")),
    ):
        session = sardonyx.InferenceSession(_model())
        assert session.get_tuning_results() == []
        session.set_tuning_results(results)
        assert session.get_tuning_results() == results
        assert "winograd2" in session.explain(verbose=True)


@pytest.mark.parametrize(
    "results",
    [
        3, [3], [{}], [{"ep": "CPUExecutionProvider", "results": 3, "validators": {}}],
        [{"ep": "CPUExecutionProvider", "results": {"a": {"rows": 7}}, "validators": {}}],
        [{"ep": "CPUExecutionProvider", "results": {"a": {"rows": True}}, "validators": {}}],
        [{"ep": "CPUExecutionProvider", "results": {"a": {"other": 0}}, "validators": {}}],
    ],
)  # fmt: skip
def test_nonsense_is_refused(results: Any) -> None:
    session = sardonyx.InferenceSession(_model())
    with pytest.raises(InvalidArgument, match="tuning"):
        session.set_tuning_results(results)


def test_results_of_another_machine_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    session = sardonyx.InferenceSession(_model())
    results = [{"ep": "CPUExecutionProvider", "results": {}, "validators": {"TARGET": "other"}}]
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session.set_tuning_results(results)
    assert "do not fit" in caplog.text
    with pytest.raises(Fail, match="do not fit"):
        session.set_tuning_results(results, error_on_invalid=True)


def test_unknown_sizes_cannot_be_measured(
    timed: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    """Unless the session's options say what they are."""
    model = model_of("g (float[n, 4] x) => (float[n, 4] y) { y = Tanh (x) }").SerializeToString()
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session = sardonyx.InferenceSession(model)
    assert "only a run knows" in caplog.text
    assert session.get_tuning_results() == []
    options = sardonyx.SessionOptions()
    options.add_free_dimension_override_by_name("n", 3)
    assert sardonyx.InferenceSession(model, options).get_tuning_results() != []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"a": {"rows": 7}}'])
def test_damaged_results_count_as_none(data: bytes, tmp_path: Path) -> None:
    from sardonyx.store.cache import Cache
    from sardonyx.store.tuning_choices import TUNED, keep, read

    cache = Cache(tmp_path, 10**6)
    tuned = Tuned({"a": Variant(rows=48)})
    keep(cache, "model", tuned, "facts")
    found = read(cache, "model")
    assert found is not None
    assert dict(found.variants) == dict(tuned.variants)
    cache.put("model", TUNED, data)
    assert read(cache, "model") is None


@pytest.mark.parametrize("threads", [1, 2])
def test_all_kernels_are_timed(threads: int, tmp_path: Path) -> None:
    """A kernel with thousands of times the work takes longer."""
    body = "a = Tanh (x) b = MatMul (a, w) y = ReduceMax <keepdims = 0> (b)"
    w = _RANDOM.standard_normal((400, 400), np.float32)
    text = f"g (float[400, 400] x) => (float y) {{ {body} }}"
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    session = sardonyx.InferenceSession(model_of(text, {"w": w}).SerializeToString(), options)
    times = KernelTimes(engine_of(session))
    # A thread may be kept waiting in any run: the least of several is what a kernel takes.
    runs = [times.run([w]) for _ in range(5)]
    found = {kernel: min(run[kernel] for run in runs) for kernel in runs[0]}
    calls = set(inspect(session).kernels)
    assert found.keys() == calls
    product = next(ticks for kernel, ticks in found.items() if kernel.startswith("product"))
    assert product == max(found.values()) > 0
