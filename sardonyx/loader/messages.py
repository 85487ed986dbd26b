"""Tensors in files of their own, as ONNX's test data has them."""

from __future__ import annotations

from pathlib import Path

from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.files import read_file
from sardonyx.ir.constant import Array
from sardonyx.loader import onnx_format, wire
from sardonyx.loader.external import ExternalFiles
from sardonyx.loader.source import Source
from sardonyx.loader.tensors import TensorReader

#: More than Protobuf lets a message have.
_MOST_BYTES = 2**31


def read_tensor(path: Path) -> tuple[str, Array]:
    """The name ("" for none) and the array of a file that holds a `TensorProto`.

    Raises:
        InvalidArgument: It cannot be read, or is no tensor.
    """
    try:
        source = Source(read_file(path, _MOST_BYTES), str(path))
        tensor = wire.decode(onnx_format.TENSOR, source)
        reader = TensorReader(source, ExternalFiles(str(path.parent)), allow_missing_data=False)
        return tensor.name, reader.constant(tensor, str(path)).array()
    except (ValueError, OSError, SardonyxError) as error:
        raise InvalidArgument(message(str(path), f"It is no tensor ({error})")) from error
