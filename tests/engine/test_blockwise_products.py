"""Weights of few bits in blocks: packed in memory, multiplied as integers, as exact as float32."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.targets.target import host_target

RNG = np.random.default_rng(17)
DOMAIN = "com.microsoft"


def pack(codes, bits):
    """Codes along the last axis in bytes, the first in the lowest bits, the last byte filled up."""
    spread = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(spread.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def model(depth, columns, block, bits, zeros=None, bias=None, dtype=np.float32, after="", level=0):
    """A model of one product, and its weights as float64 (columns, depth)."""
    blocks = -(-depth // block)
    codes = RNG.integers(0, 1 << bits, (columns, blocks, block))
    scales = RNG.uniform(0.5, 2, (columns, blocks)).astype(dtype)
    points = np.full((columns, blocks), 1 << (bits - 1))
    weights = {"b": pack(codes, bits), "scales": scales}
    if zeros == "packed":
        points = RNG.integers(0, 1 << bits, (columns, blocks))
        weights["zeros"] = pack(points, bits)
    elif zeros == "numbers":
        points = RNG.uniform(0, 1 << bits, (columns, blocks)).astype(dtype)
        weights["zeros"] = points
    if bias is not None:
        weights["bias"] = bias
    wide = (codes - points[..., None].astype(np.float64)) * scales[..., None].astype(np.float64)
    names = [n if n in weights else "" for n in ("b", "scales", "zeros", "g_idx", "bias")]
    facts = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    product = helper.make_node("MatMulNBits", ["a", *names], ["p"], domain=DOMAIN, **facts)
    nodes = [product, helper.make_node(after or "Identity", ["p"], ["y"])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("a", kind, ["rows", depth])],
        [helper.make_tensor_value_info("y", kind, ["rows", columns])],
        [numpy_helper.from_array(x, n) for n, x in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return made, wide.reshape(columns, -1)[:, :depth]


def session_of(made: onnx.ModelProto) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(made.SerializeToString())


#: Of sums of digits, or of float32 added up one after the other.
BOUND = 1e-6 if host_target().has_dots else 4e-6


def error(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


CASES = [
    # depth, columns, block, bits, zeros, dtype
    (128, 64, 32, 4, None, np.float32),
    (96, 70, 32, 4, "packed", np.float32),
    (256, 50, 128, 4, "numbers", np.float32),
    (80, 130, 32, 4, "packed", np.float32),
    (64, 16, 16, 2, None, np.float32),
    (100, 33, 64, 8, "packed", np.float32),
    (512, 40, 256, 8, None, np.float32),
    (64, 48, 32, 4, None, np.float16),
    (16, 5, 16, 4, None, np.float32),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product(case):
    depth, columns, block, bits, zeros, dtype = case
    made, wide = model(depth, columns, block, bits, zeros, dtype=dtype)
    session = session_of(made)
    assert ("blockwise" in session.explain()) == host_target().has_dots
    for rows in (1, 2, 3, 5, 13, 100):
        a = RNG.standard_normal((rows, depth)).astype(dtype)
        (got,) = session.run(None, {"a": a})
        bound = 1e-3 if dtype is np.float16 else BOUND
        assert error(got.astype(np.float64), a.astype(np.float64) @ wide.T) < bound


def test_scales_of_blocks_are_their_own():
    made, wide = model(128, 32, 32, 4)
    session = session_of(made)
    a = RNG.standard_normal((4, 128)).astype(np.float32)
    a[:, :32] *= 1e-6
    a[:, 32:64] *= 1e6
    a[:, 64:] = 0
    (got,) = session.run(None, {"a": a})
    assert error(got, a.astype(np.float64) @ wide.T) < BOUND
    a[:, 32:64] = 0
    (got,) = session.run(None, {"a": a})
    assert error(got, a.astype(np.float64) @ wide.T) < BOUND


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-31, 1e-20, 1e30])
def test_any_size(size):
    made, wide = model(64, 16, 32, 4, zeros="packed")
    a = (RNG.standard_normal((3, 64)) * size).astype(np.float32)
    (got,) = session_of(made).run(None, {"a": a})
    want = a.astype(np.float64) @ wide.T
    # As for other sizes, the error is a share of the largest result; denormals have fewer digits.
    assert np.abs(got - want).max() <= max(BOUND * np.abs(want).max(), 1e-35)
    assert session_of(made).run(None, {"a": a[:0]})[0].shape == (0, 16)


def test_numbers_that_are_not_finite_stay_so():
    made, _ = model(64, 16, 32, 4)
    session = session_of(made)
    a = np.ones((4, 64), np.float32)
    a[1, 3], a[2, 40], a[3, 0] = np.nan, np.inf, -np.inf
    (got,) = session.run(None, {"a": a})
    assert np.isfinite(got[0]).all()
    assert not np.isfinite(got[1:]).any()


def test_bias_and_activation_are_its_epilogue():
    bias = RNG.standard_normal(48).astype(np.float32) * 30
    made, wide = model(64, 48, 32, 4, bias=bias, after="Relu")
    session = session_of(made)
    a = RNG.standard_normal((7, 64)).astype(np.float32)
    (got,) = session.run(None, {"a": a})
    assert error(got, np.maximum(a.astype(np.float64) @ wide.T + bias, 0)) < BOUND
    count = 2 if host_target().has_dots else 1
    assert f"{count} kernel" in session.explain()


@pytest.mark.parametrize("depth", [128, 80])
def test_level_four_rounds_to_eight_bits(depth):
    made, wide = model(depth, 40, 32, 4, level=4)
    session = session_of(made)
    for rows in (1, 9):
        a = RNG.standard_normal((rows, depth)).astype(np.float32)
        (got,) = session.run(None, {"a": a})
        padded = np.pad(a, ((0, 0), (0, -depth % 32))).reshape(rows, -1, 32)
        scale = np.abs(padded).max(-1, keepdims=True) / np.float32(127)
        rounded = (np.round(padded / scale) * scale).reshape(rows, -1)[:, :depth]
        assert error(got, rounded.astype(np.float64) @ wide.T) < BOUND
        assert 1e-4 < error(got, a.astype(np.float64) @ wide.T) < 2e-2


def test_weights_stay_packed():
    made, _ = model(1024, 1024, 64, 4)
    session = session_of(made)
    session.run(None, {"a": np.ones((1, 1024), np.float32)})
    held = session.memory()["weights_bytes"]
    each = 0.5 + 4 / 64 if host_target().has_dots else 4  # half a byte, and a scale for 64
    assert held < 1024 * 1024 * each * 1.05


def test_one_kernel_serves_equal_products():
    made, wide = model(64, 64, 32, 4)
    first, *_ = made.graph.node
    second = helper.make_node("MatMulNBits", ["y1", "b", "scales"], ["y"], domain=DOMAIN)
    second.attribute.extend(first.attribute)
    first.output[0] = "y1"
    del made.graph.node[1]
    made.graph.node.append(second)
    session = session_of(made)
    a = RNG.standard_normal((3, 64)).astype(np.float32)
    (got,) = session.run(None, {"a": a})
    assert error(got, a.astype(np.float64) @ wide.T @ wide.T) < 2e-6


QDQ = [
    # type of codes, zero points, axis of blocks, depth, block, transposed
    ("int4", False, 0, 128, 32, False),
    ("uint4", True, 0, 96, 32, False),
    ("int4", True, 1, 64, 16, True),
    ("int8", False, 0, 128, 32, False),
    ("uint8", True, 1, 64, 0, False),
    ("int8", True, 1, 128, 0, False),
]


@pytest.mark.parametrize("case", QDQ, ids=str)
def test_dequantised_weights(case):
    kind, has_zeros, axis, depth, block, transposed = case
    columns, dtype = 40, getattr(TensorProto, kind.upper())
    signed, bits = kind.startswith("int"), int(kind[-1])
    low = -(1 << bits - 1) if signed else 0
    shape = (columns, depth) if transposed else (depth, columns)
    parts = [shape[k] // block if k == axis else shape[k] for k in (0, 1)] if block else [columns]
    codes = RNG.integers(low, low + (1 << bits), shape)
    scales = RNG.uniform(0.5, 2, parts).astype(np.float32)
    zeros = RNG.integers(low, low + (1 << bits), parts) if has_zeros else np.zeros(parts, int)
    weights = [numpy_helper.from_array(scales, "s")]
    weights.append(helper.make_tensor("w", dtype, shape, codes.reshape(-1).tolist()))
    names = ["w", "s"]
    if has_zeros:
        weights.append(helper.make_tensor("z", dtype, parts, zeros.reshape(-1).tolist()))
        names.append("z")
    facts = {"axis": axis, **({"block_size": block} if block else {})}
    nodes = [helper.make_node("DequantizeLinear", names, ["f"], **facts)]
    nodes.append(helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0] if transposed else [0, 1]))
    nodes.append(helper.make_node("MatMul", ["a", "t"], ["y"]))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", "rows", depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "rows", columns])],
        weights,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = session_of(made)
    assert ("blockwise" in session.explain()) == host_target().has_dots
    if block:
        scales, zeros = (np.repeat(x, block, axis) for x in (scales, zeros))
    wide = (codes - zeros) * scales.astype(np.float64)
    wide = wide.T if transposed else wide
    for rows in (1, 7):
        a = RNG.standard_normal((2, rows, depth)).astype(np.float32)
        (got,) = session.run(None, {"a": a})
        assert error(got, a.astype(np.float64) @ wide) < BOUND


def test_weights_of_convolutions_and_left_factors_are_unpacked_once():
    codes = helper.make_tensor("w", TensorProto.INT8, (32, 32), RNG.integers(-9, 9, 1024).tolist())
    scales = numpy_helper.from_array(np.full(32, 0.5, np.float32), "s")
    for product in ("w_first", "as_filters"):
        nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0)]
        if product == "w_first":
            nodes.append(helper.make_node("MatMul", ["f", "a"], ["y"]))
        else:
            shape = numpy_helper.from_array(np.array([32, 32, 1, 1]), "shape")
            nodes.append(helper.make_node("Reshape", ["f", "shape"], ["r"]))
            nodes.append(helper.make_node("Unsqueeze", ["a", "axes"], ["b"]))
            nodes.append(helper.make_node("Conv", ["b", "r"], ["y"]))
        extra = [] if product == "w_first" else [
            shape, numpy_helper.from_array(np.array([0, 3]), "axes")
        ]  # fmt: skip
        graph = helper.make_graph(
            nodes, "g",
            [helper.make_tensor_value_info("a", TensorProto.FLOAT, [32, "n"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [codes, scales, *extra],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        session = session_of(made)
        a = RNG.standard_normal((32, 6)).astype(np.float32)
        (got,) = session.run(None, {"a": a})
        wide = numpy_helper.to_array(codes).astype(np.float64) * 0.5
        assert error(got.reshape(32, 6), wide @ a) < BOUND
