"""How many rows a block of a product has, so that a few threads end at the same time."""

from __future__ import annotations

from functools import lru_cache

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.base.substitution import substitute

#: Numbers of threads that blocks are made for: more of them take more blocks, or share cores.
_THREADS = (2, 4)
#: Blocks have whole tiles of rows, at least a few.
_TILE, _LEAST = 6, 24
#: What a block costs beside its rows, in rows.
_BLOCK_ROWS = 1
#: With so many blocks for each thread, one more or less hardly counts.
_MANY = 24


def balanced_rows(rows: Dim, others: Dim, most: int) -> int:
    """Rows of a block.

    Args:
        rows: Rows of the product; a size that only a run knows counts as 1.
        others: Blocks of each row.
        most: Rows at most.
    """
    count, repeated = _typical(rows), _typical(others)
    if most < _LEAST or count < _LEAST or count * repeated > most * _MANY * max(_THREADS):
        return most
    return _best(count, repeated, most)


@lru_cache(maxsize=1 << 10)
def _best(count: int, repeated: int, most: int) -> int:
    def cost(block: int) -> float:
        full, rest = divmod(count, block)
        work = [*([block] * full), *([rest] if rest else [])] * repeated
        return sum(
            threads * _span([w + _BLOCK_ROWS for w in work], threads) for threads in _THREADS
        )

    return min(range(most // _TILE * _TILE, _LEAST - 1, -_TILE), key=cost)


def _typical(size: Dim) -> int:
    ones: dict[sizes.Atom, Dim] = dict.fromkeys(sizes.atoms_of(size), 1)
    known = substitute(size, ones)
    return known if isinstance(known, int) else 0


def _span(work: list[int], threads: int) -> int:
    """When the last of some threads ends that take blocks in order, each when it is free."""
    busy = [0] * threads
    for one in work:
        first = min(range(threads), key=busy.__getitem__)
        busy[first] += one
    return max(busy)
