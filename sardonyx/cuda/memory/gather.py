"""Arrays whose elements lie in steps, brought together by the device's copies of rectangles."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sardonyx.cuda.memory.rectangles import copy_rectangles

if TYPE_CHECKING:
    from sardonyx.cuda.memory.values import CudaArray


def dense_copy(array: CudaArray, strides: tuple[int, ...]) -> CudaArray:
    """A dense copy; `strides` are the array's, in elements."""
    made = cast("CudaArray", array.kind.empty(array.shape, array.dtype))  # its kind is CUDA
    stream, size = array.device.copying, array.dtype.itemsize
    dense = [size] * len(array.shape)
    for axis in range(len(dense) - 1, 0, -1):
        dense[axis - 1] = dense[axis] * array.shape[axis]
    steps = [s * size for s in strides]
    with array.device.entered():
        array.ready_in(stream)
        copy_rectangles(made.address, dense, array.address, steps, array.shape, size, stream.handle)
        stream.synchronize()
    made.is_copy = True
    return made
