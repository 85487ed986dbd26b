"""Tensors in the plan's memory as arrays, and bytes as texts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.storage import Array


def array_at(kind: tuple[np.dtype[Any], int], words: list[int]) -> Array:
    """The array that the first of `words` describe, which are taken away."""
    dtype, rank = kind
    count = 2 + 2 * rank
    address, offset, *rest = words[:count]
    del words[:count]
    shape = tuple(rest[:rank])
    if 0 in shape:
        return np.empty(shape, dtype)
    if _in_a_row(shape, rest[rank:]):
        held: Any = ctypes.c_char * (math.prod(shape) * dtype.itemsize)
        return np.ndarray(shape, dtype, held.from_address(address + offset * dtype.itemsize))
    strides = tuple(s * dtype.itemsize for s in rest[rank:])
    ways = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = sum(min(0, way) for way in ways)
    length = 1 + sum(map(abs, ways)) // dtype.itemsize
    start = address + offset * dtype.itemsize + low
    memory: Any = (ctypes.c_char * (length * dtype.itemsize)).from_address(start)
    return np.ndarray(shape, dtype, np.frombuffer(memory, np.uint8), -low, strides)


def _in_a_row(shape: tuple[int, ...], strides: Sequence[int]) -> bool:
    """Whether elements lie one after the other."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def text_of(raw: bytes) -> str:
    """Bytes as text in UTF-8; other bytes become what gives them back."""
    return raw.decode("utf-8", "surrogateescape")


def texts_of_bytes(array: Array) -> Array:
    """An array of bytes, of NumPy's kind S or V, as an array of str."""
    texts = [text_of(bytes(item)) for item in array.reshape(-1).tolist()]
    return np.array([*texts, None], object)[:-1].reshape(array.shape)
