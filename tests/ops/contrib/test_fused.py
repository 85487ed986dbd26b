"""Fused products and convolutions of onnxruntime's domain against NumPy, and it if it is there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib, contrib_model
from tests.support.tolerances import assert_near

RANDOM = np.random.default_rng(77)
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def test_sample_op() -> None:
    x = floats(2, 3)
    check_contrib("SampleOp", [x], {}, [x])


@pytest.mark.parametrize("bias", [None, floats(5)])
def test_gemm_fast_gelu(bias: Array | None) -> None:
    x, w = floats(2, 3, 4), floats(4, 5)
    total = x @ w if bias is None else x @ w + bias
    inner = total * (total * total * 0.035677408136300125 + 0.7978845608028654)
    inputs = [x, w] if bias is None else [x, w, bias]
    expected = [total * 0.5 * (np.tanh(inner) + 1)]
    check_contrib("GemmFastGelu", inputs, {}, expected, engine=False, symbolic=False)


@pytest.mark.parametrize(
    "name, facts, function",
    [
        ("Relu", {}, lambda x: np.maximum(x, 0)),
        ("LeakyRelu", {"activation_alpha": 0.2}, lambda x: np.where(x < 0, 0.2 * x, x)),
        ("Tanh", {}, np.tanh),
    ],
)
def test_fused_mat_mul_activation(name: str, facts: dict[str, Any], function: Any) -> None:
    a, b = floats(2, 4, 3), floats(2, 4, 5)
    expected = function(2 * a.transpose(0, 2, 1) @ b)
    facts = {**facts, "activation": name, "transA": 1, "alpha": 2.0}
    check_contrib("FusedMatMulActivation", [a, b], facts, [expected], engine=False, symbolic=False)


def _convolved(x: Array, w: Array) -> Array:
    """(N, H, W, C) with filters (M, C, 3, 3) and pads of one."""
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    return sum(
        padded[:, i : i + height, j : j + width] @ w[:, :, i, j].T.astype(float)
        for i in range(3)
        for j in range(3)
    )


def test_nhwc_fused_conv() -> None:
    x, w, bias, z = floats(2, 5, 6, 3), floats(4, 3, 3, 3), floats(4), floats(2, 5, 6, 4)
    facts = {"pads": [1, 1, 1, 1], "activation": "Relu"}
    expected = np.maximum(_convolved(x, w) + bias + z, 0)
    halves = [t.astype(np.float16) for t in (x, w, bias, z)]
    check_contrib("NhwcFusedConv", halves, facts, [expected], tolerance="half: experts",
                  engine=False, symbolic=False)  # fmt: skip


def test_conv_transpose_with_dynamic_pads() -> None:
    x, w, bias = floats(1, 2, 4, 4), floats(2, 3, 3, 3), floats(3)
    full = np.zeros((1, 3, 9, 9))
    for i, j in np.ndindex(4, 4):
        full[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum(
            "nc,cmhw->nmhw", x[:, :, i, j].astype(float), w
        )
    expected = full[:, :, 1:-1, :-1] + bias[:, None, None]
    pads = np.array([1, 0, 1, 1])
    check_contrib("ConvTransposeWithDynamicPads", [x, w, pads, bias], {"strides": [2, 2]},
                  [expected], constants=[2], symbolic=False)  # fmt: skip


# -- dropout ----------------------------------------------------------------------------------


def test_bitmask_dropout_in_a_test() -> None:
    x, bias = floats(5, 7), floats(7)
    bits = np.array([0xFFFFFFFF, 0b111], np.uint32)
    check_contrib("BitmaskDropout", [x], {}, [x, bits], engine=False, symbolic=False)
    check_contrib("BitmaskBiasDropout", [x, bias, x], {}, [x + bias + x, bits], engine=False,
                  symbolic=False)  # fmt: skip


def test_bitmask_dropout_in_training() -> None:
    x = np.abs(floats(40, 50)) + np.float32(1)
    ratio, training = np.float32(0.25), np.array(True)
    model = contrib_model("BitmaskDropout", [x, ratio, training], {"seed": 3}, 2, [1, 2])
    got, bits = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    kept = np.unpackbits(bits.view(np.uint8), bitorder="little")[: x.size].reshape(x.shape)
    assert_near(got, np.where(kept, x / 0.75, 0), "float: one operation")
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / x.size)


# -- narrow floats ----------------------------------------------------------------------------

_F8, _F8_WIDE, _F4 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn


@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_gemm_float8(activation: str) -> None:
    a, b, c = floats(3, 8).astype(_F8), floats(5, 8).astype(_F8_WIDE), floats(3, 5)
    scales = [np.array([0.5], np.float32), np.array([3.0], np.float32)]
    product = a.astype(np.float32) @ b.astype(np.float32).T * 1.5 * 2 + c * 0.5
    expected = np.maximum(product, 0) if activation == "RELU" else product
    facts = {"transB": 1, "alpha": 2.0, "beta": 0.5, "activation": activation}
    check_contrib("GemmFloat8", [a, b, c, *scales], facts, [expected], engine=False, symbolic=False)


def test_gemm_float8_of_an_output_scale_is_refused() -> None:
    x, one = floats(2, 2), np.array([2.0], np.float32)
    with pytest.raises(NotImplemented, match="scaleY"):
        check_contrib("GemmFloat8", [x, x, None, one, one, one], {}, [None], engine=False,
                      symbolic=False)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_mat_mul_of_weights_of_four_bits(dtype: Any, bias: bool) -> None:
    depth, columns, block = 24, 5, 16
    codes = RANDOM.integers(0, 16, (columns, depth)).astype(np.uint8)
    packed = codes[:, ::2] | (codes[:, 1::2] << 4)
    scales = (np.abs(floats(columns, 2)) + 0.5).astype(_F8)
    a, whole, summand = floats(2, 3, depth).astype(dtype), np.float32(0.75), floats(columns)
    weights = codes.view(np.uint8).astype(np.uint8).view(np.uint8)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = values[weights & 7] * np.where(weights & 8, -1, 1)
    factor = np.repeat(scales.astype(float), block, 1)[:, :depth] * whole
    expected = a.astype(float) @ (numbers * factor).T
    inputs = [a, packed, scales.view(np.uint8), whole]
    if bias:
        inputs += [np.float32(1), summand.astype(dtype)]
        expected = expected + summand.astype(dtype).astype(float)
    check_contrib("MatMulBlockQuantizedFp4Weight", inputs, {"block_size": block}, [expected],
                  tolerance="half: gates", engine=False, symbolic=False)  # fmt: skip


@pytest.mark.parametrize("activation", [False, True])
def test_mat_mul_of_weights_of_eight_bits(activation: bool) -> None:
    depth, columns, block = 40, 5, 16
    a = floats(3, depth).astype(np.float16)
    b, scales = floats(columns, depth).astype(_F8), np.abs(floats(columns, 3))
    weights = b.astype(float) * np.repeat(scales, block, 1)[:, :depth]
    left, inputs = a.astype(np.float32), [a, b, scales]
    if activation:
        inputs.append(np.float32(0.5))
        left = (left / np.float32(0.5)).astype(_F8).astype(np.float32) * np.float32(0.5)
    check_contrib("MatMulBlockQuantizedFp8Weight", inputs, {"block_size": block},
                  [left @ weights.T], tolerance="half: layers", engine=False,
                  symbolic=False)  # fmt: skip


# -- MatMulNBits with what is around it -------------------------------------------------------


def _quantised(columns: int, depth: int) -> tuple[Array, Array, Array]:
    """Codes of four bits in blocks of 32, their scales, the weights."""
    codes = RANDOM.integers(0, 16, (columns, depth)).astype(np.uint8)
    scales = np.abs(floats(columns, depth // 32)) + np.float32(0.1)
    packed = (codes[:, ::2] | (codes[:, 1::2] << 4)).reshape(columns, depth // 32, 16)
    return packed, scales.reshape(-1), (codes.astype(float) - 8) * np.repeat(scales, 32, 1)


@pytest.mark.parametrize("skipped", [False, True])
def test_three_products_of_a_normalised_input(skipped: bool) -> None:
    a, skip, scale = floats(2, 64), floats(2, 64), floats(64)
    parts = [_quantised(n, 64) for n in (6, 3, 3)]
    bias = floats(6)
    total = a + skip if skipped else a
    normal = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6) * scale
    expected = [normal @ weights.T for _, _, weights in parts]
    expected[0] = expected[0] + bias
    inputs = [a, skip if skipped else None, scale]
    for k, (packed, scales, _) in enumerate(parts):
        inputs += [packed, scales, None if k else bias]
    facts = {"K": 64, "Nq": 6, "Nkv": 3, "block_size": 32}
    results = [*expected, total] if skipped else expected
    check_contrib("MatMulNBitsQkv", inputs, facts, results, tolerance="float: layers", engine=False,
                  symbolic=False)  # fmt: skip


@pytest.mark.parametrize("normalised, skipped", [(False, False), (True, False), (True, True)])
def test_gated_products(normalised: bool, skipped: bool) -> None:
    a, skip, scale = floats(2, 64), floats(2, 64), floats(64)
    (gate_b, gate_s, gate_w), (up_b, up_s, up_w) = _quantised(6, 64), _quantised(6, 64)
    total = a + skip if skipped else a
    rms = np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)
    normal = total / rms * scale if normalised else total
    gate, up = normal @ gate_w.T, normal @ up_w.T
    inputs = [a, skip if skipped else None, scale if normalised else None,
              gate_b, gate_s, None, up_b, up_s, None]  # fmt: skip
    facts = {"K": 64, "N": 6, "block_size": 32, "activation": "silu"}
    results = [gate * sigmoid(gate) * up, *([total] if skipped else [])]
    check_contrib("MatMulNBitsMlp", inputs, facts, results, tolerance="float: rounded weights",
                  engine=False, symbolic=False)  # fmt: skip


def test_bad_activations_are_refused() -> None:
    a = floats(2, 64)
    b, scales, _ = _quantised(6, 64)
    with pytest.raises(NotImplemented, match="silu"):
        check_contrib("MatMulNBitsMlp", [a, None, None, b, scales, None, b, scales],
                      {"K": 64, "N": 6, "block_size": 32, "activation": "gelu"}, [None],
                      engine=False, symbolic=False)  # fmt: skip
    with pytest.raises(InvalidGraph, match="RELU"):
        check_contrib("GemmFloat8", [a, a.T.copy()], {"activation": "ELU"}, [None], engine=False,
                      symbolic=False)  # fmt: skip
