"""Copies between memory of a device and of the host: however arrays lie, and in whose stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

pytestmark = pytest.mark.usefixtures("gpu")

_from_numpy = ort.OrtValue.ortvalue_from_numpy
_made = ort.OrtValue.ortvalue_from_shape_and_type
_random = np.random.default_rng(11)


def _info(name: str) -> ort.OrtMemoryInfo:
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    return ort.OrtMemoryInfo(name, kind, 0, ort.OrtMemType.DEFAULT)


def _pinned(shape: Any, dtype: Any = np.float32) -> ort.OrtValue:
    return _made(list(shape), dtype, memory_info=_info("CudaPinned"))


def _plain(shape: Any) -> Any:
    return np.zeros(shape, np.float32)


def _numbers(shape: Any) -> Any:
    return _random.standard_normal(shape, np.float32)


#: A part of an array of some shape.
PARTS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "whole": ((4, 6), lambda a: a),
    "columns": ((4, 16), lambda a: a[:, :8]),
    "every other": ((4, 16), lambda a: a[:, ::2]),
    "rows of the device": ((6, 512), lambda a: a[1:5, 128:384]),
    "reversed": ((4, 16), lambda a: a[::-1, ::-1]),
    "other order": ((6, 4), lambda a: a.T),
    "axes in the middle": ((2, 3, 4, 5), lambda a: a[:, 1:, :, 2:].transpose(2, 0, 3, 1)),
    "one element": ((4,), lambda a: a[2:3].reshape(())),
    "nothing": ((4, 6), lambda a: a[:, :0]),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("memory", ["plain", "pinned"])
@pytest.mark.parametrize("way", ["update_inplace", "copy_tensors", "in a stream"])
def test_parts_of_arrays_both_ways(name: str, memory: str, way: str) -> None:
    shape, part_of = PARTS[name]
    whole = _plain(shape) if memory == "plain" else _pinned(shape).numpy()
    part = part_of(whole)
    stream = ort.get_ep_devices()[1].create_sync_stream() if way == "in a stream" else None

    def copy(source: ort.OrtValue, target: ort.OrtValue) -> None:
        if way == "update_inplace":
            target.update_inplace(source)
        else:
            ort.copy_tensors([source], [target], stream)

    sent = _numbers(part.shape)
    whole[...] = 7
    there = _from_numpy(sent, "cuda", 0)
    copy(there, _from_numpy(part))
    there.numpy()  # what is asked for later comes later
    if stream is not None:
        _wait_for(stream)
    expected = np.full(shape, 7, np.float32)
    part_of(expected)[...] = sent
    np.testing.assert_array_equal(whole, expected)
    whole[...] = _numbers(shape)
    copy(_from_numpy(part), there)
    np.testing.assert_array_equal(there.numpy(), part)


def _wait_for(stream: Any) -> None:
    from sardonyx.cuda.driver.device import device

    with device(0).entered():
        device(0).stream_of(stream.get_handle()).synchronize()


def test_contents_of_another_shape() -> None:
    sent = _numbers((3, 8))
    part = _plain((4, 12))[:, :6]
    _from_numpy(part).update_inplace(_from_numpy(sent, "cuda", 0))
    np.testing.assert_array_equal(part, sent.reshape(4, 6))


def test_results_in_parts() -> None:
    model = model_of("g (float[A,B] x) => (float[A,B] y) { y = Add(x, x) }").SerializeToString()
    x = _numbers((4, 6))
    for provider in ("CUDAExecutionProvider", "CPUExecutionProvider"):
        session = ort.InferenceSession(model, providers=[provider])
        for part in (_plain((4, 16))[:, 3:9], np.zeros((4, 6), np.float32, order="F")):
            session.run(None, {"x": _from_numpy(x, "cuda", 0)}, out=[part])
            np.testing.assert_array_equal(part, x + x)


def test_a_value_that_grows_is_read_where_it_lies() -> None:
    value = ort.OrtValue.ortvalue_with_room([2, 3], np.float32, 1, 8)
    sent = _numbers((2, 3))
    value.update_inplace(sent)
    part = _plain((4, 6))[::2, 1:4]
    _from_numpy(part).update_inplace(value)
    np.testing.assert_array_equal(part, sent)


# -- in a stream ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["whole", "rows of the device"])
def test_nobody_waits_for_pinned_memory(lazy: FakeDriver, name: str) -> None:
    shape, part_of = PARTS[name]
    stream = ort.get_ep_devices()[1].create_sync_stream()
    sent = _numbers(part_of(_plain(shape)).shape)
    source, whole = _from_numpy(sent, "cuda", 0), _pinned(shape)
    whole.numpy()[...] = 7
    before = dict(lazy.copied)
    ort.copy_tensors([source], [_from_numpy(part_of(whole.numpy()))], stream)
    copied = {k: n - before.get(k, 0) for k, n in lazy.copied.items() if n != before.get(k, 0)}
    assert copied == {"device, pinned": sent.nbytes}
    assert (whole.numpy() == 7).all()  # it is under way
    source.update_inplace(sent + 1)  # comes after it
    _wait_for(stream)
    np.testing.assert_array_equal(part_of(whole.numpy()), sent)
    np.testing.assert_array_equal(source.numpy(), sent + 1)


def test_memory_lives_until_copies_have_happened(lazy: FakeDriver) -> None:
    stream = ort.get_ep_devices()[1].create_sync_stream()
    sent = _numbers((100,))
    target = _pinned((100,))
    ort.copy_tensors([_from_numpy(sent, "cuda", 0)], [target], stream)
    _from_numpy(sent + 1, "cuda", 0)  # the source is gone: this may have its memory
    ort.copy_tensors([_from_numpy(sent + 2, "cuda", 0)], [_pinned((100,))], stream)
    again = _pinned((100,))  # the target is gone
    again.numpy()[...] = 5
    _wait_for(stream)
    np.testing.assert_array_equal(target.numpy(), sent)
    assert (again.numpy() == 5).all()


def _read_only(array: Any) -> ort.OrtValue:
    array.flags.writeable = False
    return _from_numpy(array)


#: Sources and targets of two pairs, the second of which does not fit; a stream; the error.
BAD: dict[str, tuple[Callable[[], Any], Callable[[], Any], Any, str]] = {
    "size": (
        lambda: _from_numpy(_plain(3)), lambda: _from_numpy(_plain(4)), None,
        r"pair 1\] The contents do not fit. Expected float32\[4\], got float32\[3\]",
    ),
    "type": (
        lambda: _from_numpy(np.ones(3)), lambda: _made([3], np.float32, "cuda"), None,
        r"pair 1\] The contents do not fit. Expected float32\[3\], got float64\[3\]",
    ),
    "read-only": (
        lambda: _from_numpy(_plain(3)), lambda: _read_only(_plain(3)), None,
        r"pair 1\] The memory is read-only",
    ),
    "array as source": (
        lambda: _plain(3), lambda: _from_numpy(_plain(3)), None,
        r"pair 1\] The source is no OrtValue. Expected OrtValue, got ndarray",
    ),
    "array as target": (
        lambda: _from_numpy(_plain(3)), lambda: _plain(3), None,
        r"pair 1\] The target is no OrtValue. Expected OrtValue, got ndarray",
    ),
    "stream": (
        lambda: _from_numpy(_plain(3)), lambda: _pinned([3]), "zzz", r"\[stream\].*got 'zzz'",
    ),
    "negative stream": (
        lambda: _from_numpy(_plain(3)), lambda: _from_numpy(_plain(3)), -1, r"\[stream\].*got -1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_nothing_is_copied_where_a_pair_does_not_fit(name: str) -> None:
    source, target, stream, error = BAD[name]
    first = _plain(5)
    pairs = [_from_numpy(_numbers(5)), source()], [_from_numpy(first), target()]
    with pytest.raises(errors.InvalidArgument, match=error):
        ort.copy_tensors(*pairs, stream)
    assert not first.any()


# -- what memory is refused for -------------------------------------------------------------------

_STRING = 8
_SESSION = "g (float[N] x) => (float[N] y) { y = Add(x, x) }"


def _session(text: str = _SESSION) -> ort.InferenceSession:
    model = model_of(text).SerializeToString()
    return ort.InferenceSession(model, providers=["CUDAExecutionProvider"])


STRINGS: dict[str, Callable[[], Any]] = {
    "from NumPy": lambda: _from_numpy(np.array(["a", "b"]), "cuda", 0),
    "on the device": lambda: _made([2], _STRING, "cuda"),
    "pinned": lambda: _pinned([2], _STRING),
    "with room": lambda: ort.OrtValue.ortvalue_with_room([4], np.str_, 0, 8),
    "of a session": lambda: _session().create_ortvalue_from_shape_and_type([4], 8, "cuda"),
    "bound output": lambda: _session().io_binding().bind_output("y", "cuda", 0, np.str_, [4]),
    "bound output in pinned memory": lambda: (
        _session().io_binding().bind_output("y", "cudapinned", 0, np.object_, [4])
    ),
    "address of the host": lambda: (
        _session().io_binding().bind_input("x", "cpu", 0, _STRING, [4], _plain(8).ctypes.data)
    ),
    "address of the device": lambda: (
        _session().io_binding().bind_input("x", "cuda", 0, _STRING, [4], 4096)
    ),
    "address of pinned memory": lambda: (
        _session().io_binding().bind_input("x", "cudapinned", 0, _STRING, [4], 4096)
    ),
}


@pytest.mark.parametrize("name", STRINGS)
def test_strings_are_the_hosts(name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="Strings lie in memory of the host alone"):
        STRINGS[name]()


@pytest.mark.parametrize("memory", ["CudaPinned", "Cuda", "Cpu"])
def test_too_much_memory(memory: str) -> None:
    for shape in ([1 << 50], [1 << 40, 1 << 40]):
        with pytest.raises(errors.OutOfMemory):
            _made(shape, np.float32, memory_info=_info(memory))


def test_pinned_memory_is_pinned_or_refused(lazy: FakeDriver) -> None:
    limit = 1 << 16
    ort.create_and_register_allocator(_info("CudaPinned"), ort.OrtArenaCfg({"max_mem": limit}))
    value = _pinned([1 << 10])
    assert lazy._kind(value.data_ptr()) == "pinned"
    with pytest.raises(errors.OutOfMemory, match="a pinned value.*max_mem is 65536"):
        _pinned([1 << 20])
    session = _session("g (float[N] x) => (float[M] y) { y = Concat<axis=0>(x, x, x, x, x) }")
    binding = session.io_binding()
    x = _numbers(1 << 12)
    binding.bind_ortvalue_input("x", _from_numpy(x, "cuda", 0))
    binding.bind_output("y", "cudapinned")
    with pytest.raises(errors.OutOfMemory, match="max_mem is 65536"):
        session.run_with_iobinding(binding)
    (y,) = session.run(None, {"x": x})  # where nobody asked for pinned memory
    np.testing.assert_array_equal(y, np.tile(x, 5))
