"""Copies of arrays whose elements lie in steps: the device copies rectangles of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from sardonyx.cuda.driver.driver import bindings, call


def row_of(shape: Sequence[int], size_bytes: int, *steps: Sequence[int]) -> tuple[int, int]:
    """How many of the last axes lie without gaps, and how many bytes that is together.

    Args:
        shape: Of the array.
        size_bytes: Of an element.
        steps: Bytes from element to element along each axis, for each of the memories.
    """
    inner, width = len(shape), size_bytes
    while inner and (shape[inner - 1] == 1 or all(s[inner - 1] == width for s in steps)):
        inner -= 1
        width *= shape[inner]
    return inner, width


def rectangles(shape: Sequence[int], inner: int) -> int:
    """How many copies there are if the axes from `inner` on are rows."""
    return math.prod(shape[: max(0, inner - 1)])


def copy_rectangles(
    target: int,
    target_steps: Sequence[int],
    source: int,
    source_steps: Sequence[int],
    shape: Sequence[int],
    size_bytes: int,
    stream: Any,
) -> None:
    """Copy an array between memories that the device reaches; each has steps of its own.

    The innermost axes that lie without gaps in both are rows, the axis before them counts the rows
    of a rectangle, all others are counted here.

    Args:
        target, source: Addresses of the first elements.
        target_steps, source_steps: Bytes from element to element along each axis.
        shape: Of the array.
        size_bytes: Of an element.
        stream: Handle of the stream.
    """
    if not math.prod(shape):
        return
    inner, width = row_of(shape, size_bytes, target_steps, source_steps)
    rows = shape[inner - 1] if inner else 1
    pitches = [s[inner - 1] if inner else width for s in (target_steps, source_steps)]
    outer = [range(size) for size in shape[: max(0, inner - 1)]]
    for places in itertools.product(*outer):
        skips = [
            sum(p * s for p, s in zip(places, steps, strict=False))
            for steps in (target_steps, source_steps)
        ]
        starts = target + skips[0], source + skips[1]
        if min(pitches) < width:  # repeated or reversed rows are none of a rectangle
            for row in range(rows):
                to, from_ = (a + row * p for a, p in zip(starts, pitches, strict=True))
                call("cuMemcpyAsync", to, from_, width, stream)
        else:
            _rectangle(starts, pitches, width, rows, stream)


def _rectangle(
    starts: tuple[int, int], pitches: list[int], width: int, rows: int, stream: Any
) -> None:
    driver = bindings()
    copy = driver.CUDA_MEMCPY2D()
    copy.dstMemoryType = copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    (copy.dstDevice, copy.srcDevice), (copy.dstPitch, copy.srcPitch) = starts, pitches
    copy.WidthInBytes, copy.Height = width, rows
    call("cuMemcpy2DAsync", copy, stream)
