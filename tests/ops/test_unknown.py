"""Operators that nobody knows: the classes of errors that onnxruntime raises."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base.errors import Fail, InvalidGraph
from tests.support import peer

_STANDARD = {"": 17}

CASES = {
    "the standard's": ("Nonsense", "", _STANDARD, InvalidGraph),
    "the standard's by its name": ("Nonsense", "ai.onnx", {"ai.onnx": 17}, InvalidGraph),
    "of a later version": ("Gelu", "", _STANDARD, InvalidGraph),
    "of a much later version": ("Swish", "", _STANDARD, InvalidGraph),
    "ai.onnx.ml": ("Nonsense", "ai.onnx.ml", _STANDARD | {"ai.onnx.ml": 3}, InvalidGraph),
    "ai.onnx.ml, not imported": ("Nonsense", "ai.onnx.ml", _STANDARD, InvalidGraph),
    "training": ("Gradient", "ai.onnx.training", _STANDARD | {"ai.onnx.training": 1}, InvalidGraph),
    "preview": (
        "Nonsense", "ai.onnx.preview.training", _STANDARD | {"ai.onnx.preview.training": 1}, Fail,
    ),
    "com.microsoft": ("Nonsense", "com.microsoft", _STANDARD | {"com.microsoft": 1}, Fail),
    "com.microsoft, not imported": ("Nonsense", "com.microsoft", _STANDARD, Fail),
    "layout": ("Nonsense", "com.microsoft.nchwc", _STANDARD | {"com.microsoft.nchwc": 1}, Fail),
    "the program's": ("Nonsense", "my.own", _STANDARD | {"my.own": 1}, Fail),
    "the program's, not imported": ("Nonsense", "my.own", _STANDARD, InvalidGraph),
    "torch": ("ATen", "org.pytorch.aten", _STANDARD | {"org.pytorch.aten": 1}, Fail),
}  # fmt: skip


def _model(op_type: str, domain: str, opsets: dict[str, int]) -> bytes:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [x], [y])
    imports = [helper.make_opsetid(*item) for item in opsets.items()]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return made.SerializeToString()


@pytest.mark.parametrize("case", CASES)
def test_classes(case: str) -> None:
    *parts, kind = CASES[case]
    data = _model(*parts)
    with pytest.raises(kind, match=f"The operator {parts[0]} of .* is not supported") as caught:
        sardonyx.InferenceSession(data)
    assert type(caught.value) is kind
    package = peer.onnxruntime()
    if package is not None:
        options = package.SessionOptions()
        options.log_severity_level = 4
        with pytest.raises(Exception, match="ONNXRuntimeError") as there:
            package.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        assert type(there.value).__name__ == kind.__name__


@pytest.mark.parametrize(("domain", "opset"), [("", {}), ("my.own", {"my.own": 1})])
def test_in_branches_that_make_no_sense(domain: str, opset: dict[str, int]) -> None:
    """Where both branches of an If are bad, the error is that of one."""
    y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("y", "z"))
    x, c = (
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    )
    bad = helper.make_graph(
        [helper.make_node("Nonsense", ["x"], ["z"], domain=domain)], "b", [], [z]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=bad, else_branch=bad)
    graph = helper.make_graph([node], "g", [x, c], [y])
    imports = [helper.make_opsetid(*item) for item in (_STANDARD | opset).items()]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    with pytest.raises(Fail if domain else InvalidGraph, match="Nonsense"):
        sardonyx.InferenceSession(made.SerializeToString())
