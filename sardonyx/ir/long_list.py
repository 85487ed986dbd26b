"""Lists of attributes that are too long to be Python objects: ensembles of trees have millions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from sardonyx.ir.constant import Array

T = TypeVar("T", int, float, str, str | bytes)

#: A list of at least so many items may be a `LongList`.
LONG = 1024


def narrow(values: Array) -> Array:
    """The same integers, each in as few bytes as hold all of them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return values.astype(kind, copy=False)
    return values.astype(np.int64, copy=False)


class LongList(Generic[T]):
    """An unchangeable list of integers, of floats, or of texts of which few are different.

    Attributes:
        array: The numbers, of any width that holds them; or positions in `table`.
        table: The different texts, each once; None for numbers.
    """

    __slots__ = ("array", "table")

    def __init__(self, array: Array, table: tuple[str | bytes, ...] | None = None) -> None:
        self.array = array
        self.table = table
        array.flags.writeable = False

    @classmethod
    def of(cls, items: Iterable[T], kind: type) -> LongList[T]:
        """The list of items of one kind: `int`, `float` or `str`."""
        if kind is float:
            return cls(np.array(list(items), np.float32))
        if kind is int:
            return cls(narrow(np.array(list(items), np.int64)))
        places: dict[Any, int] = {}
        codes = [places.setdefault(text, len(places)) for text in items]
        return cls(narrow(np.array(codes, np.int64)), tuple(places))

    @property
    def kinds(self) -> frozenset[type]:
        """The types of its items."""
        if self.table is not None:
            return frozenset(map(type, self.table))
        return frozenset([float if self.array.dtype.kind == "f" else int])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self.array), LONG):
            items = self.array[start : start + LONG].tolist()
            yield from items if self.table is None else map(self.table.__getitem__, items)

    def __getitem__(self, index: int) -> T:
        item: Any = self.array[index].item()
        return cast("T", item if self.table is None else self.table[item])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence | LongList):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"LongList({len(self)} items)"


#: Empty lists, for what an operator may go without.
NO_INTEGERS: LongList[int] = LongList.of((), int)
NO_FLOATS: LongList[float] = LongList.of((), float)
NO_TEXTS: LongList[str] = LongList.of((), str)


def joined(pieces: Iterable[Any]) -> list[Any] | LongList[Any]:
    """One list of items among which are long lists of such items."""
    parts: list[LongList[Any]] = []
    plain: list[Any] = []
    given = list(pieces)
    first = next((piece for piece in given if isinstance(piece, LongList)), None)
    if first is None:
        return given
    kind = str if first.table is not None else next(iter(first.kinds))
    for piece in given:
        if isinstance(piece, LongList):
            if plain:
                parts.append(LongList.of(plain, kind))
                plain = []
            parts.append(piece)
        else:
            plain.append(piece)
    if plain:
        parts.append(LongList.of(plain, kind))
    if first.table is None:
        return LongList(np.concatenate([part.array for part in parts]))
    places: dict[str | bytes, int] = {}
    codes = []
    for part in parts:
        table = [places.setdefault(text, len(places)) for text in part.table or ()]
        codes.append(narrow(np.array(table))[part.array])
    return LongList(np.concatenate(codes), tuple(places))
