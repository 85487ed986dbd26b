"""A model file to a compiled engine, from the disk cache where it was seen before.

One cache entry holds the plan and what the session must know of the model, one the machine code,
one the constants (packed weights and what else the plan reads), which is mapped: all sessions and
processes share it, and the model's own file is not needed any more.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.dtypes import DType
from sardonyx.base.errors import ContradictingSizes, InvalidArgument, message
from sardonyx.base.files import identity_of, is_unchanged
from sardonyx.base.log import get_logger
from sardonyx.codegen.target import Target, host_target
from sardonyx.cpu.threads import thread_count
from sardonyx.plan.plan import Plan
from sardonyx.runtime.cache import Cache, default_cache, digest, engine_digest
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.executable import load_blob
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.record import Record

if TYPE_CHECKING:
    from sardonyx.runtime.build import Built

_logger = get_logger("session")


@dataclass(slots=True)
class EngineOptions:
    """What a session asks of the engine.

    Attributes:
        threads: Threads of a run, the caller included; 0 for as many as there are processors.
        optimization_level: 0 leaves the graph as it is.
        free_dimension_overrides: Sizes for dimensions, by name.
        use_cache: Whether the disk cache may be read and written.
        verify: Whether to verify the graph after each pass.
        general: Rely on no dimension's name, and leave broadcasts to the run: a slower plan for
            feeds that the first one refuses.
    """

    threads: int = 0
    optimization_level: int = 99
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)
    use_cache: bool = True
    verify: bool = False
    general: bool = False

    def key(self) -> str:
        """What of it changes the compiled model."""
        sizes = sorted(self.free_dimension_overrides.items())
        return repr((bool(self.optimization_level), sizes, self.general))


class Engine:
    """One compiled model; any number of threads may run it.

    Attributes:
        record: What the session must know of the model.
        timings: Seconds by phase of loading.
    """

    def __init__(self, record: Record, executable: Executable, timings: dict[str, float]) -> None:
        self.record, self.executable, self.timings = record, executable, timings
        self._make_general: Callable[[], Engine | None] | None = None
        self._general: Engine | None = None
        self._lock = threading.Lock()
        self._plain = record.output_places == list(range(len(record.outputs)))
        self._defaults = len(record.overridable)

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The feeds that a run must be given."""
        return self.record.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """What a run gives."""
        return self.record.outputs

    def run(
        self, feeds: Sequence[Any], cancel: CancelFlag | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """All outputs, given all inputs in order.

        Raises:
            InvalidArgument: A feed does not fit the model.
            RuntimeException: The model met data that it cannot work on.
            OutOfMemory: The run needs more memory than there is.
        """
        try:
            results = self.executable.run(feeds, cancel)
        except ContradictingSizes as error:
            return self._run_general(error, feeds, cancel)
        if self._plain:
            return results
        found: list[np.ndarray[Any, Any]] = []
        used: set[int] = set()
        for place in self.record.output_places:
            found.append(results[place].copy() if place in used else results[place])
            used.add(place)
        return found

    def _run_general(
        self, error: ContradictingSizes, feeds: Sequence[Any], cancel: CancelFlag | None
    ) -> list[np.ndarray[Any, Any]]:
        """Run the variant that relies on no name, compiled when it is first needed."""
        with self._lock:
            if self._general is None:
                if self._make_general is None:
                    raise error
                _logger.warning("%s A more general plan is compiled for such feeds.", error)
                make, self._make_general = self._make_general, None
                self._general = make()
            general = self._general
        if general is None:
            raise error
        try:
            return general.run(feeds, cancel)
        except InvalidArgument:
            raise error from None

    def use_for_other_feeds(self, make: Callable[[], Engine | None]) -> None:
        """Give the engine a way to make the variant for feeds that contradict dimension names."""
        self._make_general = make


def create_engine(source: Any, options: EngineOptions | None = None) -> Engine:
    """Compile a model, or find it in the cache.

    Args:
        source: A path, the bytes of a model, or a `ModelProto`.
        options: How to run it.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        NotImplemented: The model asks for something that is not supported.
    """
    options = options or EngineOptions()
    start = time.perf_counter()
    timings: dict[str, float] = {}
    target = host_target()
    cache = default_cache() if options.use_cache else None
    if not isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        if not hasattr(source, "SerializeToString"):
            raise InvalidArgument(
                message(
                    "session",
                    "This is not a model",
                    expected="a path, bytes or a ModelProto",
                    got=type(source).__name__,
                )
            )
        source = source.SerializeToString()
    elif isinstance(source, (bytearray, memoryview)):
        source = bytes(source)  # the caller may change his
    key = _model_key(source, options, target) if cache is not None else None
    timings["identify"] = time.perf_counter() - start
    threads = thread_count(options.threads)
    engine = None
    if cache is not None and key is not None:
        engine = _from_cache(cache, key, threads, timings)
    if engine is None:
        engine = _compile(source, options, target, cache, key, threads, timings)
    if not options.general and _may_contradict(engine.record.plan):
        engine.use_for_other_feeds(_general_variant(source, options, engine.record))
    timings["total"] = time.perf_counter() - start
    _logger.debug("session made in %.3f s: %s", timings["total"], timings)
    return engine


def _general_variant(
    source: Any, options: EngineOptions, record: Record
) -> Callable[[], Engine | None]:
    """Makes the variant for other feeds; None when the model is not what it was any more."""
    files = list(record.files)
    if isinstance(source, (str, os.PathLike)):
        path = os.path.abspath(os.fspath(source))
        with contextlib.suppress(OSError):
            files.append((os.fsdecode(path), identity_of(os.stat(path))))

    def make() -> Engine | None:
        if not all(is_unchanged(path, identity) for path, identity in files):
            _logger.warning("the model's files were changed: there is no plan for such feeds")
            return None
        return create_engine(source, replace(options, general=True))

    return make


def _may_contradict(plan: Plan) -> bool:
    """Whether feeds can differ in sizes that the plan takes as equal."""
    names = [d for spec in plan.inputs for d in set(spec.dims) if not isinstance(d, int)]
    return bool(plan.guards) or len(set(names)) < len(names)


def _compile(
    source: Any,
    options: EngineOptions,
    target: Target,
    cache: Cache | None,
    key: str | None,
    threads: int,
    timings: dict[str, float],
) -> Engine:
    from sardonyx.runtime.build import build_model  # the compiler: only where it is needed

    built = build_model(source, options, target, timings)
    return _finish(built, cache, key, threads, timings)


def _model_key(source: Any, options: EngineOptions, target: Target) -> str | None:
    """Identity of a model: of a file its place and time, of bytes what they are."""
    if isinstance(source, bytes):
        identity: object = digest(source)
    else:
        try:
            identity = (os.path.realpath(source), *identity_of(os.stat(source)))
        except OSError:
            return None
    return digest("session", repr(identity), options.key(), target.key, engine_digest())


def _from_cache(cache: Cache, key: str, threads: int, timings: dict[str, float]) -> Engine | None:
    start = time.perf_counter()
    written = cache.read(key, "session")
    code_path, data_path = cache.get(key, "code"), cache.get(key, "data")
    if written is None or code_path is None or data_path is None:
        return None
    try:
        record = Record.from_bytes(written)
        if not record.files_unchanged():
            return None
        constants = map_constants(data_path, record)
        executable = Executable(record.plan, load_blob(code_path), constants, threads=threads)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, it is rebuilt
        _logger.warning(
            "cache entry %s is not usable (%s): the model is compiled again", key, error
        )
        return None
    timings["from cache"] = time.perf_counter() - start
    return Engine(record, executable, timings)


def _finish(
    built: Built, cache: Cache | None, key: str | None, threads: int, timings: dict[str, float]
) -> Engine:
    constants = built.constants
    if cache is not None and key is not None:
        start = time.perf_counter()
        data_path = cache.put(key, "data", built.write_constants)
        cache.put(key, "code", built.blob.to_bytes())
        if data_path is not None and cache.put(key, "session", built.record.to_bytes()):
            # What another process drops from the cache meanwhile stays in memory.
            with contextlib.suppress(OSError):
                constants = map_constants(data_path, built.record)
        timings["write cache"] = time.perf_counter() - start
    executable = Executable(built.record.plan, built.code, constants, threads=threads)
    return Engine(built.record, executable, timings)


def map_constants(path: Path, record: Record) -> list[np.ndarray[Any, Any]]:
    """The constants of a session, mapped from their cache entry and never written to.

    Raises:
        InvalidArgument: The file is shorter than the record says.
    """
    if not record.constants:
        return []
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = np.frombuffer(mapped, np.uint8)
    found = []
    for dtype, shape, offset, size_bytes in record.constants:
        if offset + size_bytes > whole.size:
            raise InvalidArgument(message("cache", "The file of constants is cut short"))
        part = whole[offset : offset + size_bytes].view(_storage(dtype))
        found.append(part.reshape(shape))
    return found


def _storage(dtype: DType) -> np.dtype[Any]:
    return dtype.numpy
