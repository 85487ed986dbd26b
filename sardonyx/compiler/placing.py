"""Numbers, homes and lifetimes of the buffers of a plan while it is written."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.plan import BufferKind, BufferSpec
from sardonyx.tensor.tensor import Buffer


def bytes_of(buffer: Buffer) -> Dim:
    """How much memory a buffer's elements take."""
    return sizes.product(buffer.shape) * buffer.dtype.size_bytes


class Places:
    """Where buffers lie.

    Args:
        inputs: Buffers of the feeds.
        outputs: Buffers of the results; one may be the result several times.

    Attributes:
        constants: Buffers behind the plan's constants, in order.
        results: Which output a buffer is.
        written: Buffers that commands write; what nothing gives or writes is a constant.
        aliases: Buffers that are part of another one, and at which byte of it they begin.
        growing: Buffers that have memory of their own, by number.
    """

    def __init__(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> None:
        self.constants: list[Buffer] = []
        self.results: dict[Buffer, int] = {}
        for k, buffer in enumerate(outputs):
            self.results.setdefault(buffer, k)
        self.written: set[Buffer] = set()
        self.aliases: dict[Buffer, tuple[Buffer, Dim]] = {}
        self.growing: dict[Buffer, int] = {}
        self._given = {buffer: k for k, buffer in enumerate(inputs)}
        self._numbers: dict[Buffer, int] = {}
        self._kinds: list[tuple[BufferKind, int, Buffer]] = []
        self._born: list[int] = []
        self._spans: dict[int, tuple[int, int]] = {}

    def number(self, buffer: Buffer, segment: int) -> int:
        """The number of a buffer; it is known in `segment` if it was not used before."""
        found = self._numbers.get(buffer)
        if found is not None:
            return found
        number = self._numbers[buffer] = len(self._kinds)
        kind = self._kind(buffer)
        self._kinds.append(kind)
        # What is there from the start may be read in a branch that the first reader is not in.
        self._born.append(0 if kind[0] in ("input", "constant") else segment)
        return number

    def _kind(self, buffer: Buffer) -> tuple[BufferKind, int, Buffer]:
        if buffer in self.results:
            return "output", self.results[buffer], buffer
        if buffer in self._given:
            return "input", self._given[buffer], buffer
        if buffer in self.growing:
            return "grown", self.growing[buffer], buffer
        if buffer in self.written:
            return "arena", 0, buffer
        self.constants.append(buffer)
        return "constant", len(self.constants) - 1, buffer

    def find(self, buffer: Buffer, segment: int) -> tuple[int, Dim]:
        """The number of the buffer in which this one lies, and at which byte."""
        offset: Dim = 0
        while buffer in self.aliases:
            buffer, more = self.aliases[buffer]
            offset = offset + more
        return self.number(buffer, segment), offset

    def touch(self, number: int, position: int) -> None:
        """Note that the command at `position` uses a buffer."""
        first, last = self._spans.get(number, (position, position))
        self._spans[number] = (min(first, position), max(last, position))

    def prolong(self, begin: int, end: int) -> None:
        """Let what is used in a loop, and was there before, live until its end."""
        for number, (first, last) in self._spans.items():
            if first < begin <= last:
                self._spans[number] = (first, max(last, end))

    def gather(self, begin: int, end: int) -> None:
        """Let everything that is used between two commands live between them all the time."""
        for number, (first, last) in self._spans.items():
            if first < end and last >= begin:
                self._spans[number] = (min(first, begin), max(last, end))

    def lead(self, buffer: Buffer, target: Buffer, offset: Dim, among: Container[Buffer]) -> bool:
        """Let a buffer be computed as a part of another one, if it may be: one of `among`."""
        if buffer in self.aliases or buffer not in among:
            return False
        self.aliases[buffer] = (target, offset)
        return True

    def specs(self) -> Iterable[BufferSpec]:
        """All buffers, in the order of their numbers."""
        for k, (kind, which, buffer) in enumerate(self._kinds):
            span = self._spans.get(k, (0, 0))
            yield BufferSpec(kind, which, bytes_of(buffer), *span, self._born[k])
