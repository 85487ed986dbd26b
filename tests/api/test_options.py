"""Options act, are noted in the log, or are refused: none is passed over in silence."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api import thread_pool
from sardonyx.api.inspection import inspect
from sardonyx.base import errors, notes
from tests.api import models

A = np.arange(6, dtype=np.float32).reshape(2, 3)
FEEDS = {"a": A, "b": A + 1}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: Any) -> None:
    monkeypatch.setattr(notes, "_noted", set())


def make(**values: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return ort.InferenceSession(models.add(), options)


HINTS = [
    ("enable_mem_pattern", False),
    ("enable_mem_reuse", False),
    ("execution_order", ort.ExecutionOrder.PRIORITY_BASED),
    ("log_verbosity_level", 1),
]


@pytest.mark.parametrize(("name", "value"), HINTS)
def test_a_hint_is_noted_once(name: str, value: Any, caplog: Any) -> None:
    options = ort.SessionOptions()
    with caplog.at_level(logging.WARNING, "sardonyx"):
        setattr(options, name, getattr(options, name))
        assert not caplog.records
        setattr(options, name, value)
        setattr(ort.SessionOptions(), name, value)
    assert [r.getMessage().count("no effect") for r in caplog.records] == [1]
    assert getattr(options, name) == value


WRONG = [
    ("intra_op_num_threads", -1),
    ("inter_op_num_threads", -1),
    ("intra_op_num_threads", "2"),
    ("intra_op_num_threads", 2.0),
    ("graph_optimization_level", 7),
    ("optimized_model_filepath", 1),
    ("log_severity_level", 9),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_values(name: str, value: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=name):
        setattr(ort.SessionOptions(), name, value)


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions share threads all, or none of them: what onnxruntime refuses is refused."""
    monkeypatch.setattr(thread_pool, "_shared_sizes", None)
    assert inspect(make(intra_op_num_threads=1)).threads == 1
    assert inspect(make(intra_op_num_threads=3)).threads == 3
    with pytest.raises(errors.Fail, match="there is no global thread pool"):
        make(use_per_session_threads=False)
    with pytest.raises(errors.InvalidArgument):
        ort.set_global_thread_pool_sizes(-1)
    ort.set_global_thread_pool_sizes(2, 0)
    shared = make(use_per_session_threads=False, intra_op_num_threads=1)
    assert inspect(shared).threads == 2
    for given in ({}, {"use_per_session_threads": True}, {"intra_op_num_threads": 2}):
        with pytest.raises(errors.Fail, match="must be False when using a global thread pool"):
            make(**given)
    with pytest.raises(errors.Fail, match="have already been created, cannot replace them"):
        ort.set_global_thread_pool_sizes(3, 0)
    assert inspect(make(use_per_session_threads=False)).threads == 2
    assert inspect(ort.load(two_steps())).threads == 2


def two_steps() -> bytes:
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Identity", ["m"], ["i"]),
        helper.make_node("MatMul", ["i", "w"], ["y"]),
    ]
    weight = np.eye(4, dtype=np.float32)
    return models.model(nodes, {"x": (1, ["N", 4])}, {"y": (1, ["N", 4])}, {"w": weight})


def test_memory_is_given_back() -> None:
    x = {"x": np.ones((64, 4), np.float32)}
    held = ort.InferenceSession(two_steps())
    held.run(None, x)
    assert held.memory()["intermediate_bytes"] > 0
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    held.run(None, x, options)
    assert held.memory()["intermediate_bytes"] == 0
    settings = ort.SessionOptions()
    settings.enable_cpu_mem_arena = False
    spare = ort.InferenceSession(two_steps(), settings)
    spare.run(None, x)
    assert spare.memory()["intermediate_bytes"] == 0
    with pytest.raises(errors.InvalidArgument, match="npu:0"):
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "npu:0")
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
    with pytest.raises(errors.InvalidArgument, match="gpu:0"):
        held.run(None, x, options)


def test_optimised_model_is_written(tmp_path: Path) -> None:
    path = tmp_path / "optimised.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    first = ort.InferenceSession(two_steps(), options)
    x = {"x": np.ones((2, 4), np.float32)}
    again = ort.InferenceSession(path)
    assert np.array_equal(first.run(None, x)[0], again.run(None, x)[0])


def test_graph_optimization_level_is_part_of_what_is_compiled() -> None:
    off = make(graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert np.array_equal(off.run(["y"], FEEDS)[0], A + A + 1)


def test_severity_and_logid(caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, "sardonyx"):
        make(log_severity_level=3, logid="quiet")
        assert not caplog.records
        make(log_severity_level=0, logid="verbose")
    assert {r.logid for r in caplog.records} == {"verbose"}


def test_sizes_of_dimensions(caplog: Any) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    options.add_free_dimension_override_by_name("M", 2)
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session = ort.InferenceSession(models.add(), options)
    assert "'M'" in caplog.text
    assert session.get_inputs()[0].shape == [2, 3]
    with pytest.raises(errors.InvalidArgument, match="Expected 2, got 1"):
        session.run(None, {"a": A[:1], "b": A[:1]})
    with pytest.raises(errors.InvalidArgument):
        options.add_free_dimension_override_by_name("N", -2)


def test_initializers_from_the_caller() -> None:
    options = ort.SessionOptions()
    bias = np.zeros(4, np.float32)
    options.add_initializer("b", ort.OrtValue.ortvalue_from_numpy(bias))
    x = np.ones((2, 3), np.float32)
    changed = ort.InferenceSession(models.scaled(), options).run(None, {"x": x})[0]
    plain = ort.InferenceSession(models.scaled())
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert np.allclose(changed, np.maximum(x @ weight, 0) * 2)
    assert not np.allclose(changed, plain.run(None, {"x": x})[0])
    options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(weight[:2])])
    with pytest.raises(errors.InvalidArgument, match="initializer w"):
        ort.InferenceSession(models.scaled(), options)


def test_cancelled_loading(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(errors.ModelLoadCanceled):
        ort.InferenceSession(two_steps(), options)
    options.set_load_cancellation_flag(False)
    ort.InferenceSession(two_steps(), options)


REFUSED = [
    ("session.load_model_format", "ORT"),
    ("ep.context_enable", "1"),
    ("session.collect_node_memory_stats_to_file", "stats.csv"),
]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused_entries(key: str, value: str) -> None:
    options = ort.SessionOptions()
    with pytest.raises(errors.NotImplemented, match=key):
        options.add_session_config_entry(key, value)
    with pytest.raises(RuntimeError, match="does not have"):
        options.get_session_config_entry(key)


def test_entries(caplog: Any) -> None:
    options = ort.SessionOptions()
    with caplog.at_level(logging.WARNING, "sardonyx"):
        options.add_session_config_entry("session.disable_prepacking", "0")
        assert not caplog.records
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.disable_prepacking", "1")
    assert len(caplog.records) == 1
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.warns(UserWarning, match=r"Did you mean 'session\.intra_op"):
        options.add_session_config_entry("session.intra_op.allow_spining", "0")
    with pytest.raises(errors.InvalidArgument):
        options.add_session_config_entry("session.intra_op.allow_spinning", 0)  # type: ignore[arg-type]  # the mistake tested
    run = ort.RunOptions()
    with pytest.warns(UserWarning, match="gpu_graph_id"):
        run.add_run_config_entry("gpu_graph_ids", "1")
    with pytest.raises(RuntimeError):
        run.get_run_config_entry("gpu_graph_id")


def test_weights_in_another_folder(tmp_path: Path) -> None:
    import onnx
    from onnx.external_data_helper import convert_model_to_external_data

    (tmp_path / "weights").mkdir()
    whole = onnx.load_from_string(models.scaled())
    convert_model_to_external_data(whole, location="w.bin", size_threshold=0)
    onnx.save(whole, tmp_path / "weights" / "m.onnx")
    (tmp_path / "weights" / "m.onnx").rename(tmp_path / "m.onnx")
    options = ort.SessionOptions()
    key = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(key, str(tmp_path / "weights"))
    x = {"x": np.ones((2, 3), np.float32)}
    want = ort.InferenceSession(models.scaled()).run(None, x)[0]
    found = ort.InferenceSession(tmp_path / "m.onnx", options).run(None, x)[0]
    assert np.array_equal(found, want)
    with pytest.raises(errors.NoSuchFile):
        ort.InferenceSession(tmp_path / "m.onnx")


@pytest.mark.parametrize("names", ["cpu:0;gpu:1", "CPU:0;CUDA:1"])
def test_arenas_are_named_as_devices_are(names: str) -> None:
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", names)
    assert options.shrinks == {"cpu:0", "gpu:1"}


PROVIDERS: list[tuple[Any, Any, str]] = [
    ("CPUExecutionProvider", None, "not a list. Expected names in a list, such as"),
    ([1], None, "no provider"),
    (["CPUExecutionProvider"], [{}, {}], "for each provider"),
    ([("CPUExecutionProvider", {})], [{}], "twice"),
    ([("CPUExecutionProvider", {"arena_extend_strategies": "x"})], None, "arena_extend_strategy"),
    ([("CPUExecutionProvider", {"arena_extend_strategy": "x"})], None, "kSameAsRequested"),
]


@pytest.mark.parametrize(("names", "options", "text"), PROVIDERS)
def test_wrong_providers(names: Any, options: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        ort.InferenceSession(models.add(), providers=names, provider_options=options)


def test_provider_options_are_read_back(caplog: Any) -> None:
    given = [("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]
    session = ort.InferenceSession(models.add(), providers=given)
    assert session.get_provider_options() == {
        "CPUExecutionProvider": {"arena_extend_strategy": "kSameAsRequested"}
    }
    assert "arena_extend_strategy" in caplog.text


@pytest.mark.usefixtures("no_gpu")
def test_no_fallback() -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(errors.EPFail, match="CUDAExecutionProvider"):
        ort.InferenceSession(models.add(), options, providers=["CUDAExecutionProvider"])
    ort.InferenceSession(models.add(), options)
    with pytest.warns(UserWarning, match="Did you mean 'CUDAExecutionProvider'"):
        ort.InferenceSession(models.add(), providers=["CudaExecutionProvider"])
    named = ort.SessionOptions()
    named.add_provider("CUDAExecutionProvider", {"device_id": "0"})
    assert named.has_providers()
    with pytest.warns(UserWarning, match="not available"):
        ort.InferenceSession(models.add(), named)


UNSUPPORTED: list[Any] = [
    lambda o: o.register_custom_ops_library("x.so"),
    lambda o: ort.InferenceSession("model.ort"),
    lambda o: ort.register_execution_provider_library("x", "y"),
]


@pytest.mark.parametrize("call", UNSUPPORTED)
def test_what_is_not_supported_says_so(call: Any) -> None:
    with pytest.raises(errors.NotImplemented):
        call(ort.SessionOptions())


def test_arguments() -> None:
    with pytest.raises(errors.InvalidArgument, match="enable_fallback"):
        ort.InferenceSession(models.add(), enable_falback=1)
    with pytest.raises(errors.InvalidArgument, match="SessionOptions"):
        ort.InferenceSession(models.add(), 1)  # type: ignore[arg-type]  # the mistake tested


def test_run_options(caplog: Any) -> None:
    options = ort.RunOptions()
    options.logid = "mine"
    assert "sessions have log ids" in caplog.text
    for name, value in (("terminate", "x"), ("log_severity_level", "x")):
        with pytest.raises(errors.InvalidArgument, match=name):
            setattr(options, name, value)
    with pytest.raises(AttributeError, match="terminate"):
        options.terminat = True


def test_options_are_copied_and_pickled() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(models.add(), options)
    options.intra_op_num_threads = 2
    assert session.get_session_options().intra_op_num_threads == 1
    again = pickle.loads(pickle.dumps(session))
    assert again.get_session_options().intra_op_num_threads == 1
    assert np.array_equal(again.run(["y"], FEEDS)[0], A + A + 1)
