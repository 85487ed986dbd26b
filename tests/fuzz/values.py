"""What the fuzzer knows of a value: type, sizes in every run, and how far results may differ.

A size is a number for each of the shapes that a graph is run at, so that rules compute sizes as
plain integers, and whatever graph comes out is valid at all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

#: At how many shapes a graph is run.
RUNS = 3
#: Most elements of a value.
MOST_ELEMENTS = 12000

_FREE = itertools.count(1)


@dataclass(frozen=True)
class Extent:
    """A size: a number for each run, or, where only the data decides, the most it can be.

    Attributes:
        at: The numbers.
        free: 0, or what tells sizes apart that the data decides.
    """

    at: tuple[int, ...]
    free: int = 0

    @property
    def is_static(self) -> bool:
        """Whether it is the same number in every run."""
        return not self.free and len(set(self.at)) == 1

    @property
    def least(self) -> int:
        """The smallest that it can be."""
        return 0 if self.free else min(self.at)

    @property
    def number(self) -> int:
        """The number of a static size."""
        return self.at[0]

    def map(self, function: Callable[[int], int]) -> Extent:
        """A size computed from this one."""
        at = tuple(map(function, self.at))
        return Extent(at, next(_FREE) if self.free else 0)

    def __repr__(self) -> str:
        mark = "?" if self.free else ""
        return mark + (str(self.number) if len(set(self.at)) == 1 else "/".join(map(str, self.at)))


def fixed(number: int) -> Extent:
    """The same size in every run."""
    return Extent((number,) * RUNS)


def free(most: tuple[int, ...]) -> Extent:
    """A size that only the data decides."""
    return Extent(most, next(_FREE))


def combined(function: Callable[..., int], *extents: Extent) -> Extent:
    """A size computed from several, greater where they are."""
    at = tuple(map(function, *(e.at for e in extents)))
    return free(at) if any(e.free for e in extents) else Extent(at)


Shape = tuple[Extent, ...]


def volume(shape: Shape) -> int:
    """The most elements that there are in any run."""
    return max(prod(e.at[run] for e in shape) for run in range(RUNS))


def broadcast(*shapes: Shape) -> Shape | None:
    """The shape of a broadcast, or None."""
    rank = max(map(len, shapes))
    padded = [(fixed(1),) * (rank - len(s)) + s for s in shapes]
    result: list[Extent] = []
    for axis in zip(*padded, strict=True):
        at: list[int] = []
        frees = {e for e in axis if e.free}
        if frees:
            if len(frees) > 1 or any(e not in frees and e != fixed(1) for e in axis):
                return None
            result.append(frees.pop())
            continue
        for numbers in zip(*(e.at for e in axis), strict=True):
            others = set(numbers) - {1}
            if len(others) > 1:
                return None
            at.append(others.pop() if others else 1)
        result.append(Extent(tuple(at)))
    return tuple(result)


#: Up to here every whole number is a float of the type.
WHOLE_LIMITS = {"f2": 2.0**10, "f4": 2.0**22, "f8": 2.0**50}
#: Beyond this a value may become infinite soon.
LIMITS = {"f2": 500.0, "f4": 1e9, "f8": 1e9, "i4": 2.0**30, "i8": 2.0**60, "u1": 255, "b1": 1}
FLOATS = ("f4", "f8", "f2")
INTEGERS = ("i8", "i4", "u1")


@dataclass(frozen=True)
class Value:
    """A tensor of a graph that is being made.

    Attributes:
        name: Its name.
        dtype: NumPy's code of its type.
        shape: Its sizes.
        exact: Whether no rounding decides what it is, so that it may decide something.
        whole: Whether its elements are whole numbers.
        bound: No element is larger in magnitude.
        contents: What it holds in each run, where that is known.
    """

    name: str
    dtype: str
    shape: Shape
    exact: bool = True
    whole: bool = True
    bound: float = 1.0
    contents: tuple[Any, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its elements are floats."""
        return self.dtype[0] == "f"

    @property
    def is_exact_whole(self) -> bool:
        """Whether sums and products of it are exact, too, as long as they are small."""
        return self.exact and self.whole

    def like(self, **changes: Any) -> Value:
        """A value with some of this one's properties, of unknown contents."""
        return replace(self, **{"contents": None, **changes})


def numpy_dtype(code: str) -> np.dtype[Any]:
    """NumPy's type of a code."""
    return np.dtype(bool if code == "b1" else code)
