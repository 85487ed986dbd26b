"""Published graphs whose large weights were left out, filled with numbers for planning."""

import base64
import json
import math
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_BYTES = {onnx.TensorProto.FLOAT: 4, onnx.TensorProto.FLOAT16: 2, onnx.TensorProto.DOUBLE: 8}
#: All large weights begin at the start of one file: it holds a few numbers that are not zero, so
#: that no tensor is one number repeated, and then a hole that takes no room on the disk.
_START = np.linspace(0.5, 1.5, 4096, dtype=np.float32).tobytes()


def fill(source: Path, folder: Path) -> Path:
    """Write the graph at `source` with weights into `folder`; return its path.

    Tables that graphs need exactly (masks, indices) lie in their metadata, compressed.
    """
    model = onnx.load(source)
    metadata = {p.key: p.value for p in model.metadata_props}
    exact = json.loads(metadata.get("exact_weights", "{}"))
    largest = max(_fill_graph(model.graph, exact), len(_START))
    del model.metadata_props[:]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "weights.bin", "wb") as file:
        file.write(_START)
        file.truncate(largest)
    path = folder / source.name
    path.write_bytes(model.SerializeToString())
    return path


def _fill_graph(graph: onnx.GraphProto, exact: dict[str, tuple[str, list[int], str]]) -> int:
    """Fill the tensors of a graph and of those inside it; return the bytes of the largest."""
    largest = 0
    for tensor in graph.initializer:
        largest = max(largest, _fill_tensor(tensor, exact))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                largest = max(largest, _fill_tensor(attribute.t, exact))
            elif attribute.type == onnx.AttributeProto.GRAPH:
                largest = max(largest, _fill_graph(attribute.g, exact))
    return largest


def _fill_tensor(tensor: onnx.TensorProto, exact: dict[str, tuple[str, list[int], str]]) -> int:
    if tensor.name in exact:
        kind, shape, packed = exact[tensor.name]
        values = np.frombuffer(zlib.decompress(base64.b64decode(packed)), kind).reshape(shape)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        return 0
    elements = math.prod(tensor.dims)
    stored = tensor.raw_data or tensor.float_data or tensor.int64_data or tensor.int32_data
    if stored or not elements or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return 0
    size_bytes = _BYTES[tensor.data_type] * elements
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(size_bytes))):
        tensor.external_data.add(key=key, value=value)
    return size_bytes
