"""The disk cache: compiled code, packed weights and tuning results, shared by all processes.

An entry is named by its kind and its key (a digest of all that it depends on) and never changes
once written. Any entry can vanish at any time; whoever finds one missing makes it again.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import time
from collections.abc import Container, Iterator, Sequence
from errno import EMFILE, ENFILE
from functools import lru_cache
from pathlib import Path

from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument, ResourceError, message
from sardonyx.base.forks import compiling, lock_over_forks
from sardonyx.base.hashing import blake2b
from sardonyx.base.log import get_logger
from sardonyx.base.starting import IMPORTED_NS
from sardonyx.store import entries
from sardonyx.store.entries import Damaged, Entry
from sardonyx.store.folders import TEMPORARY, Folder, RefusedFolder, private_folder
from sardonyx.targets.target import host_target

_log = get_logger("cache")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_DAY_SECONDS = 86400
_TOUCHES_FILES = os.utime in os.supports_fd
# Evicting goes on below the limit, so that not every later write evicts again.
_KEPT_SHARE = 0.9
_WRITES_PER_SCAN = 256
_ACCOUNTING = lock_over_forks()


class Cache:
    """A folder of entries, or nothing at all: then nothing is found and nothing is kept.

    Args:
        folder: A folder that `folders.private_folder` approved, or None.
        limit_bytes: Size above which the least recently used entries are dropped.
        follow_links: Whether the folder's path may be that of a link.
    """

    def __init__(self, folder: Path | None, limit_bytes: int, *, follow_links: bool = True) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._follow_links = follow_links
        self._used_bytes = 0
        self._writes = 0

    def _path(self, key: str, kind: str) -> str | None:
        for name in (key, kind):
            if not _NAME.fullmatch(name):
                raise InvalidArgument(message("cache", f"{name!r} cannot name an entry"))
        return None if self.folder is None else os.path.join(self.folder, kind, key)

    def _kind(self, kind: str, *, make: bool = False) -> Folder:
        """The folder of a kind. Raises as `Folder.open` does."""
        with Folder.open(str(self.folder), follow_links=self._follow_links) as top:
            return top.folder(kind, make=make)

    def open(self, key: str, kind: str, *, threads: int = 1, later: bool = False) -> Entry | None:
        """An entry, open and checked; None when it is missing, damaged, or not to be trusted.

        One that is damaged or not to be trusted is removed.

        Args:
            key, kind: Name the entry.
            threads: How many may check it.
            later: Who opens a large one may check it himself: `Entry.begin`, `checked`.
        """
        path = self._path(key, kind)
        if path is None:
            return None
        try:
            with self._kind(kind) as folder:
                entry = entries.open_entry(folder, key, f"{kind}/{key}")
        except FileNotFoundError:
            return None
        except Damaged:
            self._drop(key, kind)
            return None
        except RefusedFolder as error:
            _say_once(error.path, error)
            if error.path == path:
                self.remove(key, kind)
            return None
        except OSError as error:
            _say_once(path, error, (kind, error.errno))
            return None
        if not later and not self.checked(entry, key, kind, threads=threads):
            entry.close()
            return None
        self._touch(entry, path)
        return entry

    def checked(self, entry: Entry, key: str, kind: str, *, threads: int = 1) -> bool:
        """Whether an entry is what was written; it is removed if it is not."""
        try:
            entry.check(threads)
        except Damaged:
            self._drop(key, kind)
            return False
        except OSError as error:
            _log.warning("%s/%s cannot be read: %s", kind, key, error)
            return False
        return True

    def _drop(self, key: str, kind: str) -> None:
        """Remove an entry that is damaged."""
        _log.warning("%s is damaged; making it again", self._path(key, kind))
        self.remove(key, kind)

    def remove(self, key: str, kind: str) -> None:
        """Remove an entry, if that is possible."""
        path = self._path(key, kind)
        if path is None:
            return
        try:
            with self._kind(kind) as folder:
                folder.remove(key)
        except OSError as error:
            _log.debug("%s is not removed: %s", path, error)

    def has(self, key: str, kind: str) -> bool:
        """Whether there is an entry, as `open` says."""
        entry = self.open(key, kind)
        if entry is not None:
            entry.close()
        return entry is not None

    def read(self, key: str, kind: str) -> bytes | None:
        """The payload of an entry, or None as in `open`."""
        entry = self.open(key, kind, later=True)
        if entry is None:
            return None
        with entry:
            try:
                return entry.read()
            except Damaged:
                self._drop(key, kind)
            except OSError as error:
                _log.warning("%s/%s cannot be read: %s", kind, key, error)
        return None

    def put(
        self,
        key: str,
        kind: str,
        content: entries.Content,
        *,
        lasting: bool = False,
        threads: int = 1,
    ) -> bytes | None:
        """Write an entry; one that is there already is replaced.

        Args:
            key: Digest of all that the content depends on.
            kind: The sort of content: a folder's name.
            content: The payload, or a function that writes it to the file that it is given.
            lasting: Whether it takes long to make again, so that a power cut shall not cost it.
            threads: How many may work on its checksum.

        Returns:
            Its checksum, or None when it was not written: the caller goes on with what it has.
            It may be gone, or be another, when it is opened.
        """
        path = self._path(key, kind)
        if path is None:
            return None
        try:
            with self._kind(kind, make=True) as folder:
                written, found = entries.write_entry(
                    folder, key, f"{kind}/{key}", content, lasting=lasting, threads=threads
                )
        except RefusedFolder as error:
            _say_once(error.path, error)
            return None
        except OSError as error:
            _log.info("%s cannot be written: %s", path, error)
            return None
        self._account(path, written)
        return found

    @staticmethod
    def _touch(entry: Entry, path: str) -> None:
        """Note that an entry is used, at most once a day."""
        try:
            now = time.time()
            if now - os.fstat(entry.descriptor).st_mtime > _DAY_SECONDS:
                os.utime(entry.descriptor if _TOUCHES_FILES else path, (now, now))
        except OSError:
            _log.debug("%s: its time of use cannot be set", path)

    def _account(self, path: str, written: int) -> None:
        """Count what was written; every so often, and at the limit, count and clean the folder."""
        with _ACCOUNTING:
            self._used_bytes += written
            scan = self._writes % _WRITES_PER_SCAN == 0 or self._used_bytes > self.limit_bytes
            self._writes += 1
            if scan:
                self._used_bytes = self._evict(path)

    def _entries(self) -> list[tuple[float, int, str]]:
        """(time of last use, bytes, path) of all entries; leftovers of dead processes go.

        Every process that writes asks for them, and `pathlib` takes four times as long.
        """
        found = []
        kinds = [] if self.folder is None else _listed(str(self.folder))
        # What a link leads to is not the cache's.
        own = (_listed(kind.path) for kind in kinds if kind.is_dir(follow_symlinks=False))
        for entry in itertools.chain.from_iterable(own):
            try:
                status = entry.stat(follow_symlinks=False)
                if entry.name.startswith(TEMPORARY):
                    if time.time() - status.st_mtime > _DAY_SECONDS:
                        os.unlink(entry.path)
                    continue
            except OSError:
                continue
            found.append((status.st_mtime, status.st_size, entry.path))
        return found

    def _evict(self, newest: str) -> int:
        entries = sorted(self._entries())
        used = sum(size for _, size, _ in entries)
        if used <= self.limit_bytes:
            return used
        # The newest goes last, and only when it alone is over the limit.
        entries.sort(key=lambda entry: entry[2] == newest)
        for _, size, path in entries:
            if used <= self.limit_bytes * (_KEPT_SHARE if path != newest else 1):
                break
            try:
                os.unlink(path)
            except FileNotFoundError:
                _log.debug("%s was evicted by another process", path)
            except OSError:
                continue
            _log.debug("evicted %s", path)
            used -= size
        return used

    def __repr__(self) -> str:
        return f"Cache({self.folder or 'nowhere'}, at most {self.limit_bytes} bytes)"


_said: set[object] = set()


def _say_once(path: str, reason: OSError, about: object = None) -> None:
    """Say in the log why a file or folder is not used: once in this process, or about a thing."""
    about = about or path
    if about not in _said:
        _said.add(about)
        _log.warning("%s is not used: %s", path, reason)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it is none, or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _home() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_dir() and home != Path("/") else None


def _candidates() -> Iterator[tuple[Path, bool]]:
    """Where the cache may be, the best first, and whether a link may lead there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if base and Path(base).is_absolute():
        yield Path(base) / "sardonyx", True
    elif home := _home():
        yield home / ".cache" / "sardonyx", True
    with compiling:
        import tempfile  # with what it imports, a tenth of a session that was seen before

    # A folder in the temporary folder could be somebody else's link.
    who = os.getuid() if hasattr(os, "getuid") else "user"
    yield Path(tempfile.gettempdir()) / f"sardonyx-{who}", False


def find_folder() -> Path | None:
    """The folder to cache in, made when it is missing; None when there is none to be trusted."""
    return _find()[0]


def _find() -> tuple[Path | None, bool]:
    """The folder, and whether its path may be that of a link."""
    named = knobs.get("SARDONYX_CACHE")
    if named is not None:
        if named.lower() == "off":
            return None, True
        folder = Path(named).expanduser().absolute()
        reason = private_folder(folder)
        if reason:
            _log.warning("not caching in %s: %s", folder, reason)
        return None if reason else folder, True
    for folder, follow_links in _candidates():
        reason = private_folder(folder, follow_links=follow_links)
        if not reason:
            return folder, follow_links
        _log.info("not caching in %s: %s", folder, reason)
    return None, True


@lru_cache(maxsize=8)
def _open(_named: str | None, limit_bytes: int) -> Cache:
    folder, follow_links = _find()
    return Cache(folder, limit_bytes, follow_links=follow_links)


def default_cache() -> Cache:
    """The cache that the knobs name, the same object as long as they do not change."""
    return _open(knobs.get("SARDONYX_CACHE"), knobs.get("SARDONYX_CACHE_LIMIT_BYTES"))


def digest(*parts: object) -> str:
    """A name for a sequence of parts: bytes-like objects by content, others by their text.

    Names are other ones where entries have another format: versions of the package may share a
    cache, and none takes the other's entries for damaged.
    """
    state = blake2b(digest_size=20, person=entries.FORMAT)
    for part in parts:
        data = part if isinstance(part, bytes | bytearray | memoryview) else str(part).encode()
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        state.update(size.to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


#: Folders of the package that decide on kernels and their text, with all that they import.
KERNEL_FOLDERS = tuple("base host ir kernel link llvm native plan selection targets tensor".split())
#: Folders of the package that nothing of the engine imports: they decide on no code.
ABOVE = frozenset("api backend capi cli datasets profiling quantization tools transformers".split())


def _sources(
    folder: str, without: Container[str] = frozenset()
) -> Iterator[tuple[str, int, int, int]]:
    """Path, size, when it was written and when it changed, of each Python file under a folder.

    Folders in it of the names `without` are left out. Every process asks for them, and `pathlib`
    takes twice as long.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in without:
                    yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def source_digest(
    folder: Path,
    cache: Cache,
    without: Container[str] = frozenset(),
    imported_ns: int | None = None,
    only: Sequence[str] = (),
) -> str:
    """Digest of the Python files under a folder, by content.

    Reading them all is avoided while their names, sizes and times are those of an earlier call.
    Folders in it of the names `without` do not count; nothing but the folders `only`, if there are
    any. Where a file has changed since `imported_ns`
    (an installation of another version, into the folder of a program that runs), nobody knows what
    this process runs: it has a digest of its own then.
    """
    if only:
        parts = (_sources(os.path.join(folder, name)) for name in only)
        found = sorted(itertools.chain.from_iterable(parts))
    else:
        found = sorted(_sources(str(folder), without))
    if imported_ns is not None:
        now_ns = time.time_ns()  # a clock that was set back says nothing
        changed = [path for path, *_, at_ns in found if imported_ns < at_ns <= now_ns]
        if changed:
            what = "%s has changed since it was imported: what is compiled is not kept for others"
            _log.warning(what, changed[0])
            return digest(folder, imported_ns, os.getpid())
    # "files": the digest of contents is one of digests of files.
    signature = digest("files", folder, *(f"{p} {size} {at_ns}" for p, size, at_ns, _ in found))
    known = cache.read(signature, "engine")
    if known is not None:
        return known.decode()
    start = len(os.path.join(folder, ""))
    content = digest(*(x for path, *state in found for x in (path[start:], _file(path, *state))))
    cache.put(signature, "engine", content.encode())
    return content


@lru_cache(maxsize=1 << 12)
def _file(path: str, size: int, *_times_ns: int) -> bytes:
    """Digest of a file of a size: several parts of the package have it, and it is read once."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        data = os.read(descriptor, size)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
    finally:
        os.close(descriptor)
    return blake2b(data, digest_size=20).digest()


def _llvmlite_version() -> str:
    """llvmlite's version, from its files: importing it takes 40 ms."""
    found = importlib.util.find_spec("llvmlite")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "_version.py"
        if path.is_file():
            return digest(path.read_bytes())
    return _package_version("llvmlite")


def _package_version(name: str) -> str:
    with compiling:
        import importlib.metadata  # 30 ms, and needed for archives only

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _content(without: Container[str] = frozenset(), only: Sequence[str] = ()) -> str:
    """Digest of the package's source; see `source_digest`."""
    folder = Path(__file__).parents[1]
    if not folder.is_dir():  # imported from an archive
        return digest(_package_version("sardonyx"))
    try:
        return source_digest(folder, default_cache(), without, IMPORTED_NS, only)
    except OSError as error:
        what = f"The package's own files cannot be read: {error}"
        is_short = error.errno in (EMFILE, ENFILE)
        do = "Raise the limit of open files (`ulimit -n`)" if is_short else ""
        raise ResourceError(message("cache", what, do=do)) from None


@lru_cache(maxsize=1)
def _source_digest() -> str:
    return digest(_content(ABOVE), _llvmlite_version())


@lru_cache(maxsize=1)
def kernel_digest() -> str:
    """Digest of the source that decides on kernels of a structure, and on their text.

    Neither machine nor LLVM are in it: kernels built elsewhere are found by it.

    Raises:
        ResourceError: The source cannot be read, perhaps for too many open files.
    """
    return digest(_content(only=KERNEL_FOLDERS))


@lru_cache(maxsize=1)
def compiler_digest() -> str:
    """Digest of what makes machine code of LLVM's texts."""
    return digest(_llvmlite_version())


def engine_digest() -> str:
    """Digest of what all compiled code depends on, whatever the model.

    These are the engine's source, llvmlite, the processor's features, and the knobs that change
    code. The first call of a process takes about a millisecond per hundred source files.

    Raises:
        ResourceError: The source cannot be read, perhaps for too many open files.
    """
    return digest(_source_digest(), host_target().key, knobs.code_signature())
