"""ONNX bytes become a graph."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from sardonyx.base.errors import Fail, InvalidGraph, InvalidProtobuf, message, too_deep
from sardonyx.ir.graph import Graph
from sardonyx.ir.model_header import ModelHeader
from sardonyx.ir.order import sort
from sardonyx.loader import onnx_format, wire
from sardonyx.loader.build import GraphBuilder
from sardonyx.loader.foreign import HEAD_BYTES, advice
from sardonyx.loader.functions import function_table
from sardonyx.loader.opened import files_beside, open_source
from sardonyx.loader.source import FileSource, Source
from sardonyx.loader.tensors import TensorReader
from sardonyx.loader.types import DeclaredTypes


def load(
    source: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    allow_missing_data: bool = False,
    data_files: Mapping[str, bytes] | None = None,
) -> Graph:
    """Load a model.

    Nodes are in order, names are unique, functions are inlined, weights stay in the file until they
    are asked for (see `sardonyx.loader.source` about files that change, and `Graph.detach`).

    Args:
        source: A path, the bytes of a model, or a `ModelProto` (what has `SerializeToString`).
        folder: Where the files with external data are; by default beside the model.
        allow_missing_data: Accept tensors whose data was stripped; asking for it then fails.
        data_files: Contents of files with external data, by their names in the model. A file that
            is not among them is looked for in the folder.

    Raises:
        NoSuchFile: The model, or a file with its data, is missing.
        InvalidProtobuf: The bytes are no protobuf message of this kind.
        Fail: It is of a version of the format that is newer than those known.
        InvalidGraph: The model is readable but not valid.
        InvalidArgument: The source is none of these.
    """
    opened, own_folder = open_source(source)
    model = decode_model(opened)
    first, last = onnx_format.IR_VERSIONS
    if not model.has("ir_version"):
        what = "This is no ONNX model" if opened.size else "It is empty"
        expected = f"an ir_version up to {last}"
        do = _advice(opened)
        raise InvalidGraph(message(opened.name, what, expected=expected, got="none", do=do))
    if not first <= model.ir_version <= last:
        kind = Fail if model.ir_version > last else InvalidGraph
        raise kind(
            message(
                opened.name,
                "This version of the ONNX format is not supported",
                expected=f"an ir_version up to {last}",
                got=str(model.ir_version),
            )
        )
    if model.graph is None:
        raise InvalidGraph(message(opened.name, "The model holds no graph"))
    external = files_beside(source, own_folder if folder is None else folder, data_files)
    graph = Graph(model.graph.name, opset=opset_table(model.opset_import))
    if graph.opset.get("", 0) > onnx_format.NEWEST_OPSET:
        graph.remark(
            f"The model imports version {graph.opset['']} of ONNX's operators. The newest that is "
            f"known here is {onnx_format.NEWEST_OPSET}: operators are taken as in that one."
        )
    graph.header = ModelHeader(
        model.ir_version,
        model.producer_name,
        model.producer_version,
        model.domain,
        model.model_version,
        model.doc_string,
    )
    graph.doc_string = model.graph.doc_string
    graph.metadata = {entry.key: entry.value for entry in model.metadata_props}
    tensors = TensorReader(opened, external, allow_missing_data=allow_missing_data)
    builder = GraphBuilder(graph, tensors, DeclaredTypes(model), function_table(model.functions))
    try:
        builder.build_model(model.graph)
        sort(graph)
    except RecursionError:
        raise too_deep(opened.name) from None
    graph.files, graph.has_hidden_data = external.identities, tensors.has_hidden_data
    return graph


def metadata_of(source: Any) -> dict[str, str]:
    """What a model's file says about itself, without reading its graph.

    Raises:
        NoSuchFile: There is no such file.
        InvalidProtobuf: The bytes are no protobuf message of this kind.
        InvalidArgument: The source is no path, bytes or `ModelProto`.
    """
    opened, _ = open_source(source)
    model = decode_model(opened)
    return {entry.key: entry.value for entry in model.metadata_props}


def facts_of(source: Any) -> dict[str, str]:
    """What a model says of itself under the names that onnxruntime gives programs, as text.

    Raises as `metadata_of` does.
    """
    opened, _ = open_source(source)
    model = decode_model(opened)
    graph = model.graph
    return {entry.key: entry.value for entry in model.metadata_props} | {
        "producer_name": model.producer_name,
        "producer_version": model.producer_version,
        "domain": model.domain,
        "model_version": str(model.model_version),
        "doc_string": model.doc_string,
        "graph_name": graph.name if graph is not None else "",
        "graph_description": graph.doc_string if graph is not None else "",
    }


def decode_model(source: Source) -> wire.WireRecord:
    """The message of a whole model.

    Raises:
        InvalidProtobuf: It is none; the text says what it is instead, where that can be seen.
    """
    try:
        return wire.decode(onnx_format.MODEL, source)
    except InvalidProtobuf as error:
        raise InvalidProtobuf(f"{error} {_advice(source)}.") from None


def _advice(source: Source) -> str:
    return advice(source.read(0, min(source.size, HEAD_BYTES)))


def files_of(path: str) -> list[str]:
    """The other files of a model, those with its external data; none of them is opened.

    Raises:
        InvalidProtobuf: The file is no model.
    """
    places: dict[str, None] = {}
    left: list[Any] = [decode_model(FileSource(path))]
    while left:
        item = left.pop()
        if isinstance(item, wire.WireRecord):
            held = vars(item)
            for entry in held.get("external_data", ()):
                if entry.key == "location":
                    places[entry.value] = None
            left += [v for k, v in held.items() if k != "external_data"]
        elif isinstance(item, (list, tuple)) and not isinstance(item, wire.Span):
            left += [v for v in item if isinstance(v, (wire.WireRecord, list, tuple))]
    folder = os.path.dirname(os.path.abspath(path))
    return [os.path.join(folder, *re.split(r"[/\\]", place)) for place in places if place]


def opset_table(imports: Any) -> dict[str, int]:
    """Versions by domain; ONNX's own domain is "" under both its names."""
    return {normal_domain(entry.domain): entry.version for entry in imports}


def normal_domain(domain: str) -> str:
    """ONNX's own domain has two names."""
    return "" if domain == "ai.onnx" else domain
