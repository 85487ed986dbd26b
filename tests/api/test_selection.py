"""Devices of providers, also of other packages; sessions for devices; policies that choose them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CPU, PLAIN, NPU = "CPUExecutionProvider", "PlainProvider", "NpuProvider"
W = np.random.default_rng(0).standard_normal((8, 8), np.float32)
TEXT = "agraph (float[n, 8] x) => (float[n, 8] y) { m = MatMul(x, w) y = Relu(m) }"
MODEL = model_of(TEXT, {"w": W})
X = np.random.default_rng(1).standard_normal((4, 8), np.float32)
Policy = sardonyx.OrtExecutionProviderDevicePolicy


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    """A distribution that brings two providers, the second with an NPU and a GPU."""
    folder = tmp_path / "two_providers-2.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: two-providers\nVersion: 2.5\n")
    module = "tests.support.numpy_provider"
    lines = ["[sardonyx.providers]", f"{PLAIN} = {module}:NumpyProvider"]
    lines.append(f"{NPU} = {module}:NpuProvider")
    lines += getattr(request, "param", [])
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def made(options: sardonyx.SessionOptions, **given: Any) -> list[tuple[str, list[str]]]:
    """Providers that have nodes, and which, of a session whose results are right."""
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = sardonyx.InferenceSession(MODEL.SerializeToString(), options, **given)
    assert_near(session.run(None, {"x": X})[0], np.maximum(X @ W, 0), "float: scores")
    found = session.get_provider_graph_assignment_info()
    return [(part.ep_name, [node.op_type for node in part.get_nodes()]) for part in found]


def named(name: str) -> list[sardonyx.OrtEpDevice]:
    return [d for d in sardonyx.get_ep_devices() if d.ep_name == name]


def test_devices_are_listed() -> None:
    kinds = [(d.ep_name, d.device.type.name, d.device.vendor) for d in sardonyx.get_ep_devices()]
    assert kinds[0] == (CPU, "CPU", "")
    assert kinds[-3:] == [(PLAIN, "CPU", ""), (NPU, "NPU", "Test"), (NPU, "GPU", "Test")]
    npu = named(NPU)[0]
    assert npu.ep_metadata == {"version": "2.5"}
    assert npu.ep_vendor == "Test"
    assert npu.ep_options == {"operators": "MatMul"}
    assert (npu.device.vendor_id, npu.device.device_id) == (0x7E57, 9)
    assert npu.device.metadata == {"cores": "4"}
    assert npu.memory_info(sardonyx.OrtDeviceMemoryType.DEFAULT).name == "Cpu"
    with pytest.raises(errors.NotImplemented, match="NpuProvider has no streams"):
        npu.create_sync_stream()


BROKEN = ["Missing = no_such_module:Provider", "Wrong = tests.support.numpy_provider:WrongDevices"]


@pytest.mark.parametrize("installed", [[line] for line in BROKEN], indirect=True)
def test_a_package_that_is_broken_has_no_devices(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        names = [d.ep_name for d in sardonyx.get_ep_devices()]
    assert names[-3:] == [PLAIN, NPU, NPU]
    assert "has no devices" in caplog.text


def test_a_session_for_a_device() -> None:
    npu, gpu = named(NPU)
    options = sardonyx.SessionOptions()
    options.add_provider_for_devices([npu], {})
    assert options.has_providers()
    assert made(options) == [(NPU, ["MatMul"]), (CPU, ["Relu"])]
    options = sardonyx.SessionOptions()
    options.add_provider_for_devices([gpu], {})
    options.add_provider_for_devices(named(PLAIN), {"operators": "MatMul"})
    assert made(options) == [(NPU, ["Relu"]), (PLAIN, ["MatMul"])]
    options = sardonyx.SessionOptions()
    options.add_provider_for_devices([npu], {"operators": "MatMul,Relu"})
    assert made(options) == [(NPU, ["MatMul", "Relu"])]


@pytest.mark.parametrize("devices", [[], [1], None, "cpu"])
def test_what_are_no_devices(devices: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="no devices"):
        sardonyx.SessionOptions().add_provider_for_devices(devices, {})


def test_several_devices_of_a_provider() -> None:
    with pytest.raises(errors.InvalidArgument, match="one device in a session"):
        sardonyx.SessionOptions().add_provider_for_devices(named(NPU), {})


#: Policies, and who then has which nodes: onnxruntime's order, where a provider's device is known.
CHOSEN = {
    Policy.DEFAULT: [(PLAIN, ["MatMul", "Relu"])],
    Policy.PREFER_CPU: [(PLAIN, ["MatMul", "Relu"])],
    Policy.PREFER_NPU: [(NPU, ["MatMul"]), (CPU, ["Relu"])],
    Policy.MAX_EFFICIENCY: [(NPU, ["MatMul"]), (CPU, ["Relu"])],
    Policy.MIN_OVERALL_POWER: [(NPU, ["MatMul"]), (CPU, ["Relu"])],
    Policy.PREFER_GPU: [(NPU, ["Relu"]), (CPU, ["MatMul"])],
    Policy.MAX_PERFORMANCE: [(NPU, ["Relu"]), (CPU, ["MatMul"])],
}


@pytest.mark.parametrize("policy", CHOSEN)
def test_policies(policy: Any) -> None:
    if ("GPU" in policy.name or "PERF" in policy.name) and named("CUDAExecutionProvider"):
        pytest.skip("a real GPU comes first here")
    options = sardonyx.SessionOptions()
    options.set_provider_selection_policy(policy)
    assert options.has_providers()
    assert made(options) == CHOSEN[policy]
    # What the program names comes before what a policy would choose.
    assert [name for name, _ in made(options, providers=[CPU])] == [CPU, CPU]
    options.add_provider(CPU, {})
    assert [name for name, _ in made(options)] == [CPU, CPU]


def test_a_function_chooses() -> None:
    seen: list[Any] = []

    def choose(devices: Any, model: Any, runtime: Any, most: int) -> Any:
        seen.append(([d.ep_name for d in devices], model, runtime, most))
        return [d for d in devices if d.device.type.name == "NPU"]

    options = sardonyx.SessionOptions()
    options.set_provider_selection_policy_delegate(choose)
    assert made(options) == [(NPU, ["MatMul"]), (CPU, ["Relu"])]
    names, facts, runtime, most = seen[0]
    assert names[0] == CPU
    assert names[-3:] == [PLAIN, NPU, NPU]
    assert (runtime, most) == ({}, 8)
    assert facts["graph_name"] == "agraph"
    assert {"producer_name", "producer_version", "domain", "model_version", "doc_string",
            "graph_description"} <= facts.keys()  # fmt: skip


def raising(*_: Any) -> Any:
    raise ValueError("boo")


#: Functions that choose nothing of use, and what is said of it.
WRONG: list[tuple[Any, str]] = [
    (lambda *_: [], "chose nothing"),
    (lambda *_: [1], "no devices"),
    (lambda *_: 3, "failed: TypeError"),
    (raising, "failed: ValueError: boo"),
    (lambda devices, *_: devices * 9, "too many"),
]


@pytest.mark.parametrize(("function", "text"), WRONG)
def test_functions_that_fail(function: Any, text: str) -> None:
    options = sardonyx.SessionOptions()
    options.set_provider_selection_policy_delegate(function)
    with pytest.raises(errors.Fail, match=text):
        sardonyx.InferenceSession(MODEL.SerializeToString(), options)


def test_a_provider_that_is_chosen_twice() -> None:
    options = sardonyx.SessionOptions()
    options.set_provider_selection_policy_delegate(lambda devices, *_: [devices[-1], devices[-2]])
    with pytest.raises(errors.InvalidArgument, match="one device in a session"):
        sardonyx.InferenceSession(MODEL.SerializeToString(), options)
    for wrong in (None, 3):
        with pytest.raises(errors.InvalidArgument, match="no function"):
            options.set_provider_selection_policy_delegate(wrong)  # type: ignore[arg-type]  # the mistake tested
