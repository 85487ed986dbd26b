"""Operators between 8-bit codes against NumPy in double, and against onnxruntime."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(51)


def codes(*shape, dtype=np.uint8):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RNG.integers(low, high + 1, shape).astype(dtype)


#: Magnitudes of signed factors, and whether onnxruntime is asked, too: without VNNI it adds two
#: products of unsigned and signed bytes in 16 bits, which saturate above 64.
REACHES = pytest.mark.parametrize(("reach", "engine"), [(128, False), (64, True)])


def factors(*shape, reach):
    return RNG.integers(-reach, reach, shape).astype(np.int8)


def numbers(x, scale, zero):
    return (x.astype(np.float64) - float(zero)) * float(scale)


def quantised(x, scale, zero):
    limits = np.iinfo(zero.dtype)
    return np.clip(np.round(x / scale) + zero, limits.min, limits.max).astype(zero.dtype)


S = [np.float32(v) for v in (0.03, 0.05, 0.04, 0.006)]
ZEROS = {
    np.uint8: [np.uint8(v) for v in (120, 100, 130)],
    np.int8: [np.int8(v) for v in (-3, 7, 5)],
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(2, 3, 8), (8,), (1,)])
def test_two_tensors(op_type, shape, dtype):
    a, b, zeros = codes(2, 3, 8, dtype=dtype), codes(*shape, dtype=dtype), ZEROS[dtype]
    x, y = numbers(a, S[0], zeros[0]), numbers(b, S[1], zeros[1])
    expected = quantised(x + y if op_type == "QLinearAdd" else x * y, S[2], zeros[2])
    inputs = [a, S[0], zeros[0], b, S[1], zeros[1], S[2], zeros[2]]
    check_contrib(op_type, inputs, {}, [expected], constants=[1, 2, 4, 5, 6, 7], step=1)
    inputs = [a, S[0], None, b, S[1], None, S[2] * 4, None]
    wide = (numbers(a, S[0], 0), numbers(b, S[1], 0))
    result = wide[0] + wide[1] if op_type == "QLinearAdd" else wide[0] * wide[1]
    expected = quantised(result, S[2] * 4, dtype(0))
    check_contrib(op_type, inputs, {}, [expected], constants=[1, 4, 6], step=1, engine=False)


FUNCTIONS = {
    "QLinearLeakyRelu": ({"alpha": 0.2}, lambda x: np.where(x < 0, 0.2 * x, x)),
    "QLinearSigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "QLinearReduceMean": ({"axes": [1], "keepdims": 0}, lambda x: x.mean(1)),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_one_tensor(op_type, dtype):
    facts, function = FUNCTIONS[op_type]
    x, zeros = codes(3, 4, 5, dtype=dtype), ZEROS[dtype]
    expected = quantised(function(numbers(x, S[0], zeros[0])), S[2], zeros[1])
    inputs = [x, S[0], zeros[0], S[2], zeros[1]]
    engine = op_type != "QLinearReduceMean"  # it has no kernel
    check_contrib(op_type, inputs, facts, [expected], constants=[1, 2, 3, 4], step=1, engine=engine)


@pytest.mark.parametrize(("opset", "axis"), [(12, 1), (13, 1), (13, -1)])
def test_softmax(opset, axis):
    x = codes(3, 4, 5)
    value = numbers(x, S[1], 120)
    axes = (1, 2) if opset < 13 else axis
    e = np.exp(value - value.max(axes, keepdims=True))
    expected = quantised(e / e.sum(axes, keepdims=True), S[3], np.uint8(0))
    inputs = [x, S[1], np.uint8(120), S[3], np.uint8(0)]
    facts = {"opset": opset, "axis": axis}
    check_contrib("QLinearSoftmax", inputs, facts, [expected], constants=[1, 2, 3, 4], step=1)


def test_concatenation():
    parts = [codes(2, n, 3) for n in (1, 4, 2)]
    zeros = ZEROS[np.uint8]
    wide = [numbers(x, s, z) for x, s, z in zip(parts, S, zeros, strict=False)]
    expected = quantised(np.concatenate(wide, 1), S[2], zeros[0])
    given = [v for k, x in enumerate(parts) for v in (x, S[k], zeros[k])]
    constants = [0, 1, 3, 4, 6, 7, 9, 10]
    inputs = [S[2], zeros[0], *given]
    check_contrib("QLinearConcat", inputs, {"axis": 1}, [expected], constants=constants, step=1)
    with pytest.raises(InvalidGraph, match="scale and a zero point each"):
        check_contrib("QLinearConcat", inputs[:-1], {"axis": 1}, [None])


def test_choice():
    condition, x, y = RNG.integers(0, 2, (2, 1, 5)).astype(bool), codes(3, 5), codes(2, 3, 1)
    zeros = ZEROS[np.uint8]
    chosen = np.where(condition, numbers(x, S[0], zeros[0]), numbers(y, S[1], zeros[1]))
    inputs = [condition, x, S[0], zeros[0], y, S[1], zeros[1], S[2], zeros[2]]
    expected = [quantised(chosen, S[2], zeros[2])]
    check_contrib("QLinearWhere", inputs, {}, expected, constants=[2, 3, 5, 6, 7, 8], step=1)


@pytest.mark.parametrize("last", [0, 1])
def test_pooling(last):
    x = codes(2, 3, 6, 5)
    value = numbers(x, S[0], 120)
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    constants = [1, 2, 3, 4]
    inputs = [given, S[0], np.uint8(120), S[2], np.uint8(100)]

    def ordered(y):
        return y.transpose(0, 2, 3, 1) if last else y

    whole = ordered(quantised(value.mean((2, 3), keepdims=True), S[2], np.uint8(100)))
    facts = {"channels_last": last}
    name = "QLinearGlobalAveragePool"
    check_contrib(name, inputs, facts, [whole], constants=constants, step=1)
    windows = value[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2).mean((3, 5))
    expected = ordered(quantised(windows, S[2], np.uint8(100)))
    facts = {**facts, "kernel_shape": [2, 2], "strides": [2, 2]}
    check_contrib("QLinearAveragePool", inputs, facts, [expected], constants=constants, step=1)


@REACHES
@pytest.mark.parametrize("last", [0, 1])
def test_convolution(last, reach, engine):
    x, w, bias = codes(1, 3, 5, 5), factors(4, 3, 1, 1, reach=reach), codes(4, dtype=np.int8)
    scales = RNG.uniform(0.01, 0.02, 4).astype(np.float32)
    total = np.einsum("nchw,mc->nmhw", x.astype(int) - 120, w[:, :, 0, 0].astype(int))
    total = total + bias.astype(int).reshape(1, 4, 1, 1)
    expected = quantised(total * scales.reshape(1, 4, 1, 1) * S[0], S[1], np.uint8(100))
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    wanted = expected.transpose(0, 2, 3, 1) if last else expected
    inputs = [
        given, S[0], np.uint8(120), w, scales, np.zeros(4, np.int8), S[1], np.uint8(100),
        bias.astype(np.int32),
    ]  # fmt: skip
    facts = {"channels_last": last, "strides": [1, 1]}
    constants = range(1, 9)
    check_contrib(
        "QLinearConv", inputs, facts, [wanted], constants=constants, step=1, engine=engine
    )


@REACHES
@pytest.mark.parametrize("quantise", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(quantise, transposed, reach, engine):
    a, b, c = codes(3, 8), factors(8, 5, reach=reach), RNG.integers(-99, 99, 5).astype(np.int32)
    scales = RNG.uniform(0.01, 0.02, 5).astype(np.float32)
    total = (a.astype(int) - 120) @ (b.astype(int) - 2) + c
    result = total * scales * S[0] * 0.5
    given = np.ascontiguousarray(b.T) if transposed else b
    inputs = [a, S[0], np.uint8(120), given, scales, np.full(5, 2, np.int8), c]
    if quantise:
        inputs += [S[1], np.uint8(100)]
        result = quantised(result, S[1], np.uint8(100))
    facts = {"alpha": 0.5, "transB": transposed}
    constants = range(1, len(inputs))
    check_contrib("QGemm", inputs, facts, [result], constants=constants, step=1, engine=engine)


@REACHES
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(unidirectional, reach, engine):
    heads, size = 2, 4
    width = heads * size
    x, w = codes(2, 3, 6), factors(6, 3 * width, reach=reach)
    bias = RNG.standard_normal(3 * width).astype(np.float32)
    scale = np.float32(0.01)
    product = (x.astype(int) - 120) @ w.astype(int) * float(S[0] * scale) + bias
    q, k, v = (
        p.reshape(2, 3, heads, size).transpose(0, 2, 1, 3) for p in np.split(product, 3, axis=2)
    )
    scores = q @ k.swapaxes(2, 3) / 2
    if unidirectional:
        scores = np.where(np.tri(3) > 0, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    result = (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, 3, width)
    inputs = [x, w, bias, S[0], scale, None, np.uint8(120), np.int8(0)]
    facts = {"num_heads": heads, "unidirectional": unidirectional}
    constants = [1, 2, 3, 4, 6, 7]
    check_contrib("QAttention", inputs, facts, [result], constants=constants, engine=engine)


WORDS, PLACES, KINDS = ((RNG.standard_normal((n, 8))).astype(np.float32) for n in (11, 6, 2))
GAMMA, BETA = RNG.standard_normal((2, 8)).astype(np.float32)
IDS = RNG.integers(0, 11, (2, 4)).astype(np.int32)
SEGMENTS = RNG.integers(0, 2, (2, 4)).astype(np.int32)
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)


def normalised(total, gamma, beta, epsilon):
    centred = total - total.mean(-1, keepdims=True)
    return centred / np.sqrt(total.var(-1, keepdims=True) + epsilon) * gamma + beta


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embeddings(segments, positions):
    at = RNG.integers(0, 6, (2, 4)).astype(np.int32) if positions else None
    total = WORDS[IDS].astype(float) + (PLACES[at] if positions else PLACES[:4])
    if segments:
        total = total + KINDS[SEGMENTS]
    inputs = [
        IDS, SEGMENTS if segments else None, WORDS, PLACES, KINDS if segments else None, GAMMA,
        BETA, MASK, at,
    ]  # fmt: skip
    expected = [normalised(total, GAMMA, BETA, 1e-3), MASK.sum(1), total]
    facts = {"epsilon": 1e-3}
    check_contrib("EmbedLayerNormalization", inputs, facts, expected, constants=range(2, 7))


def test_quantised_embeddings():
    tables = [codes(n, 8) for n in (11, 6, 2)]
    parameters = [codes(8), codes(8)]
    every = [*tables, *parameters]
    scales = [np.float32(s) for s in (0.03, 0.02, 0.01, 0.05, 0.04)]
    zeros = [np.uint8(z) for z in (120, 110, 130, 90, 140)]
    wide = [numbers(x, s, z) for x, s, z in zip(every, scales, zeros, strict=True)]
    total = wide[0][IDS] + wide[1][:4] + wide[2][SEGMENTS]
    inputs = [IDS, SEGMENTS, *tables, *parameters, MASK, *scales, *zeros]
    expected = [normalised(total, wide[3], wide[4], 1e-3), MASK.sum(1)]
    constants = [*range(2, 7), *range(8, 18)]
    check_contrib(
        "QEmbedLayerNormalization", inputs, {"epsilon": 1e-3}, expected, constants=constants,
        tolerance="float: layers",
    )  # fmt: skip


@pytest.mark.parametrize("bidirectional", [0, 1])
@pytest.mark.parametrize("lengths", [(40, 40), (3, 30)])
def test_relative_positions(bidirectional, lengths):
    count, heads, longest = 16, 3, 20
    by_head = RNG.standard_normal((heads, count)).astype(np.float32)
    queries, keys = lengths
    expected = np.empty((1, heads, queries, keys))
    for i in range(queries):
        for j in range(keys):
            buckets, bucket, apart = count, 0, j - i
            if bidirectional:
                buckets //= 2
                bucket, apart = (buckets if apart > 0 else 0), abs(apart)
            else:
                apart = max(-apart, 0)
            exact = buckets // 2
            if apart >= exact:
                share = np.log(apart / exact) / np.log(longest / exact)
                apart = min(exact + int(share * (buckets - exact)), buckets - 1)
            expected[0, :, i, j] = by_head[:, bucket + apart]
    # The table lies head by head, whatever its shape says.
    inputs = [by_head.reshape(count, heads), np.array(queries), np.array(keys)]
    facts = {"max_distance": longest, "is_bidirectional": bidirectional}
    check_contrib("RelativePositionBias", inputs, facts, [expected], engine=False)
