"""Keys of random operators: one for each time that a node draws.

Where the node has a seed, or `set_seed` was called, the key is made of it and of the node's name,
and a counter advances from draw to draw: a session draws the same again if it is made again. Else
every key is new.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sardonyx.base.forks import lock_over_forks
from sardonyx.base.hashing import blake2b
from sardonyx.host.functions import host_maker

_WORDS = np.dtype("<u4")
_BYTES = 8  # of the key, and of the counter


class _Seed:
    """A seed for all nodes without one of their own; another object each time that it is set."""

    def __init__(self, value: int) -> None:
        self.value = value


_lock = lock_over_forks()
_current: _Seed | None = None


def set_seed(value: int) -> None:
    """Let nodes without a seed of their own draw reproducibly from now on, from the beginning."""
    global _current  # noqa: PLW0603 - the process has one
    _current = _Seed(value)


@host_maker
def key(*, node: str, seed: float | int | None) -> Callable[[], Any]:
    """What gives uint32[4] for every draw: two words of key, two upper words of a counter."""
    draws: Iterator[int] = itertools.count()
    last: _Seed | None = None

    def drawn() -> Any:
        nonlocal draws, last
        if seed is not None:
            return _words(_key_of(seed, node), next(draws))
        with _lock:
            if _current is None:
                return np.frombuffer(os.urandom(2 * _BYTES), _WORDS)
            if last is not _current:
                draws, last = itertools.count(), _current
            return _words(_key_of(last.value, node), next(draws))

    return drawn


def _key_of(seed: float | int, node: str) -> bytes:
    text = f"{float(seed)!r} {node}" if isinstance(seed, float) else f"{seed} {node}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def _words(key_: bytes, number: int) -> Any:
    return np.frombuffer(key_ + number.to_bytes(_BYTES, "little"), _WORDS)
