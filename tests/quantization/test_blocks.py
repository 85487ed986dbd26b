from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx import quantization as q
from sardonyx.base import errors
from sardonyx.quantization.blocks import blocks_of, pack
from tests.quantization.nets import sentences, transformer
from tests.quantization.test_static import distance, outputs
from tests.support.session import model_of


def numbers(codes: Any, scales: Any, zeros: Any, bits: int, rows: int) -> Any:
    """What codes stand for, (rows, columns)."""
    middle = 1 << (bits - 1) if zeros is None else zeros[..., None].astype(np.float32)
    whole = (codes.astype(np.float32) - middle) * scales[..., None].astype(np.float32)
    return whole.reshape(codes.shape[0], -1)[:, :rows].T


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("shape", [(64, 5), (40, 3)])
def test_codes_are_the_nearest(bits: int, symmetric: bool, shape: Any) -> None:
    weights = np.random.default_rng(bits).standard_normal(shape).astype(np.float32)
    weights[:16, 0] = 0
    codes, scales, zeros = blocks_of(weights, bits, 16, symmetric=symmetric)
    assert codes.shape == (shape[1], -(-shape[0] // 16), 16)
    found = numbers(codes, scales, zeros, bits, shape[0])
    step = np.abs(np.repeat(scales, 16, 1)[:, : shape[0]].T)
    # The end of a symmetric range that no code reaches is one step off at most.
    assert np.all(np.abs(found - weights) <= step * (1.001 if symmetric else 0.751))
    assert np.all(found[:16, 0] == 0)


def test_packing() -> None:
    codes = np.array([[1, 2, 3], [15, 0, 9]], np.uint8)
    assert pack(codes, 4).tolist() == [[0x21, 0x03], [0x0F, 0x09]]
    assert pack(np.array([3, 2, 1, 0, 1], np.uint8), 2).tolist() == [0b00011011, 1]
    assert pack(codes, 8).tolist() == codes.tolist()


def quantised(model: Any, path: Path, **options: Any) -> onnx.ModelProto:
    quantizer = q.MatMulNBitsQuantizer(model, **options)
    quantizer.process()
    quantizer.model.save_model_to_file(path)
    return onnx.load(path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, 0.15),
        ({"is_symmetric": True}, 0.15),
        ({"accuracy_level": 4}, 0.15),
        ({"bits": 8}, 0.01),
        ({"bits": 8, "is_symmetric": True}, 0.01),
        ({"quant_format": q.QuantFormat.QDQ}, 0.15),
        ({"quant_format": q.QuantFormat.QDQ, "is_symmetric": True}, 0.15),
        ({"quant_format": q.QuantFormat.QDQ, "bits": 8}, 0.01),
        ({"quant_format": q.QuantFormat.QDQ, "channel_wised_quantize": True}, 0.2),
        ({"op_types_to_quantize": ("MatMul", "Gather")}, 0.2),
        ({"op_types_to_quantize": ("Gather",), "is_symmetric": True}, 0.2),
        ({"op_types_to_quantize": ("Gather",), "bits": 8}, 0.01),
        ({"op_types_to_quantize": ("Gather",), "bits": 8, "is_symmetric": True}, 0.01),
    ],
)
def test_a_transformer(options: Any, error: float, tmp_path: Path) -> None:
    test = sentences(3)
    made = quantised(transformer(21), tmp_path / "q.onnx", block_size=16, **options)
    assert distance(outputs(made, test), outputs(transformer(21), test)) < error
    found = Counter(node.op_type for node in made.graph.node)
    only_gather = options.get("op_types_to_quantize") == ("Gather",)
    is_qdq = options.get("quant_format") is q.QuantFormat.QDQ
    assert found["MatMulNBits"] == (0 if only_gather or is_qdq else 4)
    assert found["DequantizeLinear"] == (4 if is_qdq else 0)
    assert found["GatherBlockQuantized"] == ("Gather" in options.get("op_types_to_quantize", ()))


def test_nodes_are_chosen(tmp_path: Path) -> None:
    made = quantised(transformer(), tmp_path / "q.onnx", nodes_to_exclude=["MatMul_q0"])
    names = {node.name for node in made.graph.node if node.op_type == "MatMulNBits"}
    assert names == {"MatMul_k0_Q4", "MatMul_v0_Q4", "MatMul_o3_Q4"}


def test_shapes_that_have_no_blocks_stay(tmp_path: Path) -> None:
    text = """net (float[N, S, 32] x) => (float[N, S, 4] a, float[N, S, 4] b, float[N, S] c) {
        a = MatMul(x, w1) b = MatMul(x, w2) c = MatMul(x, w3) }"""
    random = np.random.default_rng(0)
    shapes = {"w1": (1, 32, 4), "w2": (2, 32, 4), "w3": (32,)}
    weights = {k: random.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    model = model_of(text, weights)
    feeds = [{"x": random.standard_normal((2, 3, 32)).astype(np.float32)}]
    made = quantised(model, tmp_path / "q.onnx", bits=8)
    kinds = [node.op_type for node in made.graph.node]
    assert kinds == ["MatMulNBits", "MatMul", "MatMul"]
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.01


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"bits": 3}, errors.InvalidArgument, "2, 4 or 8"),
        ({"block_size": 24}, errors.InvalidArgument, "power of two"),
        ({"accuracy_level": 5}, errors.InvalidArgument, "0 to 4"),
        ({"channel_wised_quantize": True}, errors.InvalidArgument, "Take QuantFormat.QDQ"),
        ({"op_types_to_quantize": ("Conv",)}, errors.InvalidArgument, "MatMul or Gather"),
        (
            {"algo_config": q.WeightOnlyQuantConfig("GPTQ", q.QuantFormat.QOperator)},
            errors.NotImplemented,
            "GPTQ",
        ),
    ],
)
def test_what_is_refused(options: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        q.MatMulNBitsQuantizer(transformer(), **options)
