"""The run time's own native functions: kernel language, compiled once per machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sardonyx.base.errors import SardonyxError
from sardonyx.base.forks import loading_library
from sardonyx.base.log import get_logger
from sardonyx.kernel.language.program import Program
from sardonyx.link.executable_memory import LoadedCode, load_blob, load_part
from sardonyx.store.cache import default_cache, digest, engine_digest, kernel_digest
from sardonyx.targets.target import Target, host_target

if TYPE_CHECKING:
    from sardonyx.link.elf import ObjectPart
    from sardonyx.store.machine_code import Units, WaitingUnit

_log = get_logger("library")
_KIND, _RECORDING = "library", "recording"


def programs() -> Sequence[Program]:
    """All native functions."""
    from sardonyx.native import (
        bind,
        caller_processor,
        capsule,
        checksum,
        denormal_mode,
        execute,
        fast_path,
        graph_replay,
        pack,
        pool,
        repeated_fields,
        walk,
    )
    from sardonyx.native import resolve as resolve

    return [
        bind.bind(),
        resolve.evaluate(), resolve.check(), pack.pack(), resolve.schedule(),
        resolve.fill(), resolve.resolve(), resolve.enter(),
        execute.point(), execute.place(), execute.launch(),
        execute.wait(), execute.step(), execute.execute(),
        fast_path.fits(), fast_path.again(),
        walk.forget_kept(), walk.serial(), walk.worth(), walk.walk(),
        walk.together(),
        pool.claim(), pool.worker(), pool.fork_join(), pool.stop(),
        pool.spin(), caller_processor.set_apart(), *denormal_mode.flushing(),
        repeated_fields.read_integers(), repeated_fields.read_texts(), graph_replay.rewrite(),
        graph_replay.replay(),
        capsule.let_go(), *capsule.letting_go(), checksum.checksum(),
    ]  # fmt: skip


def _load(kind: str, make: Callable[[], Sequence[Program]]) -> LoadedCode:
    """Functions of the run time, from the cache or compiled."""
    found = _cached(kind)
    if found is not None:
        return found
    from sardonyx.store.machine_code import Units

    with Units(host_target(), default_cache()) as units:
        return _kept(kind, _begun(units, make())())


def _cached(kind: str) -> LoadedCode | None:
    """The functions of a kind, if the cache or an archive has them."""
    entry = default_cache().open(digest(kind, engine_digest()), kind)
    if entry is None:
        held = _archived(kind)
        if held is None:
            return None
        from sardonyx.link.blob import Blob

        return load_blob(Blob.from_bytes(held))
    with entry:
        try:
            return load_part(entry.descriptor, 0, entry.size)
        except (SardonyxError, OSError) as error:
            _log.warning("the run time's functions in the cache are not usable: %s", error)
            return None


def archived_key(kind: str, target: Target) -> str:
    """The key in an archive of the functions of a kind."""
    return digest(kind, kernel_digest(), target.key)


def _archived(kind: str) -> bytes | None:
    """The bytes of a blob with the functions of a kind, if they were compiled ahead."""
    from sardonyx.store.kernel_archive import archive_for

    archive = archive_for(host_target())
    return None if archive is None else archive.read(archived_key(kind, host_target()), kind)


def _begun(units: Units, functions: Sequence[Program]) -> WaitingUnit:
    """Have them compiled; what is given waits for it."""
    from sardonyx.llvm.compile import AS_WRITTEN
    from sardonyx.llvm.module import emit_module

    _log.info("compiling the run time's functions")
    return units.part(AS_WRITTEN + emit_module(functions, host_target()))


def _kept(kind: str, part: ObjectPart) -> LoadedCode:
    """The functions, loaded from the cache where that keeps them."""
    from sardonyx.link.blob import blob_of

    blob = blob_of([part], host_target())
    default_cache().put(digest(kind, engine_digest()), kind, blob.to_bytes(), lasting=True)
    return _cached(kind) or load_blob(blob)


def kinds() -> dict[str, Callable[[], Sequence[Program]]]:
    """The names under which functions of the run time are kept, and what makes their programs."""
    return {_KIND: programs, _RECORDING: _recording_programs}


def compiled(kind: str) -> bytes:
    """A blob's bytes with the functions of a kind, from the cache or compiled."""
    cache = default_cache()
    known = cache.read(digest(kind, engine_digest()), kind) or _archived(kind)
    if known is not None:
        return known
    from sardonyx.link.blob import blob_of
    from sardonyx.store.machine_code import Units

    with Units(host_target(), cache) as units:
        return blob_of([_begun(units, kinds()[kind]())()], host_target()).to_bytes()


def provide(kind: str, load: Callable[[], LoadedCode]) -> None:
    """Use functions that were compiled elsewhere, if this process has none of that kind yet."""
    global _found, _recording
    with loading_library:
        if kind == _KIND and _found is None:
            _found = NativeFunctions(load())
        elif kind == _RECORDING and _recording is None:
            _recording = Recording(load())


class Begun:
    """The functions while they may still be compiled beside a model's kernels.

    Args:
        units: What compiles.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        is_there = (
            _found is not None
            or default_cache().has(digest(_KIND, engine_digest()), _KIND)
            or _archived(_KIND) is not None
        )
        self._wait = None if is_there else _begun(units, programs())

    @property
    def is_first(self) -> bool:
        """Whether this machine has had nothing compiled yet."""
        return self._wait is not None

    def finish(self) -> None:
        """Wait for them; to be called before the first run."""
        global _found
        if self._wait is None:
            return
        part = self._wait()
        with loading_library:
            if _found is None:
                _found = NativeFunctions(_kept(_KIND, part))
        self._wait = None

    def if_ready(self) -> NativeFunctions | None:
        """The functions if nobody must wait for them."""
        if self._wait is not None:
            self._units.pump()
            if not self._wait.is_over():
                return None
            self.finish()
        return library()


class NativeFunctions:
    """The functions, callable. Those that hold the interpreter's lock are short.

    Attributes:
        bind: (frame, items) -> state; holds the lock, since it reads Python's objects.
        resolve: (frame, segment) -> code.
        execute: (frame, items, pool or 0) -> fault code.
        fits: (frame, items, items of outputs) -> 0 or NOT_AGAIN; holds the lock, as `bind` does.
        again: (frame, items, items of outputs) -> fault code; holds the lock.
        worker: (pool, context), returns when the pool is stopped.
        flushing_execute, flushing_again, flushing_worker: The same, with zeros in place of denormal
            numbers.
        stop: (pool).
        spin: (pool, count).
        rewrite: (record).
        replay: (record, event) -> code.
        read_integers: (data, size, tag, numbers, used) -> count.
        read_texts: (data, size, tag, codes, table, used) -> count.
        checksum: (data, count, states, next, most) -> count.
        letting_go: Addresses of (what): a capsule, and what DLPack's first and second form hold.
    """

    def __init__(self, code: LoadedCode) -> None:
        self.code = code
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        held, released = ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE
        self.bind: Callable[[int, int], int] = held(word, pointer, pointer)(code.address("bind"))
        self.resolve: Callable[[int, int], int] = held(word, pointer, word)(code.address("resolve"))
        run_kernels = released(word, pointer, pointer, pointer)
        self.execute: Callable[[int, int, int], int] = run_kernels(code.address("execute"))
        self.flushing_execute: Callable[[int, int, int], int] = run_kernels(
            code.address("flushing_execute")
        )
        two_tuples = held(word, pointer, pointer, pointer)
        self.fits: Callable[[int, int, int], int] = two_tuples(code.address("fits"))
        self.again: Callable[[int, int, int], int] = two_tuples(code.address("again"))
        self.flushing_again: Callable[[int, int, int], int] = two_tuples(
            code.address("flushing_again")
        )
        serve = released(None, pointer, pointer)
        self.worker: Callable[[int, int], None] = serve(code.address("worker"))
        self.flushing_worker: Callable[[int, int], None] = serve(code.address("flushing_worker"))
        self.stop: Callable[[int], None] = released(None, pointer)(code.address("stop"))
        self.spin: Callable[[int, int], None] = held(None, pointer, word)(code.address("spin"))
        self.rewrite: Callable[[int], None] = held(None, pointer)(code.address("rewrite"))
        self.replay: Callable[[int, int], int] = released(word, pointer, pointer)(
            code.address("replay")
        )
        run = pointer, word, word, pointer, pointer
        self.read_integers: Callable[[int, int, int, int, int], int] = released(word, *run)(
            code.address("read_integers")
        )
        self.read_texts: Callable[[int, int, int, int, int, int], int] = released(
            word, *run, pointer
        )(code.address("read_texts"))
        self.checksum: Callable[[int, int, int, int, int], int] = released(
            word, pointer, word, pointer, pointer, word
        )(code.address("checksum"))
        names = ("let_go_of_capsule", "let_go_of_managed", "let_go_of_versioned")
        self.letting_go: tuple[int, ...] = tuple(code.address(name) for name in names)


_found: NativeFunctions | None = None


def library() -> NativeFunctions:
    """The library of this process: one, however many threads ask first."""
    global _found
    if _found is None:
        with loading_library:
            if _found is None:
                _found = NativeFunctions(_load(_KIND, programs))
    return _found


class Recording:
    """The functions of runs that are recorded.

    Attributes:
        record: The address of the function that stands for every kernel.
        clock: What it notes as time.
    """

    def __init__(self, code: LoadedCode) -> None:
        self.code, self.record = code, code.address("record")
        self.clock: Callable[[], int] = ctypes.PYFUNCTYPE(ctypes.c_int64)(code.address("clock"))


_recording: Recording | None = None


def recording() -> Recording:
    """The functions of recorded runs, compiled when the first asks."""
    global _recording
    if _recording is None:
        with loading_library:
            if _recording is None:
                _recording = Recording(_load(_RECORDING, _recording_programs))
    return _recording


def _recording_programs() -> Sequence[Program]:
    from sardonyx.native import kernel_times

    return [kernel_times.record(), kernel_times.clock()]
