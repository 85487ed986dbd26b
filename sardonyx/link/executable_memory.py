"""Blobs in executable memory: mapped from their file, or copied where that is not allowed.

No memory is ever writable and executable at once. Memory is freed when nothing refers to the
`LoadedCode` any more, and never at interpreter exit, when threads may still run in it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys
import weakref
from typing import Any

from sardonyx.base.errors import EngineError, NotFound, OutOfMemory, message
from sardonyx.base.log import get_logger
from sardonyx.link.blob import Blob, read_header
from sardonyx.targets.target import check_runs

_log = get_logger("executable")
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE = 2
_ANONYMOUS = 0x1000 if sys.platform == "darwin" else 0x20
_DARWIN_JIT = 0x800
_DARWIN_ARM = sys.platform == "darwin" and platform.machine() == "arm64"


class LoadedCode:
    """Functions in executable memory. Keep it alive for as long as any of them may be called."""

    def __init__(self, base: int, size_bytes: int, symbols: dict[str, int], from_file: bool):
        self.base = base
        self.size_bytes = size_bytes
        self.from_file = from_file
        self._symbols = symbols
        # atexit=False: at exit the process gives the memory back after its last thread.
        weakref.finalize(self, _release, base, size_bytes).atexit = False

    def address(self, symbol: str) -> int:
        """The address of a function.

        Raises:
            NotFound: The code has no such function.
        """
        try:
            return self.base + self._symbols[symbol]
        except KeyError:
            known = ", ".join(sorted(self._symbols)[:10])
            raise NotFound(
                message("code", f"There is no function {symbol!r}", expected=f"one of {known}")
            ) from None

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(self._symbols)

    def __repr__(self) -> str:
        return (
            f"LoadedCode({self.size_bytes} bytes at {self.base:#x}, {len(self._symbols)} symbols)"
        )


def load_blob(blob: Blob) -> LoadedCode:
    """Bring a blob into executable memory.

    Raises:
        InvalidArgument: The code is for another processor.
        OutOfMemory: The system gives no executable memory.
    """
    check_runs(blob.target_name)
    return LoadedCode(_copy(blob.image), len(blob.image), blob.symbols, False)


def load_part(descriptor: int, offset: int, size: int) -> LoadedCode:
    """`load_blob` for a part of a file that has `Blob.to_bytes()`, mapped if it may be.

    Raises:
        EngineError: It is damaged.
        OSError: It cannot be read.
        And what `load_blob` raises.
    """
    try:
        return _load_file(descriptor, offset, size)
    except PermissionError:
        _log.info("code is copied: the file's system or its layout allows no execution")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(offset)
        return load_blob(Blob.from_bytes(file.read(size)))


def _load_file(descriptor: int, offset: int, size: int) -> LoadedCode:
    """Map a file's image; PermissionError where the system or the layout does not allow it."""
    if size == 0:
        raise EngineError(message("code", "The file of compiled code is empty"))
    if sys.platform in ("win32", "darwin"):
        # macOS ends a process that executes unsigned pages of a file; Windows maps otherwise.
        raise PermissionError(errno.EPERM, "not mapped on this system")
    if offset % mmap.ALLOCATIONGRANULARITY:
        raise PermissionError(errno.EPERM, "the code is not at a page boundary")
    with (
        mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=offset) as view,
        memoryview(view) as data,
    ):
        header = read_header(data)
        check_runs(header.target_name)
        start, length = header.image_offset, header.image_bytes
        if start % mmap.PAGESIZE:
            raise PermissionError(errno.EPERM, "the image is not at a page boundary")
        with data[start : start + length] as image:
            header.check(image)
        base = _map_file(descriptor, offset + start, length)
    return LoadedCode(base, length, header.symbols, True)


def _library() -> Any:
    if sys.platform == "win32":
        library: Any = ctypes.WinDLL("kernel32", use_last_error=True)
        library.VirtualAlloc.restype = ctypes.c_void_p
        library.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_uint32] * 2
        library.VirtualProtect.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_uint32,
            ctypes.c_void_p,
        ]
        library.VirtualFree.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
        return library
    library: Any = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        [ctypes.c_void_p, ctypes.c_size_t]
        + [ctypes.c_int] * 3
        + [
            ctypes.c_int64  # off_t; 64 bits on every system that this runs on
        ]
    )
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


_system = _library()


def _map(size: int, protection: int, flags: int, descriptor: int, offset: int) -> int:
    address = _system.mmap(None, size, protection, flags, descriptor, offset)
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        if number in (errno.EPERM, errno.EACCES):
            raise PermissionError(number, os.strerror(number))
        raise OutOfMemory(
            message("code", f"No memory for {size} bytes of code: {os.strerror(number)}")
        )
    return int(address)


def _map_file(descriptor: int, offset: int, size: int) -> int:
    return _map(size, _READ | _EXECUTE, _PRIVATE, descriptor, offset)


def _copy(image: bytes) -> int:
    """Executable memory with a copy of the image."""
    if sys.platform == "win32":
        return _copy_windows(image)
    size = len(image)
    if _DARWIN_ARM:
        return _copy_darwin(image)
    base = _map(size, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
    ctypes.memmove(base, image, size)
    if _system.mprotect(base, size, _READ | _EXECUTE):
        number = ctypes.get_errno()
        _system.munmap(base, size)
        raise OutOfMemory(
            message("code", f"The system allows no executable memory: {os.strerror(number)}")
        )
    _flush(base, size)
    return base


def _copy_darwin(image: bytes) -> int:
    """Apple's own scheme: MAP_JIT memory is writable or executable, per thread."""
    size = len(image)
    flags = _PRIVATE | _ANONYMOUS | _DARWIN_JIT
    base = _map(size, _READ | _WRITE | _EXECUTE, flags, -1, 0)
    _system.pthread_jit_write_protect_np(0)
    ctypes.memmove(base, image, size)
    _system.pthread_jit_write_protect_np(1)
    _system.sys_icache_invalidate(ctypes.c_void_p(base), ctypes.c_size_t(size))
    return base


def _copy_windows(image: bytes) -> int:
    size = len(image)
    base = _system.VirtualAlloc(None, size, 0x3000, 4)  # reserve and commit, read and write
    if not base:
        raise OutOfMemory(message("code", f"No memory for {size} bytes of code"))
    ctypes.memmove(base, image, size)
    before = ctypes.c_uint32()
    if not _system.VirtualProtect(base, size, 0x20, ctypes.byref(before)):
        raise OutOfMemory(message("code", "The system allows no executable memory"))
    _system.FlushInstructionCache(ctypes.c_void_p(-1), ctypes.c_void_p(base), ctypes.c_size_t(size))
    return int(base)


def _flush(base: int, size: int) -> None:
    """AArch64 does not keep the instruction cache coherent with what was just written.

    Without libgcc's function nothing can be done from Python; Linux cleans the caches of pages that
    become executable for the first time, so freshly mapped memory is right all the same.
    """
    if platform.machine() not in ("aarch64", "arm64"):
        return
    try:
        library = ctypes.CDLL("libgcc_s.so.1")
        library.__clear_cache(ctypes.c_void_p(base), ctypes.c_void_p(base + size))
    except (OSError, AttributeError):
        _log.debug("no __clear_cache; relying on the system")


def _release(base: int, size: int) -> None:
    if sys.platform == "win32":
        _system.VirtualFree(base, 0, 0x8000)
    else:
        _system.munmap(base, size)
