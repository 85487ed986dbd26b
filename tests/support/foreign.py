"""Running a blob of AArch64 code on any Linux machine that has qemu-aarch64.

The blob becomes a static executable whose start code, encoded here, calls one function and writes
its result and the contents of its buffers to standard output.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sardonyx.link.blob import Blob

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
_CODE, _DATA = 0x1000_0000, 0x4000_0000
_PAGE = 65536
_SUPERVISOR_CALL = 0xD4000001
_WRITE, _EXIT = 64, 93


def _set(register: int, value: int) -> list[int]:
    """movz, then movk for the other three quarters."""
    parts = [value >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    first = 0xD2800000 | parts[0] << 5 | register
    return [first] + [0xF2800000 | i << 21 | parts[i] << 5 | register for i in (1, 2, 3)]


def _start_code(position: int, function: int, arguments: list[int], data_bytes: int) -> bytes:
    words: list[int] = []
    for register, value in enumerate(arguments):
        words += _set(register, value & 0xFFFF_FFFF_FFFF_FFFF)
    words.append(0x94000000 | ((function - position - 4 * len(words)) // 4) & 0x3FFFFFF)  # bl
    words += [*_set(1, _DATA), 0xF9000020]  # str x0, [x1]
    words += [*_set(0, 1), *_set(2, data_bytes), *_set(8, _WRITE), _SUPERVISOR_CALL]
    words += [*_set(0, 0), *_set(8, _EXIT), _SUPERVISOR_CALL]
    return struct.pack(f"<{len(words)}I", *words)


def _segment(flags: int, offset: int, address: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", 1, flags, offset, address, address, size, size, _PAGE)


def executable(blob: Blob, function: str, arguments: Sequence[int | bytes]) -> bytes:
    """A static AArch64 executable that calls a function with integers and buffers."""
    data = bytearray(8)
    values = []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(argument)
            continue
        data.extend(b"\0" * (-len(data) % 64))
        values.append(_DATA + len(data))
        data += argument
    code = bytearray(blob.image)
    code.extend(b"\0" * (-len(code) % 4))
    start = len(code)
    code += _start_code(start, blob.symbols[function], values, len(data))
    data_offset = _PAGE + -(-len(code) // _PAGE) * _PAGE
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 2, 183, 1, _CODE + start, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    header += _segment(5, _PAGE, _CODE, len(code)) + _segment(6, data_offset, _DATA, len(data))
    return (header.ljust(_PAGE, b"\0") + code).ljust(data_offset, b"\0") + data


def call(
    blob: Blob, function: str, arguments: Sequence[int | bytes], folder: Path
) -> tuple[int, list[bytes]]:
    """Call a function of an AArch64 blob under qemu.

    Args:
        blob: The code.
        function: Its symbol.
        arguments: At most eight integers, or buffers, which are passed by address.
        folder: Where the executable may be put.

    Returns:
        The 64-bit result, and what the buffers hold afterwards.
    """
    path = folder / "program"
    path.write_bytes(executable(blob, function, arguments))
    path.chmod(0o700)
    done = subprocess.run([str(QEMU), str(path)], capture_output=True, timeout=60, check=True)
    (value,) = struct.unpack_from("<q", done.stdout)
    buffers, position = [], 8
    for argument in arguments:
        if not isinstance(argument, int):
            position += -position % 64
            buffers.append(done.stdout[position : position + len(argument)])
            position += len(argument)
    return value, buffers
