"""onnxruntime's own operators against NumPy in double."""

import math

import numpy as np
import pytest

from tests.support.ops import check_op

RNG = np.random.default_rng(12)
DOMAIN = "com.microsoft"


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(op_type, inputs, attributes, *expected, outputs=1, domain=DOMAIN):
    wanted = [np.asarray(e, np.float32) for e in expected]
    check_op(op_type, inputs, attributes, 17, outputs=outputs, domain=domain, expected=wanted)


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def fast_gelu(x):
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_activations():
    x, bias = floats(2, 3, 8), floats(8)
    wide, total = x.astype(np.float64), x.astype(np.float64) + bias
    check("Gelu", [x], {}, gelu(wide))
    check("BiasGelu", [x, bias], {}, gelu(total))
    check("FastGelu", [x], {}, fast_gelu(wide))
    check("FastGelu", [x, bias], {}, fast_gelu(total))
    check("QuickGelu", [x], {"alpha": 1.5}, wide * sigmoid(1.5 * wide))
    check("BiasSplitGelu", [x, bias], {}, total[..., :4] * gelu(total[..., 4:]))


@pytest.mark.parametrize("bias", [None, floats(8)])
def test_skip_layer_normalization(bias):
    x, skip, gamma, beta = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)
    total = x.astype(np.float64) + skip + (0 if bias is None else bias)
    centred = total - total.mean(-1, keepdims=True)
    expected = centred / np.sqrt(total.var(-1, keepdims=True) + 1e-3) * gamma + beta
    inputs = [x, skip, gamma, beta] + ([] if bias is None else [bias])
    check("SkipLayerNormalization", inputs, {"epsilon": 1e-3}, expected)


def test_simplified_layer_normalization():
    x, skip, gamma = floats(2, 3, 8), floats(2, 3, 8), floats(8)
    total = x.astype(np.float64) + skip

    def normalised(v):
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-3) * gamma

    attributes = {"epsilon": 1e-3}
    check("SimplifiedLayerNormalization", [x, gamma], attributes, normalised(x), domain="")
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], attributes, normalised(total))


@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm_of_channels_last(activation):
    x, gamma, beta = floats(2, 3, 4, 6), floats(6), floats(6)
    groups = x.astype(np.float64).reshape(2, 3, 4, 2, 3)
    average = groups.mean((1, 2, 4), keepdims=True)
    deviation = np.sqrt(groups.var((1, 2, 4), keepdims=True) + 1e-5)
    expected = ((groups - average) / deviation).reshape(x.shape) * gamma + beta
    if activation:
        expected = expected * sigmoid(expected)
    attributes = {"groups": 2, "activation": activation}
    check("GroupNorm", [x, gamma, beta], attributes, expected)


def test_fused_mat_mul():
    a, b = floats(2, 3, 4, 5), floats(2, 3, 6, 5)
    expected = a.astype(np.float64) @ b.swapaxes(-1, -2) * 0.125
    check("FusedMatMul", [a, b], {"alpha": 0.125, "transB": 1}, expected)
    # With transBatchA the rows come before all batch axes but the last one.
    moved = np.ascontiguousarray(a.transpose(2, 0, 1, 3))
    expected = a.astype(np.float64) @ b.swapaxes(-1, -2)
    check("FusedMatMul", [moved, b], {"transBatchA": 1, "transB": 1}, expected)


@pytest.mark.parametrize(
    ("activation", "parameters", "function"),
    [
        ("Relu", [], lambda v: np.maximum(v, 0)),
        ("LeakyRelu", [0.25], lambda v: np.where(v < 0, v * 0.25, v)),
        ("Clip", [-0.5, 0.5], lambda v: np.clip(v, -0.5, 0.5)),
        ("HardSigmoid", [0.25, 0.5], lambda v: np.clip(v * 0.25 + 0.5, 0, 1)),
        ("Tanh", [], np.tanh),
    ],
)
def test_fused_convolution(activation, parameters, function):
    x, w, bias, z = floats(1, 3, 4, 4), floats(2, 3, 1, 1), floats(2), floats(1, 2, 4, 4)
    total = np.einsum("nchw,mc->nmhw", x.astype(np.float64), w[:, :, 0, 0])
    total = total + bias.reshape(1, 2, 1, 1) + z
    attributes = {
        "activation": activation,
        **({"activation_params": parameters} if parameters else {}),
    }
    check("FusedConv", [x, w, bias, z], attributes, function(total))


def test_fused_gemm():
    a, b, c = floats(3, 4), floats(5, 4), floats(5)
    expected = np.maximum(0.5 * (a.astype(np.float64) @ b.T) + 2 * c, 0)
    attributes = {"alpha": 0.5, "beta": 2.0, "transB": 1, "activation": "Relu"}
    check("FusedGemm", [a, b, c], attributes, expected)


def test_dynamic_quantize_mat_mul():
    a, b = floats(3, 8), RNG.integers(-50, 50, (8, 5)).astype(np.int8)
    scale, bias = np.float32(0.02), floats(5)
    low, high = min(a.min(), 0), max(a.max(), 0)
    step = np.float32((high - low) / np.float32(255))
    zero = np.round(-low / step)
    codes = np.clip(np.round(a / step) + zero, 0, 255)
    expected = (codes - zero) @ b.astype(np.float64) * (step * scale) + bias
    zeros = np.int8(0)
    check("DynamicQuantizeMatMul", [a, b, scale, zeros, bias], {}, expected)


def test_rotary_positions():
    x, cosine, sine = floats(1, 4, 16), floats(9, 4), floats(9, 4)
    heads = x.reshape(1, 4, 2, 8)
    c, s = cosine[2:6][None, :, None], sine[2:6][None, :, None]
    first, second = heads[..., :4], heads[..., 4:]
    expected = np.concatenate([first * c - second * s, second * c + first * s], -1)
    inputs = [x, np.array([2]), cosine, sine]
    check_op("RotaryEmbedding", inputs, {}, 17, domain=DOMAIN, symbolic=False,
             expected=[expected.reshape(1, 4, 16)])  # fmt: skip
