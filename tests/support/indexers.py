"""SparseAttentionIndexer by loops over its schema's text, one request at a time, in double."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def normal(x: Array, weight: Array, epsilon: float = 1e-6) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def leading(x: Array, cosine: Array, sine: Array, place: int) -> Array:
    """The first elements of (..., size), those half of the table's width apart."""
    width, place = cosine.shape[1], int(np.clip(place, 0, len(cosine) - 1))
    c, s = cosine[place].astype(float), sine[place].astype(float)
    a, b = x[..., : width // 2], x[..., width // 2 : width]
    half = width // 2
    return np.concatenate(
        [a * c[:half] - b * s[:half], b * c[half:] + a * s[half:], x[..., width:]], -1
    )


def trailing(x: Array, cosine: Array, sine: Array, place: int) -> Array:
    """The last elements of (..., size), neighbours."""
    place = int(np.clip(place, 0, len(cosine) - 1))
    c, s = cosine[place].astype(float), sine[place].astype(float)
    whole, result = 2 * len(c), x.copy()
    a, b = x[..., -whole::2], x[..., -whole + 1 :: 2]
    result[..., -whole::2], result[..., -whole + 1 :: 2] = a * c - b * s, b * c + a * s
    return result


def ranked(scores: Array, count: int) -> list[int]:
    """Places of the largest scores, those in front first."""
    return sorted(range(len(scores)), key=lambda k: (-scores[k], k))[:count]


def tokens_of(
    queries: Array, keys: Array, ratio: int, blocks: int, visible: list[int]
) -> list[int]:
    """Selected tokens: of the best of the keys (complete blocks) in order, then the others.

    `queries` is (heads, size), and `keys` are those of all complete blocks of `visible`.
    """
    scores = [np.maximum(queries @ k, 0).sum() for k in keys]
    found = [t for j in ranked(scores, blocks) for t in visible[j * ratio : (j + 1) * ratio]]
    return found + visible[len(keys) * ratio :]


def pooled(values: Array, gates: Array, bias: Array, ratio: int, base: int, size: int) -> Array:
    """The mean, weighed by gates, of the window at `base` and the one before, if it is there."""
    result = np.zeros(size)
    for d in range(size):
        parts = [(base + i, size + d, i) for i in range(ratio)]
        if base >= ratio:
            parts += [(base - ratio + i, d, i) for i in range(ratio)]
        logits = np.array([gates[t, c] + bias[i, c] for t, c, i in parts])
        with np.errstate(invalid="ignore"):
            e = np.exp(logits - logits.max())
        if np.isfinite(e.sum()) and e.sum() > 0:
            result[d] = e @ [values[t, c] for t, c, _ in parts] / e.sum()
    return result


def windows_of(waiting: int, new: int, ratio: int) -> tuple[int, int, int]:
    """(where the first open window begins, how many become complete, what is kept from)."""
    first = ratio if waiting >= ratio else 0
    count = (waiting - first + new) // ratio
    return first, count, first + (count - 1) * ratio if count else 0


def padded(found: list[int], capacity: int) -> list[int]:
    return found + [-1] * (capacity - len(found))
