"""When commands can run: sizes that the data decides split a plan into levels.

A command of level 0 depends on the feeds' shapes alone. A symbol that is measured in what a command
of level k computes is known from level k + 1 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Dim
from sardonyx.tensor.tensor import Tensor


class Work(Protocol):
    """What has a level."""

    @property
    def reads(self) -> Sequence[Tensor]:
        """Buffers that it reads."""

    @property
    def writes(self) -> Sequence[Tensor]:
        """Buffers that it writes."""

    @property
    def sizes(self) -> Iterable[Dim]:
        """Every size that it needs before it begins."""


class Levels:
    """Levels of pieces of work.

    Args:
        works: All of them.
        measured: The buffer in which each measured symbol is found.
    """

    def __init__(self, works: Iterable[Work], measured: Mapping[Dim, Tensor]) -> None:
        self._measured = measured
        self._of_buffer: dict[Tensor, int] = {}
        self._of_symbol: dict[Dim, int] = {symbol: 1 for symbol in measured}
        listed = [(w, self._symbols(w.sizes)) for w in works] if measured else []
        again = bool(listed)
        rounds = 0
        while again:
            again = False
            rounds += 1
            if rounds > len(listed) + len(measured) + 2:
                raise EngineError(message("levels", "A size is measured in what waits for it"))
            for work, symbols in listed:
                level = max(
                    [
                        *(self._of_buffer.get(b, 0) for b in work.reads),
                        *(self._of_symbol[s] for s in symbols),
                    ],
                    default=0,
                )
                for buffer in work.writes:
                    if self._of_buffer.get(buffer, 0) < level:
                        self._of_buffer[buffer] = level
                        again = True
            for symbol, buffer in measured.items():
                level = self._of_buffer.get(buffer, 0) + 1
                if self._of_symbol[symbol] < level:
                    self._of_symbol[symbol] = level
                    again = True

    def _symbols(self, dims: Iterable[Dim]) -> list[Dim]:
        found: dict[Dim, None] = {}
        for dim in dims:
            for atom in sizes.leaves_of(dim):
                symbol = sizes.of_atom(atom)
                if symbol in self._measured:
                    found[symbol] = None
        return list(found)

    def of_sizes(self, dims: Iterable[Dim]) -> int:
        """The level from which all these sizes are known."""
        if not self._measured:
            return 0
        return max((self._of_symbol[s] for s in self._symbols(dims)), default=0)

    def of(self, work: Work) -> int:
        """The level at which a piece of work runs."""
        if not self._measured:
            return 0
        before = max((self._of_buffer.get(b, 0) for b in work.reads), default=0)
        return max(before, self.of_sizes(work.sizes))

    @property
    def symbols(self) -> list[list[Dim]]:
        """For each level, the symbols that are known from it on; none for level 0."""
        found: list[list[Dim]] = [[] for _ in range(max(self._of_symbol.values(), default=0) + 1)]
        for symbol, level in self._of_symbol.items():
            found[level].append(symbol)
        return found
