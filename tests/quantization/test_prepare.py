from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from sardonyx import quantization as q
from sardonyx.base import errors
from tests.quantization.nets import convolutions, pictures
from tests.quantization.test_static import distance, outputs
from tests.support.session import model_of

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CASES = [
    # What is written, what is left of it.
    ("float[N, 2, 6] x", "c = Conv(x, w) y = Add(c, column)", {"Conv": 1}),
    ("float[N, 2, 6] x", "c = Conv(x, w, b) y = Add(column, c)", {"Conv": 1}),
    ("float[N, 2, 6] x", "c = Conv(x, w) y = Mul(c, column)", {"Conv": 1}),
    ("float[N, 2, 6] x", "c = Conv(x, w, b) d = Mul(c, column) y = Add(d, column)", {"Conv": 1}),
    ("float[N, 2, 6] x", "c = Conv(x, w) y = Add(c, wide)", {"Conv": 1, "Add": 1}),
    ("float[N, 2, 6] x", "c = Conv(x, w) d = Add(c, column) y = Mul(c, d)",
     {"Conv": 1, "Add": 1, "Mul": 1}),
    ("float[N, 2] x", "m = MatMul(x, v) y = Add(m, b)", {"Gemm": 1}),
    ("float[N, S, 2] x", "m = MatMul(x, v) y = Add(m, b)", {"MatMul": 1, "Add": 1}),
    ("float[N, 2] x", "i = Identity(v) t = Transpose(i) u = Transpose(t) y = MatMul(x, u)",
     {"MatMul": 1}),
    ("float[N, 2] x", "s = Shape(v) z = ConstantOfShape(s) k = Add(v, z) y = MatMul(x, k)",
     {"MatMul": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text", "left"), CASES)
def test_what_is_folded(given: str, text: str, left: dict[str, int], tmp_path: Path) -> None:
    weights = {"w": normal(3, 2, 3), "v": normal(2, 3), "b": normal(3), "column": normal(1, 3, 1),
               "wide": normal(1, 3, 4)}  # fmt: skip
    weights = {name: value for name, value in weights.items() if name in text}
    rank = given.count(",") + 1
    model = model_of(f"net ({given}) => (float[{', '.join('ABC'[:rank])}] y) {{ {text} }}", weights)
    q.quant_pre_process(model, tmp_path / "p.onnx")
    made = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(made)
    assert Counter(node.op_type for node in made.graph.node) == left
    feeds = [{"x": normal(*[4, 2, 6][:rank] if "N, 2" in given else [4, 5, 2])}]
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 1e-5


def test_a_net(tmp_path: Path) -> None:
    q.quant_pre_process(convolutions(), tmp_path / "p.onnx")
    made = onnx.load(tmp_path / "p.onnx")
    assert made.metadata_props[0].key == "onnx.quant.pre_process"
    assert "BatchNormalization" not in {node.op_type for node in made.graph.node}
    assert made.graph.node[0].name == "Conv_c0"
    shapes = {v.name: len(v.type.tensor_type.shape.dim) for v in made.graph.value_info}
    assert shapes["p0"] == 4 and shapes["f2"] == 2
    test = pictures(2)
    assert distance(outputs(made, test), outputs(convolutions(), test)) < 1e-5
    q.quant_pre_process(convolutions(), tmp_path / "p.onnx", skip_optimization=True)
    kinds = {node.op_type for node in onnx.load(tmp_path / "p.onnx").graph.node}
    assert "BatchNormalization" in kinds


def test_external_data(tmp_path: Path) -> None:
    q.quant_pre_process(
        convolutions(), tmp_path / "p.onnx", save_as_external_data=True,
        external_data_size_threshold=512,
    )  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == {"p.onnx", "p.onnx.data"}
    test = pictures(1)
    made = onnx.load(tmp_path / "p.onnx")
    assert distance(outputs(made, test), outputs(convolutions(), test)) < 1e-5


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="a file to write"):
        q.quant_pre_process(convolutions())
    with pytest.raises(errors.InvalidArgument, match="p.onnx.data"):
        q.quant_pre_process(
            convolutions(), tmp_path / "p.onnx", save_as_external_data=True,
            external_data_location="other",
        )  # fmt: skip
