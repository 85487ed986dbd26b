"""Compiles a model: file, graph, passes, tensors, kernels, machine code, prepared constants."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sardonyx.base import errors, sizes
from sardonyx.base.errors import message
from sardonyx.codegen.blob import Blob, build
from sardonyx.codegen.module import emit_module
from sardonyx.codegen.target import Target
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.kernel.program import Program
from sardonyx.loader.load import load
from sardonyx.ops.lower import LoweredGraph, lower
from sardonyx.passes.dimensions import separate_dimensions
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.arena import aligned_array
from sardonyx.runtime.compiler import Compiled, compile_tensors
from sardonyx.runtime.declared import ModelMetadata, ValueInfo
from sardonyx.runtime.executable import LoadedCode, load_blob
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.record import ConstantPlace, Record
from sardonyx.tensor.assumptions import undecided_broadcasts
from sardonyx.tensor.tensor import Buffer

if TYPE_CHECKING:
    from sardonyx.runtime.session import EngineOptions

_ALIGN = 64


@dataclass(slots=True)
class Built:
    """A compiled model before it is run or cached."""

    record: Record
    blob: Blob
    code: LoadedCode
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
    source: Any, options: EngineOptions, target: Target, timings: dict[str, float]
) -> Built:
    """Compile the model at `source`; `timings` receives seconds by phase."""
    with _timed(timings, "load"):
        graph = load(source)
        metadata = _metadata(graph)
        inputs, overridable = list(graph.inputs), list(graph.overridable)
        declared = [_info(v) for v in inputs]
        declared_outputs = [_declared_shape(v) for v in graph.outputs]
        spare = tuple(map(_info, overridable))
        graph.overridable.clear()
    with contextlib.ExitStack() as scope:
        if options.general:
            separate_dimensions(graph, all_names=True)
            scope.enter_context(undecided_broadcasts())
        lowered = _lowered(graph, options, timings)
    compiled, places = compile_lowered(graph, lowered, target)
    timings.update(compiled.seconds)
    with _timed(timings, "emit"):
        text = emit_module(programs_of(compiled), target)
    with _timed(timings, "llvm"):
        blob = build(text, target)
        code = load_blob(blob)
    with _timed(timings, "constants"):
        constants = _prepare(compiled, code)
    outputs = tuple(
        ValueInfo(v.name, t.dtype, shape or _shape_of(t.shape))
        for (v, t), shape in zip(lowered.outputs.items(), declared_outputs, strict=True)
    )
    record = Record(
        tuple(declared), outputs, spare, places, metadata, _places(compiled, constants),
        compiled.main, graph.files,
    )  # fmt: skip
    return Built(record, blob, code, constants)


def _lowered(graph: Graph, options: EngineOptions, timings: dict[str, float]) -> LoweredGraph:
    """The graph through its passes, as tensors."""
    with _timed(timings, "optimise"):
        optimise(
            graph, options.optimization_level, verify=options.verify,
            sizes=options.free_dimension_overrides,
        )  # fmt: skip
    with _timed(timings, "lower"):
        return lower(graph)


def compile_lowered(
    graph: Graph, lowered: LoweredGraph, target: Target
) -> tuple[Compiled, list[int]]:
    """Plan a lowered graph; also, for each output, which output of the plan it is."""
    results = list(lowered.outputs.items())
    unique = list(dict.fromkeys(t for _, t in results))
    names = {t: v.name for v, t in reversed(results)}
    inputs = [(v.name, lowered.inputs[v]) for v in graph.inputs]
    compiled = compile_tensors(
        [(names[t], t) for t in unique], inputs, lowered.assumptions, target, lowered.origins,
        lowered.measured,
    )  # fmt: skip
    return compiled, [unique.index(t) for _, t in results]


def programs_of(compiled: Compiled) -> list[Program]:
    """Every program of a compiled model, each once."""
    found: dict[str, Program] = {}
    for invocation in compiled.invocations:
        for program in (invocation.kernel.program, *invocation.kernel.functions):
            found.setdefault(program.name, program)
    return list(found.values())


def _prepare(compiled: Compiled, code: LoadedCode) -> list[np.ndarray[Any, Any]]:
    """Arrays behind the main plan's constants; runs the initial plan for those it makes."""
    made: list[np.ndarray[Any, Any]] = []
    if compiled.initial is not None:
        made = [
            aligned_array(tuple(int(d) for d in o.dims), o.dtype.numpy)
            for o in compiled.initial.outputs
        ]
        given = list(map(_contents, compiled.initial_constants))
        Executable(compiled.initial, code, given).run_into([], made)
    return [
        made[compiled.prepared[b]] if b in compiled.prepared else _copy(_contents(b))
        for b in compiled.constants
    ]


def _contents(buffer: Buffer) -> np.ndarray[Any, Any]:
    constant: Any = buffer.constant
    if constant is None:
        raise errors.NotImplemented(message(buffer.label, "A value has no contents before a run"))
    array = constant.array()
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


def _info(value: Value) -> ValueInfo:
    if value.dtype is None or value.kind != "tensor":
        raise errors.NotImplemented(
            message(f"input {value.name}", f"Inputs of kind {value.kind} are not supported")
        )
    return ValueInfo(value.name, value.dtype, _shape_of(value.shape or ()))


def _declared_shape(value: Value) -> tuple[int | str | None, ...] | None:
    return None if value.shape is None else _shape_of(value.shape)


def _shape_of(shape: tuple[sizes.Dim, ...]) -> tuple[int | str | None, ...]:
    return tuple(d if isinstance(d, int) else _dim_name(d) for d in shape)


def _dim_name(dim: sizes.Dim) -> str:
    return repr(dim).strip("()")


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[name] = timings.get(name, 0.0) + time.perf_counter() - start
