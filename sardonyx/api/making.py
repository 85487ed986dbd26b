"""Sessions' options to an engine: of the processor, or of a provider that comes before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sardonyx.api.config_keys import BUNDLE_FORMAT, DENORMAL_KEY, FORMAT_KEY, SHARED_KEY
from sardonyx.api.cuda_options import CUDA, OPTIONS, settings
from sardonyx.api.optimizers import disabled
from sardonyx.api.options import SessionOptions
from sardonyx.api.plugins import make_plugins, with_plugins
from sardonyx.api.providers import CPU
from sardonyx.api.thread_pool import branch_setting, setup_setting, thread_setting
from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.notes import note
from sardonyx.runtime.cancel import CancelFlag

if TYPE_CHECKING:
    from sardonyx.compiler.options import EngineOptions
    from sardonyx.cuda.provider import CudaProvider
    from sardonyx.ir.graph import Graph
    from sardonyx.runtime.engine import Engine
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("session")


def make_engine(
    source: Any,
    o: SessionOptions,
    providers: dict[str, dict[str, str]],
    cancel: CancelFlag | None = None,
    tuned: Tuned | None = None,
) -> Engine:
    """Compile a model, or find it in the cache.

    Args:
        source: A path, bytes, or a `ModelProto`.
        o: How to make the session.
        providers: Names with their options, in order of preference. One that cannot run the model
            is taken out.
        cancel: Ends the compilation when it is set.
        tuned: Which kernels are computed otherwise than the cost model would; None for what this
            machine's cache says.

    Raises:
        NotImplemented: The model asks for something that is not supported.
    """
    # The engine is two thirds of the package: a program that only imports does not load it.
    with compiling:
        from sardonyx.compiler.drive import create_engine
        from sardonyx.store.bundle import is_bundle

    options = engine_options(o, cancel)
    options.tuned = tuned
    if is_bundle(source):
        return _of_bundle(source, o, options, providers)
    if o.config(FORMAT_KEY) == BUNDLE_FORMAT:
        what = "This is no bundle"
        raise errors.InvalidArgument(message(str(FORMAT_KEY), what, got=str(source)[:200]))
    if o.optimized_model_filepath:
        from sardonyx.tools.optimizer.session import write_optimized

        write_optimized(
            source,
            o.optimized_model_filepath,
            options,
            o.config("session.optimized_model_external_initializers_file_name"),
            o.config("session.optimized_model_external_initializers_min_size_in_bytes"),
        )
    may_fall_back = o.config("session.disable_cpu_ep_fallback") != "1"
    if CUDA in providers:
        try:
            plugins = make_plugins(providers, may_fall_back=True, before=CUDA)
            shares = o.config(SHARED_KEY) == "1"
            return _on_device(with_plugins(options, plugins), source, providers[CUDA], shares)
        except errors.NotImplemented as error:
            if not may_fall_back:
                raise
            try:
                found = _in_regions(options, o, source, providers)
            except errors.NotImplemented:
                _logger.warning("the whole model runs on the processor: %s", error)
                del providers[CUDA]
            else:
                _logger.warning("parts of the model run on the processor: %s", error)
                return found
    if o.config(SHARED_KEY) == "1":
        note(f"session config {SHARED_KEY}", "each session has its own memory of the processor")
    plugins = make_plugins(providers, may_fall_back=may_fall_back)
    return create_engine(source, with_plugins(options, plugins) if plugins.all else options)


def engine_options(o: SessionOptions, cancel: CancelFlag | None = None) -> EngineOptions:
    """What a session's options ask of the engine.

    Args:
        o: The options.
        cancel: Ends the compilation when it is set.

    Raises:
        InvalidArgument: An entry of the configuration has a value that it cannot have.
    """
    with compiling:
        from sardonyx.compiler.options import EngineOptions

    folder = o.config("session.model_external_initializers_file_folder_path")
    return EngineOptions(
        threads=thread_setting(o),
        branches=branch_setting(o),
        share=o.block_base,
        setup=setup_setting(o),
        optimization_level=int(o.graph_optimization_level),
        free_dimension_overrides=o.free_dimension_overrides,
        denoted_sizes=o.denoted_sizes,
        without=disabled(o.disabled_optimizers),
        folder=folder or None,
        initializers=o.initializers,
        data_files=o.data_files,
        cancel=cancel,
        load_seconds=o.load_seconds,
        memory_limit_bytes=o.memory_limit_bytes,
        least_level=o.least_level,
        logid=o.logid,
        winograd=not o.is_on("session.disable_winograd"),
        bf16_products=o.is_on("session.allow_bfloat16_products"),
    )


def _of_bundle(
    source: Any, o: SessionOptions, options: EngineOptions, providers: dict[str, dict[str, str]]
) -> Engine:
    """The engine of a bundle, which is always one of the processor.

    Raises:
        InvalidArgument: Options ask for what a bundle cannot give.
    """
    from sardonyx.compiler.bundle_sessions import open_bundle

    where = "bundle"
    if o.config(FORMAT_KEY) == "ONNX":
        what = f"{FORMAT_KEY} asks for a model, and this is a bundle"
        raise errors.InvalidArgument(message(where, what))
    if options.tuned is not None:
        what = "The kernels of a bundle are chosen when it is made"
        raise errors.InvalidArgument(message(where, what, do="Tune the model, then bundle it"))
    if o.optimized_model_filepath:
        what = "There is no graph in a bundle that optimized_model_filepath could get"
        raise errors.InvalidArgument(message(where, what, do="Optimise the model"))
    others = [name for name in providers if name != CPU]
    if others:
        text = message(where, "Bundles hold code of the processor", got=", ".join(others))
        if o.config("session.disable_cpu_ep_fallback") == "1":
            raise errors.NotImplemented(text)
        _logger.warning("the whole model runs on the processor: %s", text)
        for name in others:
            del providers[name]
    return open_bundle(source, options, trusted=o.config(FORMAT_KEY) == BUNDLE_FORMAT)


def _on_device(
    options: EngineOptions, source: Any, chosen: dict[str, str], shares_arena: bool
) -> Engine:
    from sardonyx.compiler.drive import create_engine

    if options.flushes_denormals:
        note(f"session config {DENORMAL_KEY}", "kernels of a GPU keep denormal numbers")
    return create_engine(source, replace(options, provider=_provider(chosen, shares_arena)))


def _provider(chosen: dict[str, str], shares_arena: bool) -> CudaProvider:
    from sardonyx.cuda.provider import CudaProvider

    number = int(chosen["device_id"])
    if shares_arena:
        _check_shared(chosen, number)
    return CudaProvider(number, settings(chosen, shares_arena=shares_arena))


def _check_shared(chosen: dict[str, str], number: int) -> None:
    """Say what becomes of options of an arena where sessions share one.

    Raises:
        InvalidArgument: The session's memory is to come from functions of the caller.
    """
    from sardonyx.cuda.memory.arenas import registered

    if registered("Cuda", number) is None:
        what = f"there is no allocator for Cuda {number}: see create_and_register_allocator"
        note(f"session config {SHARED_KEY} for device {number}", what)
        return
    if chosen["gpu_external_alloc"] != "0":
        what = f"A session has its own functions, or shares an arena ({SHARED_KEY})"
        raise errors.InvalidArgument(message(f"{CUDA} gpu_external_alloc", what))
    for name in ("gpu_mem_limit", "arena_extend_strategy"):
        if chosen[name] != OPTIONS[name].default:
            what = f"the allocator that sessions share ({SHARED_KEY}) has settings of its own"
            note(f"{CUDA} option {name} = {chosen[name]}", what)


def _in_regions(
    options: EngineOptions, o: SessionOptions, source: Any, providers: dict[str, dict[str, str]]
) -> Engine:
    """An engine of the processor that has the device compute parts.

    Raises:
        NotImplemented: There is no such part.
    """
    from sardonyx.compiler.drive import create_engine
    from sardonyx.loader.writer import write
    from sardonyx.plugins.registered import Plugins, Regions

    provider = _provider(providers[CUDA], o.config(SHARED_KEY) == "1")
    # What is said of the model's inputs was done before parts are made.
    plain = replace(
        options, provider=provider, initializers={}, fed=(), ranks={}, shapes={}, tuned=None,
        free_dimension_overrides={}, budget=None,
    )  # fmt: skip

    def compile_part(body: Graph) -> Engine:
        try:
            data = write(body)
        except errors.InvalidArgument as error:  # more weights than a model has in itself
            raise errors.NotImplemented(str(error)) from error
        return create_engine(data, plain)

    made = {p.name: p for p in make_plugins(providers, may_fall_back=True).all}
    made[CUDA] = Regions(CUDA, compile_part)
    plugins = Plugins(tuple(made[name] for name in providers if name in made), needs_parts=True)
    return create_engine(source, with_plugins(options, plugins))
