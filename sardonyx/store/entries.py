"""Entries: files that appear as a whole, and whose every byte is checked before it is used.

An entry is a payload with a footer behind it, `_FOOTER`: magic, payload bytes, and a checksum of
the payload and of the entry's name. Whoever maps the payload need not know the footer.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from sardonyx.runtime.storage import Array
from sardonyx.store import checksums
from sardonyx.store.checksums import Checksum
from sardonyx.store.folders import Folder

_FOOTER = struct.Struct(f"<8sQ{checksums.SIZE_BYTES}s")
#: What the footer begins with; another one where the format is another.
FORMAT = b"sdxentr2"

#: A file of up to so many bytes is read at once, and its footer with it.
_READ_BYTES = 2**17

Content = bytes | bytearray | memoryview | Callable[[BinaryIO], object]


class Damaged(Exception):  # noqa: N818 - nothing is wrong with the program
    """An entry is not what was written."""


class Entry:
    """An entry's file, open. Use it as a context: its end closes it, and what is mapped stays.

    Args:
        descriptor: Of the file, of whose owner and mode somebody has made sure.
        file_bytes: Its size.
        label: What its checksum calls it, kind and key.

    Attributes:
        descriptor: Of the file; the payload begins where it does.
        size: Bytes of the payload.
        digest: The checksum that the footer says.

    Raises:
        Damaged: It has no footer, or another length.
        OSError: It cannot be read.
    """

    def __init__(self, descriptor: int, file_bytes: int, label: str) -> None:
        self.descriptor, self._label = descriptor, label
        self._mapped: Array | None = None
        self._begun: Checksum | None = None
        self.size = file_bytes - _FOOTER.size
        if self.size < 0:
            raise Damaged
        start = 0 if file_bytes <= _READ_BYTES else self.size
        data = _read(descriptor, start, file_bytes - start)
        if len(data) < file_bytes - start:
            raise Damaged
        self._payload = None if start else data[: self.size]
        magic, size, self.digest = _FOOTER.unpack_from(data, self.size - start)
        if magic != FORMAT or size != self.size:
            raise Damaged

    def close(self) -> None:
        """Close the file."""
        if self._begun is not None:
            self._begun.stop()
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def map(self) -> Array:
        """The payload, mapped and not to be written to; it is not checked.

        Raises:
            OSError: It cannot be mapped.
        """
        if self._mapped is None:
            mapped = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
            self._mapped = np.frombuffer(mapped, np.uint8)[: self.size]
        return self._mapped

    def begin(self, threads: int = 1) -> None:
        """Begin to check a large payload, in threads of its own; `check` waits for them."""
        if self.size > checksums.SMALL_BYTES and self._begun is None:
            self._begun = Checksum(self.map(), self._label, threads)

    def check(self, threads: int = 1) -> None:
        """Compare the payload with its checksum: those bytes that `map` gives.

        Args:
            threads: How many may work on it.

        Raises:
            Damaged: It is another.
            OSError: It cannot be read.
        """
        self.begin(threads)
        if self._begun is not None:
            found = self._begun.finish()
            self._begun = None
        else:
            found = checksums.small(self.map().data, self._label)
        if found != self.digest:
            raise Damaged

    def read(self) -> bytes:
        """The payload, checked. Raises as `check` does."""
        if self.size > checksums.SMALL_BYTES:
            self.check()
            return self.map().tobytes()
        payload = self._payload
        if payload is None:
            payload = _read(self.descriptor, 0, self.size)
        if checksums.small(payload, self._label) != self.digest:
            raise Damaged
        return payload


def _read(descriptor: int, start: int, size: int) -> bytes:
    """A part of a file; less only at its end."""
    os.lseek(descriptor, start, os.SEEK_SET)
    pieces = [os.read(descriptor, size)]
    while pieces[-1] and (left := size - sum(map(len, pieces))):
        pieces.append(os.read(descriptor, left))
    return b"".join(pieces)


def write_entry(
    folder: Folder, name: str, label: str, content: Content, *, lasting: bool, threads: int = 1
) -> tuple[int, bytes]:
    """Write an entry so that readers see all of it or nothing.

    Args:
        folder: Where.
        name: Its name there; what has that name is replaced.
        label: What its checksum calls it.
        content: The payload, or a function that writes it to a file open for reading and writing.
        lasting: Have it on the disk before it gets its name, which may take 10 ms. After a power
            cut another one may be damaged, as its checksum says then.
        threads: How many may work on its checksum.

    Returns:
        Bytes of the file, and the checksum.

    Raises:
        OSError: The file cannot be written. Nothing is left behind.
    """
    file, temporary = folder.temporary()
    try:
        with file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            size = file.seek(0, os.SEEK_END)
            digest = _digest(file, size, label, threads)
            file.seek(size)
            file.write(_FOOTER.pack(FORMAT, size, digest))
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        _replace(folder, temporary, name)
    except BaseException:
        folder.remove(temporary)
        raise
    return size + _FOOTER.size, digest


def _digest(file: BinaryIO, size: int, label: str, threads: int) -> bytes:
    """The checksum of what was written to a file."""
    if size <= checksums.SMALL_BYTES:
        file.seek(0)
        return checksums.small(file.read(size), label)
    file.flush()
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    return Checksum(np.frombuffer(mapped, np.uint8), label, threads).finish()


def _replace(folder: Folder, temporary: str, name: str) -> None:
    try:
        folder.rename(temporary, name)
    except IsADirectoryError:  # an empty one stood there, or the system refuses this, too
        folder.remove(name)
        folder.rename(temporary, name)


def open_entry(folder: Folder, name: str, label: str) -> Entry:
    """An entry in a folder. Raises as `Folder.file` and `Entry` do."""
    descriptor, file_bytes = folder.file(name)
    try:
        return Entry(descriptor, file_bytes, label)
    except BaseException:
        os.close(descriptor)
        raise
