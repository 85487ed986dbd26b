from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx import quantization as q
from sardonyx.base import errors
from tests.quantization.nets import NETS, convolutions, transformer
from tests.quantization.test_static import distance, outputs
from tests.support.session import model_of

U8, I8 = q.QuantType.QUInt8, q.QuantType.QInt8


def dynamic(model: Any, path: Path, **options: Any) -> onnx.ModelProto:
    q.quantize_dynamic(model, path, **options)
    made = onnx.load(path)
    onnx.checker.check_model(made)
    return made


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_type": U8},
        {"per_channel": True},
        {"reduce_range": True},
        {"extra_options": {"MatMulConstBOnly": False}},
        {"extra_options": {"WeightSymmetric": False, "MinimumRealRange": 0.001}},
    ],
)
def test_nets(net: str, options: Any, tmp_path: Path) -> None:
    make, feeds = NETS[net]
    float_model, test = make(21), feeds(4, seed=9)
    made = dynamic(float_model, tmp_path / "q.onnx", **options)
    got = outputs(made, test)
    assert distance(got, outputs(float_model, test)) < 0.03
    reference = ReferenceEvaluator(made)
    assert distance(got, [reference.run(None, feed) for feed in test]) < 0.005


def test_which_operators(tmp_path: Path) -> None:
    found = kinds(dynamic(convolutions(), tmp_path / "q.onnx"))
    assert found["ConvInteger"] == 3 and not found["Conv"]
    found = kinds(dynamic(transformer(), tmp_path / "q.onnx"))
    # Two products of computed factors stay; one tensor is rounded once for three products.
    assert (found["MatMulInteger"], found["MatMul"], found["DynamicQuantizeLinear"]) == (5, 2, 3)
    options = {"op_types_to_quantize": ["MatMul"], "nodes_to_exclude": ["MatMul_q0"]}
    found = kinds(dynamic(transformer(), tmp_path / "q.onnx", **options))
    assert (found["MatMulInteger"], found["DequantizeLinear"]) == (4, 0)
    options = {"extra_options": {"MatMulConstBOnly": False}}
    found = kinds(dynamic(transformer(), tmp_path / "q.onnx", **options))
    assert found["MatMulInteger"] == 7 and not found["MatMul"]


def test_channels_of_filters(tmp_path: Path) -> None:
    """Filters of very different sizes, one of them nought, have scales of their own."""
    text = "net (float[N, 2, 6] x) => (float[N, 3, 4] y) { y = Conv(x, w, b) }"
    random = np.random.default_rng(0)
    weights = random.standard_normal((3, 2, 3)).astype(np.float32)
    weights *= np.float32([1, 0.001, 0])[:, None, None]
    model = model_of(text, {"w": weights, "b": np.float32([0, 0, 3])})
    feeds = [{"x": random.standard_normal((4, 2, 6)).astype(np.float32)}]
    (want,), (got,) = (
        outputs(m, feeds)[0] for m in (model, dynamic(model, tmp_path / "q.onnx", per_channel=True))
    )
    for k in range(3):
        assert np.linalg.norm(got[:, k] - want[:, k]) <= 0.02 * np.linalg.norm(want[:, k])


def test_a_branch(tmp_path: Path) -> None:
    text = """net (bool c, float[N, 8] x) => (float[N, 4] y) {
        y = If (c) <
            then_branch = a () => (float[N, 4] p) { p = MatMul(x, w) },
            else_branch = b () => (float[N, 4] r) { s = MatMul(x, w) r = Neg(s) }
        > }"""
    random = np.random.default_rng(0)
    model = model_of(text, {"w": random.standard_normal((8, 4)).astype(np.float32)})
    x = random.standard_normal((3, 8)).astype(np.float32)
    feeds = [{"c": np.array(c), "x": x} for c in (True, False)]
    made = dynamic(model, tmp_path / "q.onnx", extra_options={"EnableSubgraph": True})
    inner = [a.g for a in made.graph.node[0].attribute]
    assert all("MatMulInteger" in {n.op_type for n in g.node} for g in inner)
    assert {i.name for i in made.graph.initializer} == {"w_quantized", "w_scale", "w_zero_point"}
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.02
    assert "MatMul" in {n.op_type for n in dynamic(model, tmp_path / "q.onnx").graph.node[0]
                        .attribute[0].g.node}  # fmt: skip


@pytest.mark.parametrize("per_channel", [False, True])
def test_lstm(per_channel: bool, tmp_path: Path) -> None:
    text = """net (float[T, N, 6] x) => (float[T, 2, N, 5] y, float[2, N, 5] h) {
        y, h = LSTM<hidden_size = 5, direction = "bidirectional">(x, w, r, b) }"""
    random = np.random.default_rng(0)
    weights = {
        name: random.uniform(-0.5, 0.5, shape).astype(np.float32)
        for name, shape in {"w": (2, 20, 6), "r": (2, 20, 5), "b": (2, 40)}.items()
    }
    model = model_of(text, weights)
    feeds = [{"x": random.standard_normal((7, 2, 6)).astype(np.float32)}]
    made = dynamic(model, tmp_path / "q.onnx", per_channel=per_channel)
    assert kinds(made) == {"DynamicQuantizeLSTM": 1}
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.03


def test_fused_attention_and_embeddings(tmp_path: Path) -> None:
    """onnxruntime's own operators, as its transformer optimiser writes them."""
    text = """net (int32[N, S] ids, int32[N, S] parts) => (float[N, S, 8] y) {
        e, m = com.microsoft.EmbedLayerNormalization(ids, parts, words, places, kinds, gain, shift)
        y = com.microsoft.Attention<num_heads = 2>(e, w, b) }"""
    random = np.random.default_rng(0)
    shapes = {"words": (20, 8), "places": (6, 8), "kinds": (2, 8), "gain": (8,), "shift": (8,),
              "w": (8, 24), "b": (24,)}  # fmt: skip
    model = model_of(
        text, {k: random.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    )
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    feeds = [
        {
            "ids": random.integers(0, 20, (2, 6)).astype(np.int32),
            "parts": random.integers(0, 2, (2, 6)).astype(np.int32),
        }
    ]
    made = dynamic(model, tmp_path / "q.onnx")
    assert kinds(made)["QAttention"] == kinds(made)["QEmbedLayerNormalization"] == 1
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.05


def test_weights_of_other_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="8 bits"):
        q.quantize_dynamic(transformer(), tmp_path / "q.onnx", weight_type=q.QuantType.QInt16)
    assert not list(tmp_path.iterdir())


def test_configurations(tmp_path: Path) -> None:
    """`quantize` does what the functions do."""
    from sardonyx.quantization.calibration_data import ListReader
    from tests.quantization.nets import sentences

    target, other = tmp_path / "a.onnx", tmp_path / "b.onnx"
    q.quantize(transformer(), target, q.DynamicQuantConfig(per_channel=True))
    q.quantize_dynamic(transformer(), other, per_channel=True)
    assert target.read_bytes() == other.read_bytes()
    feeds = sentences(2)
    config = q.StaticQuantConfig(ListReader(feeds), activation_type=U8, weight_type=I8)
    q.quantize(transformer(), target, config)
    q.quantize_static(transformer(), other, ListReader(feeds), activation_type=U8)
    assert target.read_bytes() == other.read_bytes()
    whole = q.get_qdq_config(transformer(), ListReader(feeds), nodes_to_exclude=["Gemm_scores"])
    assert "Div" in whole.op_types_to_quantize and "Gemm" not in whole.op_types_to_quantize
    q.quantize(transformer(), target, whole)
    assert distance(outputs(onnx.load(target), feeds), outputs(transformer(), feeds)) < 0.1
    q.quantize(transformer(), target, q.DefaultWeightOnlyQuantConfig(block_size=16))
    assert kinds(onnx.load(target))["MatMulNBits"] == 4
    with pytest.raises(errors.InvalidArgument, match="no configuration"):
        q.quantize(transformer(), target, None)
