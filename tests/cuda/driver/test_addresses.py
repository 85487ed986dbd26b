"""Memory by its address: what is not there, or ends before, is refused when it is named."""

from __future__ import annotations

import ctypes
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.memory import staging
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

#: Names memory by its address and a shape.
Way = Callable[..., Any]
Maker = Callable[[], Way]
CUDA = "CUDAExecutionProvider"
_FLOAT = np.dtype(np.float32)
_X = np.arange(8, dtype=np.float32)


def _value(count: int = 8) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.arange(count, dtype=np.float32), "cuda", 0)


def _binding() -> ort.IOBinding:
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }")
    return ort.InferenceSession(model.SerializeToString(), providers=[CUDA]).io_binding()


# What names memory is made before the memory is: a session would take what was just freed.


def _bind_input() -> Way:
    binding = _binding()
    return lambda address, shape, kind="cuda": binding.bind_input(
        "x", kind, 0, np.float32, shape, address
    )


def _bind_output() -> Way:
    binding = _binding()
    return lambda address, shape, kind="cuda": binding.bind_output(
        "y", kind, 0, np.float32, shape, address
    )


def _make() -> Way:
    return lambda address, shape, kind="cuda": ort.OrtValue.ortvalue_from_address(
        address, shape, np.float32, kind
    )


def _from_interface(address: int, shape: list[int], strides: Any = None) -> ort.OrtValue:
    given = {
        "shape": tuple(shape), "typestr": "<f4", "version": 3, "strides": strides,
        "data": (address, False),
    }  # fmt: skip
    return ort.OrtValue.from_dlpack(types.SimpleNamespace(__cuda_array_interface__=given))


def _take() -> Way:
    return _from_interface


_WAYS = [_bind_input, _bind_output, _make, _take]
_TOO_SMALL = r"is too small. Expected {} bytes, got {} bytes"


@pytest.mark.parametrize("way", _WAYS)
def test_memory_of_a_value_ends_with_its_block(gpu: FakeDriver | None, way: Maker) -> None:
    name = way()
    value = _value(64)  # all of the 256 bytes of a block
    neighbour = _value(64)
    address = value.data_ptr()
    name(address, [64])
    name(address + 128, [4, 8])
    for start, shape, numbers in (
        (address, [65], (260, 256)), (address, [1, 8_000_000], (32_000_000, 256)),
        (address + 128, [33], (132, 128)),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=_TOO_SMALL.format(*numbers)):
            name(start, shape)
    del value
    with pytest.raises(InvalidArgument, match=r"got 0 bytes. Was it freed\?"):
        name(address, [64])
    assert neighbour.numpy()[-1] == 63


@pytest.mark.parametrize("way", _WAYS)
def test_memory_of_others_ends_where_the_driver_says(gpu: FakeDriver | None, way: Maker) -> None:
    name = way()
    device(0).enter()
    address = int(call("cuMemAlloc", 1 << 20))
    try:
        name(address, [1 << 18])
        name(address + 4, [(1 << 18) - 1])
        with pytest.raises(InvalidArgument, match=_TOO_SMALL.format((1 << 20) + 4, 1 << 20)):
            name(address, [(1 << 18) + 1])
    finally:
        call("cuMemFree", address)
    with pytest.raises(InvalidArgument, match=r"There is no memory of a device"):
        name(address, [1])


@pytest.mark.parametrize("way", _WAYS)
def test_ranges_that_were_mapped_side_by_side_are_one_memory(lazy: FakeDriver, way: Maker) -> None:
    device(0).enter()
    name = way()
    size, (_, whole) = 1024, lazy.cuMemAlloc(3 * 1024 + 64)
    kept = lazy.memory.pop(whole)
    for k in range(3):
        start = whole + k * size
        lazy.memory[start] = (ctypes.c_char * (size + 64)).from_address(start)
        lazy.homes[start] = 0
    with pytest.raises(InvalidArgument, match=_TOO_SMALL.format(2048, 1024)):
        name(whole, [512])  # blocks of cuMemAlloc, which end where they end
    lazy.mapped = set(lazy.memory)
    name(whole, [768])
    name(whole + 512, [640])
    with pytest.raises(InvalidArgument, match=_TOO_SMALL.format(3076, 3072)):
        name(whole, [769])
    del kept


@pytest.mark.parametrize("way", _WAYS)
def test_a_driver_that_does_not_know_refuses_nothing(lazy: FakeDriver, way: Maker) -> None:
    device(0).enter()
    name = way()
    _, address = lazy.cuMemAlloc(64)
    lazy.knows_ranges = False
    name(address, [1000])


@pytest.mark.parametrize("way", _WAYS)
def test_the_null_address_has_no_elements(gpu: FakeDriver | None, way: Maker) -> None:
    name = way()
    name(0, [0, 4])
    with pytest.raises(InvalidArgument, match="The address is null"):
        name(0, [2, 4])


def test_null_from_dlpack_has_no_elements(gpu: FakeDriver | None) -> None:
    capsule = _value().__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    record = ctypes.c_void_p.from_address(pointer(capsule, b"dltensor"))
    before, record.value = record.value, None
    with pytest.raises(InvalidArgument, match="address is null"):
        ort.OrtValue.from_dlpack(capsule)
    record.value = before


def test_steps_reach_no_further_than_the_memory(gpu: FakeDriver | None) -> None:
    value = _value(64)
    start, held = value.data_ptr(), np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(_from_interface(start + 252, [64], (-4,)).numpy(), held[::-1])
    wanted = np.lib.stride_tricks.as_strided(held[4:], (3, 8), (88, 8))
    np.testing.assert_array_equal(_from_interface(start + 16, [3, 8], (88, 8)).numpy(), wanted)
    with pytest.raises(InvalidArgument, match=_TOO_SMALL.format(236, 232)):
        _from_interface(start + 24, [3, 8], (88, 8))
    with pytest.raises(InvalidArgument, match=r"too small|no memory of a device"):
        _from_interface(start, [400_000], (-4,))


@pytest.mark.parametrize("way", [_bind_input, _bind_output, _make])
def test_pinned_memory_by_its_address(gpu: FakeDriver | None, way: Maker) -> None:
    name = way()
    plain = np.zeros(64, np.float32)
    pinned = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.CPU
    ).kind()
    held = pinned.empty((64,), _FLOAT)
    address = held.__array_interface__["data"][0]
    name(address, [64], "cudapinned")
    name(plain.ctypes.data, [64], "cpu")
    with pytest.raises(InvalidArgument, match=_TOO_SMALL.format(260, 256)):
        name(address, [65], "cudapinned")
    with pytest.raises(InvalidArgument, match="no pinned memory at"):
        name(plain.ctypes.data, [64], "cudapinned")
    for kind in ("cpu", "cudapinned"):
        with pytest.raises(errors.InvalidArgument, match=r"address is null|no pinned memory"):
            name(0, [1], kind)
        name(0, [0], kind)


def test_runs_that_repeat_addresses_ask_once_how_far_they_go(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    device(0).enter()
    asked, tell = [], lazy.cuMemGetAddressRange
    monkeypatch.setattr(lazy, "cuMemGetAddressRange", lambda a: asked.append(a) or tell(a))
    _, address = lazy.cuMemAlloc(32)
    binding = _binding()
    binding.bind_input("x", "cuda", 0, np.float32, [8], address)
    binding.bind_output("y", "cuda")
    assert len(asked) == 1
    for _ in range(5):
        binding._session.run_with_iobinding(binding)
        _from_interface(address, [8])
    assert len(asked) == 2
    lazy.cuMemFree(address)  # whether it is there at all is asked each time
    for use in (
        lambda: binding._session.run_with_iobinding(binding),
        lambda: _from_interface(address, [8]),
    ):
        with pytest.raises(InvalidArgument, match="There is no memory of a device"):
            use()


class _Owner:
    """What keeps memory."""


@pytest.mark.parametrize("kind", ["cpu", "cuda", "cudapinned"])
def test_values_on_memory_of_the_caller(gpu: FakeDriver | None, kind: str) -> None:
    made = ort.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32, kind)
    owner = _Owner()
    there = weakref.ref(owner)
    value = ort.OrtValue.ortvalue_from_address(
        made.data_ptr(), [8], np.float32, kind, owner=[owner, made]
    )
    assert (value.data_ptr(), value.shape()) == (made.data_ptr(), [8])
    value.update_inplace(_X)
    np.testing.assert_array_equal(made.numpy(), _X.reshape(2, 4))
    session = _binding()._session
    for feeds in (value, ort.OrtValue.from_dlpack(value)):
        (y,) = session.run_with_ort_values(None, {"x": feeds})
        np.testing.assert_array_equal(y.numpy(), _X * 2)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(_X + 1))
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(made.numpy().reshape(-1), (_X + 1) * 2)
    del owner, made, feeds
    gc.collect()
    assert there() is not None
    del value, binding, session
    gc.collect()
    assert there() is None


def _info(name: str, number: int = 0) -> ort.OrtMemoryInfo:
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    return ort.OrtMemoryInfo(name, kind, number, ort.OrtMemType.DEFAULT)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("cuda", "cuda"), ("gpu", "cuda"), ("cudapinned", "cpu"), ("cpu", "cpu"),
        (_info("Cuda"), "cuda"), (_info("CudaPinned"), "cpu"), (_info("Cpu"), "cpu"),
        (ort.OrtDevice.make("cuda", 0), "cuda"), (ort.OrtDevice.make("cpu", 0), "cpu"),
    ],
)  # fmt: skip
def test_memory_is_named_in_one_way_everywhere(
    gpu: FakeDriver | None, place: Any, name: str
) -> None:
    session = _binding()._session
    made = ort.OrtValue.ortvalue_from_shape_and_type([8], np.float32, place, 0)
    own = session.create_ortvalue_from_shape_and_type([8], np.float32, place)
    copied = ort.OrtValue.ortvalue_from_numpy(_X, place)
    assert {v.device_name() for v in (made, own, copied)} == {name}
    again = ort.OrtValue.ortvalue_from_address(copied.data_ptr(), [8], np.float32, place)
    np.testing.assert_array_equal(again.numpy(), _X)
    binding = session.io_binding()
    binding.bind_input("x", place, 0, np.float32, [8], copied.data_ptr())
    for more in ((), (0, np.float32, [8]), (0, np.float32, [8], made.data_ptr())):
        binding.bind_output("y", place, *more)
        session.run_with_iobinding(binding)
        (found,) = binding.get_outputs()
        assert found.device_name() == name
        np.testing.assert_array_equal(found.numpy(), _X * 2)
    np.testing.assert_array_equal(made.numpy(), _X * 2)
    if not isinstance(place, str):
        inside = binding._iobinding
        inside.bind_input("x", place, np.float32, [8], copied.data_ptr())
        inside.bind_output("y", place)
        session.run_with_iobinding(binding)
        assert binding.get_outputs()[0].device_name() == name


def test_a_session_makes_values_of_a_memory_info(gpu: FakeDriver | None) -> None:
    session = _binding()._session
    before = session.memory()["devices"]["cuda:0"]["used_bytes"]
    make = session.create_ortvalue_from_shape_and_type
    held = make([1 << 20], np.float32, memory_info=_info("Cuda"))
    after = session.memory()["devices"]["cuda:0"]["used_bytes"]
    assert (held.device_name(), after - before) == ("cuda", 4 << 20)  # of the session's arena
    pinned = make([3], np.float32, memory_info=_info("CudaPinned"))
    assert staging.is_pinned(pinned.data_ptr())
    with pytest.warns(UserWarning, match="not looked at"):
        make([3], np.float32, "cuda", memory_info=_info("Cpu"))


@pytest.mark.parametrize(
    ("place", "number", "kind", "part"),
    [
        (object(), 0, errors.WrongType, "This is no device.*OrtMemoryInfo, got object"),
        (None, 0, errors.WrongType, "This is no device"),
        ("npu", 0, errors.NotImplemented, "'npu'"),
        (_info("Cuda"), 3, InvalidArgument, "another number beside it. Expected 0, got 3"),
        (ort.OrtDevice.make("cuda", 9), 0, InvalidArgument, "There is no device 9"),
    ],
)
def test_places_that_are_none(
    gpu: FakeDriver | None, place: Any, number: int, kind: Any, part: str
) -> None:
    binding = _binding()
    for use in (
        lambda: binding.bind_input("x", place, number, np.float32, [8], 4096),
        lambda: binding.bind_output("y", place, number),
        lambda: ort.OrtValue.ortvalue_from_numpy(_X, place, number),
        lambda: ort.OrtValue.ortvalue_from_address(4096, [8], np.float32, place, number),
    ):
        with pytest.raises(kind, match=part):
            use()
