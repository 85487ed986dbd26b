"""The run time's own native functions: kernel language, compiled once per machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from sardonyx.base.forks import loading_library
from sardonyx.base.log import get_logger
from sardonyx.codegen.target import host_target
from sardonyx.kernel.program import Program
from sardonyx.runtime.cache import default_cache, digest, engine_digest
from sardonyx.runtime.executable import LoadedCode, load_blob

_log = get_logger("library")
_KIND = "library"


def programs() -> Sequence[Program]:
    """All native functions."""
    from sardonyx.runtime import (
        native_again,
        native_bind,
        native_execute,
        native_pack,
        native_pool,
        native_walk,
    )
    from sardonyx.runtime import native_resolve as resolve

    return [
        native_bind.bind(),
        resolve.evaluate(), resolve.check(), native_pack.pack(), resolve.schedule(),
        resolve.fill(), resolve.resolve(), resolve.enter(),
        native_execute.point(), native_execute.place(), native_execute.launch(),
        native_execute.wait(), native_execute.step(), native_execute.execute(),
        native_again.fits(), native_again.again(),
        native_walk.serial(), native_walk.worth(), native_walk.walk(), native_walk.together(),
        native_pool.claim(), native_pool.worker(), native_pool.fork_join(), native_pool.stop(),
        native_pool.spin(),
    ]  # fmt: skip


def _load() -> LoadedCode:
    cache = default_cache()
    key = digest(_KIND, engine_digest())
    path = cache.get(key, _KIND)
    if path is not None:
        return load_blob(path)
    from sardonyx.codegen.blob import build
    from sardonyx.codegen.module import emit_module

    _log.info("compiling the run time's functions")
    blob = build(emit_module(programs(), host_target()), host_target())
    path = cache.put(key, _KIND, blob.to_bytes())
    return load_blob(blob if path is None else path)


class Library:
    """The functions, callable. Those that hold the interpreter's lock are short.

    Attributes:
        bind: (frame, items) -> state; holds the lock, since it reads Python's objects.
        resolve: (frame, segment) -> code.
        execute: (frame, items, pool or 0) -> fault code.
        fits: (frame, items, items of outputs) -> 0 or NOT_AGAIN; holds the lock, as `bind` does.
        again: (frame, items, items of outputs) -> fault code; holds the lock.
        worker: (pool, context), returns when the pool is stopped.
        stop: (pool).
        spin: (pool, count).
    """

    def __init__(self, code: LoadedCode) -> None:
        self.code = code
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        held, released = ctypes.PYFUNCTYPE, ctypes.CFUNCTYPE
        self.bind: Callable[[int, int], int] = held(word, pointer, pointer)(code.address("bind"))
        self.resolve: Callable[[int, int], int] = held(word, pointer, word)(code.address("resolve"))
        self.execute: Callable[[int, int, int], int] = released(word, pointer, pointer, pointer)(
            code.address("execute")
        )
        two_tuples = held(word, pointer, pointer, pointer)
        self.fits: Callable[[int, int, int], int] = two_tuples(code.address("fits"))
        self.again: Callable[[int, int, int], int] = two_tuples(code.address("again"))
        self.worker: Callable[[int, int], None] = released(None, pointer, pointer)(
            code.address("worker")
        )
        self.stop: Callable[[int], None] = released(None, pointer)(code.address("stop"))
        self.spin: Callable[[int, int], None] = held(None, pointer, word)(code.address("spin"))


_found: Library | None = None


def library() -> Library:
    """The library of this process: one, however many threads ask first."""
    global _found
    if _found is None:
        with loading_library:
            if _found is None:
                _found = Library(_load())
    return _found
