"""onnxruntime.transformers.io_binding_helper: element types by the names of several libraries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidArgument, message

if TYPE_CHECKING:
    from sardonyx.api.session import InferenceSession

__all__ = ["TypeHelper"]

_BY_TEXT = {dtype.type_text: dtype for dtype in dtypes.ALL}


class TypeHelper:
    """Element types of inputs and outputs: as onnxruntime, NumPy, ONNX and torch name them.

    Every method raises InvalidArgument, a ValueError, for a name or a type that is not known.
    """

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an input, such as `tensor(float)`."""
        return _of(ort_session.get_inputs(), name)

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an output, such as `tensor(float)`."""
        return _of(ort_session.get_outputs(), name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type:
        """NumPy's scalar type for a type such as `tensor(float)`."""
        return _of_text(ort_type).numpy.type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """torch's dtype for a type such as `tensor(float)`."""
        return _torch(_of_text(ort_type).numpy)

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """The number in ONNX's `TensorProto.DataType` for a type such as `tensor(float)`."""
        return _of_text(ort_type).onnx_id

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """torch's dtype for a dtype or a scalar type of NumPy."""
        return _torch(np.dtype(numpy_type))

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> type:
        """NumPy's scalar type for a dtype of torch; ml_dtypes' for bfloat16."""
        name = str(torch_type).removeprefix("torch.")
        for dtype in dtypes.ALL:
            if dtype.numpy.name == name and dtype is not dtypes.STRING:
                return dtype.numpy.type
        raise _unknown(torch_type)

    @staticmethod
    def get_io_onnx_type_map(ort_session: InferenceSession) -> dict[str, int]:
        """ONNX's numbers by the names of inputs and outputs."""
        return {n: TypeHelper.ort_type_to_onnx_type(t) for n, t in _all(ort_session).items()}

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, type]:
        """NumPy's scalar types by the names of inputs and outputs."""
        return {n: TypeHelper.ort_type_to_numpy_type(t) for n, t in _all(ort_session).items()}

    @staticmethod
    def get_io_torch_type_map(ort_session: InferenceSession) -> dict[str, Any]:
        """torch's dtypes by the names of inputs and outputs."""
        return {n: TypeHelper.ort_type_to_torch_type(t) for n, t in _all(ort_session).items()}


def _all(session: InferenceSession) -> dict[str, str]:
    return {info.name: info.type for info in (*session.get_inputs(), *session.get_outputs())}


def _of(infos: Any, name: str) -> str:
    for info in infos:
        if info.name == name:
            return str(info.type)
    names = str([info.name for info in infos])
    raise InvalidArgument(message("TypeHelper", "The name is not known", expected=names, got=name))


def _of_text(text: str) -> DType:
    found = _BY_TEXT.get(text)
    if found is None:
        raise _unknown(text)
    return found


def _torch(dtype: np.dtype[Any]) -> Any:
    torch = importlib.import_module("torch")
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise _unknown(dtype)
    return found


def _unknown(what: Any) -> InvalidArgument:
    return InvalidArgument(message("TypeHelper", "There is no such element type", got=str(what)))
