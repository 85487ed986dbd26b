"""Element types by the names of onnxruntime, NumPy, ONNX and torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.base import errors
from sardonyx.transformers.io_binding_helper import TypeHelper
from tests.support.session import model_of

#: Type, NumPy's, ONNX's, torch's name.
TYPES: list[tuple[str, type, int, str]] = [
    ("tensor(float)", np.float32, TensorProto.FLOAT, "float32"),
    ("tensor(double)", np.float64, TensorProto.DOUBLE, "float64"),
    ("tensor(float16)", np.float16, TensorProto.FLOAT16, "float16"),
    ("tensor(bfloat16)", ml_dtypes.bfloat16, TensorProto.BFLOAT16, "bfloat16"),
    ("tensor(int64)", np.int64, TensorProto.INT64, "int64"),
    ("tensor(int32)", np.int32, TensorProto.INT32, "int32"),
    ("tensor(uint8)", np.uint8, TensorProto.UINT8, "uint8"),
    ("tensor(bool)", np.bool_, TensorProto.BOOL, "bool"),
    ("tensor(complex64)", np.complex64, TensorProto.COMPLEX64, "complex64"),
]


class _Torch(SimpleNamespace):
    """As much of torch as is asked for: dtypes by name."""

    class dtype(str):  # noqa: N801 - as in torch
        """A name, printed as torch does."""

        def __str__(self) -> str:
            return f"torch.{self[:]}"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = _Torch(**{name: _Torch.dtype(name) for *_, name in TYPES})
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.mark.parametrize(("text", "numpy", "onnx", "name"), TYPES, ids=[t[0] for t in TYPES])
def test_names(text: str, numpy: type, onnx: int, name: str, torch: Any) -> None:
    assert TypeHelper.ort_type_to_numpy_type(text) is numpy
    assert TypeHelper.ort_type_to_onnx_type(text) == onnx
    assert TypeHelper.ort_type_to_torch_type(text) is getattr(torch, name)
    assert TypeHelper.numpy_type_to_torch_type(np.dtype(numpy)) is getattr(torch, name)
    assert TypeHelper.numpy_type_to_torch_type(numpy) is getattr(torch, name)
    assert TypeHelper.torch_type_to_numpy_type(getattr(torch, name)) is numpy


def test_a_session(torch: Any) -> None:
    text = "g (float[N] x, int64[1] k) => (float[K] y, int64[K] i) { y, i = TopK(x, k) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    assert TypeHelper.get_input_type(session, "k") == "tensor(int64)"
    assert TypeHelper.get_output_type(session, "y") == "tensor(float)"
    assert TypeHelper.get_io_numpy_type_map(session) == {
        "x": np.float32, "k": np.int64, "y": np.float32, "i": np.int64,
    }  # fmt: skip
    assert TypeHelper.get_io_onnx_type_map(session) == {"x": 1, "k": 7, "y": 1, "i": 7}
    assert TypeHelper.get_io_torch_type_map(session)["i"] is torch.int64
    for find in (TypeHelper.get_input_type, TypeHelper.get_output_type):
        with pytest.raises(ValueError, match=r"name is not known.*got z"):
            find(session, "z")


@pytest.mark.parametrize(
    "call",
    [
        lambda: TypeHelper.ort_type_to_numpy_type("tensor(float17)"),
        lambda: TypeHelper.ort_type_to_torch_type("tensor(string)"),
        lambda: TypeHelper.torch_type_to_numpy_type("torch.qint8"),
    ],
)
def test_unknown_types(call: Any, torch: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="no such element type"):
        call()
