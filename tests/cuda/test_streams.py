"""Streams of the caller: runs and copies work in them, and those of other devices are refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base.errors import InvalidArgument
from sardonyx.cuda.driver.device import device
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

CUDA = "CUDAExecutionProvider"
_X = np.arange(8, dtype=np.float32)


def _session(**options: Any) -> ort.InferenceSession:
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }")
    return ort.InferenceSession(model.SerializeToString(), providers=[(CUDA, options)])


def _value(number: int = 0) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(_X, "cuda", number)


def _run(stream: Any) -> None:
    (y,) = _session().run(None, {"x": _X}, stream=stream)
    np.testing.assert_array_equal(y, _X * 2)


def _run_values(stream: Any) -> None:
    (y,) = _session().run_with_ort_values(None, {"x": _value()}, stream=stream)
    np.testing.assert_array_equal(y.numpy(), _X * 2)


def _run_binding(stream: Any) -> None:
    session = _session()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", _value())
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding, stream=stream)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), _X * 2)


def _run_in_streams_of_options(stream: Any) -> None:
    session = _session(user_compute_stream=stream)
    np.testing.assert_array_equal(session.run(None, {"x": _X})[0], _X * 2)


def _run_in_stream_of_set_providers(stream: Any) -> None:
    session = _session()
    session.set_providers([CUDA], [{"user_compute_stream": stream}])
    np.testing.assert_array_equal(session.run(None, {"x": _X})[0], _X * 2)


def _copy(stream: Any) -> None:
    source, target = _value(), _value()
    source.update_inplace(_X + 1)
    ort.copy_tensors([source], [target], stream)
    np.testing.assert_array_equal(target.numpy(), _X + 1)


#: What takes a stream, and the work that is then in it.
_RUNS = [_run, _run_values, _run_binding, _run_in_streams_of_options]
_RUNS += [_run_in_stream_of_set_providers]
_WAYS = [(way, "launch") for way in _RUNS] + [(_copy, "copy")]


def _placed(driver: FakeDriver, what: str) -> Counter[int]:
    """How much work of a kind is in each stream so far."""
    return Counter({stream: kinds[what] for stream, kinds in driver.placed.items()})


@pytest.mark.parametrize(("way", "what"), _WAYS)
def test_work_is_in_the_stream_that_is_given(lazy: FakeDriver, way: Any, what: str) -> None:
    handle = ort.get_ep_devices()[1].create_sync_stream().get_handle()
    for given, stream in ((handle, handle), (str(handle), handle), (hex(handle), handle)):
        before = _placed(lazy, what)
        way(given)
        came = _placed(lazy, what) - before
        assert came[stream] == 1
        # What is brought to the device before is a copy, too.
        assert what == "copy" or came.total() == 1


@pytest.mark.parametrize(("way", "_"), _WAYS)
def test_streams_of_another_device_are_refused(lazy: FakeDriver, way: Any, _: str) -> None:
    lazy.devices = 2
    there = device(1).new_stream()
    for given in (there.handle, str(there.handle)):
        with pytest.raises(InvalidArgument, match=r"(?s)another device's.*device 0.*device 1"):
            way(given)
    way(device(0).new_stream().handle)


def test_nothing_is_copied_in_a_stream_of_another_device(lazy: FakeDriver) -> None:
    lazy.devices = 2
    there = device(1).new_stream()
    sources = [ort.OrtValue.ortvalue_from_numpy(_X + 1, "cuda", 1) for _ in range(2)]
    targets = [_value(1), ort.OrtValue.ortvalue_from_numpy(_X.copy())]
    ort.copy_tensors(sources, targets, there.handle)
    with device(1).entered():
        there.synchronize()
    assert [t.numpy()[0] for t in targets] == [1, 1]
    targets = [_value(1), _value(0)]
    with pytest.raises(InvalidArgument, match=r"(?s)another device's.*device 0.*device 1"):
        ort.copy_tensors(sources, targets, there.handle)
    with device(1).entered():
        there.synchronize()
    assert [t.numpy()[0] for t in targets] == [0, 0]


@pytest.mark.parametrize(("way", "_"), _WAYS)
@pytest.mark.parametrize("given", [-1, "-4", 3, "0x5", 4095, 1 << 64])
def test_what_cannot_be_a_handle_is_refused(
    gpu: FakeDriver | None, way: Any, _: str, given: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"This is no (stream|number)"):
        way(given)


@pytest.mark.parametrize(("way", "_"), _WAYS)
def test_streams_that_ended_are_refused(lazy: FakeDriver, way: Any, _: str) -> None:
    with pytest.raises(InvalidArgument, match="The driver knows no stream 0x7000000"):
        way(0x7000000)


def test_a_stream_is_asked_for_once(lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    device(0).enter()
    asked, tell = [], lazy.cuStreamGetCtx
    monkeypatch.setattr(lazy, "cuStreamGetCtx", lambda s: asked.append(s) or tell(s))
    _, theirs = lazy.cuStreamCreate(0)
    for _ in range(3):
        _run_values(theirs)
        _copy(theirs)
        for default in (0, 1, 2):
            _run_values(default)
    assert asked == [theirs]


def test_other_contexts_of_the_device_are_not_refused(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some streams have a part of the device, and a context of their own."""
    device(0).enter()
    _, theirs = lazy.cuStreamCreate(0)
    monkeypatch.setattr(lazy, "cuStreamGetCtx", lambda _: (0, 7))
    monkeypatch.setattr(lazy, "cuCtxGetDevice", lambda: (0, 0))
    _run_values(theirs)
