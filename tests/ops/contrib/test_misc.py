"""Short operators of onnxruntime's domain against NumPy, and against onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.base.errors import Fail, InvalidGraph, NotImplemented
from tests.support.contrib import DOMAIN, check_contrib

RNG = np.random.default_rng(61)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def last(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def test_what_another_device_compiled_is_refused():
    node = helper.make_node(
        "EPContext", ["x"], ["y"], name="part", domain=DOMAIN, source="QNN", embed_mode=0,
        ep_cache_context="part.bin", main_context=1,
    )  # fmt: skip
    value = helper.make_tensor_value_info("x", 1, [3])
    graph = helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(NotImplemented, match=r"node part \(EPContext\).*compiled by QNN"):
        sardonyx.InferenceSession(model.SerializeToString())


def test_bias_add():
    x, bias, skip = floats(2, 3, 4), floats(4), floats(2, 3, 4)
    check_contrib("BiasAdd", [x, bias, skip], {}, [x + bias + skip], engine=False)


@pytest.mark.parametrize("skip", [floats(2, 3, 4, 6), floats(2, 6)])
def test_skip_group_norm(skip):
    x, gamma, beta, bias = floats(2, 3, 4, 6), floats(6), floats(6), floats(6)
    total = x.astype(float) + (skip[:, None, None] if skip.ndim == 2 else skip) + bias
    groups = total.reshape(2, 3, 4, 2, 3)
    centred = groups - groups.mean((1, 2, 4), keepdims=True)
    normal = centred / np.sqrt(groups.var((1, 2, 4), keepdims=True) + 1e-5)
    expected = normal.reshape(x.shape) * gamma + beta
    expected = expected / (1 + np.exp(-expected))
    inputs = [x, gamma, beta, skip, bias]
    facts = {"groups": 2, "activation": 1}
    check_contrib("SkipGroupNorm", inputs, facts, [expected, total], engine=False, symbolic=False)


def test_bias_softmax():
    x, bias = floats(2, 3, 4, 5), floats(2, 1, 1, 5)
    e = np.exp(x.astype(float) + bias)
    facts = {"axis": 3, "is_inner_broadcast": 0}
    expected = [e / e.sum(-1, keepdims=True)]
    check_contrib("BiasSoftmax", [x, bias], facts, expected, engine=False)


def test_bias_dropout_without_training():
    x, bias, residual = floats(2, 3, 4), floats(4), floats(2, 3, 4)
    expected = [x + bias + residual, np.ones(x.shape, bool)]
    check_contrib("BiasDropout", [x, bias, residual], {}, expected, engine=False)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation):
    x, scale, gate = floats(2, 3, 8), floats(4), floats(2, 3, 8)
    groups = x.astype(float).reshape(2, 3, 2, 4)
    normal = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-3) * scale
    open_ = 1 / (1 + np.exp(-gate.astype(float)))
    factor = open_ if activation == "sigmoid" else gate * open_
    expected = [normal.reshape(x.shape) * factor]
    facts = {"activation": activation, "epsilon": 1e-3}
    check_contrib("GatedRMSNorm", [x, scale, gate], facts, expected, engine=False)


def test_convolution_and_pooling_with_channels_last():
    x, w, bias = floats(1, 3, 6, 4), floats(5, 3, 2, 2), floats(5)
    expected = np.zeros((1, 5, 5, 3))
    for i in range(5):
        for j in range(3):
            window = x[:, :, i : i + 2, j : j + 2].astype(float)
            expected[:, :, i, j] = np.einsum("nchw,mchw->nm", window, w) + bias
    facts = {"kernel_shape": [2, 2]}
    check_contrib("NhwcConv", [last(x), last(w), bias], facts, [last(expected)], engine=False)
    codes = RNG.integers(0, 256, (1, 3, 6, 4)).astype(np.uint8)
    largest = codes.reshape(1, 3, 3, 2, 2, 2).max((3, 5))
    facts = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check_contrib("NhwcMaxPool", [last(codes)], facts, [last(largest)])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode):
    x = floats(1, 2, 5, 5)
    i, j = np.array([0, 2, 4]), np.array([1, 3])
    rows, columns = np.meshgrid(i, j, indexing="ij")
    grid = np.stack([columns / 2 - 1, rows / 2 - 1], -1)[None].astype(np.float32)
    facts = {"mode": mode, "align_corners": 1}
    check_contrib(
        "GridSample", [x, grid], facts, [x[:, :, rows, columns]], tolerance="float: layers"
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_crop_and_resize(mode):
    x = floats(2, 3, 6, 7)
    rois = np.array(
        [[0.1, 0.2, 0.85, 0.65], [0.0, 0.0, 1.0, 1.0], [-0.5, 0.3, 0.6, 1.4]], np.float32
    )
    at = np.array([0, 1, 1], np.int32)
    size = np.array([4, 3], np.int32)
    expected = np.empty((3, 3, 4, 3))
    for r, (y1, x1, y2, x2) in enumerate(rois.astype(float)):
        for i in range(4):
            for j in range(3):
                y, z = (y1 + i / 3 * (y2 - y1)) * 5, (x1 + j / 2 * (x2 - x1)) * 6
                if not (0 <= y <= 5 and 0 <= z <= 6):
                    expected[r, :, i, j] = 0.25
                elif mode == "nearest":
                    expected[r, :, i, j] = x[at[r], :, int(y + 0.5), int(z + 0.5)]
                else:
                    top, left = int(y), int(z)
                    bottom, right = int(np.ceil(y)), int(np.ceil(z))
                    p, q = y - top, z - left
                    image = x[at[r]]
                    above = image[:, top, left] * (1 - q) + image[:, top, right] * q
                    below = image[:, bottom, left] * (1 - q) + image[:, bottom, right] * q
                    expected[r, :, i, j] = above * (1 - p) + below * p
    facts = {"mode": mode, "extrapolation_value": 0.25}
    check_contrib("CropAndResize", [x, rois, at, size], facts, [expected], constants=[3])


def test_pads_and_triangles_and_ranges():
    x = floats(2, 3)
    expected = np.pad(x, ((1, 0), (0, 2)), constant_values=7)
    inputs = [x, np.array([[1, 0, 0, 2]]), np.array([7], np.float32)]
    check_contrib("Pad", inputs, {"mode": "constant"}, [expected], constants=[1], engine=False)
    check_contrib("Trilu", [floats(4, 4), np.array(1)], {"upper": 0}, [None], constants=[1])
    square = floats(4, 4)
    check_contrib("Trilu", [square, np.array(1)], {"upper": 1}, [np.triu(square, 1)])
    bounds = [np.float32(1), np.float32(6)]
    check_contrib("Range", bounds, {}, [np.arange(1, 6, dtype=np.float32)], constants=[0, 1])
    bounds.append(np.float32(2))
    check_contrib("Range", bounds, {}, [np.arange(1, 6, 2, dtype=np.float32)])


def test_unique():
    x = np.array([2, 1, 1, 3, 4, 3], np.float32)
    expected = [np.array([2, 1, 3, 4]), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])]
    check_contrib("Unique", [x], {}, expected)


def test_axes_and_rows_and_windows():
    x = floats(3, 8)
    check_contrib("ExpandDims", [x, np.array(-1, np.int32)], {}, [x[..., None]], constants=[1])
    at = np.array([[0, 2], [1, 1]])
    check_contrib("TorchEmbedding", [x, at], {}, [x[at]], engine=False)
    windows = np.stack([x[:, k : k + 4] for k in (0, 2, 4)], 1)
    check_contrib("UnfoldTensor", [x], {"dim": 1, "size": 4, "step": 2}, [windows])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_repeated_n_grams(size):
    ids = RNG.integers(0, 4, (3, 9))
    scores = floats(3, 5)
    expected = scores.copy()
    for row, out in zip(ids.tolist(), expected, strict=True):
        for i in range(len(row) - size + 1):
            if row[i : i + size - 1] == row[len(row) - size + 1 :]:
                out[row[i + size - 1]] = -np.inf
    check_contrib("NGramRepeatBlock", [ids, scores], {"ngram_size": size}, [expected])


def test_products():
    a, b = floats(2, 3, 4), floats(2, 5, 4)
    expected = 0.5 * a.astype(float) @ b.swapaxes(1, 2)
    check_contrib("TransposeMatMul", [a, b], {"alpha": 0.5, "transB": 1}, [expected])
    a, b = (RNG.integers(-999, 999, s).astype(np.int16) for s in ((3, 4), (4, 2)))
    check_contrib("MatMulInteger16", [a, b], {}, [a.astype(int) @ b])
    a, b = (RNG.integers(0, 256, (3, 4)).astype(np.uint8) for _ in range(2))
    inputs = [a, np.uint8(3), b, np.uint8(200)]
    expected = (a.astype(int) - 3) * (b.astype(int) - 200)
    check_contrib("MulInteger", inputs, {}, [expected], engine=False)
    expected = a.astype(np.uint32).sum(1, keepdims=True)
    check_contrib("ReduceSumInteger", [a], {"axes": [1], "keepdims": 1}, [expected], engine=False)


@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("only", [None, "isinf_only", "isnan_only"])
def test_is_all_finite(value, only):
    x, y = floats(3, 4), np.array([1, value], np.float32)
    bad = {
        None: not np.isfinite(value),
        "isinf_only": np.isinf(value),
        "isnan_only": value != value,
    }
    facts = {} if only is None else {only: 1}
    check_contrib("IsAllFinite", [x, y], facts, [np.array(not bad[only])], engine=False)


def test_complex_products():
    a, b = floats(2, 3, 2), floats(3, 2)
    x, y = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for name, product in (("ComplexMul", x * y), ("ComplexMulConj", x * y.conj())):
        expected = np.stack([product.real, product.imag], -1)
        check_contrib(name, [a, b], {}, [expected], engine=False)


def test_fourier():
    x = floats(2, 3, 8)
    found = np.fft.rfft(x.astype(float))
    facts = {"signal_ndim": 1, "normalized": 0, "onesided": 1}
    expected = [np.stack([found.real, found.imag], -1)]
    check_contrib(
        "Rfft", [x], facts, expected, engine=False, symbolic=False, tolerance="float: layers"
    )
    parts = expected[0].astype(np.float32)
    check_contrib(
        "Irfft", [parts], facts, [x], engine=False, symbolic=False, tolerance="float: layers"
    )


@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 4, 4), (1, 1)])
def test_inverse(shape):
    x = floats(*shape)
    if len(shape) == 2 and shape[0] > 1:
        x[0, 0] = 0  # no pivot without another row
    expected = np.linalg.inv(x.astype(float))
    check_contrib("Inverse", [x], {}, [expected], tolerance="float: rounded weights")


@pytest.mark.parametrize(
    ("op_type", "inputs", "facts", "error", "match"),
    [
        ("Rfft", [floats(2, 4)], {"signal_ndim": 2}, NotImplemented, "one-sided"),
        ("Inverse", [floats(2, 3)], {}, InvalidGraph, "not square"),
        ("UnfoldTensor", [floats(4)], {"size": 0}, InvalidGraph, "no windows"),
    ],
)
def test_refusals(op_type, inputs, facts, error, match):
    with pytest.raises(error, match=match):
        check_contrib(op_type, inputs, facts, [None], symbolic=False)


@pytest.mark.parametrize(
    "domain, op_type, error, why",
    [
        ("", "EfficientNMS_TRT", InvalidGraph, "plugin of TensorRT"),
        (DOMAIN, "QuantizeBFP", Fail, "does not say"),
        (DOMAIN, "Snpe", Fail, "Qualcomm"),
        ("com.microsoft.nchwc", "Conv", Fail, "as it was before"),
    ],
)
def test_what_is_refused_says_why(domain, op_type, error, why):
    node = helper.make_node(op_type, ["x"], ["y"], name="it", domain=domain)
    value = helper.make_tensor_value_info("x", 1, [3])
    graph = helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain or DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(error, match=rf"node it \({op_type}\).*{why}"):
        sardonyx.InferenceSession(model.SerializeToString())


def test_gather_nd():
    x, at = floats(3, 4, 5), np.array([[[0, 1], [2, 3]]])
    check_contrib("GatherND", [x, at], {}, [x[[[0, 2]], [[1, 3]]]], symbolic=False)
