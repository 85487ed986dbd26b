"""A model file to a compiled engine, from the disk cache where it was seen before."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sardonyx.base import knobs, remembering
from sardonyx.base.collector import paused
from sardonyx.base.errors import (
    EngineError,
    Fail,
    InvalidGraph,
    ModelLoadCanceled,
    SardonyxError,
    WrongType,
    message,
    too_deep,
)
from sardonyx.base.files import Identity, identity_of, is_unchanged
from sardonyx.base.forks import compiling
from sardonyx.base.handlers import behind, is_foreign, undisturbed
from sardonyx.base.interning import patient, remove_gone
from sardonyx.base.interrupt import counting, watching
from sardonyx.base.log import get_logger, scope
from sardonyx.base.resources import refusal
from sardonyx.compiler.cached_engines import Destination, read_engine, repeat_remarks, write_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from sardonyx.cpu.threads import team_of
from sardonyx.plan.plan import Plan
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag, time_limit
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.provider import Provider
from sardonyx.runtime.variants import Variants
from sardonyx.store.cache import Cache, default_cache, digest, engine_digest
from sardonyx.store.model_record import ModelRecord
from sardonyx.targets.target import host_target

if TYPE_CHECKING:
    from sardonyx.compiler.built import Built
    from sardonyx.compiler.plan_store import StoredPlan
    from sardonyx.store.machine_code import Units
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("session")
_Made = TypeVar("_Made")


def create_engine(source: Any, options: EngineOptions | None = None) -> Engine:
    """Compile a model, or find it in the cache.

    Args:
        source: A path, the bytes of a model, or a `ModelProto`.
        options: How to run it.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        NotImplemented: The model asks for something that is not supported.
        OutOfMemory: Its constants need more memory than the session may have.
        ModelLoadCanceled: It was cancelled, or its time is over.
    """
    return undisturbed(partial(_created, source, options or EngineOptions()))


def _created(source: Any, options: EngineOptions) -> Engine:
    start = time.perf_counter()
    try:
        with patient():
            # Until what is made on the way is gone: the collector would look at all of it before.
            with paused():
                engine = guarded(options, partial(_create, source))
            if gc.isenabled():
                gc.collect(0)  # it is due, and what it finds leaves the tables now
        return engine
    except SardonyxError as error:
        if time.perf_counter() - start > _LONG_SECONDS:
            _let_go(error)
        raise


#: A load that fails after so long has left much behind: a graph is full of cycles, and the
#: collector can take long to look at what is as old as that.
_LONG_SECONDS = 1.0


def _let_go(error: BaseException) -> None:
    """Free what a load had made: a caller who keeps its error would keep all of that, too."""
    for link in behind(error):
        traceback.clear_frames(link.__traceback__)
    del link
    gc.collect()
    remove_gone()


def guarded(options: EngineOptions, make: Callable[[EngineOptions], _Made]) -> _Made:
    """What `make` makes, within the options' time; every error is one of the package's.

    But for what the program itself raises in it: a handler of signals, or whoever raises an
    exception of the program's own in another thread.
    """
    return undisturbed(partial(_guarded, options, make))


def _guarded(options: EngineOptions, make: Callable[[EngineOptions], _Made]) -> _Made:
    with (
        scope(options.least_level, options.logid),
        time_limit(options.load_seconds, options.cancel) as cancel,
        watching(lambda: _stop_if(cancel)),
    ):
        try:
            with patient():
                return make(replace(options, cancel=cancel))
        except Fail:
            _stop_if(cancel)  # a run that prepares constants was ended
            raise
        except SardonyxError:
            raise
        except RecursionError:
            raise too_deep("session") from None
        except Exception as error:
            refused = refusal("session", error)
            if refused is not None:
                raise refused from error
            if is_foreign(type(error)):
                raise
            what = f"Compiling the model failed: {type(error).__name__}: {error}"
            raise EngineError(message("session", what)) from error


def _stop_if(cancel: CancelFlag) -> None:
    if cancel.is_set:
        raise cancel.error("session", ModelLoadCanceled)


def _create(source: Any, options: EngineOptions) -> Engine:
    start = time.perf_counter()
    timings: dict[str, float] = {}
    provider = options.provider or CpuProvider()
    cache = default_cache() if options.use_cache else None
    budget = options.budget or Budget(options.memory_limit_bytes)
    source = plain_source(source)
    state = state_of(source)
    key = None
    if cache is not None and not options.plugins.all:
        key = model_key(source, state, options, provider)
    timings["identify"] = time.perf_counter() - start
    team = team_of(options.threads, options.branches, options.share, options.setup)
    tuned = tuned_for(source, options, provider, cache, key)
    if tuned is not None:
        key = None if key is None else digest(key, tuned.identity)
        options = replace(options, choices=tuned.choices)
    engine = None
    try:
        if cache is not None and key is not None:
            engine = read_engine(cache, provider, key, team, timings, budget)
        kept, built = None, None
        if engine is None and key is not None and tuned is None and cache is not None:
            kept, built = _kept_plan(source, options, provider, timings, budget, cache)
        loads = engine is None and built is None
        if engine is None:
            made = (
                compiled(source, options, provider, timings, budget, cache)
                if built is None
                else nullcontext(built)
            )
            with made as built:
                if key is not None and state_of(source) != state:
                    what = "the model's file was replaced while it was read: it is not cached"
                    _logger.warning(what)
                    key = None
                key = None if built.is_own else key
                to = Destination(cache, key, kept)
                engine = write_engine(built, provider, team, timings, budget, to)
                engine.claims = built.claims
    finally:
        remembering.forget()
    if not loads:
        repeat_remarks(engine.record)
    may_be_general = not options.general and may_contradict(engine.record.plan)
    log = (options.least_level, options.logid)
    engine.tuned = tuned
    shared = replace(options, budget=budget)
    engine.use(Variants(_maker(source, state, shared, engine.record), may_be_general, log))
    timings["total"] = time.perf_counter() - start
    _logger.debug("session made in %.3f s: %s", timings["total"], timings)
    return engine


def _kept_plan(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    timings: dict[str, float],
    budget: Budget,
    cache: Cache,
) -> tuple[StoredPlan | None, Built | None]:
    """Where a model's plan is kept, and the model with that plan if it is there."""
    start = time.perf_counter()
    with compiling:
        from sardonyx.compiler.plan_store import StoredPlan

    kept = StoredPlan.of(cache, source, options, provider)
    built = None if kept is None else kept.find(options, budget)
    timings["kept plan"] = time.perf_counter() - start
    return kept, built


def plain_source(source: Any) -> Any:
    """A model as a path or bytes.

    Raises:
        InvalidArgument: It is none.
    """
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)  # the caller may change his
    if isinstance(source, (str, os.PathLike, bytes)):
        return source
    if hasattr(source, "SerializeToString"):
        return source.SerializeToString()
    raise WrongType(
        message(
            "session", "This is not a model", expected="a path, bytes or a ModelProto",
            got=type(source).__name__,
        )
    )  # fmt: skip


def tuned_for(
    source: Any, options: EngineOptions, provider: Provider, cache: Cache | None, key: str | None
) -> Tuned | None:
    """What was measured for a model: before, or now if SARDONYX_TUNE says so."""
    if options.tuned is not None:
        return options.tuned
    wanted = knobs.get("SARDONYX_TUNE") and options.is_first
    if cache is None or key is None or cache.folder is None:
        if wanted:
            _logger.warning("SARDONYX_TUNE has no effect: there is no disk cache to keep results")
        return None
    if not wanted and not cache.has(key, "tuned"):
        return None
    with compiling:
        from sardonyx.store.tuning_choices import read

    found = read(cache, key)
    if found is None and wanted:
        with compiling:
            from sardonyx.compiler.tuning import tune

        found = tune(source, options, provider, cache, key)
    return found


@contextmanager
def compiled(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    timings: dict[str, float],
    budget: Budget,
    cache: Cache | None,
) -> Iterator[Built]:
    """A compiled model; inside the block its code is completed and its constants are made."""
    with paused(), units_for(cache, source, state_of(source)) as units:
        tables = partial(budget.take, purpose="tables that operators need")
        with counting(tables, budget.give):
            built = build_for(source, options, provider, timings, budget, units)
        with watching(lambda: _go_on_compiling(units, options.cancel)):
            yield built


#: Where a model's file really is, and in which state.
_State = tuple[str, Identity]


def state_of(source: Any) -> _State | None:
    """That of a model's file; None if there is none, or it cannot be seen."""
    if isinstance(source, bytes):
        return None
    try:
        return os.path.realpath(os.fsdecode(source)), identity_of(os.stat(source))
    except (OSError, ValueError):  # loading says what is wrong with the path
        return None


def _maker(
    source: Any, state: _State | None, options: EngineOptions, record: ModelRecord
) -> Callable[..., Engine | None]:
    """Makes other plans of the model; None when the model is not what it was any more."""
    files = list(record.files)
    if state is not None:
        files.append((os.path.abspath(os.fsdecode(source)), state[1]))

    def make(**changes: Any) -> Engine | None:
        if not all(is_unchanged(path, identity) for path, identity in files):
            _logger.warning("the model's files were changed: there is no plan for such feeds")
            return None
        for name in ("ones", "ranks", "shapes"):  # those that the plan itself is for, and more
            if name in changes:
                changes[name] = getattr(options, name) | changes[name]
        return create_engine(source, replace(options, cancel=None, **changes))

    return make


def may_contradict(plan: Plan) -> bool:
    """Whether feeds can differ in sizes that the plan takes as equal."""
    names = [d for spec in plan.inputs for d in set(spec.dims) if not isinstance(d, int)]
    return bool(plan.guards) or len(set(names)) < len(names)


def _go_on_compiling(units: Units, cancel: CancelFlag | None) -> None:
    """What is done now and then while constants are made."""
    if cancel is not None:
        _stop_if(cancel)
    units.pump()


#: The kernels of smaller models are often known all: a process starts when the first is not.
_SMALL_BYTES = 2**18


def units_for(cache: Cache | None, source: Any, state: _State | None) -> Units:
    """What compiles. Its first process starts while the model is read here."""
    with compiling:
        from sardonyx.store.machine_code import Units

    units = Units(host_target(), cache)
    size = len(source) if isinstance(source, bytes) else state[1][2] if state else 0
    if size > _SMALL_BYTES:
        units.start()
    return units


def build_for(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    timings: dict[str, float],
    budget: Budget,
    units: Units,
) -> Built:
    """A model, compiled; the compiler is imported when it is first needed."""
    with compiling:
        # The compiler: only where it is needed.
        from sardonyx.compiler.build import build_model
        from sardonyx.ops.core.registry import load_frequent

        load_frequent()

    tables = partial(budget.take, purpose="tables that operators need")
    with counting(tables, budget.give):
        try:
            return build_model(source, options, provider, timings, budget, units)
        except InvalidGraph as error:
            if options.general or "load" not in timings:
                raise
            # What a first plan takes for granted (an axis is not empty, sizes are equal that a run
            # may broadcast) may contradict itself where the graph does not.
            units.forget()
            general = replace(options, general=True)
            try:
                built = build_model(source, general, provider, timings, budget, units)
            except SardonyxError:
                raise error from None
            built.read = None  # it depends on what the first one read, too
            _logger.warning("a plan for any sizes is made, as the usual one contradicts itself")
            _logger.debug("the contradiction: %s", error)
            return built


def model_key(
    source: Any, state: _State | None, options: EngineOptions, provider: Provider
) -> str | None:
    """The cache's key of a session: a digest of all that decides on its plans and code.

    A file is identified by its real path and state, bytes by their digest. None if the source has
    no identity: then nothing of it is kept.
    """
    identity = digest(source) if isinstance(source, bytes) else state
    if identity is None:
        return None
    return digest("session", repr(identity), options.key(), provider.key, engine_digest())
