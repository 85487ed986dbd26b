"""Models are opened, prepared for quantisation, and written."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.base import dtypes
from sardonyx.base.errors import (
    InvalidArgument,
    InvalidGraph,
    NotFound,
    SardonyxError,
    installing,
    message,
)
from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.loader.load import load
from sardonyx.loader.writer import write
from sardonyx.passes.fold_batch_norm import fold_batch_norm
from sardonyx.passes.pipeline import PassLook, optimise
from sardonyx.quantization.fold_affine import fold_affine

_logger = get_logger("quantization")

#: Key of a model's metadata that says that it was prepared, and what onnxruntime writes there.
_PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")
#: Element types of tensors that can be quantised.
FLOATS = (dtypes.FLOAT, dtypes.FLOAT16)
#: Operators whose result differs from run to run, or that constants are to keep.
_NOT_FOLDED = frozenset(
    """RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli Dropout
    QuantizeLinear DequantizeLinear""".split()
)
#: A folded constant that is larger than this and than all that it is made of is not worth it.
_FOLDED_LIMIT_BYTES = 1 << 20


def open_model(source: Any, *, prepare: bool) -> Graph:
    """Load a model and find out the types of its values.

    Args:
        source: A path, bytes, a `ModelProto`, or a graph, which is then worked on itself.
        prepare: Fold constants and batch normalisations, unless that was done before.

    Raises:
        NoSuchFile: There is no such file.
        InvalidProtobuf: The file is not readable.
        InvalidGraph: The model is not valid.
        NotImplemented: It has an operator that is not supported.
    """
    graph = source if isinstance(source, Graph) else load(source)
    if prepare and not is_prepared(graph):
        fold(graph)
    find_types(graph)
    return graph


def is_prepared(graph: Graph) -> bool:
    """Whether the file says that it was prepared for quantisation."""
    key, value = _PREPARED
    return graph.metadata.get(key) == value


def mark_prepared(graph: Graph) -> None:
    """Say in the file's metadata that it was prepared."""
    key, value = _PREPARED
    graph.metadata[key] = value


def find_types(graph: Graph) -> None:
    """Set element types and shapes of all values, and change nothing else."""
    copy = graph.clone()
    optimise(copy, 0, look=PassLook(after="infer shapes"))
    for inner in graph.graphs():
        for node in inner.nodes:
            for value in node.outputs:
                found = copy.value(value.name) if value.name else None
                if found is not None and value.dtype is None:
                    value.dtype, value.shape = found.dtype, found.shape


def write_model(
    graph: Graph, path: str | os.PathLike[str], *, external: bool | int = False
) -> None:
    """Write a model; the file appears when it is complete."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        what = "There is no such folder to write the model to"
        raise NotFound(message(folder, what))
    graph.topological_sort()
    write(graph, path, external)


def raise_opset(graph: Graph, needed: int, reason: str) -> Graph:
    """The graph with operators of a version, or itself if it has that or a later one.

    Raises:
        NotFound: The package `onnx`, which converts, is not installed.
        Fail: It cannot convert the model.
    """
    if graph.opset.get("", 0) >= needed:
        return graph
    where = f"opset {graph.opset.get('', 0)}"
    try:
        import onnx
        from onnx import version_converter
    except ImportError:
        raise NotFound(
            message(
                where,
                f"{reason} needs version {needed} of ONNX's operators, and the package onnx, which "
                "would convert the model, is missing",
                do=installing("tools"),
            )
        ) from None
    graph.topological_sort()
    try:
        converted = version_converter.convert_version(onnx.load_from_string(write(graph)), needed)
    except Exception as error:  # noqa: BLE001 - whatever a C++ library raises
        text = " ".join(str(error).split())
        what = f"{reason} needs version {needed} of ONNX's operators, and onnx cannot convert"
        raise InvalidGraph(message(where, f"{what} the model: {text}")) from error
    _logger.warning("The model was converted to opset %d: %s needs that.", needed, reason)
    made = load(converted)
    made.metadata.update(graph.metadata)
    find_types(made)
    return made


def is_fixed(value: Value | None) -> bool:
    """Whether a value is a constant of the model."""
    return value is not None and value.constant is not None


def fold(graph: Graph) -> None:
    """Compute what depends on constants alone; fold what follows products into weights."""
    _remove_identities(graph)
    _fold_constants(graph)
    if fold_batch_norm(graph):
        _restore_names(graph)
        _fold_constants(graph)
    find_types(graph)
    fold_affine(graph)
    remove_dead(graph)


def _remove_identities(graph: Graph) -> None:
    for node in graph.nodes:
        read, made = node.input(0), node.outputs[0]
        is_identity = node.op_type == "Identity" and not node.domain
        if is_identity and read is not None and not made.is_graph_output:
            graph.replace_uses(made, read)
            graph.remove_node(node)


def _restore_names(graph: Graph) -> None:
    """Give a convolution that took up a batch normalisation its own name back."""
    for node in graph.nodes:
        if node.origin and node.name not in node.origin:
            name = node.origin[0]
            if name not in graph.names.nodes:
                graph.names.nodes.discard(node.name)
                graph.names.nodes.add(name)
                node.name = name


def _fold_constants(graph: Graph) -> None:
    """Let a session compute values that depend on constants alone."""
    fixed: set[Value] = set(graph.initializers.values())
    folded: set[Node] = set()
    for node in graph.nodes:
        if _is_foldable(node) and all(v is None or v in fixed for v in node.inputs):
            fixed.update(node.outputs)
            folded.add(node)
    wanted = [
        value
        for node in folded
        for value in node.outputs
        if value.is_graph_output or any(reader not in folded for reader, _ in value.uses)
    ]
    if not wanted:
        return
    for value, array in zip(wanted, _computed(graph, wanted), strict=True):
        if array is not None and not value.is_graph_output:
            _replace(graph, value, array)
    remove_dead(graph)


def _is_foldable(node: Node) -> bool:
    return (
        not node.domain
        and node.op_type not in _NOT_FOLDED
        and bool(node.inputs)
        and not any(True for _ in node.subgraphs())
    )


def _computed(graph: Graph, wanted: list[Value]) -> list[Any]:
    """The arrays of values that depend on constants alone; None for one that stays."""
    from sardonyx.api.session import InferenceSession

    values: dict[Value, Value] = {}
    copy = graph.clone(values)
    copy.outputs[:] = [values[value] for value in wanted]
    remove_dead(copy)
    copy.inputs.clear()
    copy.overridable.clear()
    try:
        results = InferenceSession(write(copy)).run(None, {})
    except SardonyxError as error:
        _logger.warning("Constants are not folded: %s", error)
        return [None] * len(wanted)
    held = sum(v.constant.size_bytes for v in copy.initializers.values() if v.constant)
    limit = max(held, _FOLDED_LIMIT_BYTES)
    return [r if getattr(r, "nbytes", limit + 1) <= limit else None for r in results]


def _replace(graph: Graph, value: Value, array: Any) -> None:
    from sardonyx.ir.constant import Constant

    made = graph.add_constant(f"{value.name}_folded", Constant.from_array(array))
    graph.replace_uses(value, made)


def check_node_names(graph: Graph, names: list[str], where: str) -> None:
    """Refuse names that no node has.

    Raises:
        InvalidArgument: A name is unknown.
    """
    known = {node.name for inner in graph.graphs() for node in inner.nodes}
    for name in names:
        if name not in known:
            raise InvalidArgument(message(where, f"The model has no node named {name!r}"))
