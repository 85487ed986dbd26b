"""Steps of a plan that call no kernel: they decide what is called next, and with which sizes.

A plan's commands are walked in order. A step may jump, and may give sizes their values; the sizes
that follow from those are computed when a segment is entered.
"""

from __future__ import annotations

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim


@dataclass(frozen=True, slots=True)
class Measure:
    """A symbol whose value commands have computed: an int64 in a buffer.

    Attributes:
        symbol: The symbol's name.
        buffer: Where the value lies.
        offset_bytes: At which byte of it; known before.
        low: The smallest value that it may have; known before.
        high: The largest one.
        origin: Names of the ONNX nodes that ask for it.
    """

    symbol: str
    buffer: int
    offset_bytes: Dim
    low: Dim
    high: Dim
    origin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a run at whose beginning more sizes become known.

    Attributes:
        parent: The segment before it that every way to it leads through; -1 for the first one.
        measures: Symbols that are measured when it is entered.
        counters: Symbols that `SetSize` steps give values before it is entered.
        conditional: A run may pass it by, so that nothing of it may be worked out before.
    """

    parent: int
    measures: tuple[Measure, ...] = ()
    counters: tuple[str, ...] = ()
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Enter:
    """Work out everything that belongs to a segment, if it is not what it was last time."""

    segment: int


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at the command `target`."""

    target: int


@dataclass(frozen=True, slots=True)
class JumpUnless:
    """Go on at `target` if the bool in `buffer`, at a byte known in `segment`, is false."""

    buffer: int
    target: int
    offset_bytes: Dim = 0
    segment: int = 0


@dataclass(frozen=True, slots=True)
class JumpIfLess:
    """Go on at `target` if `left < right`, two sizes known in `segment`."""

    left: Dim
    right: Dim
    target: int
    segment: int = 0


@dataclass(frozen=True, slots=True)
class SetSize:
    """Give a counter of segment `owner` a value that is known in `segment`."""

    symbol: str
    value: Dim
    owner: int
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Grow:
    """Let a growing buffer hold `size_bytes` at least, and keep the first `keep_bytes` of it."""

    buffer: int
    size_bytes: Dim
    keep_bytes: Dim
    segment: int = 0


@dataclass(frozen=True, slots=True)
class PlanPart:
    """Commands from `first` up to `end`, most of which are done `trips` times."""

    first: int
    end: int
    trips: Dim


@dataclass(frozen=True, slots=True)
class Together:
    """Parts that follow, one behind the other, of which none needs another.

    Threads may walk a part each, where that takes less time than sharing every command. Who goes
    on at the next command instead does the same.
    """

    parts: tuple[PlanPart, ...]
    segment: int = 0


Step = Enter | Jump | JumpUnless | JumpIfLess | SetSize | Grow | Together
