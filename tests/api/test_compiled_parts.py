"""What onnxruntime's own tests do beyond its documented face: compiled classes, texts, files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx as ort
from sardonyx.backend.backend import OnnxRuntimeBackend
from sardonyx.base.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile
from sardonyx.capi import _pybind_state as compiled
from sardonyx.capi.onnxruntime_inference_collection import check_and_normalize_provider_args
from sardonyx.datasets import get_example
from tests.api import models
from tests.support.session import model_of
from tests.support.tolerances import assert_near

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def _session(name: str = "mul_1.onnx", options: Any = None) -> ort.InferenceSession:
    return ort.InferenceSession(get_example(name), options)


def test_examples() -> None:
    np.testing.assert_array_equal(_session().run(None, {"X": X})[0], X * X)
    x = np.linspace(-4, 4, 60, dtype=np.float32).reshape(3, 4, 5)
    (found,) = _session("sigmoid.onnx").run(None, {"x": x})
    assert_near(found, 1 / (1 + np.exp(-x)), "float: one operation")
    label, probabilities = OnnxRuntimeBackend.run_model(get_example("logreg_iris.onnx"), X)
    np.testing.assert_array_equal(label, [0, 0, 0])
    assert_near([p[0] for p in probabilities], [0.9506, 0.9975, 0.9997], "float: outputs of layers")
    with pytest.raises(NoSuchFile, match=r"Did you mean 'mul_1\.onnx'"):
        get_example("mul1.onnx")


def test_a_map_for_the_only_input_of_a_backend() -> None:
    node = helper.make_node(
        "DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[2, 0]
    )
    kind = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
    y = helper.make_tensor_value_info("y", 1, [1, 2])
    graph = helper.make_graph([node], "g", [helper.make_value_info("m", kind)], [y])
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 13)]
    prepared = ort.backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    for fed in ({0: 0.5, 2: 4.0}, [{0: 0.5, 2: 4.0}], {"m": {0: 0.5, 2: 4.0}}):
        np.testing.assert_array_equal(prepared.run(fed)[0], [[4, 0.5]])
    with pytest.raises(RuntimeError, match="Unexpected key type  <class 'str'>, it cannot be"):
        prepared.run({"a": 1.0})


def test_compiled_session_and_binding() -> None:
    session = _session()
    value = ort.OrtValue.ortvalue_from_numpy(X)
    found = session._sess.run_with_ort_values({"X": value._get_c_value()}, ["Y"], ort.RunOptions())
    assert isinstance(found, compiled.OrtValueVector)
    np.testing.assert_array_equal(found[0].numpy(), X * X)

    memory = compiled.OrtDevice.default_memory()
    device = compiled.OrtDevice(compiled.OrtDevice.cpu(), memory, 0)
    value = compiled.OrtValue.ortvalue_from_numpy(X, device)
    binding = compiled.SessionIOBinding(session._sess)
    binding.bind_input("X", device, np.float32, X.shape, value.data_ptr())
    binding.bind_output("Y", device)
    session._sess.run_with_iobinding(binding, None)
    assert isinstance(binding.get_outputs(), compiled.OrtValueVector)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X * X)

    outer = session.io_binding()
    outer._iobinding.bind_input("X", X + 1)
    outer._iobinding.bind_output("Y", device)
    session.run_with_iobinding(outer)
    np.testing.assert_array_equal(outer.copy_outputs_to_cpu()[0], (X + 1) * X)
    with pytest.raises(ort.capi._pybind_state.NotImplemented):
        compiled.OrtDevice(7, memory, 0)


def test_bools_through_old_dlpack() -> None:
    plain, flags = np.array([1, 0], np.uint8), np.array([1.0], np.float32)
    capsule = ort.OrtValue.ortvalue_from_numpy(plain).to_dlpack()
    assert compiled.is_dlpack_uint8_tensor(capsule)
    assert compiled.OrtValue.from_dlpack(capsule, True).data_type() == "tensor(bool)"
    assert not compiled.is_dlpack_uint8_tensor(ort.OrtValue(flags).to_dlpack())
    with pytest.raises(InvalidArgument, match="capsule"):
        compiled.is_dlpack_uint8_tensor(plain)


def test_bytes_of_one_length_are_strings() -> None:
    model = model_of("m (string[N] x) => (string[N] y) { y = Identity(x) }")
    x = np.array([b"A\0", b"\0\0", b"bc"], np.void)
    (found,) = ort.InferenceSession(model).run(None, {"x": x})
    assert found.tolist() == ["A\0", "\0\0", "bc"]


TEXTS: list[tuple[Any, str]] = [
    (lambda: _session().set_providers(["Wrong"]), "Unknown Provider Type: Wrong"),
    (
        lambda: _session().run(None, {"Z": X}),
        r"Required inputs \(\['X'\]\) are missing from input feed \(\['Z'\]\)",
    ),
    (
        lambda: ort.SessionOptions().get_session_config_entry("k"),
        "SessionOptions does not have configuration with key: k",
    ),
    (
        lambda: _session().get_provider_graph_assignment_info(),
        "entry 'session.record_ep_graph_assignment_info' must be set to \"1\"",
    ),
]


@pytest.mark.parametrize(("call", "text"), TEXTS, ids=[text[:20] for _, text in TEXTS])
def test_texts_that_programs_look_for(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


def test_providers_in_one_form() -> None:
    def made(providers: Any, options: Any = None) -> Any:
        return check_and_normalize_provider_args(providers, options, ["a", "b"])

    assert made(None) == ([], [])
    assert made(["a", "b"]) == (["a", "b"], [{}, {}])
    assert made([("a", {1: 2}), "b"]) == (["a", "b"], [{"1": "2"}, {}])
    assert made(["a", "b"], [{1: 2}, {}]) == (["a", "b"], [{"1": "2"}, {}])
    with pytest.warns(UserWarning, match="twice"):
        assert made(["a", "a"], [{"x": 1}, {"y": 2}]) == (["a"], [{"x": "1"}])
    wrong = (3, None), ([3], None), (["a"], 3), (["a"], ["x"]), (["a", "b"], [{}])
    for providers, options in (*wrong, ([("a", {})], [{}]), ("a", None)):
        with pytest.raises(ValueError, match="providers"):
            made(providers, options)


def test_options_in_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(text: str, **given: Any) -> ort.SessionOptions:
        model = models.add()
        model = onnx.load_from_string(model) if isinstance(model, bytes) else model
        helper.set_model_props(model, {"ort_config": text})
        return ort.InferenceSession(model.SerializeToString(), **given).get_session_options()

    wanted = {"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2}}
    assert made(json.dumps(wanted)).intra_op_num_threads == 0
    assert made(json.dumps(wanted), read_config_from_model=1).inter_op_num_threads == 5
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    assert made(json.dumps(wanted)).intra_op_num_threads == 2
    wrong = ("1", '{"x": 1}', '{"intra_op_num_threads": "many"}')
    for text in ("{", "[]", "{}", "[" * 100_000, *(f'{{"session_options": {w}}}' for w in wrong)):
        with pytest.raises(InvalidArgument):
            made(text)


def test_compatibility_of_models_and_devices(tmp_path: Path) -> None:
    model = helper.make_model(helper.make_graph([], "t", [], []))
    helper.set_model_props(model, {"ep_compatibility_info.T": "v1"})
    data, path = model.SerializeToString(), tmp_path / "m.onnx"
    path.write_bytes(data)
    of_bytes = compiled.get_compatibility_info_from_model_bytes
    of_file = compiled.get_compatibility_info_from_model
    assert of_bytes(data, "T") == of_file(path, "T") == "v1"
    assert of_bytes(data, "U") is None
    for call, source in (
        (of_bytes, b"no model"),
        (of_bytes, b""),
        (of_file, "no.onnx"),
        (of_file, ""),
    ):
        with pytest.raises(RuntimeError):
            call(source, "T")
    with pytest.raises(RuntimeError, match="name"):
        of_file(path, "")

    processor = compiled.get_hardware_devices()[0]
    details = compiled.get_hardware_device_ep_incompatibility_details
    assert details("CPUExecutionProvider", processor)["reasons_bitmask"] == 0
    wrong = details("CUDAExecutionProvider", processor)
    reasons = compiled.OrtDeviceEpIncompatibilityReason
    assert wrong["reasons_bitmask"] == reasons.DEVICE_INCOMPATIBLE and "CPU" in wrong["notes"]
    with pytest.raises(RuntimeError, match="provider"):
        details("", processor)
    status = compiled.get_model_compatibility_for_ep_devices
    kinds = compiled.OrtCompiledModelCompatibility
    assert status(compiled.get_ep_devices()[:1], "x") is kinds.EP_NOT_APPLICABLE
    with pytest.raises(RuntimeError):
        status([], "x")
    with pytest.raises(TypeError):
        status(compiled.get_ep_devices(), None)


def test_names_of_arenas_strategies() -> None:
    assert (compiled.kNextPowerOfTwo, compiled.kSameAsRequested) == (0, 1)
    assert "Build Info" in ort.get_build_info()


def test_a_stream_that_raises() -> None:
    def write(_: bytes) -> None:
        raise ValueError("the disk is full")

    with pytest.raises(Fail, match="ValueError: the disk is full"):
        ort.ModelCompiler(ort.SessionOptions(), get_example("mul_1.onnx")).compile_to_stream(write)


PLACES = [
    ("blobs/model", "blobs/data", True),
    ("blobs/model", "blobs/below/data", True),
    ("model/model", "data/data", False),
]


@pytest.mark.parametrize(("model", "data", "is_good"), PLACES)
def test_links_to_data(model: str, data: str, is_good: bool, tmp_path: Path) -> None:
    """As caches of models lay files: a folder of links to files with other names."""
    snapshot = tmp_path / "snapshots" / "version"
    for folder in ((tmp_path / model).parent, (tmp_path / data).parent, snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    values = [float(k) for k in range(10)]
    (tmp_path / data).write_bytes(struct.pack("10f", *values))
    made = model_of("m (float[10] x) => (float[10] y) { y = Add(x, w) }", {"w": np.float32(values)})
    (held,) = made.graph.initializer
    onnx.external_data_helper.set_external_data(held, "data.bin", 0, 40)
    held.ClearField("raw_data")
    (tmp_path / model).write_bytes(made.SerializeToString())
    (snapshot / "model.onnx").symlink_to(tmp_path / model)
    (snapshot / "data.bin").symlink_to(tmp_path / data)
    if is_good:
        session = ort.InferenceSession(snapshot / "model.onnx")
        assert session.run(None, {"x": np.zeros(10, np.float32)})[0].tolist() == values
    else:
        with pytest.raises(InvalidGraph, match="External data path validation failed"):
            ort.InferenceSession(snapshot / "model.onnx")


def test_tuples_whose_length_the_ranks_say() -> None:
    text = """
    m (float[a, b, c] x, int64[n, k] i, float[p, q, r] u) => (float[a, b, c] y)
    { y = ScatterND <reduction = "add"> (x, i, u) }
    """
    session = ort.InferenceSession(model_of(text, opset=18))
    x, u = np.ones((2, 2, 3), np.float32), np.full((3, 2, 3), 4, np.float32)
    (y,) = session.run(None, {"x": x, "i": np.array([[0], [1], [0]]), "u": u})
    assert (y[0] == 9).all() and (y[1] == 5).all()
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": x, "i": np.zeros((3, 2), np.int64), "u": u})
