"""PNG files of one kind (8 bits, RGB, every row filtered by the row above), without a library."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP = 2


def write(path: Path, pixels: Any) -> None:
    """Store pixels (H, W, 3) of uint8."""
    height, width, _ = pixels.shape
    above = np.concatenate([np.zeros_like(pixels[:1]), pixels[:-1]])
    rows = np.full((height, 1 + 3 * width), _UP, np.uint8)
    rows[:, 1:] = (pixels - above).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    path.write_bytes(_SIGNATURE + b"".join(_chunk(*chunk) for chunk in chunks))


def read(path: Path) -> Any:
    """The pixels (H, W, 3) of a file that `write` made."""
    data = path.read_bytes()
    if not data.startswith(_SIGNATURE):
        raise ValueError(f"{path.name} is not a PNG file")
    place, packed, header = len(_SIGNATURE), b"", (0, 0, 0, 0, 0, 0, 0)
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        body = data[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        packed += body if kind == b"IDAT" else b""
        place += length + 12
    width, height, *form = header
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)
    if form != [8, 2, 0, 0, 0] or (rows[:, 0] != _UP).any():
        raise ValueError(f"{path.name} has another form than these tests write")
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
