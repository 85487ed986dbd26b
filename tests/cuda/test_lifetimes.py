"""What lives as long as the device works on it, and faults that somebody hears of."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.named_memory import memory_kind
from sardonyx.base import errors
from sardonyx.cuda.driver import driver
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.stream import Stream as Queue
from sardonyx.cuda.interop import lending
from sardonyx.cuda.libraries.libraries import CallPlace, Libraries
from sardonyx.plan.plan import LibraryCall
from tests.cuda.test_device_runs import (
    _ADD,
    _TAKE,
    CUDA,
    Foreign,
    Stream,
    _left,
    _on_device,
    _session,
)
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

_ONE = np.ones(5000, np.float32)


def _shared(text: str, weights: dict[str, Any]) -> ort.InferenceSession:
    """A session whose memory is that of all."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    model = model_of(text, weights).SerializeToString()
    return ort.InferenceSession(model, options, providers=[(CUDA, {"device_id": 0})])


def test_a_session_may_go_while_its_run_is_under_way(lazy: FakeDriver) -> None:
    info = ort.OrtMemoryInfo(
        "Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(info, None)
    session = _shared("g (float[5000] x) => (float[5000] y) { y = Add(x, w) }", {"w": _ONE * 3})
    feeds = _on_device({"x": _ONE})
    (value,) = session.run_with_ort_values(None, feeds, _left(), stream=Stream())
    del session
    gc.collect()
    others = [ort.OrtValue.ortvalue_from_numpy(_ONE * 77, "cuda", 0) for _ in range(8)]
    assert np.array_equal(value.numpy(), _ONE * 4)
    assert all(np.array_equal(x.numpy(), _ONE * 77) for x in others)


def test_memory_that_is_given_back_is_waited_for(lazy: FakeDriver) -> None:
    """Also memory of the host, from which the arguments of a graph are copied."""
    session, stream = _session(_ADD), Stream()
    feeds = _on_device({"x": _ONE, "w": _ONE})
    for _ in range(3):
        results = [
            session.run_with_ort_values(None, feeds, _left(), stream=stream)[0] for _ in range(4)
        ]
        session.trim()
        pinned = memory_kind("cudapinned").empty
        small = [pinned((n,), np.dtype(np.uint8)) for n in (32, 300, 600, 1200) for _ in range(8)]
        for array in small:
            array[...] = 99  # type: ignore[index]
        for value in results:
            assert np.array_equal(value.numpy(), _ONE * 2)


def test_a_fault_is_not_given_back_with_its_frame(lazy: FakeDriver) -> None:
    session = _session(_TAKE)
    feeds = _on_device({"x": np.arange(5, dtype=np.float32), "i": np.array([1, 9])})
    session.run_with_ort_values(None, feeds, _left())
    session.trim()
    with pytest.raises(errors.RuntimeException, match="index 9 is out of range"):
        session.io_binding().synchronize_outputs()
    session.trim()
    assert session.memory()["frames"] == 0


def test_a_run_hears_of_its_own_fault(lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although another thread asks for faults of runs that were left, just before the run does."""
    session = _session(_TAKE)
    wait = Queue.synchronize

    def waits(self: Queue) -> None:
        wait(self)
        session.io_binding().synchronize_outputs()

    monkeypatch.setattr(Queue, "synchronize", waits)
    with pytest.raises(errors.RuntimeException, match="index 9 is out of range") as caught:
        session.run(None, {"x": np.arange(5, dtype=np.float32), "i": np.array([1, 9])})
    assert not any(entry.name == "settle" for entry in caught.traceback)


def test_memory_of_others_is_not_overwritten_before_it_is_read(lazy: FakeDriver) -> None:
    session = _session(_ADD)
    x, w = (
        ort.OrtValue.from_dlpack(Foreign(v)) for v in _on_device({"x": _ONE, "w": _ONE}).values()
    )
    for step in range(3):
        (y,) = session.run_with_ort_values(None, {"x": x, "w": w}, _left(), stream=Stream())
        x.update_inplace(_ONE * (step + 2))
        assert np.array_equal(y.numpy(), _ONE * (step + 2))
    del x, w
    assert not lending.LENT  # what a run used is let go of when its result is read


def test_weights_are_there_before_the_first_run(lazy: FakeDriver) -> None:
    copied = lazy.cuMemcpy
    lazy.cuMemcpy = lambda *a: lazy.do("copy", lambda: copied(*a), 0)  # type: ignore[method-assign]
    model = model_of("g (float[5000] x) => (float[5000] y) { y = Add(x, w) }", {"w": _ONE})
    session = ort.InferenceSession(model.SerializeToString(), providers=[CUDA])
    assert np.array_equal(session.run(None, {"x": _ONE})[0], _ONE * 2)


def test_events_belong_to_the_device_of_their_arena(lazy: FakeDriver) -> None:
    """A thread that has not worked with the device yet may be the next to get memory."""
    value = ort.OrtValue.ortvalue_from_numpy(_ONE, "cuda", 0)
    value.__dlpack__(stream=1)
    record, contexts, context = lazy.cuEventRecord, [], device(0).context

    def recorded(event: int, stream: int) -> Any:
        contexts.append(lazy.context)
        return record(event, stream)

    lazy.cuEventRecord = recorded  # type: ignore[method-assign]
    del value
    thread = threading.Thread(
        target=lambda: ort.OrtValue.ortvalue_from_shape_and_type([5000], np.float32, "cuda", 0)
    )
    thread.start()
    thread.join()
    assert contexts == [context]


def test_what_a_binding_cannot_share_is_refused(lazy: FakeDriver) -> None:
    class Strided:
        def __init__(self, value: ort.OrtValue) -> None:
            held = value.__cuda_array_interface__
            self.__cuda_array_interface__ = {**held, "shape": (10,), "strides": (8,)}
            self.value = value

    binding = _session(_ADD).io_binding()
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros(20, np.float32), "cuda", 0)
    for bind in (binding.bind_ortvalue_output, binding.bind_ortvalue_input):
        name = "y" if bind == binding.bind_ortvalue_output else "x"
        with pytest.raises(errors.InvalidArgument, match=f"{name}.*lie in steps"):
            bind(name, Strided(value))


def test_a_capture_that_something_spoilt_is_tried_again(lazy: FakeDriver) -> None:
    session = _session(_ADD)
    feeds = {"x": _ONE, "w": _ONE}
    session.run(None, feeds)
    lazy.uncapturable.add("launch")
    session.run(None, feeds)
    lazy.uncapturable.clear()
    for _ in range(3):
        assert np.array_equal(session.run(None, feeds)[0], _ONE * 2)
    assert lazy.replays == 3


def test_a_run_that_took_too_long_says_so(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, wait = _session(_ADD), Queue.synchronize

    def waits(self: Queue) -> None:
        wait(self)
        time.sleep(0.3)

    monkeypatch.setattr(Queue, "synchronize", waits)
    with pytest.raises(errors.TimedOut):
        session.run(None, {"x": _ONE, "w": _ONE}, timeout=0.2)
    monkeypatch.undo()
    assert np.array_equal(session.run(None, {"x": _ONE, "w": _ONE})[0], _ONE * 2)


def test_a_forked_process_is_told_what_to_do(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_forked", [os.getpid()])
    lazy.cuCtxSetCurrent = lambda context: (1,)  # type: ignore[attr-defined]
    with pytest.raises(errors.RuntimeException, match="spawn"):
        ort.OrtValue.ortvalue_from_numpy(_ONE, "cuda", 0)


def test_settings_of_allocators_that_have_no_effect_are_noted(
    lazy: FakeDriver, caplog: pytest.LogCaptureFixture
) -> None:
    info = ort.OrtMemoryInfo(
        "Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    settings = ort.OrtArenaCfg({"max_mem": 1 << 20, "max_dead_bytes_per_chunk": 5})
    with caplog.at_level("INFO", "sardonyx"):
        ort.create_and_register_allocator_v2(CUDA, info, {"prefer_nhwc": "0"}, settings)
    assert "max_dead_bytes_per_chunk" in caplog.text
    assert "prefer_nhwc" in caplog.text


def test_a_driver_without_devices_is_no_provider(lazy: FakeDriver) -> None:
    lazy.devices = 0
    assert ort.get_available_providers() == ["CPUExecutionProvider"]


def test_a_library_that_fails_in_every_run_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        pending, searching, version, key = 0, 0, 0, ""

        def refusal(self, offer: object) -> str:
            return ""

        def run(self, work: object, place: object) -> bool:
            raise ValueError("out of order")

    facts = {"dtype": "float", "result": "float", "bias": 0, "residual": 0, "activation": ""}
    call = LibraryCall("matmul", tuple(facts.items()), 6)
    libraries = Libraries({"matmul": Broken()})
    for _ in range(3):
        assert not libraries.run(call, [0] * 6, CallPlace(0, lambda size: 0))
    assert caplog.text.count("out of order") == 1
