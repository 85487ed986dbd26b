"""Two GPUs in one process: each session works on its own, and values know where they lie."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.cuda.driver import pausing
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call, current_context
from sardonyx.cuda.driver.module import Module
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

pytestmark = pytest.mark.usefixtures("two_gpus")

CUDA = "CUDAExecutionProvider"
_MODEL = """g (float[N,M] x, float[M,8] w) => (float[N,8] y)
    { a = MatMul(x, w) b = Relu(a) y = Add(b, a) }"""
_SIZES = """g (float[N] x) => (int64[A,B] y) { y = NonZero(x) }"""
_random = np.random.default_rng(3)


def _session(number: int, text: str = _MODEL, **provider: Any) -> ort.InferenceSession:
    model = model_of(text).SerializeToString()
    return ort.InferenceSession(model, providers=[(CUDA, {"device_id": number, **provider})])


def _feeds(rows: int = 4, inner: int = 16) -> dict[str, Any]:
    # Few bits, so that products are exact in any precision that a device may choose.
    return {
        "x": (_random.integers(-8, 9, (rows, inner)) / 4).astype(np.float32),
        "w": (_random.integers(-8, 9, (inner, 8)) / 4).astype(np.float32),
    }


def _expected(feeds: dict[str, Any]) -> Any:
    product = feeds["x"] @ feeds["w"]
    return np.maximum(product, 0) + product


def _on(number: int, feeds: dict[str, Any]) -> dict[str, ort.OrtValue]:
    return {n: ort.OrtValue.ortvalue_from_numpy(a, "cuda", number) for n, a in feeds.items()}


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_works_on_its_device(number: int) -> None:
    session = _session(number)
    for rows in (1, 4, 4, 4, 129, 4):
        feeds = _feeds(rows)
        np.testing.assert_array_equal(session.run(None, feeds)[0], _expected(feeds))
        (found,) = session.run_with_ort_values(None, _on(number, feeds))
        assert (found.device_name(), found.numpy().shape) == ("cuda", (rows, 8))
        assert found._ortvalue.__dlpack_device__()[1] == number
        np.testing.assert_array_equal(found.numpy(), _expected(feeds))
    assert session.get_provider_options()[CUDA]["device_id"] == str(number)


@pytest.mark.parametrize("number", [0, 1])
def test_sizes_from_data_are_read_on_the_device_of_the_session(number: int) -> None:
    x = _random.integers(0, 2, 3000).astype(np.float32)
    for _ in range(3):
        found = _session(number, _SIZES).run(None, {"x": x})[0]
        np.testing.assert_array_equal(found, np.nonzero(x))


def test_both_devices_at_once() -> None:
    sessions = [_session(0), _session(1), _session(1), _session(0)]
    wrong: list[str] = []

    def work(session: ort.InferenceSession, number: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(100):
            feeds = _feeds(int(random.integers(1, 20)))
            given = _on(number, feeds) if random.random() < 0.5 else feeds
            found = session.run_with_ort_values(None, given) if given is not feeds else None
            array = found[0].numpy() if found else session.run(None, feeds)[0]
            if not np.array_equal(array, _expected(feeds)):
                wrong.append(f"device {number}")

    threads = [
        threading.Thread(target=work, args=(s, n, k))
        for k, (s, n) in enumerate(zip(sessions, (0, 1, 1, 0), strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_feed_on_the_other_device_is_refused_and_the_session_goes_on() -> None:
    session, feeds = _session(0), _feeds()
    with pytest.raises(errors.InvalidArgument, match=r"(?s)input x.*device 0.*device 1"):
        session.run_with_ort_values(None, _on(1, feeds))
    binding = session.io_binding()
    with pytest.raises(errors.InvalidArgument, match="device"):
        for name, value in _on(1, feeds).items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("y", "cuda", 0)
        session.run_with_iobinding(binding)
    (found,) = session.run_with_ort_values(None, _on(0, feeds))
    np.testing.assert_array_equal(found.numpy(), _expected(feeds))


def test_a_pointer_of_the_other_device_is_refused() -> None:
    session, feeds = _session(0), _feeds()
    there = ort.OrtValue.ortvalue_from_numpy(feeds["x"], "cuda", 1)
    binding = session.io_binding()
    with pytest.raises(errors.InvalidArgument, match="another device"):
        binding.bind_input("x", "cuda", 0, np.float32, feeds["x"].shape, there.data_ptr())


def test_copies_between_devices() -> None:
    array = _random.standard_normal((300, 700)).astype(np.float32)
    for source, target in ((0, 1), (1, 0), (1, 1)):
        held = ort.OrtValue.ortvalue_from_numpy(array, "cuda", source)
        there = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, np.float32, "cuda", target)
        ort.copy_tensors([held], [there])
        np.testing.assert_array_equal(there.numpy(), array)
        held.update_inplace(array + 1)
        np.testing.assert_array_equal(held.numpy(), array + 1)
        np.testing.assert_array_equal(there.numpy(), array)


@pytest.mark.parametrize("library", ["torch", "an interface", "a capsule"])
@pytest.mark.parametrize("target", [0, 1])
def test_copies_wait_for_what_another_library_has_under_way(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, library: str, target: int
) -> None:
    """On the device of its array, wherever the copy goes."""
    lazy.devices = 2
    queues = [device(n).new_stream() for n in (0, 1)]
    source = ort.OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32), "cuda", 0)
    given: Any
    if library == "an interface":
        given = Foreign(source, queues[0].handle)
    else:
        given = Tensor(source, queues)
        torch = types.ModuleType("torch")
        current = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda n: queues[n].handle)
        torch.Tensor, torch._C = Tensor if library == "torch" else int, current  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(Tensor, "__module__", "torch" if library == "torch" else "other")
    to = ort.OrtValue.ortvalue_from_shape_and_type((4,), np.float32, "cuda", target)
    with device(0).entered():
        lazy.do("kernel", lambda: ctypes.memset(source.data_ptr(), 63, 16), queues[0].handle)
    to.update_inplace(given)
    np.testing.assert_array_equal(to.numpy().view(np.int32), np.full(4, 0x3F3F3F3F))


class Tensor:
    """Has what torch's tensors have: an order on their device, and capsules there alone."""

    dtype, is_cuda, requires_grad = "torch.float32", True, False

    def __init__(self, held: ort.OrtValue, queues: list[Any]) -> None:
        self.held, self.queues, self.shape = held, queues, held.shape()

    def is_contiguous(self) -> bool:
        return True

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return int(self.held.data_ptr())

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, stream: int, **options: Any) -> Any:
        if current_context() != device(0).context:
            raise BufferError("another device is the current one")
        if stream != -1:
            device(0).stream_of(stream).wait_for(self.queues[0].record())
        return self.held.__dlpack__(**options)


def test_work_on_one_device_opens_no_other(lazy: FakeDriver) -> None:
    lazy.devices = 2
    session, feeds = _session(1), _feeds()
    values = _on(1, feeds)
    found = session.run(None, {n: Foreign(v, 1) for n, v in values.items()})[0]
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(found).numpy(), _expected(feeds))
    assert lazy.opened == {1}


def test_one_session_after_the_other_through_a_copy() -> None:
    first, second, feeds = _session(0), _session(1), _feeds(8, 8)
    expected = _expected(feeds)
    (between,) = first.run_with_ort_values(None, _on(0, feeds))
    moved = ort.OrtValue.ortvalue_from_shape_and_type((8, 8), np.float32, "cuda", 1)
    ort.copy_tensors([between], [moved])
    w = ort.OrtValue.ortvalue_from_numpy(feeds["w"], "cuda", 1)
    (found,) = second.run_with_ort_values(None, {"x": moved, "w": w})
    np.testing.assert_array_equal(found.numpy(), _expected({"x": expected, "w": feeds["w"]}))


def test_limits_are_of_each_device() -> None:
    full, free = _session(1, gpu_mem_limit=64 << 20), _session(0)
    large = _feeds(1 << 19, 64)
    with pytest.raises(errors.SardonyxError, match="gpu_mem_limit is 67108864"):
        full.run(None, large)
    np.testing.assert_array_equal(free.run(None, large)[0], _expected(large))
    small = _feeds()
    np.testing.assert_array_equal(full.run(None, small)[0], _expected(small))


def test_arrays_of_torch_on_the_second_device() -> None:
    torch = pytest.importorskip("torch")
    session, feeds = _session(1), _feeds()
    given = {n: torch.from_numpy(a).to("cuda:1") for n, a in feeds.items()}
    torch.cuda.set_device(0)
    for _ in range(4):
        found = session.run(None, given)[0]
        array = found if isinstance(found, np.ndarray) else torch.from_dlpack(found).cpu().numpy()
        np.testing.assert_array_equal(array, _expected(feeds))
        tensor = session(*given.values())
        assert tensor.get_device() == 1
        np.testing.assert_array_equal(tensor.cpu().numpy(), _expected(feeds))
        assert torch.cuda.current_device() == 0


class Foreign:
    """Another library's array on memory of a value, in the order of a stream."""

    def __init__(self, value: ort.OrtValue, stream: int) -> None:
        self.value = value
        self.__cuda_array_interface__ = {
            "shape": tuple(value.shape()), "typestr": "<f4", "version": 3, "stream": stream,
            "data": (value.data_ptr(), False),
        }  # fmt: skip


class Strict:
    """As torch's tensors: they become capsules in a thread that works on their device."""

    def __init__(self, value: ort.OrtValue) -> None:
        self.value = value

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self, **options: Any) -> Any:
        if current_context() != device(1).context:
            raise BufferError("another device is the current one")
        return self.value.__dlpack__(**options)


def _uses() -> Iterator[str]:
    """Whatever users do with the second device, step by step."""
    feeds = _feeds(8)
    expected = _expected(feeds)
    info = ort.OrtMemoryInfo(
        "Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 1, ort.OrtMemType.DEFAULT
    )
    yield "a description of memory"
    session = _session(1)
    yield "a session"
    for k in range(4):
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
        yield f"run {k}"
    values = _on(1, feeds)
    yield "values from NumPy"
    for k in range(5):
        (found,) = session.run_with_ort_values(None, values)
        yield f"a run with values {k}"
    np.testing.assert_array_equal(found.numpy(), expected)
    yield "a copy to the host"
    for value in values.values():
        value.update_inplace(value.numpy())
    yield "update_inplace"
    stream = next(d for d in ort.get_ep_devices() if d.ep_options.get("device_id") == "1")
    queue = stream.create_sync_stream()
    yield "a stream"
    foreign = {n: Foreign(v, queue.get_handle()) for n, v in values.items()}
    for k in range(4):
        np.testing.assert_array_equal(
            ort.OrtValue.from_dlpack(session.run(None, foreign)[0]).numpy(), expected
        )
        yield f"a run with another library's arrays {k}"
    strict = {n: Strict(v) for n, v in values.items()}
    for k in range(3):
        session.run(None, strict)
        yield f"a run with tensors {k}"
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for k in range(3):
        (late,) = session.run_with_ort_values(None, values, options, stream=queue.get_handle())
        yield f"a run in a stream {k}"
    queue.synchronize()
    yield "the wait for it"
    capsule = late._ortvalue.__dlpack__()
    yield "a capsule"
    taken = ort.OrtValue.from_dlpack(late)
    yield "a value from another"
    np.testing.assert_array_equal(taken.numpy(), expected)
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_input(name, "cuda", 1, np.float32, value.shape(), value.data_ptr())
    binding.bind_output("y", "cuda", 1)
    yield "a binding"
    session.run_with_iobinding(binding)
    yield "a run with it"
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    binding.synchronize_outputs()
    yield "its results"
    there = ort.OrtValue.ortvalue_from_shape_and_type((8, 8), np.float32, "cuda", 1)
    ort.copy_tensors([late], [there])
    yield "a copy"
    assert ort.OrtValue.ortvalue_from_address(there.data_ptr(), [8, 8], np.float32, "cuda", 1)
    yield "a value by its address"
    asyncio.run(_awaited(session, values))
    yield "a run that is awaited"
    sizes = _session(1, _SIZES)
    x = _random.integers(0, 2, 300).astype(np.float32)
    for k in range(3):
        np.testing.assert_array_equal(sizes.run(None, {"x": x})[0], np.nonzero(x))
        yield f"a run with sizes from data {k}"
    with session.pipeline() as pipeline:
        yield "a pipeline"
        for given in pipeline.map([feeds] * 3):
            np.testing.assert_array_equal(given, expected)
    yield "its end"
    with pytest.raises(errors.SardonyxError):
        session.run_with_ort_values(None, _on(0, feeds))
    yield "a run that is refused"
    session.trim()
    session.memory()
    yield "trim"
    code = Module(device(1), [pausing.PTX])
    yield "a module"
    del code
    yield "its end"
    del capsule, taken, late, there, found, foreign, strict, value, values
    del binding, pipeline, given, info, session, sizes
    gc.collect()
    yield "the collector"


async def _awaited(session: ort.InferenceSession, values: dict[str, ort.OrtValue]) -> None:
    await session.run_async(None, values)


@pytest.mark.parametrize("is_none", [False, True])
def test_the_callers_device_stays(is_none: bool) -> None:
    context = 0 if is_none else device(0).context
    call("cuCtxSetCurrent", context)
    uses = _uses()
    while (step := next(uses, None)) is not None:
        assert current_context() == context, step
    assert step is None
    assert current_context() == context


def test_every_device_is_listed() -> None:
    devices = [d for d in ort.get_ep_devices() if d.ep_name == CUDA]
    assert sorted(d.ep_options["device_id"] for d in devices)[:2] == ["0", "1"]
