"""Weights of few bits in blocks against NumPy, and against onnxruntime."""

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib, contrib_model

RNG = np.random.default_rng(41)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def packed(codes, bits):
    """Codes along the last axis in bytes, the first in the lowest bits."""
    spread = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    flat = spread.reshape(*codes.shape[:-1], -1)
    return np.packbits(flat, axis=-1, bitorder="little")


def weights_of(bits, columns, depth, block):
    """Codes, packed codes, scales of one weight."""
    blocks = -(-depth // block)
    codes = RNG.integers(0, 1 << bits, (columns, blocks, block))
    scales = RNG.uniform(0.5, 2, (columns, blocks)).astype(np.float32)
    return codes, packed(codes, bits), scales


def product(a, codes, scales, zeros):
    wide = (codes - zeros[..., None]) * scales[..., None].astype(np.float64)
    return a.astype(np.float64) @ wide.reshape(len(codes), -1)[:, : a.shape[-1]].T


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("zero_points", ["none", "packed", "numbers"])
def test_mat_mul_n_bits(bits, zero_points):
    columns, depth, block = 6, 80, 32
    a = floats(2, 3, depth)
    codes, b, scales = weights_of(bits, columns, depth, block)
    zeros = RNG.integers(0, 1 << bits, scales.shape)
    given = {
        "none": None,
        "packed": packed(np.pad(zeros, ((0, 0), (0, 5))), bits)[:, : -(-3 * bits // 8)],
        "numbers": zeros.astype(np.float32),
    }[zero_points]
    if given is None:
        zeros = np.full(scales.shape, 1 << (bits - 1))
    facts = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    expected = product(a, codes, scales, zeros)
    inputs = [a, b, scales, given]
    check_contrib(
        "MatMulNBits", inputs, facts, [expected], constants=[1, 2, 3], tolerance="float: layers",
        engine=bits == 4 or (bits == 8 and zero_points != "numbers"),
    )  # fmt: skip


def test_bias_groups_and_flat_weights():
    a, bias = floats(3, 32), floats(4)
    codes, b, scales = weights_of(4, 4, 32, 16)
    facts = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    zeros = np.full(scales.shape, 8)
    expected = product(a, codes, scales, zeros) + bias
    given = [a, b, scales.reshape(-1), None, None, bias]
    check_contrib(
        "MatMulNBits", given, facts, [expected], constants=[1, 2, 5], tolerance="float: layers"
    )
    order = RNG.integers(0, 2, 32).astype(np.int32)
    wide = (codes.reshape(4, 32) - 8.0) * scales[:, order]
    given = [a, b, scales, None, order]
    check_contrib(
        "MatMulNBits", given, facts, [a @ wide.T], tolerance="float: layers", engine=False
    )


@pytest.mark.parametrize("quant_type", [0, 1])
def test_mat_mul_bnb4(quant_type):
    columns, depth, block = 6, 24, 16
    a = floats(2, depth)
    fp4 = np.array([0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12])
    nf4 = [
        -1,
        -0.69619280,
        -0.52507305,
        -0.39491749,
        -0.28444138,
        -0.18477343,
        -0.09105004,
        0,
        0.07958030,
        0.16093020,
        0.24611230,
        0.33791524,
        0.44070983,
        0.56261700,
        0.72295684,
        1,
    ]
    table = np.array(nf4) if quant_type else np.concatenate([fp4, -fp4])
    codes = RNG.integers(0, 16, columns * depth)
    b = (codes[::2] << 4 | codes[1::2]).astype(np.uint8)
    scales = RNG.uniform(0.5, 2, columns * depth // block).astype(np.float32)
    wide = (table[codes].reshape(-1, block) * scales[:, None]).reshape(columns, depth)
    facts = {"K": depth, "N": columns, "block_size": block, "quant_type": quant_type}
    check_contrib("MatMulBnb4", [a, b, scales], facts, [a @ wide.T], constants=[1, 2])


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(bits, zeros):
    rows, width, block = 5, 32, 16
    codes = RNG.integers(0, 1 << bits, (rows, width))
    scales = floats(rows, width // block)
    shift = RNG.integers(0, 1 << bits, scales.shape)
    at = np.array([[0, -1, 3], [2, 2, 4]])
    if bits == 2:
        shift = np.pad(shift, ((0, 0), (0, 2)))
    given = packed(shift, bits) if zeros else None
    shift = shift[:, : width // block] if zeros else np.full(scales.shape, 1 << (bits - 1))
    table = (codes.reshape(rows, -1, block) - shift[..., None]) * scales[..., None]
    facts = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    inputs = [packed(codes, bits), at, scales, given]
    expected = [table.reshape(rows, width)[at]]
    check_contrib("GatherBlockQuantized", inputs, facts, expected, constants=[0, 2, 3])


def test_gather_of_short_types_along_another_axis():
    import ml_dtypes

    codes = RNG.integers(-8, 8, (32, 6))
    scales, at = floats(2, 6), np.array([1, 5, -6, 9])
    table = (codes.reshape(2, 16, 6) * scales[:, None]).reshape(32, 6)
    expected = table[:, [1, 5, 0, 0]] * np.array([1, 1, 1, 0])
    facts = {"block_size": 16, "gather_axis": 1, "quantize_axis": 0}
    inputs = [codes.astype(ml_dtypes.int4), at, scales]
    check_contrib("GatherBlockQuantized", inputs, facts, [expected], constants=[0, 2], engine=False)


def test_refusals():
    a, (_, b, scales) = floats(3, 32), weights_of(4, 4, 32, 16)
    facts = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    with pytest.raises(InvalidGraph, match="9 bits"):
        check_contrib("MatMulNBits", [a, b, scales], {**facts, "bits": 9}, [None])
    with pytest.raises(NotImplemented, match="packed for a GPU"):
        check_contrib("MatMulNBits", [a, b, scales], {**facts, "weight_prepacked": 1}, [None])
    with pytest.raises(InvalidGraph, match="The number of scales"):
        check_contrib("MatMulNBits", [a, b, scales[:2]], facts, [None], symbolic=False)


# -- MatMulFpQ4 -------------------------------------------------------------------------------


def _blob(codes, scales, offsets=None):
    """Column by column, block by block: a scale, perhaps an offset, and 32 codes."""
    parts = []
    for n in range(codes.shape[1]):
        for block in range(len(scales)):
            own = np.zeros(32, np.uint8)
            some = codes[32 * block : 32 * block + 32, n]
            own[: len(some)] = some
            parts.append(np.frombuffer(scales[block, n].tobytes(), np.uint8))
            if offsets is not None:
                parts.append(offsets[block : block + 1, n])
            parts.append(own[:16] | own[16:] << 4)
    return np.concatenate(parts)


_FP_Q4 = [(32, 1), (64, 3), (40, 2), (7, 5), (100, 4)]


@pytest.mark.parametrize(
    "kind, rows, columns, constant",
    [
        *((kind, *sizes, True) for kind in (0, 1) for sizes in _FP_Q4),
        (0, 40, 2, False),
        (1, 100, 4, False),
    ],
)
def test_mat_mul_fp_q4(kind, rows, columns, constant):
    random = np.random.default_rng(rows)
    blocks = -(-rows // 32)
    codes = random.integers(0, 16, (rows, columns)).astype(np.uint8)
    scales = random.standard_normal((blocks, columns)).astype(np.float32)
    offsets = random.integers(0, 16, (blocks, columns)).astype(np.uint8) if kind else None
    zero = np.full(scales.shape, 8) if offsets is None else offsets.astype(float)
    b = (codes - np.repeat(zero, 32, 0)[:rows]) * np.repeat(scales, 32, 0)[:rows]
    for lead in ((3,), (2, 3), (0,)):
        a = random.standard_normal((*lead, rows)).astype(np.float32)
        inputs = [a, _blob(codes, scales, offsets), np.array([rows, columns])]
        check_contrib(
            "MatMulFpQ4", inputs, {"blk_quant_type": kind}, [a @ b],
            constants=(1, 2) if constant else (2,), symbolic=False, tolerance="float: layers",
            engine=False,  # onnxruntime has it for some processors alone
        )  # fmt: skip


@pytest.mark.parametrize(
    "size, shape, kind, error, text",
    [
        (40, [32, 1], 2, NotImplemented, "Only types 0 and 1"),
        (21, [32, 1], 0, InvalidGraph, "The size of B"),
        (20, [32], 0, InvalidGraph, "rows and columns of a matrix"),
        (20, [31, 1], 0, InvalidGraph, "number of B's rows"),
    ],
)
def test_bad_blobs(size, shape, kind, error, text):
    inputs = [np.zeros((2, 32), np.float32), np.zeros(size, np.uint8), np.array(shape)]
    model = contrib_model("MatMulFpQ4", inputs, {"blk_quant_type": kind}, 1, (1, 2))
    with pytest.raises(error, match=f"node it .MatMulFpQ4.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString())
