"""Compiles a model: file, graph, passes, tensors, kernels, machine code, prepared constants."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import message
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.log import get_logger
from sardonyx.codegen.target import Target
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.ops.lower import LoweredGraph, lower
from sardonyx.passes.dimensions import separate_dimensions
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime import face
from sardonyx.runtime.arena import aligned_array
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.compiler import Compiled, compile_tensors
from sardonyx.runtime.declared import ModelMetadata
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.host_calls import Strings
from sardonyx.runtime.image import Code
from sardonyx.runtime.provider import Generated, Provider
from sardonyx.runtime.ranks import give_ranks, outputs_of_unranked, unranked_inputs
from sardonyx.runtime.record import ConstantPlace, Record
from sardonyx.tensor.assumptions import taken_as_one, undecided_broadcasts
from sardonyx.tensor.tensor import Buffer

if TYPE_CHECKING:
    from sardonyx.runtime.session import EngineOptions

_ALIGN = 64
_logger = get_logger("session")


@dataclass(slots=True)
class Built:
    """A compiled model before it is run or cached."""

    record: Record
    generated: Generated
    constants: list[np.ndarray[Any, Any]]

    def write_constants(self, file: BinaryIO) -> None:
        """The constants, each at its place in the record."""
        at = 0
        for array, (_, _, offset, size_bytes) in zip(
            self.constants, self.record.constants, strict=True
        ):
            file.write(b"\0" * (offset - at))
            if size_bytes:
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            at = offset + size_bytes
        file.write(b"\0" * 64)


def build_model(
    source: Any,
    options: EngineOptions,
    provider: Provider,
    timings: dict[str, float],
    budget: Budget,
) -> Built:
    """Compile the model at `source`; `timings` receives seconds by phase.

    The constants stay counted in `budget`.
    """
    phases = _Phases(timings)
    with phases("load"):
        graph = load(source, folder=options.folder, allow_missing_data=bool(options.initializers))
        metadata = _metadata(graph)
        face.replace_initializers(graph, options.initializers)
        spare = tuple(map(face.input_info, graph.overridable))
        face.make_inputs(graph, options.fed)
        give_ranks(graph, options.ranks)
        declared = tuple(map(face.input_info, graph.inputs))
        graph.overridable.clear()
        unranked = unranked_inputs(graph)
        files = graph.files
    if unranked:
        with phases("infer"):
            outputs = outputs_of_unranked(
                graph, options.optimization_level, options.free_dimension_overrides
            )
        graph = Graph(graph.name)  # there is nothing to compile yet
    with contextlib.ExitStack() as scope:
        if options.general:
            separate_dimensions(graph, all_names=True)
            scope.enter_context(undecided_broadcasts())
        scope.enter_context(taken_as_one(options.ones))
        lowered = _lowered(graph, options, phases)
    fuse = options.optimization_level > 0
    compiled, places = compile_lowered(graph, lowered, provider.target, fuse=fuse)
    timings.update(compiled.seconds)
    _log_host(compiled)
    generated = provider.generate(compiled, phases)
    with phases("constants"):
        strings = _strings(compiled)
        constants = _prepare(compiled, generated.initial, strings, budget, options.cancel)
    if not unranked:
        tensors = [lowered.outputs[v] for v in graph.outputs]
        outputs = tuple(map(face.output_info, graph.outputs, tensors))
    record = Record(
        declared, outputs, spare, places, metadata, _places(compiled, constants),
        replace(compiled.main, strings=strings.all), files, unranked,
    )  # fmt: skip
    return Built(record, generated, constants)


def _lowered(graph: Graph, options: EngineOptions, phases: _Phases) -> LoweredGraph:
    """The graph through its passes, as tensors."""
    with phases("optimise"):
        optimise(graph, options.optimization_level, sizes=options.free_dimension_overrides)
    with phases("lower"):
        return lower(graph)


def compile_lowered(
    graph: Graph, lowered: LoweredGraph, target: Target, *, fuse: bool = True
) -> tuple[Compiled, list[int]]:
    """Plan a lowered graph; also, for each output, which output of the plan it is.

    Without `fuse` what a node gives lies in memory, and no kernel works for two nodes.
    """
    results = [(v, lowered.outputs[v]) for v in graph.outputs]  # one may be there twice
    unique = list(dict.fromkeys(t for _, t in results))
    names = {t: v.name for v, t in reversed(results)}
    inputs = [(v.name, lowered.inputs[v]) for v in graph.inputs]
    compiled = compile_tensors(
        [(names[t], t) for t in unique], inputs, lowered.assumptions, target, lowered.origins,
        lowered.measured, lowered.ends, None if fuse else lowered.results,
    )  # fmt: skip
    return compiled, [unique.index(t) for _, t in results]


def _log_host(compiled: Compiled) -> None:
    hosted = [c for c in compiled.main.calls if c.host is not None]
    if hosted:
        names = ", ".join(dict.fromkeys(c.host.function for c in hosted if c.host is not None))
        _logger.info("%d commands run in Python: %s", len(hosted), names)


def _strings(compiled: Compiled) -> Strings:
    """Codes for all strings among the model's constants."""
    strings = Strings()
    for buffer in (*compiled.initial_constants, *compiled.constants):
        if buffer.dtype is dtypes.STRING and buffer not in compiled.prepared:
            _contents(buffer, strings)
    return strings


def _prepare(
    compiled: Compiled,
    code: Code,
    strings: Strings,
    budget: Budget,
    cancel: CancelFlag | None,
) -> list[np.ndarray[Any, Any]]:
    """Arrays behind the main plan's constants; runs the initial plan for those it makes."""
    _count_constants(compiled, budget)
    made: list[np.ndarray[Any, Any]] = []
    if compiled.initial is not None:
        made = [
            aligned_array(tuple(int(d) for d in o.dims), o.dtype.stored)
            for o in compiled.initial.outputs
        ]
        given = [_contents(b, strings) for b in compiled.initial_constants]
        Executable(compiled.initial, code, given, budget=budget).run_into([], made, cancel)
    return [
        made[compiled.prepared[b]] if b in compiled.prepared else _copy(_contents(b, strings))
        for b in compiled.constants
    ]


def _count_constants(compiled: Compiled, budget: Budget) -> None:
    """Count the constants as held before any of them is made."""
    sized = []
    for buffer in compiled.constants:
        dims = buffer.shape
        if compiled.initial is not None and buffer in compiled.prepared:
            dims = compiled.initial.outputs[compiled.prepared[buffer]].dims
        size_bytes = math.prod(int(d) for d in dims) * buffer.dtype.stored.itemsize
        sized.append((size_bytes, buffer.label))

    def largest() -> str:
        most = sorted(sized, reverse=True)[:3]
        return "The largest: " + ", ".join(f"{size} bytes ({name})" for size, name in most)

    budget.take(sum(size for size, _ in sized), "constants", largest)


def _contents(buffer: Buffer, strings: Strings) -> np.ndarray[Any, Any]:
    constant: Any = buffer.constant
    if constant is None:
        raise errors.NotImplemented(message(buffer.label, "A value has no contents before a run"))
    array = constant.array()
    if buffer.dtype is dtypes.STRING:
        return strings.encode(array, buffer.label)
    return np.ascontiguousarray(array).reshape(array.shape)


def _copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In memory of our own: a model's file may be overwritten while sessions live."""
    held = aligned_array(array.shape, array.dtype)
    held[...] = array
    return held


def _places(compiled: Compiled, constants: list[np.ndarray[Any, Any]]) -> list[ConstantPlace]:
    found: list[ConstantPlace] = []
    at = 0
    for buffer, array in zip(compiled.constants, constants, strict=True):
        found.append((buffer.dtype, array.shape, at, array.nbytes))
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    return found


def _metadata(graph: Graph) -> ModelMetadata:
    return ModelMetadata(
        graph.producer_name, graph.name, graph.domain, graph.model_doc_string, graph.doc_string,
        graph.model_version, dict(graph.metadata),
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
