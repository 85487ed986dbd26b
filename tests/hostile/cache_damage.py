"""What is done to a cache's files: damage as disks and power cuts do it, and what strangers do."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

#: A user that has nothing; only the system's own user can give files away.
_STRANGER = 54321
_IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def _changed(path: Path, change: Callable[[bytearray], bytearray]) -> None:
    """Change a file's content in its place, as a disk does; sessions may have it mapped."""
    data = change(bytearray(path.read_bytes()))
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def flip(path: Path, random: Random) -> None:
    """Some bits are others."""

    def change(data: bytearray) -> bytearray:
        for _ in range(random.choice((1, 1, 2, 8))):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return data

    _changed(path, change)


def zero(path: Path, random: Random) -> None:
    """A block of a disk is zeros; one that was, is not."""

    def change(data: bytearray) -> bytearray:
        start = random.randrange(max(1, len(data))) // 4096 * 4096
        end = min(len(data), start + 4096)
        filled = b"\0" if any(data[start:end]) else b"\1"
        data[start:end] = filled * (end - start)
        return data

    _changed(path, change)


def truncate(path: Path, random: Random) -> None:
    """The end is missing."""
    os.truncate(path, random.randrange(path.stat().st_size))


def extend(path: Path, random: Random) -> None:
    """There is something behind the end."""
    with path.open("ab") as file:
        file.write(random.randbytes(random.randint(1, 5000)))


def exchange(path: Path, random: Random) -> None:
    """Another entry of the kind is in its place."""
    other = random.choice(sorted(p for p in path.parent.iterdir() if p.is_file()))
    if other == path:
        remove(path, random)
    else:
        shutil.copyfile(other, path)


def remove(path: Path, _random: Random) -> None:
    """It is gone."""
    path.unlink()


def open_mode(path: Path, random: Random) -> None:
    """Others may write to it."""
    path.chmod(random.choice((0o666, 0o777, 0o620, 0o602)))


def close_mode(path: Path, _random: Random) -> None:
    """Nobody may read it."""
    path.chmod(0)


def give_away(path: Path, _random: Random) -> None:
    """It is somebody else's."""
    os.chown(path, _STRANGER, _STRANGER)


def _moved(path: Path) -> Path:
    """Move a file or folder out of the cache, to a folder beside it."""
    target = next(p for p in path.parents if p.name == "cache").with_name("elsewhere")
    target.mkdir(exist_ok=True)
    place = target / f"{path.name}-{len(list(target.iterdir()))}"
    path.rename(place)
    return place


def link(path: Path, _random: Random) -> None:
    """A link leads out of the cache, to what was there."""
    path.symlink_to(_moved(path))


def dangling(path: Path, _random: Random) -> None:
    """A link leads nowhere."""
    place = _moved(path)
    path.symlink_to(place.with_name("nowhere"))


def pipe(path: Path, _random: Random) -> None:
    """A pipe, which nobody writes to."""
    _moved(path)
    os.mkfifo(path)


def listen(path: Path, _random: Random) -> None:
    """A socket."""
    _moved(path)
    here = os.getcwd()
    os.chdir(path.parent)  # its path may be longer than sockets allow
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path, random: Random) -> None:
    """A device that gives zeros for ever."""
    _moved(path)
    if _IS_ROOT:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, random.choice((3, 5, 7))))
    else:
        path.symlink_to("/dev/zero")


def folder(path: Path, random: Random) -> None:
    """A folder, with or without something in it."""
    place = _moved(path)
    path.mkdir(mode=0o700)
    if random.random() < 0.5 and place.is_file():
        place.rename(path / "in it")


def file(path: Path, random: Random) -> None:
    """A file in place of a folder."""
    _moved(path)
    path.write_bytes(random.randbytes(10))


#: What is done to entries.
TO_FILES: tuple[Callable[[Path, Random], None], ...] = (
    flip, flip, flip, zero, zero, truncate, extend, exchange, remove, open_mode, close_mode, link,
    dangling, pipe, listen, device, folder, *((give_away,) if _IS_ROOT else ()),
)  # fmt: skip
#: What is done to the folders of kinds.
TO_FOLDERS: tuple[Callable[[Path, Random], None], ...] = (
    open_mode, link, dangling, pipe, listen, device, file, *((give_away,) if _IS_ROOT else ()),
)  # fmt: skip


def damage(cache: Path, random: Random) -> list[str]:
    """Do something to a cache; gives what was done.

    Args:
        cache: Its folder, called `cache`; what is moved out of it goes beside it.
        random: Decides.
    """
    kinds = sorted(p for p in cache.iterdir() if p.is_dir())
    done = []
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        # Constants are what other numbers come of.
        kind = random.choice(kinds + 2 * [p for p in kinds if p.name == "data"])
        if kind.is_symlink() or not kind.is_dir():
            continue
        if random.random() < 0.15:
            action = random.choice(TO_FOLDERS)
            action(kind, random)
            done.append(f"{action.__name__} {kind.name}")
            continue
        names = sorted(p for p in kind.iterdir() if p.is_file() and not p.is_symlink())
        if names and os.access(names[0], os.R_OK):
            path, action = random.choice(names), random.choice(TO_FILES)
            if path.stat().st_size:
                action(path, random)
                done.append(f"{action.__name__} {kind.name}/{path.name}")
    if random.random() < 0.02:
        cache.chmod(0o777)
        done.append("the whole folder")
    return done
