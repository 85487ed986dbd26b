"""Blob: linked machine code as one flat, position-independent image, in memory or as a file.

File: one header block, `struct` layout `_HEADER`, then the symbol table as JSON; then, from a page
boundary on, the image. A file can therefore be mapped executable as it lies. Bytes behind the image
are ignored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from sardonyx.base.errors import EngineError, message
from sardonyx.base.handlers import deferred
from sardonyx.base.hashing import blake2b
from sardonyx.base.records import dataclass
from sardonyx.link.elf import ObjectPart, join, read_object
from sardonyx.llvm.compile import compile_text
from sardonyx.targets.target import Target

_MAGIC = b"sdxblob1"
_HEADER = struct.Struct("<8sIIQ16s")  # magic, table bytes, image offset, image bytes, checksum
# AArch64 systems have pages of up to 64 KB. The padding is a hole in the file.
_PAGE_BYTES = {"x86_64": 4096, "aarch64": 65536}


@dataclass(frozen=True, slots=True)
class BlobHeader:
    """What a blob's file says in front of the image."""

    target_name: str
    symbols: dict[str, int]
    image_offset: int
    image_bytes: int
    checksum: bytes

    def check(self, image: bytes | memoryview) -> None:
        """Raise EngineError unless the image is the one that was written."""
        if _checksum(image, self.symbols, self.target_name) != self.checksum:
            raise EngineError(message("blob", "The compiled code is damaged", do="Delete the file"))


@dataclass(frozen=True, slots=True)
class Blob:
    """Machine code without references to anything outside.

    Attributes:
        image: Code and constants, to be placed at a page boundary.
        symbols: Offset of each function in the image.
        target_name: `Target.name` of what it was made for.
    """

    image: bytes
    symbols: dict[str, int]
    target_name: str

    def to_bytes(self) -> bytes:
        """The content of a file that `from_bytes` and `load_blob` read."""
        table = _table(self.symbols, self.target_name)
        page = _PAGE_BYTES["aarch64" if self.target_name.startswith("aarch64") else "x86_64"]
        start = -(-(_HEADER.size + len(table)) // page) * page
        checksum = _checksum(self.image, self.symbols, self.target_name)
        header = _HEADER.pack(_MAGIC, len(table), start, len(self.image), checksum)
        return (header + table).ljust(start, b"\0") + self.image

    @staticmethod
    def from_bytes(data: bytes) -> Blob:
        """Read what `to_bytes` wrote.

        Raises:
            EngineError: The bytes are not a blob, or are damaged.
        """
        header = read_header(data)
        image = data[header.image_offset : header.image_offset + header.image_bytes]
        header.check(image)
        return Blob(image, header.symbols, header.target_name)

    def __str__(self) -> str:
        return f"Blob({self.target_name}, {len(self.image)} bytes, {len(self.symbols)} symbols)"


def read_header(data: bytes | memoryview) -> BlobHeader:
    """Read a blob file's header; the image is not looked at (see `BlobHeader.check`).

    Raises:
        EngineError: The bytes are not a blob, or end early.
    """
    try:
        magic, table_bytes, start, size, checksum = _HEADER.unpack_from(data)
        if magic != _MAGIC or start + size > len(data):
            raise ValueError
        name, symbols = json.loads(bytes(data[_HEADER.size : _HEADER.size + table_bytes]))
    except (struct.error, ValueError, TypeError):
        raise EngineError(
            message("blob", "The bytes are not compiled code, or are cut short")
        ) from None
    return BlobHeader(name, symbols, start, size, checksum)


def _table(symbols: dict[str, int], target_name: str) -> bytes:
    return json.dumps([target_name, symbols], separators=(",", ":")).encode()


def _checksum(image: bytes | memoryview, symbols: dict[str, int], target_name: str) -> bytes:
    state = blake2b(_table(symbols, target_name), digest_size=16)
    state.update(image)
    return state.digest()


def link(data: bytes, target: Target) -> Blob:
    """Make a blob of an object that `compile_text` made.

    Raises:
        EngineError: It refers to symbols outside, has writable data, or needs absolute addresses.
    """
    return blob_of([read_object(data)], target)


def blob_of(parts: Sequence[ObjectPart], target: Target) -> Blob:
    """Make a blob of parts that may refer to each other. Raises as `elf.join` does."""
    image = join(parts)
    # A plan may have no kernels, but there is no mapping of no bytes.
    return Blob(image.data or bytes(64), image.symbols, target.name)


def build(text: str, target: Target, *, pipeline: str = "none", level: int = 2) -> Blob:
    """Compile and link LLVM IR text in this process: `compile_text`, then `link`."""
    with deferred():
        compiled = compile_text(text, target, pipeline=pipeline, level=level)
    return link(compiled, target)
