"""Counts of n-grams (ONNX operator spec, TfIdfVectorizer)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sardonyx.base.interrupt import checkpoint, claim
from sardonyx.host.functions import host_maker

#: A pool as a tree: what follows a word, and where the n-gram that ends there is counted.
Tree = dict[Any, "Branch"]
Branch = tuple[Tree, list[int]]


@host_maker
def count(
    *,
    pool: tuple[Any, ...],
    starts: tuple[int, ...],
    indexes: tuple[int, ...],
    weights: tuple[float, ...] | None,
    mode: str,
    shortest: int,
    longest: int,
    skips: int,
    width: int,
) -> Callable[[Any], Any]:
    """Takes (C) or (N, C) of words, strings or integers; gives (width) or (N, width) float32.

    `pool` has the n-grams one after the other, those of length n from `starts[n - 1]` on; the
    k-th n-gram of all is counted at `indexes[k]`. Words of an n-gram are 1 to `skips` + 1 apart.
    """
    tree, scale = _tree(_Grams(pool, starts, indexes, weights), width, shortest, longest)

    def counted(x: Any) -> Any:
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if x.ndim else x.reshape(1, 1)
        claim(4 * rows.shape[0] * width)
        result = np.zeros((rows.shape[0], width), np.float32)
        # Words that are further apart than a row is long make no n-gram.
        most = min(skips + 1, rows.shape[1] - 1) if longest > 1 else 1
        for row, found in zip(rows.tolist(), result, strict=True):
            for distance in range(1, max(1, most) + 1):
                checkpoint()
                # A single word has no distances: it counts once.
                least = shortest if distance == 1 else max(2, shortest)
                _count_row(row, distance, tree, found, least)
        if mode == "IDF":
            np.minimum(result, 1, out=result)
        if mode != "TF":
            result *= scale
        return result.reshape(*x.shape[:-1], width)

    return counted


def _count_row(row: list[Any], distance: int, tree: Tree, found: Any, shortest: int) -> None:
    """Count the n-grams of at least `shortest` words that are `distance` apart."""
    for start in range(len(row)):
        branch = tree
        for length, at in enumerate(range(start, len(row), distance), 1):
            step = branch.get(row[at])
            if step is None:
                break
            branch, places = step
            if length >= shortest:
                for place in places:
                    found[place] += 1
            if not branch:
                break


class _Grams(NamedTuple):
    """N-grams, and what each counts for: see `count`."""

    pool: tuple[Any, ...]
    starts: tuple[int, ...]
    indexes: tuple[int, ...]
    weights: tuple[float, ...] | None


def _tree(grams: _Grams, width: int, shortest: int, longest: int) -> tuple[Tree, Any]:
    pool, starts, indexes, weights = grams
    tree: Tree = {}
    claim(4 * width)
    scale = np.ones(width, np.float32)
    number = 0
    ends = (*starts[1:], len(pool))
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        for first in range(start, end, length):
            if number < len(indexes) and shortest <= length <= longest:
                _place(tree, pool[first : first + length]).append(indexes[number])
            if weights is not None and number < len(weights):
                scale[indexes[number]] = weights[number]
            number += 1
    return tree, scale


def _place(tree: Tree, words: tuple[Any, ...]) -> list[int]:
    branch = tree
    places: list[int] = []
    for word in words:
        branch, places = branch.setdefault(word, ({}, []))
    return places
