"""Hashes of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.interrupt import watched
from sardonyx.host.functions import host_function

_MASK = 0xFFFFFFFF


@host_function
def murmur(x: Any, *, seed: int) -> Any:
    """MurmurHash3_x86_32 (Austin Appleby, public domain) of texts in UTF-8: uint32."""
    flat = watched(x.reshape(-1).tolist())
    found = [_murmur(text.encode("utf-8", "surrogatepass"), seed) for text in flat]
    return np.array(found, np.uint32).reshape(x.shape)


def _murmur(data: bytes, seed: int) -> int:
    whole = len(data) & ~3
    found = seed
    for at in range(0, whole, 4):
        found = _rotated(found ^ _mixed(data[at : at + 4]), 13) * 5 + 0xE6546B64 & _MASK
    if whole < len(data):
        found ^= _mixed(data[whole:])
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    return found ^ found >> 16


def _mixed(part: bytes) -> int:
    word = int.from_bytes(part, "little") * 0xCC9E2D51 & _MASK
    return _rotated(word, 15) * 0x1B873593 & _MASK


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> 32 - bits) & _MASK
