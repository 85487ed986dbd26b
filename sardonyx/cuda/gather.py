"""Arrays whose elements lie in steps, brought together by the device's copies of rectangles."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from sardonyx.cuda.driver import bindings, call

if TYPE_CHECKING:
    from sardonyx.cuda.values import CudaArray


def dense_copy(array: CudaArray, strides: tuple[int, ...]) -> CudaArray:
    """A dense copy; `strides` are the array's, in elements.

    The innermost axes that lie without gaps are rows, the axis before them counts the rows of a
    rectangle, all others are counted here.
    """
    width, inner = array.dtype.itemsize, len(array.shape)
    while inner and (
        array.shape[inner - 1] == 1 or strides[inner - 1] * array.dtype.itemsize == width
    ):
        inner -= 1
        width *= array.shape[inner]
    made = cast("CudaArray", array.kind.empty(array.shape, array.dtype))  # its kind is CUDA
    array.device.enter()
    stream = array.device.copying
    array.ready_in(stream)
    rows = array.shape[inner - 1] if inner else 1
    pitch = strides[inner - 1] * array.dtype.itemsize if inner else width
    target = made.address
    outer = [range(size) for size in array.shape[: max(0, inner - 1)]]
    for places in itertools.product(*outer):
        skip = sum(p * s for p, s in zip(places, strides, strict=False))
        source = array.address + skip * array.dtype.itemsize
        _rectangle(source, pitch, target, width, rows, stream.handle)
        target += rows * width
    stream.synchronize()
    made.is_copy = True
    return made


def _rectangle(source: int, pitch: int, target: int, width: int, rows: int, stream: int) -> None:
    if pitch < width:  # repeated or reversed rows are none of a rectangle
        for row in range(rows):
            call("cuMemcpyAsync", target + row * width, source + row * pitch, width, stream)
        return
    driver = bindings()
    copy = driver.CUDA_MEMCPY2D()
    kind = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcMemoryType = copy.dstMemoryType = kind
    copy.srcDevice, copy.srcPitch = source, pitch
    copy.dstDevice, copy.dstPitch = target, width
    copy.WidthInBytes, copy.Height = width, rows
    call("cuMemcpy2DAsync", copy, stream)
