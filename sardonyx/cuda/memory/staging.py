"""Copies between memory of the processor and of a device, by way of memory that stays in place.

The device copies such memory by itself, while the host goes on. What lies elsewhere is brought
there first, large arrays piece by piece, so that both happen at once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np

from sardonyx.base.errors import OutOfMemory
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import bindings, call, pointer_attribute
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.memory.arena import Arena, ArenaSettings, MemoryBlock
from sardonyx.cuda.memory.arenas import arena_of
from sardonyx.cuda.memory.rectangles import copy_rectangles, rectangles, row_of
from sardonyx.cuda.memory.sources import PinnedSource
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.budget import machine_memory_bytes
from sardonyx.runtime.storage import Array, array_at, new_array, size_of

#: Larger arrays are brought piece by piece.
_PIECE_BYTES = 4 << 20
#: For smaller ones a copy costs less than the question where they lie.
_SMALL_BYTES = 64 << 10
_MOST_PINNED = 8 << 30
#: So many pieces are brought at once.
_MOVERS = 4
#: Rows of a part of a larger array that the device copies at half of its speed.
_LEAST_ROW_BYTES = 512
#: Each is a call of the driver.
_MOST_RECTANGLES = 64


def pinned_arena(device: Device) -> Arena:
    """Memory of the host that devices reach; all sessions share it."""

    def limited() -> Arena:
        limit = min(_MOST_PINNED, machine_memory_bytes() // 4)
        settings = ArenaSettings(limit, limit_name="the limit of pinned memory")
        return Arena(PinnedSource(device), settings)

    return arena_of("CudaPinned", device.number, limited)


def is_pinned(address: int) -> bool:
    """Whether the device reaches this memory of the host as it is."""
    kind = bindings().CUmemorytype.CU_MEMORYTYPE_HOST
    return pointer_attribute("MEMORY_TYPE", address) == int(kind)


def pinned_copy(device: Device, array: Array, purpose: str) -> MemoryBlock:
    """A contiguous array's contents in memory that the device reaches."""
    block = pinned_arena(device).allocate(array.nbytes, purpose)
    ctypes.memmove(block.address, address_of(array), array.nbytes)
    return block


def lies_in_rows(array: Array) -> bool:
    """Whether the device copies an array as it lies: pinned, and dense or in few long rows."""
    if array.flags.c_contiguous:
        return True
    inner, width = row_of(array.shape, array.itemsize, array.strides)
    return (
        array.nbytes > 0
        and width >= _LEAST_ROW_BYTES
        and rectangles(array.shape, inner) <= _MOST_RECTANGLES
        and all(step > 0 for step in array.strides)
        and is_pinned(address_of(array))
    )


def upload(address: int, array: Array, stream: Stream) -> Any:
    """Copy an array that `lies_in_rows` to memory of a device.

    Gives what must live until the copy has happened.
    """
    size, source = array.nbytes, address_of(array)
    if not size:
        return None
    if not array.flags.c_contiguous:
        steps, shape = array.strides, array.shape
        copy_rectangles(
            address, dense_steps(array), source, steps, shape, array.itemsize, stream.handle
        )
        return array
    if size > _SMALL_BYTES and is_pinned(source):
        call("cuMemcpyAsync", address, source, size, stream.handle)
        return array
    if size <= _PIECE_BYTES:
        block = pinned_copy(stream.device, array, "a feed")
        call("cuMemcpyAsync", address, block.address, size, stream.handle)
        return block
    _upload_pieces(address, source, size, stream)
    return None


def _upload_pieces(address: int, source: int, size: int, stream: Stream) -> None:
    """Bring a large array's pieces to pinned memory, several at once; the device copies them."""
    arena, moves = pinned_arena(stream.device), deque[tuple[Future[Any], MemoryBlock, int, int]]()

    def send() -> None:
        move, block, start, piece = moves.popleft()
        move.result()
        call("cuMemcpyAsync", address + start, block.address, piece, stream.handle)
        block.uses[stream] = stream.record()

    try:
        for start in range(0, size, _PIECE_BYTES):
            piece = min(_PIECE_BYTES, size - start)
            block = arena.allocate(_PIECE_BYTES, "a feed")
            move = _begin_move(block.address, source + start, piece)
            moves.append((move, block, start, piece))
            if len(moves) > _MOVERS:
                send()
        while moves:
            send()
    finally:
        wait([move for move, *_ in moves])  # after a failure: they read the caller's array


def _begin_move(target: int, source: int, size: int) -> Future[Any]:
    try:
        return _movers().submit(ctypes.memmove, target, source, size)
    except RuntimeError:  # the interpreter is ending, and starts no work any more
        ctypes.memmove(target, source, size)
        done: Future[Any] = Future()
        done.set_result(None)
        return done


@cache
def _movers() -> ThreadPoolExecutor:
    """Threads that bring pieces of feeds to pinned memory: one alone is slower than the device."""
    return ThreadPoolExecutor(_MOVERS, "sardonyx-copies")


def download(address: int, target: Array, stream: Stream) -> None:
    """Copy memory of a device to an array; it is there when the stream has come so far.

    Into memory that is not pinned the driver copies at once, and waits for the stream.
    """
    if not target.nbytes:
        return
    if target.flags.c_contiguous:
        call("cuMemcpyAsync", address_of(target), address, target.nbytes, stream.handle)
    elif lies_in_rows(target):
        size, steps = target.itemsize, target.strides
        to = address_of(target)
        copy_rectangles(to, steps, address, dense_steps(target), target.shape, size, stream.handle)
    else:
        found = fetched(address, target.shape, target.dtype, stream)
        stream.synchronize()
        target[...] = found


def dense_steps(array: Array) -> list[int]:
    """Bytes from element to element of an array of this shape without gaps."""
    steps = [array.itemsize] * array.ndim
    for axis in range(array.ndim - 1, 0, -1):
        steps[axis - 1] = steps[axis] * array.shape[axis]
    return steps


def fetched(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    stream: Stream,
    *,
    or_any: bool = True,
) -> Array:
    """`download` to a new array; see `new_pinned`."""
    target = new_pinned(stream.device, shape, dtype, "a result", or_any=or_any)
    download(address, target, stream)
    return target


def new_pinned(
    device: Device,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    purpose: str,
    *,
    or_any: bool = True,
) -> Array:
    """A new array in pinned memory; in any other if there is too much of that, and it may be.

    Raises:
        OutOfMemory: There is not so much.
    """
    size_bytes = size_of(shape, dtype)
    if size_bytes:
        try:
            block = pinned_arena(device).allocate(size_bytes, purpose)
        except OutOfMemory:
            if not or_any:
                raise
            return new_array(shape, dtype)
        return array_at(block.address, shape, dtype, block)
    return np.empty(shape, dtype)
