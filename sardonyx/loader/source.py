"""Where a model's bytes come from: memory, or a file that stays open.

A file that is truncated while it is mapped kills the process that touches the mapping, and one
that is overwritten in place changes under its reader. So no file of a user is ever mapped: every
byte is copied by ordinary reads, which fail cleanly, and which cost no more than the page faults
of a mapping that is read once. Big weights are read each time that they are asked for, not held;
after each read the size and the time of change of the file are compared with those at opening.
"""

from __future__ import annotations

import os

import numpy as np

from sardonyx.base.errors import Fail, OutOfMemory, message
from sardonyx.base.files import identity_of, open_file
from sardonyx.base.forks import RenewedLock


class Source:
    """Bytes in memory.

    Attributes:
        name: What errors call it.
        size: Number of bytes.
        whole: All bytes at once, where they are in memory anyway and cannot change.
        is_owned: Whether the bytes can neither change nor go.
    """

    def __init__(self, data: bytes | memoryview, name: str = "model") -> None:
        self.name = name
        self._view = memoryview(data).cast("B")
        self.size = len(self._view)
        self.whole = data if isinstance(data, bytes) else None
        self.is_owned = self.whole is not None

    def read(self, offset: int, size: int) -> bytes:
        """A copy of bytes, which must lie inside."""
        return bytes(self._view[offset : offset + size])

    def view(self, offset: int, size: int) -> memoryview:
        """Bytes without a copy."""
        return self._view[offset : offset + size].toreadonly()

    def copy(self, offset: int, size: int) -> bytearray:
        """Bytes in memory of our own."""
        return bytearray(self._view[offset : offset + size])

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy as many bytes as `target` has room for."""
        target[:] = self._view[offset : offset + len(target)]


class FileSource(Source):
    """A file. Stays open as long as something refers to it."""

    def __init__(self, path: str) -> None:
        self.name = path
        self.whole = None
        self.is_owned = False
        self._lock = RenewedLock()
        self._file = open_file(path)
        self._state = self._current_state()
        self.size = self._state[0]
        #: The state that it was opened in.
        self.identity = identity_of(os.fstat(self._file.fileno()))

    def _current_state(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._current_state() != self._state:
            raise Fail(
                message(self.name, "The file was changed while it was in use", do="Load it again")
            )

    def _read(self, offset: int, target: memoryview) -> None:
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < len(target):
                count = self._file.readinto(target[done:])  # type: ignore[attr-defined]  # an unbuffered file has it
                if not count:
                    raise Fail(message(self.name, "The file was truncated while it was in use"))
                done += count

    def read(self, offset: int, size: int) -> bytes:
        """A copy of bytes, which must lie inside the file's size at opening.

        Raises:
            Fail: The file was changed since it was opened.
        """
        with self._lock:
            self._file.seek(offset)
            data = self._file.read(size)
        if len(data) < size:
            return bytes(self.copy(offset, size))
        self._check_unchanged()
        return data

    def copy(self, offset: int, size: int) -> bytearray:
        """Bytes in memory of our own.

        Raises:
            Fail: The file was changed since it was opened.
        """
        data = bytearray(size)
        self.read_into(offset, memoryview(data))
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy as many bytes as `target` has room for.

        Raises:
            Fail: The file was changed since it was opened.
        """
        self._read(offset, target)
        self._check_unchanged()

    def view(self, offset: int, size: int) -> memoryview:
        """Bytes as they are in the file now; a copy, see the module's text.

        Raises:
            Fail: The file was changed since it was opened.
            OutOfMemory: The system refuses the memory.
        """
        try:
            data = np.empty(size, np.uint8)  # not zeroed first, as a bytearray would be
        except MemoryError:
            what = f"The system refuses {size} bytes of memory for weights"
            raise OutOfMemory(message(self.name, what)) from None
        self.read_into(offset, data.data)
        return data.data.toreadonly()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()
