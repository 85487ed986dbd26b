"""Kernel archives: kernels compiled before any model comes, in read-only files beside the package.

An archive has for one target what the disk cache has after many models: machine code of functions,
kernels and layers by their structure, the run time's own functions. Keys are those of the cache, so
an archive that was written for other source of the package finds nothing but machine code, whose
key is the text that it is compiled from. `compiler.archive_writer` writes archives.

File: `_HEADER`; then an index of `_ROW`s in the order of their names; then the payloads. An
archive is trusted as the package itself is, beside which it lies: its checksums tell damage.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from sardonyx.base import knobs
from sardonyx.base.errors import NoSuchFile, SardonyxError
from sardonyx.base.files import open_file
from sardonyx.base.hashing import blake2b
from sardonyx.base.log import get_logger
from sardonyx.store import checksums
from sardonyx.store.cache import kernel_digest
from sardonyx.targets.target import Target

_log = get_logger("cache")
_MAGIC = b"sdxarch1"
_HEADER = struct.Struct("<8sQQ40s")  # magic, entries, bytes of the file, `cache.kernel_digest`
_ROW = struct.Struct(f"<16sQQ{checksums.SIZE_BYTES}s")  # name, place, bytes, checksum
_NAME_BYTES = 16
#: The package that brings archives, and where a checkout has it.
_PACKAGE, _CHECKOUT = "sardonyx_kernels", "kernels"


class KernelArchive:
    """One archive, mapped.

    Args:
        path: Its file.

    Attributes:
        path: Its file.
        count: How many entries it has.
        is_current: Whether it was written for the source that runs.

    Raises:
        SardonyxError, OSError: There is none, or it cannot be read.
        ValueError: It is no archive, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < _HEADER.size:
                raise ValueError("it is too short")
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        magic, self.count, stated, source = _HEADER.unpack_from(self._data)
        if magic != _MAGIC or stated != size or self.count > size // _ROW.size:
            raise ValueError("it is no archive, or a part of one")
        self.is_current = source == kernel_digest().encode()
        if not self.is_current:
            _log.info("%s is for other source: it has machine code alone for this one", path)

    def _name(self, number: int) -> bytes:
        start = _HEADER.size + number * _ROW.size
        return bytes(self._data[start : start + _NAME_BYTES])

    def read(self, key: str, kind: str) -> bytes | None:
        """An entry, checked; None if it has none, or one that is damaged."""
        name = _name_of(key, kind)
        number = bisect_left(range(self.count), name, key=self._name)
        if number == self.count or self._name(number) != name:
            return None
        _, start, size, checksum = _ROW.unpack_from(self._data, _HEADER.size + number * _ROW.size)
        payload = bytes(self._data[start : start + size])
        if len(payload) != size or checksums.small(payload, f"{kind}/{key}") != checksum:
            _log.warning("%s/%s of %s is damaged: it is made anew", kind, key, self.path)
            return None
        return payload


def _name_of(key: str, kind: str) -> bytes:
    return blake2b(f"{kind}/{key}".encode(), digest_size=_NAME_BYTES).digest()


def write_archive(path: Path, found: Mapping[tuple[str, str], bytes]) -> None:
    """Write an archive; the file appears as a whole.

    Args:
        path: Its file; one that is there is replaced.
        found: Payloads by key and kind.
    """
    rows, start = list[bytes](), _HEADER.size + len(found) * _ROW.size
    order = sorted(found, key=lambda entry: _name_of(*entry))
    for key, kind in order:
        payload = found[key, kind]
        checksum = checksums.small(payload, f"{kind}/{key}")
        rows.append(_ROW.pack(_name_of(key, kind), start, len(payload), checksum))
        start += len(payload)
    from sardonyx.loader.external_writer import replacing  # no session writes one

    with replacing(os.fspath(path)) as file:
        file.write(_HEADER.pack(_MAGIC, len(found), start, kernel_digest().encode()))
        file.writelines(rows)
        file.writelines(found[entry] for entry in order)


def file_name(target: Target) -> str:
    """What the archive for a target is called: equal targets have one."""
    features = blake2b(target.key.encode(), digest_size=4).hexdigest()
    return f"{target.name}-{features}.kernels"


def _folders() -> Iterator[Path]:
    """Where archives may be, the first one first.

    The package that brings them has no code: importing it would take longer than looking. The
    folder that a program happens to run in is none of them.
    """
    named = knobs.get("SARDONYX_KERNELS")
    if named == "off":
        return
    if named:
        yield Path(named)
        return
    yield Path(__file__).parents[2] / _CHECKOUT / _PACKAGE
    for folder in filter(os.path.isabs, sys.path):
        yield Path(folder) / _PACKAGE


@lru_cache
def _opened(path: Path) -> KernelArchive | None:
    try:
        return KernelArchive(path)
    except NoSuchFile:
        return None
    except (SardonyxError, OSError, ValueError) as error:
        _log.warning("%s is not used: %s", path, error)
        return None


def archive_for(target: Target) -> KernelArchive | None:
    """The archive of a target; None if there is none."""
    return _archive(file_name(target), tuple(_folders()))


@lru_cache
def _archive(name: str, folders: Iterable[Path]) -> KernelArchive | None:
    return next(filter(None, (_opened(folder / name) for folder in folders)), None)
