"""Names of devices and of providers: what is meant, and what is said of others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api import load, providers
from sardonyx.base.devices import device_named
from sardonyx.base.errors import EPFail, InvalidArgument, NotImplemented
from sardonyx.tools.providers import short_name
from tests.support.fake_provider import installed
from tests.support.session import model_of

_X = np.arange(8, dtype=np.float32)
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

NAMES = [
    ("cpu", ("cpu", None)), ("CPU", ("cpu", None)), ("cuda", ("cuda", None)),
    ("gpu", ("cuda", None)), ("GPU:0", ("cuda", 0)), ("Cuda:12", ("cuda", 12)),
    ("CUDA_PINNED", ("cudapinned", None)), ("cudapinned:1", ("cudapinned", 1)),
    ("cuda:", ("cuda:", None)), ("cuda:x", ("cuda:x", None)), ("cuda:²", ("cuda:²", None)),
    ("cuda:-1", ("cuda:-1", None)), ("npu", ("npu", None)), ("", ("", None)),
    ("cuda:" + "9" * 5000, ("cuda:" + "9" * 5000, None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NAMES, ids=[t[:12] for t, _ in NAMES])
def test_names(text: str, expected: tuple[str, int | None]) -> None:
    assert device_named(text) == expected


@pytest.fixture
def _devices() -> Iterator[None]:
    with installed():
        yield


_VALUE = ort.OrtValue
_MAKERS: dict[str, Callable[..., Any]] = {
    "from_numpy": lambda *device: _VALUE.ortvalue_from_numpy(_X, *device),
    "from_shape_and_type": lambda *device: _VALUE.ortvalue_from_shape_and_type(
        [2], np.float32, *device
    ),
}
#: What is given, and the device that a value then says it lies on.
PLACES: list[tuple[tuple[Any, ...], str]] = [
    (("gpu",), "cuda"), (("CUDA",), "cuda"), (("cuda:0",), "cuda"), (("GPU:0", 0),  "cuda"),
    (("cpu:0",), "cpu"), (("CPU",), "cpu"), (("cpu:0", 0), "cpu"),
]  # fmt: skip


@pytest.mark.usefixtures("_devices")
@pytest.mark.parametrize("make", _MAKERS.values(), ids=_MAKERS)
@pytest.mark.parametrize(("given", "name"), PLACES, ids=str)
def test_values_lie_where_they_are_said_to(
    make: Callable[..., Any], given: tuple[Any, ...], name: str
) -> None:
    assert make(*given).device_name() == name


@pytest.mark.parametrize("name", ["gpu:3", "CUDA:3", "cuda:3"])
def test_devices_by_name_and_number(name: str) -> None:
    device = ort.OrtDevice.make(name, 0)
    assert (device.device_type(), device.device_id()) == (ort.OrtDevice.cuda(), 3)
    assert ort.OrtDevice.make(name, 3).device_id() == 3


WRONG: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    (("cpu", 9), InvalidArgument, "The processor's number is 0. Got 9"),
    (("cpu:9",), InvalidArgument, "The processor's number is 0. Got 9"),
    (("cuda:1", 2), InvalidArgument, "another number beside it. Expected 1, got 2"),
    (("cpu:0", 1), InvalidArgument, "another number beside it. Expected 0, got 1"),
    (("cuda:x",), NotImplemented, "'cuda:1' and so on.*got 'cuda:x'"),
    (("npu", 0), NotImplemented, "device of this name. Expected 'cpu', 'cuda' .*got 'npu'"),
]


@pytest.mark.parametrize("make", _MAKERS.values(), ids=_MAKERS)
@pytest.mark.parametrize(("given", "kind", "text"), WRONG, ids=[str(g) for g, _, _ in WRONG])
def test_what_no_value_lies_on(
    make: Callable[..., Any], given: tuple[Any, ...], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        make(*given)


@pytest.mark.parametrize("make", [ort.OrtDevice.make, ort.OrtDevice])
def test_devices_that_are_none(make: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgument, match="The processor's number is 0. Got 2"):
        make("cpu", 2)
    with pytest.raises(InvalidArgument, match="no cuda -1. Expected 0 or more"):
        make("gpu", -1)
    with pytest.raises(NotImplemented, match="Expected 'cpu' or 'cuda', got 'npu'"):
        make("npu", 0)


def _doubling() -> bytes:
    return model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }").SerializeToString()


LOADED: list[tuple[str, dict[str, int], int | None]] = [
    ("cpu", {}, None), ("CPU", {}, None), ("gpu", {}, 0), ("CUDA", {}, 0), ("Gpu:2", {}, 2),
    ("cuda:1", {}, 1), ("cuda", {"device_id": 1}, 1), ("cuda:1", {"device_id": 1}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("device", "options", "number"), LOADED)
def test_load_knows_the_same_names(
    device: str, options: dict[str, Any], number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def missing(number: int = 0) -> str:
        asked.append(number)
        return "not today"

    monkeypatch.setattr(load, "cuda_is_missing", missing)
    if number is None:
        assert ort.load(_doubling(), device=device).get_providers() == [_CPU]
    else:
        with pytest.raises(EPFail, match=f"{device} cannot be used: not today"):
            ort.load(_doubling(), device=device, **options)
    assert asked == ([] if number is None else [number])


COMMANDS = [
    ("cuda", "cuda"), ("GPU", "cuda"), ("gpu", "cuda"), ("CPU", "cpu"),
    ("cudaexecutionprovider", "cuda"), (_CPU, "cpu"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "short"), COMMANDS)
def test_commands_and_measurements_know_the_same_names(text: str, short: str) -> None:
    from sardonyx.tools.perf.settings import PerfSettings

    assert short_name(text) == short
    assert PerfSettings.of({"provider": text}).provider == short


#: A name, and the provider that is suggested for it.
MEANT = [
    ("cuda", _CUDA), ("CUDA", _CUDA), ("gpu", _CUDA), ("cuda:1", _CUDA), ("cpu", _CPU),
    ("CudaExecutionProvider", _CUDA), ("CUDAExecutonProvider", _CUDA), ("CUDAProvider", _CUDA),
    ("GPUExecutionProvider", _CUDA), ("CUDDAExecutionProvider", _CUDA), ("cpuprovider", _CPU),
    ("FooExecutionProvider", ""), ("ROCMExecutionProvider", ""), ("DmlExecutionProvider", ""),
    ("TensorrtExecutionProvider", ""), ("npu", ""), ("ExecutionProvider", ""), ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "near"), MEANT)
def test_suggested_providers(name: str, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert providers.meant(name) == near
    monkeypatch.setattr(providers, "cuda_is_missing", lambda number=0: "no driver")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = ort.InferenceSession(_doubling(), providers=[name])
    advice = f" Did you mean '{near}'?" if near else ""
    assert [str(w.message) for w in caught] == [
        f"[InferenceSession] The provider '{name}' is not available. Expected one of ['{_CPU}']."
        f"{advice} The session runs on {_CPU}."
    ]
    assert session.get_providers() == [_CPU]


@pytest.mark.parametrize("text", ["FooExecutionProvider", "cuda:1", "cudda"])
def test_commands_suggest_short_names(text: str) -> None:
    advice = "" if text.startswith("Foo") else " Did you mean 'cuda'?"
    with pytest.raises(InvalidArgument) as caught:
        short_name(text)
    assert str(caught.value) == (
        f"[--provider] There is no provider '{text}' here, only cpu and cuda.{advice}"
    )


def test_what_a_session_runs_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "cuda_is_missing", lambda number=0: "[CUDA] No driver.")
    text = rf"{_CUDA}' is not available.*\[CUDA\] No driver. The session runs on {_CPU}\.$"
    with pytest.warns(UserWarning, match=text):
        ort.InferenceSession(_doubling(), providers=[_CUDA, _CPU])


@pytest.mark.usefixtures("_devices")
def test_providers_that_are_left_are_said() -> None:
    left = f"The session runs on {_CUDA} and {_CPU}."
    with pytest.warns(UserWarning, match=left):
        found = providers.choose(["TensorrtExecutionProvider", _CUDA], None)
    assert list(found) == [_CUDA, _CPU]
