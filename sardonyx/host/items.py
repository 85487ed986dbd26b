"""Sequences as the host keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Items:
    """A sequence that never changes; one with a further item at the end shares its memory.

    Args:
        items: The items, of which the first `count` count. Others may be behind them.
        count: How many; None for all.
    """

    __slots__ = ("_items", "count")

    def __init__(self, items: list[Any] | None = None, count: int | None = None) -> None:
        self._items = [] if items is None else items
        self.count = len(self._items) if count is None else count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items[: self.count])

    def __getitem__(self, position: int) -> Any:
        if not 0 <= position < self.count:
            raise IndexError(position)
        return self._items[position]

    def given_up(self) -> list[Any]:
        """The items as a list, perhaps with the same memory: for sequences that nobody else has."""
        items = self._items
        return items if len(items) == self.count else items[: self.count]

    def shares_with(self, other: object) -> bool:
        """Whether the two have their memory in common."""
        return isinstance(other, Items) and self._items is other._items

    def with_item(self, position: int, item: Any) -> Items:
        """The sequence with one more item, before the one at `position`."""
        if position == self.count == len(self._items):
            self._items.append(item)
            return Items(self._items)
        return Items([*self._items[:position], item, *self._items[position : self.count]])

    def without_item(self, position: int) -> Items:
        """The sequence without the item at `position`."""
        if position == self.count - 1:
            return Items(self._items, position)
        return Items([*self._items[:position], *self._items[position + 1 : self.count]])
