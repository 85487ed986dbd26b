"""What a model's file says beside the contents of its weights: equal for all that differ in those.

The digest is that of all bytes of the file, but for the raw bytes of longer initializers. Lengths
count, so two files of one skeleton have the same weights of the same types and shapes at the same
places of their lists.
"""

from __future__ import annotations

from dataclasses import field

from sardonyx.base.hashing import blake2b
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.records import dataclass
from sardonyx.loader.onnx_format import GRAPH, MODEL, TENSOR
from sardonyx.loader.source import Source
from sardonyx.loader.wire import WINDOW_BYTES, Message, Span

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
#: Shorter contents count: they are what shapes and scales are read from.
_SHORT_BYTES = 32
#: Files with more bytes that count have no skeleton: digesting them costs more than it may save.
_LONGEST_BYTES = 32 * 2**20


def _tag(kind: Message, name: str) -> int:
    (tag,) = (tag for tag, field in kind.table.items() if field.name == name)
    return tag


_OF_GRAPH = _tag(MODEL, "graph")
_OF_INITIALIZER = _tag(GRAPH, "initializer")
_OF_RAW_DATA, _OF_LOCATION = _tag(TENSOR, "raw_data"), _tag(TENSOR, "data_location")


@dataclass(slots=True)
class Skeleton:
    """See the module's text.

    Attributes:
        digest: Of all that counts.
        initializers: Where the messages of the outermost graph's initializers are, in order.
        external: Numbers of those that say where their contents are.
    """

    digest: str
    initializers: list[Span] = field(default_factory=list)
    external: list[int] = field(default_factory=list)


class _NoSkeletonError(Exception):
    """The file is not written as usual, or is damaged: loading says what is wrong."""


def skeleton_of(source: Source) -> Skeleton | None:
    """That of a model; None where it has none.

    Raises:
        Fail: The file was changed while it was read.
    """
    reader = _Reader(source)
    try:
        reader.model()
    except (_NoSkeletonError, IndexError):
        return None
    return Skeleton(reader.digest(), reader.initializers, reader.external)


class _Reader:
    """Walks through a file's outer messages, a window of it at a time."""

    def __init__(self, source: Source) -> None:
        self.initializers: list[Span] = []
        self.external: list[int] = []
        self._source, self._size = source, source.size
        self._window, self._base = b"", 0
        self._state = blake2b(digest_size=20)
        self._counted = self._end = 0  # bytes that were digested, and up to where

    def digest(self) -> str:
        self._count(self._size)
        return self._state.hexdigest()

    def model(self) -> None:
        position = 0
        while position < self._size:
            tag, start, end = self._field(position, self._size)
            if tag == _OF_GRAPH:
                self._graph(start, end)
            position = end

    def _graph(self, position: int, end: int) -> None:
        while position < end:
            checkpoint()
            tag, start, stop = self._field(position, end)
            if tag == _OF_INITIALIZER:
                self.initializers.append(Span(start, stop - start))
                self._tensor(start, stop)
            position = stop

    def _tensor(self, position: int, end: int) -> None:
        seen = False
        while position < end:
            tag, start, stop = self._field(position, end)
            if tag == _OF_RAW_DATA and stop - start > _SHORT_BYTES:
                if seen:
                    raise _NoSkeletonError
                seen = True
                self._count(start)
                self._end = stop
            elif tag == _OF_LOCATION:
                self.external.append(len(self.initializers) - 1)
            position = stop

    def _field(self, position: int, end: int) -> tuple[int, int, int]:
        """The tag of the field at a position, where its contents begin, and where it ends."""
        at = position - self._base
        if at < 0 or at + 20 > len(self._window):  # a tag and a length are no longer
            self._move(position)
            at = 0
        window = self._window
        tag, at = self._varint(window, at)
        wire = tag & 7
        start = at
        if wire == _LENGTH:
            size, start = self._varint(window, at)
            stop = start + size
        elif wire == _VARINT:
            _, stop = self._varint(window, at)
        elif wire == _FIXED32:
            stop = at + 4
        elif wire == _FIXED64:
            stop = at + 8
        else:
            raise _NoSkeletonError
        start, stop = start + self._base, stop + self._base
        if not tag >> 3 or stop > end:
            raise _NoSkeletonError
        return tag, start, stop

    @staticmethod
    def _varint(window: bytes, at: int) -> tuple[int, int]:
        value = window[at]
        at += 1
        if value < 128:
            return value, at
        value &= 127
        for shift in range(7, 70, 7):
            byte = window[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
        raise _NoSkeletonError

    def _move(self, position: int) -> None:
        """Have the window begin at a position. What it had and counts is digested."""
        size = min(WINDOW_BYTES, self._size - position)
        self._count(min(position, self._base + len(self._window)))
        self._window, self._base = self._source.read(position, size), position

    def _count(self, end: int) -> None:
        """Digest all up to a place that counts and was not digested yet."""
        while self._end < end:
            at = self._end - self._base
            if 0 <= at < len(self._window):
                part = memoryview(self._window)[at : end - self._base]
            else:
                part = memoryview(self._source.read(self._end, min(WINDOW_BYTES, end - self._end)))
            self._state.update(part)
            self._counted += len(part)
            self._end += len(part)
            if self._counted > _LONGEST_BYTES:
                raise _NoSkeletonError
