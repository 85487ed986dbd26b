"""Makers, numbers and alignments of memory: what cannot be had is refused when it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base.errors import InvalidArgument, NotImplemented, WrongType
from sardonyx.capi import _pybind_state as compiled
from tests.support.session import model_of

AMD, NVIDIA = ort.OrtDeviceVendorId.AMD, ort.OrtDeviceVendorId.NVIDIA
_KINDS, _MEMORY = ort.OrtMemoryInfoDeviceType, ort.OrtDeviceMemoryType
_X = np.arange(8, dtype=np.float32)


def _v2(
    kind: Any, vendor: int, number: int = 0, memory: Any = _MEMORY.DEFAULT, alignment: int = 0
) -> ort.OrtMemoryInfo:
    allocator = ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    return ort.OrtMemoryInfo.create_v2("mine", kind, vendor, number, memory, alignment, allocator)


def _info(name: str, number: int) -> ort.OrtMemoryInfo:
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    return ort.OrtMemoryInfo(name, kind, number, ort.OrtMemType.DEFAULT)


def _session() -> ort.InferenceSession:
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }")
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


_VALUE = ort.OrtValue
_OF_AMD: list[Callable[[], Any]] = [
    lambda: _VALUE.ortvalue_from_numpy(_X, "gpu", 0, vendor_id=AMD),
    lambda: _VALUE.ortvalue_from_numpy(_X, ort.OrtDevice.make("gpu", 0), vendor_id=AMD),
    lambda: _VALUE.ortvalue_from_shape_and_type([2], np.float32, "cuda", 0, AMD),
    lambda: _VALUE.ortvalue_from_address(4096, [2], np.float32, "cudapinned", 0, AMD),
    lambda: _session().create_ortvalue_from_shape_and_type([2], np.float32, "gpu", 0, AMD),
    lambda: ort.OrtDevice.make("gpu", 0, AMD),
    lambda: compiled.OrtDevice(compiled.OrtDevice.gpu(), 0, AMD, 0),
    lambda: _v2(_KINDS.GPU, AMD),
    lambda: _v2(_KINDS.GPU, AMD, 0, _MEMORY.HOST_ACCESSIBLE),
    lambda: _v2(_KINDS.CPU, AMD, 0, _MEMORY.HOST_ACCESSIBLE),
]


@pytest.mark.parametrize("make", _OF_AMD)
def test_memory_of_another_maker_is_refused(make: Callable[[], Any]) -> None:
    text = r"of this maker. Expected -1, 0 or 0x10de \(NVIDIA\), got 0x1002"
    with pytest.raises(NotImplemented, match=text):
        make()


@pytest.mark.parametrize("vendor", [-1, 0, NVIDIA])
def test_makers_that_are_nvidia_or_any(vendor: int) -> None:
    assert ort.OrtDevice.make("gpu", 2, vendor).device_id() == 2
    assert compiled.OrtDevice(compiled.OrtDevice.gpu(), 0, int(vendor), 3).device_id() == 3
    assert _v2(_KINDS.GPU, vendor).kind_name == "Cuda"
    assert _v2(_KINDS.GPU, vendor, 0, _MEMORY.HOST_ACCESSIBLE).kind_name == "CudaPinned"


def test_memory_of_the_processor_is_no_makers_own() -> None:
    assert ort.OrtDevice.make("cpu", 0, AMD).device_type() == 0
    assert _VALUE.ortvalue_from_numpy(_X, "cpu", 0, AMD).device_name() == "cpu"
    assert _v2(_KINDS.CPU, AMD).kind_name == "Cpu"


@pytest.mark.parametrize(
    ("make", "kind", "part"),
    [
        (lambda: _info("Cuda", -5), InvalidArgument, "There is no device -5"),
        (lambda: _info("CudaPinned", -1), InvalidArgument, "There is no device -1"),
        (lambda: _v2(_KINDS.GPU, NVIDIA, -2), InvalidArgument, "There is no device -2"),
        (lambda: ort.OrtDevice.make("cuda", -1), InvalidArgument, "There is no cuda -1"),
        (lambda: ort.OrtDevice.make("cuda", 0, "NVIDIA"), InvalidArgument, "does not fit"),
        (lambda: _info("Cuda", None), WrongType, "does not fit"),
        (lambda: compiled.OrtDevice(1, 5, 0), NotImplemented, "OrtMemoryInfo"),
        (lambda: _v2(_KINDS.GPU, 0, alignment=7), InvalidArgument, "power of two, got 7"),
        (lambda: _v2(_KINDS.GPU, 0, alignment=-8), InvalidArgument, "power of two, got -8"),
        (lambda: _v2(_KINDS.GPU, 0, alignment=512), NotImplemented, "up to 256 bytes, got 512"),
        (lambda: _v2(_KINDS.CPU, 0, alignment=64), NotImplemented, "up to 16 bytes, got 64"),
    ],
)
def test_numbers_that_are_none(make: Callable[[], Any], kind: Any, part: str) -> None:
    with pytest.raises(kind, match=part):
        make()


def test_alignments_that_memory_has() -> None:
    for alignment in (0, 1, 8, 16):
        info = _v2(_KINDS.CPU, 0, alignment=alignment)
        for count in (1, 3, 1000):
            value = _VALUE.ortvalue_from_shape_and_type([count], np.int8, memory_info=info)
            assert value.data_ptr() % max(1, alignment) == 0
    assert _v2(_KINDS.GPU, 0, alignment=256).kind_name == "Cuda"


def test_addresses_of_the_processor() -> None:
    held = _X.copy()
    value = _VALUE.ortvalue_from_address(held.ctypes.data, [2, 4], 1, owner=held)
    held[5] = 70
    assert (value.shape(), value.numpy()[1, 1]) == ([2, 4], 70)
    bools = _VALUE.ortvalue_from_address(held.ctypes.data, [0, 3], np.bool_)
    assert bools.shape() == [0, 3]
    assert _VALUE.ortvalue_from_address(0, [0], np.float32).shape() == [0]
    for address, shape, kind, part in (
        (0, [2], np.float32, "The address is null. Expected that of 8 bytes"),
        (held.ctypes.data, [-2], np.float32, "shape"),
        (
            held.ctypes.data,
            [2],
            np.str_,
            "Strings lie in memory of the host alone.*Use an array of NumPy",
        ),
        (held.ctypes.data, [2], 999, "999"),
        ("here", [2], np.float32, "does not fit"),
    ):
        with pytest.raises(InvalidArgument, match=part):
            _VALUE.ortvalue_from_address(address, shape, kind)  # type: ignore[arg-type]  # wrong on purpose
