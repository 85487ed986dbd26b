"""Folders and files that may hold code: whose they are, and who else may write to them.

Names are opened relative to a folder that is open, and never through a link. What is looked at is
what was opened, at each level. So whatever is exchanged meanwhile, nothing is read that was not
looked at. Windows opens by paths, and has neither owners nor modes in this sense; there the folder
of a user's own profile is what protects the cache.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

#: How the names of files begin that are not whole yet.
TEMPORARY = ".tmp-"
_NUMBERS = itertools.count()
_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: A pipe that nobody writes to would be waited for.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
#: Whether names can be opened relative to a folder.
_RELATIVE = hasattr(os, "O_DIRECTORY") and {os.open, os.stat, os.unlink} <= os.supports_dir_fd
_KINDS = {
    stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip


class RefusedFolder(OSError):  # noqa: N818 - nothing is wrong with the program
    """What a path leads to is not used; `str` says why.

    Attributes:
        path: Of the file or folder.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def distrust(status: os.stat_result, wanted: str) -> str:
    """Why nothing may be read from what has this status; empty if it may.

    What the system's own user has is accepted: nobody else can have put anything there.

    Args:
        status: Of what was opened.
        wanted: `a file` or `a folder`.
    """
    found = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
    if found != wanted:
        return f"it is {found}, not {wanted}"
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def private_folder(path: Path, *, follow_links: bool = True) -> str:
    """Make a folder that only this user can write to, or check that an existing one is such.

    Returns:
        Why the folder cannot be trusted; empty when it can.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat() if follow_links else path.lstat()
    except OSError as error:
        return f"it cannot be made: {error.strerror or error}"
    return distrust(found, "a folder") or _exchangeable(path)


def _exchangeable(path: Path) -> str:
    """Which folder above a folder lets anybody put another one in its place; empty if none does."""
    if not hasattr(os, "geteuid"):
        return ""
    real = Path(os.path.realpath(path))
    for above in dict.fromkeys([*path.absolute().parents, *real.parents]):
        try:
            mode = above.stat().st_mode
        except OSError as error:
            return f"{above} cannot be looked at: {error.strerror}"
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"others may exchange what is in {above} (mode {stat.S_IMODE(mode):o})"
    return ""


class Folder:
    """An open folder, which was checked. Use it as a context: its end closes it.

    A session that was seen before opens some ten, so nothing is done that need not be.

    Attributes:
        path: What it is called in texts.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    @classmethod
    def open(cls, path: str, *, follow_links: bool = True) -> Folder:
        """A folder by its path.

        Raises:
            Refused: It is not to be trusted.
            OSError: It cannot be opened.
        """
        return cls._opened(path, path, None, follow_links)

    @classmethod
    def _opened(cls, path: str, name: str, within: int | None, follow_links: bool) -> Folder:
        if not _RELATIVE:
            _look(path, os.stat(path, follow_symlinks=follow_links), "a folder")
            return cls(path, None)
        try:
            # Nothing but a folder is opened so.
            flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follow_links else _NO_LINK)
            descriptor = os.open(name, flags, dir_fd=within)
        except OSError:
            _look(path, os.stat(name, dir_fd=within, follow_symlinks=follow_links), "a folder")
            raise
        try:
            _look(path, os.fstat(descriptor), "a folder")
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def close(self) -> None:
        """Close it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _at(self, name: str) -> str:
        return name if _RELATIVE else os.path.join(self.path, name)

    def folder(self, name: str, *, make: bool = False) -> Folder:
        """A folder in it. Raises as `open` does.

        Args:
            name: Of the folder.
            make: Make it if it is missing.
        """
        if make:
            with contextlib.suppress(FileExistsError):  # what it is, is looked at next
                os.mkdir(self._at(name), 0o700, dir_fd=self._descriptor)
        path = os.path.join(self.path, name)
        return self._opened(path, name, self._descriptor, follow_links=False)

    def file(self, name: str) -> tuple[int, int]:
        """A file in it: a descriptor for reading, and its size.

        Raises:
            Refused: It is none, or is not to be trusted.
            OSError: It cannot be opened.
        """
        at, path = self._at(name), os.path.join(self.path, name)
        # To open a device may already do something.
        _look(path, os.stat(at, dir_fd=self._descriptor, follow_symlinks=False), "a file")
        flags = os.O_RDONLY | _BINARY | _NO_LINK | _NO_WAIT
        descriptor = os.open(at, flags, dir_fd=self._descriptor)
        try:
            status = os.fstat(descriptor)
            _look(path, status, "a file")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status.st_size

    def temporary(self) -> tuple[BinaryIO, str]:
        """A new file that only this user can open, and its name. (`tempfile` takes 4 ms to import.)

        Raises:
            OSError: It cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY | _NO_LINK
        while True:
            name = f"{TEMPORARY}{os.getpid():x}-{time.time_ns():x}-{next(_NUMBERS):x}"
            try:
                descriptor = os.open(self._at(name), flags, 0o600, dir_fd=self._descriptor)
            except FileExistsError:  # of a process in another container, perhaps
                continue
            return os.fdopen(descriptor, "w+b"), name

    def rename(self, name: str, target: str) -> None:
        """Give a file another name, in place of what has it. Raises OSError."""
        within = self._descriptor
        os.replace(self._at(name), self._at(target), src_dir_fd=within, dst_dir_fd=within)

    def remove(self, name: str) -> None:
        """Remove what has a name: no matter what, but a folder only if nothing is in it.

        Raises:
            OSError: It cannot be removed.
        """
        try:
            os.unlink(self._at(name), dir_fd=self._descriptor)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # macOS and Windows say the latter of folders
            os.rmdir(self._at(name), dir_fd=self._descriptor)


def _look(path: str, status: os.stat_result, wanted: str) -> None:
    reason = distrust(status, wanted)
    if reason:
        raise RefusedFolder(path, reason)
