"""What calls of libraries are to give: some elements of their results, worked out on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sardonyx.base import dtypes
from sardonyx.cuda.libraries.measuring import drawn
from sardonyx.runtime.storage import Array

#: Elements of an operand by its name and their places in memory, as floats of 64 bits.
Numbers = Callable[[object, Array], Array]


class Reference(NamedTuple):
    """A result's elements, when operands are full of numbers that are known.

    Attributes:
        depth: How many products one element is the sum of.
        values: From the operands' elements, and the indices of elements (one in each row).
    """

    depth: int
    values: Callable[[Numbers, Array], Array]


def numbers_of(operands: Mapping[object, tuple[int, str]]) -> Numbers:
    """The elements that `measuring.Loan.fill` writes.

    Args:
        operands: For each how many elements it has, and their type by name.
    """

    def at(name: object, places: Array) -> Array:
        count, kind = operands[name]
        known = drawn(count, dtypes.BY_NAME[kind].numpy)
        found: Array = known[places % len(known)].astype(np.float64)
        return found

    return at


def finished(total: Array, added: Sequence[Array], activation: str) -> Array:
    """Sums with what is added to them, and its activation."""
    for each in added:
        total = total + each
    if activation == "relu":
        total = np.maximum(total, 0)
    elif activation == "gelu":
        inner = math.sqrt(2 / math.pi) * (total + 0.044715 * total**3)
        total = 0.5 * total * (1 + np.tanh(inner))
    return total
