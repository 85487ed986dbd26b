"""Which state of a file something was made of."""

from __future__ import annotations

import os
from pathlib import Path

#: How a bundle begins, see `runtime.bundle`.
BUNDLE_MAGIC = b"sdxbundl"
#: Device, inode, bytes, and times of the last change of content and of status, in ns.
Identity = tuple[int, int, int, int, int]


def identity_of(status: os.stat_result) -> Identity:
    """What differs whenever a file's content may differ.

    Tools that restore a file's modification time cannot restore the time of its status.
    """
    return (
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip


def is_unchanged(path: str, identity: Identity) -> bool:
    """Whether the file at `path` is still in the state that had this identity."""
    try:
        return identity_of(os.stat(path)) == identity
    except OSError:
        return False


def text_of(path: str | Path) -> str:
    """A small file of the system as text; "" if it cannot be read.

    Python imports a codec for a text file's encoding, and a process that is forked meanwhile waits
    for that import for ever. Bytes are decoded without one.
    """
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
