"""Models of one operator of ai.onnx.ml, run in a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import sardonyx
from tests.support.tolerances import assert_near


def ml_model(
    op_type: str, inputs: Sequence[Any], version: int, outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; the inputs' first sizes are symbols."""
    names = [f"x{k}" for k in range(len(inputs))]
    declared = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"n{name}" if axis == 0 and x.ndim > 1 else d for axis, d in enumerate(x.shape)],
        )
        for name, x in zip(names, map(np.asarray, inputs), strict=True)
    ]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, name="it", domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=r) for r in results])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run_ml(
    op_type: str, inputs: Sequence[Any], version: int = 1, outputs: int = 1, **attributes: Any
) -> list[Any]:
    """What the engine computes."""
    arrays = [np.asarray(x) for x in inputs]
    model = ml_model(op_type, arrays, version, outputs, **attributes)
    session = sardonyx.InferenceSession(model.SerializeToString())
    return session.run(None, {f"x{k}": x for k, x in enumerate(arrays)})


def assert_same(got: Any, want: Any, tolerance: str = "float: products") -> None:
    """Equal in type and shape, and in value as a row of tolerances says for floats."""
    want = np.asarray(want)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape, (got.shape, want.shape)
    if want.dtype.kind == "f":
        assert_near(got, want, tolerance)
    else:
        np.testing.assert_array_equal(got, want)
