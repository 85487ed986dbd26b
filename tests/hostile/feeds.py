"""Feeds for whatever inputs a mutated model has."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from sardonyx.base import dtypes

_SIZES = (1, 1, 2, 2, 3, 4, 5, 8, 0, 17)
_LARGEST_BYTES = 8_000_000
#: How often a size is what the model declares.
_FITTING = 0.97


def feeds_for(rnd: random.Random, inputs: Any) -> dict[str, Any] | None:
    """Arrays for the inputs; None where a declared size is too large to feed."""
    sizes: dict[str, int] = {}
    found: dict[str, Any] = {}
    for x in inputs:
        inner = x.type
        is_sequence = inner.startswith(("seq(", "optional("))
        while inner.startswith(("seq(", "optional(", "tensor(")):
            inner = inner[inner.index("(") + 1 : -1]
        shape = tuple(_size(rnd, d, sizes) for d in x.shape or ())
        if any(size > _LARGEST_BYTES for size in shape) or math.prod(shape) * 8 > _LARGEST_BYTES:
            return None
        array = _array(rnd, shape, inner)
        if array is None:
            return None
        found[x.name] = [array] * rnd.randint(0, 3) if is_sequence else array
    return found


def _size(rnd: random.Random, dim: Any, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim if rnd.random() < _FITTING else rnd.choice(_SIZES)
    if dim is None or rnd.random() < 0.1:
        return rnd.choice(_SIZES)
    return sizes.setdefault(dim, rnd.choice(_SIZES))


def _array(rnd: random.Random, shape: tuple[int, ...], name: str) -> Any:
    generator = np.random.default_rng(rnd.getrandbits(32))
    if name == "string":
        texts = ["", "a", "B c", "é", "x" * 50]
        flat = [rnd.choice(texts) for _ in range(math.prod(shape))]
        return np.array(flat, object).reshape(shape)
    dtype = getattr(dtypes, name.upper(), None)
    if dtype is None:
        return None
    kind = np.dtype(dtype.numpy)
    if name == "bool":
        return generator.random(shape) < 0.5
    if dtype.is_integer:
        low, high = rnd.choice(((0, 2), (0, 8), (-3, 4), (0, 100)))
        if rnd.random() < 0.1 and name == "int64":
            return generator.choice(np.array([0, -1, 1 << 40, -(1 << 63), (1 << 63) - 1]), shape)
        return generator.integers(low, high, shape).astype(np.int64).astype(kind)
    drawn = generator.standard_normal(shape) * rnd.choice((1, 1, 10, 1e30))
    if rnd.random() < 0.1:
        drawn = np.where(
            generator.random(shape) < 0.2, rnd.choice((np.nan, np.inf, -np.inf)), drawn
        )
    with np.errstate(all="ignore"):
        return drawn.astype(np.float32).astype(kind)
