"""Errors of the system as errors that name the resource, and say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.base.errors import OutOfMemory, ResourceError, SardonyxError, message

_FILES = "The process may open no more files"
_FEWER = "Close some, or raise the limit (`ulimit -n`)"
_DISK_IS_FULL = "There is no room left on the disk"
_FREE = "Free some, or have the cache elsewhere (SARDONYX_CACHE)"
_ACCESS = "The system refuses access"
_ALLOW = "Look at the owner and the mode of the file and of the folders that it is in"
_TASKS = "The system gives no more processes or threads"
_TASK_LIMIT = "Raise the limit (`ulimit -u`, or that of the container), or end others"

#: What an error of the system says, and what to do about it.
_BY_NUMBER: dict[int | None, tuple[str, str]] = {
    errno.EMFILE: (_FILES, _FEWER),
    errno.ENFILE: ("The system may open no more files", "Close some, in any process"),
    errno.ENOSPC: (_DISK_IS_FULL, _FREE),
    errno.EDQUOT: (_DISK_IS_FULL, _FREE),
    errno.EFBIG: ("A file may not become so large", "Raise the limit (`ulimit -f`)"),
    errno.EACCES: (_ACCESS, _ALLOW),
    errno.EPERM: (_ACCESS, _ALLOW),
    errno.EROFS: ("The file system is read-only", "Have the cache elsewhere (SARDONYX_CACHE)"),
    errno.EAGAIN: (_TASKS, _TASK_LIMIT),
    errno.EIO: ("The disk, or what stands for it, fails", "Look at the system's log"),
}
#: How Python says that a thread cannot be started.
_NO_THREAD = "can't start new thread"


def refusal(where: str, error: BaseException) -> SardonyxError | None:
    """What an error of the system becomes; None for errors of other kinds."""
    if isinstance(error, SardonyxError):
        return error
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return OutOfMemory(message(where, "The system refuses memory"))
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return ResourceError(message(where, _TASKS, do=_TASK_LIMIT))
    if not isinstance(error, OSError):
        return None
    what, do = _BY_NUMBER.get(error.errno, ("The system refuses what is needed", ""))
    name = f" {os.fsdecode(error.filename)!r}" if isinstance(error.filename, str | bytes) else ""
    said = error.strerror or str(error) or type(error).__name__
    return ResourceError(message(where, what, got=f"{said}{name}", do=do))


@contextmanager
def named(where: str) -> Iterator[None]:
    """Errors of the system that end the block become errors that say so.

    Raises:
        ResourceError: The system refuses a file, a thread, a process, room on a disk, or access.
        OutOfMemory: It refuses memory.
    """
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        found = refusal(where, error)
        if found is None or isinstance(error, SardonyxError):
            raise
        raise found from error
