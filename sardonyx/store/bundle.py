"""Bundles: a compiled model in one file, which starts without llvmlite and without a cache.

A file is `_FRONT`, a header in JSON, and sections at multiples of 64 KiB: plans with what a session
must know of the model, machine code, constants, and the run time's own functions. Code and
constants are mapped as they lie. Whoever wrote a bundle decides what the process does that runs it:
see `docs/bundles.md`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sardonyx.base.bounded_json import parse_json
from sardonyx.base.errors import EngineError, Fail, InvalidArgument, SardonyxError, message
from sardonyx.base.files import BUNDLE_MAGIC, open_file
from sardonyx.base.hashing import blake2b
from sardonyx.base.version import __version__
from sardonyx.link.blob import Blob
from sardonyx.link.executable_memory import LoadedCode, load_blob, load_part
from sardonyx.runtime.arena import aligned_array
from sardonyx.runtime.storage import Array
from sardonyx.store import checksums
from sardonyx.store.cache import default_cache, digest
from sardonyx.store.checksums import SIZE_BYTES, Checksum
from sardonyx.store.model_record import ModelRecord, constants_in
from sardonyx.targets.target import check_features, check_runs

MAGIC = BUNDLE_MAGIC
VERSION = 2
#: Magic, version, bytes of the header, digest of the header.
FRONT = struct.Struct("<8sII16s")
#: Where sections may begin: pages of all systems do.
ALIGNMENT_BYTES = 2**16
#: By this end of its name a file is known as a bundle that its user trusts.
SUFFIX = ".sardonyx"
#: Names of the cache's entries that say: this machine made the bundle.
KIND = "bundle"
_MOST_HEADER_BYTES = 2**22
_CHUNK_BYTES = 2**20
#: What a plan's tables and code depend on: the folders of the run time.
_RUNNING = ("base", "host", "plan", "runtime", "cpu")
#: Bundles that this process made.
_made_here: set[str] = set()


def is_bundle(source: Any) -> bool:
    """Whether a path leads to a bundle, or bytes are one."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[: len(MAGIC)]) == MAGIC
    if not isinstance(source, (str, os.PathLike)):
        return False
    try:
        with open_file(source) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, SardonyxError):  # what is wrong with it, loading says
        return False


@lru_cache(maxsize=1)
def run_time_digest() -> str:
    """Digest of the part of this package that runs plans."""
    folder = Path(__file__).parents[1]
    files = sorted(p for name in _RUNNING for p in (folder / name).rglob("*.py"))
    parts = [x for p in files for x in (p.relative_to(folder).as_posix(), p.read_bytes())]
    return digest(VERSION, *(parts or [__version__]))


def section_digest(chunks: Iterator[bytes]) -> str:
    """Digest of a section's bytes."""
    state = blake2b(digest_size=16)
    for chunk in chunks:
        state.update(chunk)
    return state.hexdigest()


#: What checksums call a section: the header, which has a digest, says which one it is.
SECTION = "section"


def note_made(identity: str) -> None:
    """Remember that this machine made a bundle: sessions open it by any name."""
    _made_here.add(identity)
    default_cache().put(identity, KIND, b"made here")


class Bundle:
    """An open bundle, whose header was checked.

    Args:
        source: A path, or the bytes of a bundle.

    Attributes:
        name: The file's name, or what stands for it, for texts.
        identity: A digest of the header, and so of all sections.
        header: See `compiler.bundle_writer`.

    Raises:
        NoSuchFile: There is no such file.
        InvalidArgument: It is no regular file.
        Fail: The file is damaged, or is for another processor or package.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        self._file: BinaryIO | None = None
        self._begun: list[tuple[int, Checksum, bytes]] = []
        self._data = b""
        if isinstance(source, bytes):
            self.name, self._data, self._size = "bundle", source, len(source)
        else:
            self.name = os.fsdecode(source)
            self._file = open_file(source)
            self._size = os.fstat(self._file.fileno()).st_size
        try:
            self.header, self.identity = self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; what is mapped stays."""
        for _, checksum, _ in self._begun:
            checksum.stop()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_own(self) -> bool:
        """Whether this process or this machine's user made it, by the cache's word."""
        return self.identity in _made_here or default_cache().has(self.identity, KIND)

    def _read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return self._data[offset : offset + size]
        self._file.seek(offset)
        return self._file.read(size)

    def _read_header(self) -> tuple[dict[str, Any], str]:
        front = self._read(0, FRONT.size)
        if len(front) < FRONT.size or not front.startswith(MAGIC):
            raise self._damaged("it is no bundle, or is cut short")
        _, version, size, checksum = FRONT.unpack(front)
        if version != VERSION:
            what = f"The bundle is of version {version}"
            raise Fail(message(self.name, what, expected=str(VERSION), do="Make it again"))
        text = self._read(FRONT.size, size) if size <= _MOST_HEADER_BYTES else b""
        if len(text) != size or blake2b(text, digest_size=16).digest() != checksum:
            raise self._damaged("its header is not the one that was written")
        try:
            header = parse_json(text, self.name, most=_MOST_HEADER_BYTES)
            self._check(header)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidArgument):
            raise self._damaged("its header makes no sense") from None
        return header, checksum.hex()

    def _check(self, header: dict[str, Any]) -> None:
        """Raise if a header is not one that was written by `compiler.bundle_writer`."""
        for offset, size, _, checksum in header["sections"]:
            if min(offset, size) < 0 or offset % ALIGNMENT_BYTES or offset + size > self._size:
                raise self._damaged("a section lies outside the file")
            if size > checksums.SMALL_BYTES and len(bytes.fromhex(checksum)) != SIZE_BYTES:
                raise self._damaged("a section has no checksum")
        count = len(header["sections"])
        plans, functions = header["plans"], header["functions"].values()
        named = [p[part] for p in plans for part in ("record", "code", "constants")]
        if not plans or not all(0 <= k < count for k in (*named, *functions)):
            raise self._damaged("it has no such section")
        if header["run_time"] != run_time_digest():
            raise Fail(
                message(
                    self.name, "The bundle was made by another version of sardonyx",
                    expected=f"this one: {__version__}", got=str(header["version"]),
                    do="Make it again: `sardonyx bundle MODEL OUT`",
                )
            )  # fmt: skip
        try:
            check_runs(header["target"])
            check_features(header["features"])
        except InvalidArgument as error:  # the file is at fault, no argument
            raise Fail(str(error)) from None

    def _damaged(self, what: str) -> Fail:
        return Fail(
            message(self.name, f"The bundle is damaged: {what}", do="Make it or fetch it again")
        )

    def _no_longer(self, number: int) -> Fail:
        return self._damaged(f"section {number} is not the one that was written")

    def _chunks(self, offset: int, size: int) -> Iterator[bytes]:
        for start in range(0, size, _CHUNK_BYTES):
            yield self._read(offset + start, min(_CHUNK_BYTES, size - start))

    def verify(self, number: int) -> None:
        """Compare a section with its digest.

        Raises:
            Fail: It is another.
        """
        offset, size, expected, _ = self.header["sections"][number]
        if section_digest(self._chunks(offset, size)) != expected:
            raise self._no_longer(number)

    def verify_all(self) -> None:
        """Verify every section, those with weights included. Raises as `verify` does."""
        for number in range(len(self.header["sections"])):
            self.verify(number)

    def record(self, plan: Mapping[str, Any]) -> ModelRecord:
        """What a session must know, of one of the header's plans.

        Raises:
            Fail: The bytes are no record.
        """
        self.verify(plan["record"])
        offset, size, *_ = self.header["sections"][plan["record"]]
        try:
            return ModelRecord.from_bytes(self._read(offset, size))
        except Exception as error:
            raise self._damaged(f"its plan cannot be read ({error})") from error

    def code(self, number: int) -> LoadedCode:
        """Machine code in executable memory. Raises as `verify` and `load_blob` do."""
        self.verify(number)
        offset, size, *_ = self.header["sections"][number]
        try:
            if self._file is not None:
                return load_part(self._file.fileno(), offset, size)
            return load_blob(Blob.from_bytes(self._read(offset, size)))
        except EngineError as error:
            raise self._damaged(str(error)) from error

    def constants(self, number: int, record: ModelRecord, threads: int) -> list[Array]:
        """The constants of a plan, mapped where there is a file.

        Large ones are looked at by threads meanwhile: nothing may use them before `checked`.

        Args:
            number: Of the section.
            record: Says where they are.
            threads: How many may look at them.

        Raises:
            Fail: There are fewer bytes than the record says, or others.
        """
        offset, size, _, checksum = self.header["sections"][number]
        data = self._bytes_of(offset, size if record.constants else 0)
        if data.size <= checksums.SMALL_BYTES:
            self.verify(number)
        else:
            self._begun.append((number, Checksum(data, SECTION, threads), bytes.fromhex(checksum)))
        try:
            return constants_in(data, record)
        except InvalidArgument:
            raise self._damaged("its constants are cut short") from None

    def checked(self) -> None:
        """Wait until constants have been looked at.

        Raises:
            Fail: They are not what was written.
        """
        for number, checksum, expected in self._begun:
            if checksum.finish() != expected:
                raise self._no_longer(number)
        self._begun.clear()

    def _bytes_of(self, offset: int, size: int) -> Array:
        """A section, mapped where there is a file."""
        if not size:
            return np.empty(0, np.uint8)
        if self._file is not None:
            descriptor = self._file.fileno()
            mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=offset)
            return np.frombuffer(mapped, np.uint8)
        whole = aligned_array((size,), np.dtype(np.uint8))
        whole[:] = np.frombuffer(self._data, np.uint8, size, offset)
        return whole
