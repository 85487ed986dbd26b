"""Files that several processes share: private folders, atomic writes, entries that know their size.

An entry is a payload with a footer behind it, `_FOOTER`: magic, payload bytes, checksum of the
payload, and whether there is one. Readers that map the payload need not know the footer.
"""

from __future__ import annotations

import itertools
import os
import stat
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_FOOTER = struct.Struct("<8sQII")
_MAGIC = b"sdxentry"
#: Largest payload whose checksum is written and verified; larger ones are checked for length only.
CHECKED_BYTES = 4 * 2**20
#: How the names of files begin that are not whole yet.
TEMPORARY = ".tmp-"
_NUMBERS = itertools.count()

Content = bytes | bytearray | memoryview | Callable[[BinaryIO], object]


def private_folder(path: Path, *, follow_links: bool = True) -> str:
    """Make a folder that only this user can write to, or check that an existing one is such.

    Folders of the system's own user are accepted: nobody else can have put anything there.

    Returns:
        Why the folder cannot be trusted; empty when it can.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat() if follow_links else path.lstat()
    except OSError as error:
        return f"it cannot be made: {error.strerror or error}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def write_entry(path: Path, content: Content) -> int:
    """Write an entry so that readers see all of it or nothing.

    There is no fsync: after a power cut a small entry's checksum tells, a large one's length.

    Args:
        path: Where; what stands there is replaced.
        content: The payload, or a function that writes it to a file open for reading and writing.

    Returns:
        Bytes of the file.

    Raises:
        OSError: The file cannot be written. Nothing is left behind.
    """
    descriptor, name = _temporary_in(path.parent)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            size = file.seek(0, os.SEEK_END)
            checked = size <= CHECKED_BYTES
            file.seek(0)
            checksum = zlib.crc32(file.read()) if checked else 0
            file.seek(size)
            file.write(_FOOTER.pack(_MAGIC, size, checksum, int(checked)))
        name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    return size + _FOOTER.size


def _temporary_in(folder: Path) -> tuple[int, Path]:
    """A new file that only this user can open. (`tempfile` takes 4 ms to import.)"""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = folder / f"{TEMPORARY}{os.getpid():x}-{time.time_ns():x}-{next(_NUMBERS):x}"
        try:
            return os.open(path, flags, 0o600), path
        except FileExistsError:  # of a process in another container, perhaps
            continue


def payload_bytes(path: Path) -> int | None:
    """Size of an entry's payload, once length and (when it is small) checksum have been verified.

    Returns:
        None when the entry is damaged.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - _FOOTER.size
        if size < 0:
            return None
        file.seek(size)
        magic, written, checksum, checked = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic != _MAGIC or written != size:
            return None
        if checked:
            file.seek(0)
            if zlib.crc32(file.read(size)) != checksum:
                return None
        return size


def read_entry(path: Path) -> bytes | None:
    """An entry's payload, verified as `payload_bytes` does; None when it is damaged.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        data = file.read()
    size = len(data) - _FOOTER.size
    if size < 0:
        return None
    magic, written, checksum, checked = _FOOTER.unpack_from(data, size)
    payload = data[:size]
    if magic != _MAGIC or written != size or (checked and zlib.crc32(payload) != checksum):
        return None
    return payload
