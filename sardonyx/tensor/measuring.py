"""Sizes that only the data decides: elements of small integer tensors, read while a run goes on.

A lowering that needs the contents of a tensor as sizes asks `measure` for symbols. Whoever lowers
the graph says, with `measuring`, where symbols come from, and notes what they are measured in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

from sardonyx.base.records import dataclass
from sardonyx.base.settings import Setting
from sardonyx.base.sizes import Dim
from sardonyx.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Measured:
    """Where a symbol gets its value.

    Attributes:
        tensor: An int64 tensor.
        position: Which of its elements, row-major.
        low: The smallest value that it may have.
        high: The largest one.
        origin: Names of the ONNX nodes that asked.
    """

    tensor: Tensor
    position: int
    low: Dim
    high: Dim
    origin: tuple[str, ...] = ()


#: Given a tensor, the positions that are asked for, and the limits: a size for each position.
Measure = Callable[[Tensor, tuple[int, ...], Dim, Dim], tuple[Dim, ...]]

_measure: ContextVar[Measure | None] = ContextVar("measure", default=None)


class Asked:
    """Numbers the tensors that one node asks about, the same way in every pass over the graph."""

    def __init__(self, inputs: Sequence[Tensor | None]) -> None:
        self._numbers = {x: k for k, x in reversed([*enumerate(inputs)]) if x is not None}

    def number(self, x: Tensor) -> int:
        """Which input it is; below 0 for one that the lowering has made."""
        made = sum(n < 0 for n in self._numbers.values())
        return self._numbers.setdefault(x, -1 - made)


#: Beyond these a value is no size, and sums of sizes could overflow.
SMALLEST, LARGEST = 1 - (1 << 61), (1 << 61) - 1


def measuring(measure: Measure) -> Setting[Measure]:
    """Inside the block, `measure` gives the symbols."""
    return Setting(_measure, measure)


def measure(
    x: Tensor, positions: tuple[int, ...], low: Dim = SMALLEST, high: Dim = LARGEST
) -> tuple[Dim, ...] | None:
    """Elements of an integer tensor as sizes that are known only while a run goes on.

    Args:
        x: The tensor.
        positions: Which elements, row-major.
        low: The smallest value that is possible or allowed.
        high: The largest one.

    Returns:
        A size for each position; None where nothing can be measured now.
    """
    current = _measure.get()
    return None if current is None else current(x, positions, low, high)
