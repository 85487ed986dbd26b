"""Files that users name: what they are, how they are opened, and which state they were in."""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO

from sardonyx.base.errors import Fail, InvalidArgument, NoSuchFile, message

#: How a bundle begins, see `store.bundle`.
BUNDLE_MAGIC = b"sdxbundl"
#: Device, inode, bytes, and times of the last change of content and of status, in ns.
Identity = tuple[int, int, int, int, int]
_PART_BYTES = 1 << 20

#: What is no regular file, in words.
_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip
#: Names of what the process holds open already, such as `sardonyx ... < <(command)` gives.
_HELD_OPEN = re.compile(r"/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")
#: Nothing of the kind waits for another process, or becomes the process's terminal.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


def open_file(path: str | os.PathLike[str], *, takes_pipe: bool = False) -> BinaryIO:
    """Open a regular file that a user named, for reading, unbuffered.

    What it is, is asked twice: before it is opened, since opening some devices does something, and
    of the open file, since another one may have taken the name meanwhile. Neither waits.

    Args:
        path: Where it is. Links are followed.
        takes_pipe: Whether a pipe that this process has open already may be read, too: standard
            input by `/dev/stdin`, or `/dev/fd/N`. It cannot be read twice.

    Raises:
        NoSuchFile: There is no such file.
        InvalidArgument: It is a folder, a pipe, a socket or a device; or no path at all.
        Fail: The system refuses to open it.
    """
    name = shown_path(path)
    takes_pipe = takes_pipe and _HELD_OPEN.fullmatch(name) is not None
    try:
        given = os.fspath(path)  # `os.open` would take a number, but not for a name
        _check_kind(name, os.stat(given).st_mode, takes_pipe)
        descriptor = os.open(given, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchFile(message(name, "There is no such file")) from None
    except OSError as error:
        raise Fail(message(name, f"The file cannot be opened: {error.strerror}")) from None
    except (ValueError, TypeError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(message(repr(path), f"This is not a path: {error}")) from None
    try:
        mode = os.fstat(descriptor).st_mode
        _check_kind(name, mode, takes_pipe)
        if stat.S_ISFIFO(mode):
            os.set_blocking(descriptor, True)
        return open(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def read_file(
    path: str | os.PathLike[str], most_bytes: int = 1 << 62, *, takes_pipe: bool = False
) -> bytes:
    """The bytes of a regular file that a user named.

    Args:
        path: See `open_file`.
        most_bytes: A longer file is refused; it is not read to its end.
        takes_pipe: See `open_file`.

    Raises:
        NoSuchFile, Fail: See `open_file`.
        InvalidArgument: As there, or there are more bytes.
    """
    with open_file(path, takes_pipe=takes_pipe) as file:
        parts, left = [], most_bytes + 1
        try:
            while left and (part := file.read(min(left, _PART_BYTES))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            text = message(shown_path(path), f"The file cannot be read: {error.strerror}")
            raise Fail(text) from None
    if not left:
        what, expected = "The file is too long", f"at most {most_bytes} bytes"
        raise InvalidArgument(message(shown_path(path), what, expected=expected))
    return b"".join(parts)


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what `open_file` would refuse, for what other packages open themselves.

    Raises:
        NoSuchFile, InvalidArgument, Fail: See `open_file`.
    """
    open_file(path).close()


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse to write a file in place of something else: a device, a pipe, a socket, a folder.

    Raises:
        InvalidArgument: Something else than a regular file is there.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # nothing is there, or writing says what is wrong
        return
    if not stat.S_ISREG(mode):
        what = f"A file cannot be written over {_kind(mode)}"
        raise InvalidArgument(message(shown_path(path), what))


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as text, whatever it is."""
    try:
        return os.fsdecode(path)
    except (TypeError, ValueError):
        return repr(path)


def _check_kind(name: str, mode: int, takes_pipe: bool) -> None:
    if stat.S_ISREG(mode) or (takes_pipe and stat.S_ISFIFO(mode)):
        return
    expected = "a regular file"
    raise InvalidArgument(
        message(name, "This is not a regular file", expected=expected, got=_kind(mode))
    )


def _kind(mode: int) -> str:
    return next((word for fits, word in _KINDS if fits(mode)), "something else")


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


def text_of(path: str | os.PathLike[str]) -> str:
    """A small file of the system as text; "" if it cannot be read.

    Python imports a codec for a text file's encoding, and a process that is forked meanwhile waits
    for that import for ever. Bytes are decoded without one.
    """
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
