"""Compiles a model: file, graph, passes, tensors, kernels, machine code, prepared constants."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sardonyx.base import errors
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.base.forks import compiling
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.log import get_logger
from sardonyx.compiler import model_interface
from sardonyx.compiler.built import Built, prepare_with
from sardonyx.compiler.compile_graph import DEFAULT, Compiled, TensorGraph, compile_tensors
from sardonyx.compiler.compile_options import CompileOptions
from sardonyx.compiler.deciding_shapes import give_decisions, give_outputs, give_shapes
from sardonyx.compiler.ranks import (
    Fact,
    WaitingModel,
    give_ranks,
    inputs_that_decide,
    outputs_of_unranked,
    unranked_inputs,
)
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.loader.runs import reading_with
from sardonyx.native import functions
from sardonyx.native.field_reader import RunReaders
from sardonyx.ops.core import registry
from sardonyx.ops.core.lower import LoweredGraph, lower
from sardonyx.passes.dimensions import denotations, fix_denoted, separate_dimensions
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.facts import PlanFacts, nodes_of, operators_of, used_operators
from sardonyx.plan.inplace_append import InplaceAppend, Slot
from sardonyx.plan.pipeline import append_in_place
from sardonyx.plan.plan import Appended, SizeSource
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.declared import ModelMetadata, ValueInfo
from sardonyx.runtime.provider import Provider
from sardonyx.store.constants import Constants
from sardonyx.store.machine_code import Units
from sardonyx.store.model_record import ModelRecord
from sardonyx.targets.target import Target
from sardonyx.tensor.assumptions import decided_branches, taken_as_one, undecided_broadcasts
from sardonyx.tensor.tensor import Tensor

if TYPE_CHECKING:
    from sardonyx.compiler.options import EngineOptions
    from sardonyx.plugins.claims import Claims
    from sardonyx.store.kernel_store import KernelStore
    from sardonyx.store.layer_store import LayerStore

_logger = get_logger("session")


def build_model(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    timings: dict[str, float],
    budget: Budget,
    units: Units,
) -> Built:
    """Compile the model at `source`; `timings` receives seconds by phase.

    The constants are counted in `budget` from now on. `units` must live until the code is complete.
    """
    phases = _Phases(timings)
    with phases("emit"):
        begun = functions.Begun(units)
    with phases("load"), reading_with(RunReaders(begun).find):
        graph = _read(source, options)
        weights = [v.constant for v in graph.initializers.values() if v.constant is not None]
        metadata, remarks = _metadata(graph), tuple(graph.remarks)
        spare = tuple(map(model_interface.input_info, graph.overridable))
        denoted = _prepare(graph, options)
        declared = tuple(map(model_interface.input_info, graph.inputs))
        operators = operators_of(graph)
        is_own = any(map(registry.is_own, nodes_of(graph)))
        unranked = unranked_inputs(graph)
        files, has_hidden_data = graph.files, graph.has_hidden_data
    if begun.is_first and provider.accelerator is None:
        with compiling:
            from sardonyx.workers.expected import expected
        with phases("emit"):
            units.take(expected({node.op_type for node in graph.nodes}, provider.target))
    may_wait = not unranked and options.is_for_ranks
    fitting: Mapping[str, Fact] = {}
    with contextlib.ExitStack() as scope:
        if options.general:
            separate_dimensions(graph, all_names=True)
            scope.enter_context(undecided_broadcasts())
        scope.enter_context(taken_as_one(options.ones))
        scope.enter_context(decided_branches(options.decided))
        join = provider.accelerator is not None
        if not unranked:
            try:
                lowered, claims = _lowered(graph, options, phases, join)
            except errors.NotImplemented as reason:
                if not may_wait:
                    raise
                whole = _read(source, options)
                _prepare(whole, options)
                found = _waited_for(whole, graph, reason, options, phases)
                unranked, fitting, graph = found.names, found.facts, whole
        if unranked:
            with phases("infer"):
                level, numbers = options.optimization_level, options.free_dimension_overrides
                outputs = outputs_of_unranked(graph, level, numbers, unranked, fitting)
            graph = Graph(graph.name)  # there is nothing to compile yet
            lowered, claims = _lowered(graph, options, phases, join)
    provider.check(lowered)
    may_append = options.optimization_level > 0 and not options.fed
    appended = _appended(graph, lowered) if may_append else []
    growable_buffers = appended if options.in_growable_buffers else []
    own, keeper, layers = _compile_options(options, provider, units)
    compiled, places = compile_lowered(graph, lowered, provider.target, own, growable_buffers)
    timings.update(compiled.seconds)
    _log_host(compiled)
    generated = provider.generate(compiled, phases, units)
    if keeper is not None:
        with phases("keep"):
            keeper.write()
            if layers is not None:
                layers.write()
    with phases("llvm"):
        begun.finish()
    read = None
    if not (has_hidden_data or is_own or claims):
        read = [w.number for w in weights if w.number is not None and w.was_read]
    prepare = prepare_with(generated.initial, options, budget)
    constants = Constants(compiled, prepare, budget, options.cancel)
    if not unranked:
        tensors = [lowered.outputs[v] for v in graph.outputs]
        names = model_interface.names_of(declared)
        outputs = tuple(
            model_interface.output_info(value, tensor, names)
            for value, tensor in zip(graph.outputs, tensors, strict=True)
        )
    if growable_buffers:
        more = compiled.main.inputs[len(declared) :]
        declared += tuple(ValueInfo(spec.name, spec.dtype, (None,)) for spec in more)
        outside = {a.output for a in growable_buffers}
        outputs = tuple(info for k, info in enumerate(outputs) if k not in outside)
    record = ModelRecord(
        declared, outputs, spare, places, metadata, constants.places,
        replace(compiled.main, strings=constants.strings.all), files, unranked,
        [] if options.in_growable_buffers else appended,
        PlanFacts(compiled.facts, used_operators(compiled.main, operators)).to_bytes(), denoted,
        remarks,
    )  # fmt: skip
    facts = "" if keeper is None else keeper.facts
    kernels = compiled.kernel_cache.kernels
    return Built(record, generated, constants, kernels, facts, claims, is_own, read)


def _compile_options(
    options: EngineOptions, provider: Provider, units: Units
) -> tuple[CompileOptions, KernelStore | None, LayerStore | None]:
    """What a session's options, and its provider, mean for kernels and plans.

    With the libraries of kernels and layers that are to be written, if there are any.
    """
    fuse = options.optimization_level > 0
    winograd = fuse and options.winograd
    bf16_products = options.bf16_products and _has_halves(provider.target)
    keeper = provider.keeper(units, winograd=winograd, bf16_products=bf16_products)
    choices = options.choices
    if choices is None and keeper is not None:
        choices = keeper.choices
    layers = None if keeper is None else _known_layers(options, keeper)
    own = CompileOptions(
        fuse=fuse,
        winograd=winograd,
        bf16_products=bf16_products,
        branches=options.branches is not None,
        without=options.without | provider.without,
        accelerator=provider.accelerator,
        keeper=keeper,
        layers=layers,
        choices=choices,
        on_kernel=lambda kernel: provider.on_kernel(kernel, units),
    )
    return own, keeper, layers


def _known_layers(options: EngineOptions, kernels: KernelStore) -> LayerStore | None:
    """The library of layers; none where ways of computing kernels are chosen, each by its own."""
    if options.choices is not None:
        return None
    with compiling:
        from sardonyx.store.layer_store import LayerStore

    return LayerStore(kernels)


def _read(source: Any, options: EngineOptions) -> Graph:
    graph = load(
        source, folder=options.folder, allow_missing_data=bool(options.initializers),
        data_files=options.data_files,
    )  # fmt: skip
    model_interface.replace_initializers(graph, options.initializers)
    return graph


def _prepare(graph: Graph, options: EngineOptions) -> tuple[str, ...]:
    """Give a graph the inputs and outputs that are asked for; what the file says axes mean."""
    give_decisions(graph, options.shapes)
    give_outputs(graph, options.fetched)
    denoted = denotations(graph)
    model_interface.make_inputs(graph, options.fed)
    fix_denoted(graph, options.denoted_sizes, options.free_dimension_overrides)
    give_ranks(graph, options.ranks)
    give_shapes(graph, options.shapes)
    graph.overridable.clear()
    return denoted


def _lowered(
    graph: Graph, options: EngineOptions, phases: _Phases, join: bool
) -> tuple[LoweredGraph, Claims | None]:
    """The graph through its passes, as tensors; and what others compute of it."""
    with phases("optimise"):
        numbers = options.free_dimension_overrides
        level, without = options.optimization_level, options.without
        optimise(graph, level, sizes=numbers, join=join, without=without)
    plugins = options.plugins
    if not (plugins.all or plugins.needs_parts):
        with phases("lower"):
            return lower(graph), None
    with phases("claim"):
        with compiling:
            from sardonyx.plugins.claims import claim

        claims = claim(graph, plugins)
    with phases("lower"):
        lowered = lower(graph, {node: made.lower for node, made in claims.nodes.items()})
        claims.forget()
        return lowered, claims


def _waited_for(
    graph: Graph, spent: Graph, refused: SardonyxError, options: EngineOptions, phases: _Phases
) -> WaitingModel:
    """What a graph cannot be lowered without, before a run brings its ranks and shapes.

    `spent` is the copy that was refused.
    """
    if options.plugins.all or options.plugins.needs_parts:
        raise refused

    def refusal(trial: Graph) -> SardonyxError | None:
        try:
            _lowered(trial, options, phases, join=False)
        except (InvalidGraph, errors.NotImplemented) as reason:
            return reason
        return None

    return inputs_that_decide(graph, spent, refused, refusal)


def compile_lowered(
    graph: Graph,
    lowered: LoweredGraph,
    target: Target,
    options: CompileOptions = DEFAULT,
    appended: Sequence[Appended] = (),
) -> tuple[Compiled, list[int]]:
    """Plan a lowered graph; also, for each output, which output of the plan it is.

    Outputs that are `appended` are written into growable buffers of inputs, and are no results.
    """
    results = [(v, lowered.outputs[v]) for v in graph.outputs]  # one may be there twice
    unique = list(dict.fromkeys(t for _, t in results))
    names = {t: v.name for v, t in reversed(results)}
    inputs = [(v.name, lowered.inputs[v]) for v in graph.inputs]
    outputs, origins = [(names[t], t) for t in unique], lowered.origins
    slots: dict[Tensor, Slot] = {}
    if appended:
        rows = [replace(a, output=unique.index(results[a.output][1])) for a in appended]
        moved = InplaceAppend(inputs, outputs, rows)
        inputs, outputs, slots = moved.inputs, moved.outputs, moved.slots
        origins = moved.origins(lowered.origins)
        unique = [t for k, t in enumerate(unique) if k not in {a.output for a in rows}]
    whole = TensorGraph(
        outputs, inputs, lowered.assumptions, origins, lowered.measured, lowered.ends,
        lowered.results, slots,
    )  # fmt: skip
    compiled = compile_tensors(whole, target, options)
    made = tuple(SizeSource(shape, size, who) for (shape, size), who in lowered.makers.items())
    compiled.main = replace(compiled.main, makers=made)
    return compiled, [unique.index(t) for _, t in results if t in unique]


def _appended(graph: Graph, lowered: LoweredGraph) -> list[Appended]:
    """The outputs that continue an input, where no size comes from data."""
    if lowered.measured or lowered.ends:
        return []
    return append_in_place(
        [lowered.inputs[v] for v in graph.inputs], [lowered.outputs[v] for v in graph.outputs]
    )


def _has_halves(target: Target) -> bool:
    """Whether a target multiplies bfloat16; a device has an option of its own.

    Raises:
        NotImplemented: This processor does not.
    """
    if target.has_halves:
        return True
    if target.arch in ("x86_64", "aarch64"):
        raise errors.NotImplemented(
            message(
                "session.allow_bfloat16_products",
                "This processor, or the instruction set that SARDONYX_CPU names, has no products"
                " of bfloat16",
                expected="AVX512_BF16", got=target.name, do="Leave the entry out",
            )
        )  # fmt: skip
    _logger.warning("session.allow_bfloat16_products has no effect on a device: see use_tf32")
    return False


def _log_host(compiled: Compiled) -> None:
    hosted = [c for c in compiled.main.calls if c.host is not None]
    if hosted:
        names = ", ".join(dict.fromkeys(c.host.function for c in hosted if c.host is not None))
        _logger.info("%d commands run in Python: %s", len(hosted), names)


def _metadata(graph: Graph) -> ModelMetadata:
    header = graph.header
    return ModelMetadata(
        header.producer_name, graph.name, header.domain, header.doc_string, graph.doc_string,
        header.model_version, dict(graph.metadata),
    )  # fmt: skip


class _Phases:
    """Times phases, and ends the compilation between two of them when it is cancelled."""

    def __init__(self, timings: dict[str, float]) -> None:
        self._timings = timings

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        checkpoint()
        start = time.perf_counter()
        yield
        self._timings[name] = self._timings.get(name, 0.0) + time.perf_counter() - start
