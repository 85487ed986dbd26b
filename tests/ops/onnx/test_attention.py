"""Attention and rotary positions against onnx's reference."""

import numpy as np
import pytest

from tests.support.ops import check_op

RNG = np.random.default_rng(9)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def masks():
    keep = RNG.random((4, 6)) > 0.4
    keep[1] = False  # a query without keys
    return [keep, floats(2, 1, 4, 6), floats(1, 3, 4, 6)]


QKV = (2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 5)


@pytest.mark.parametrize(
    "attributes", [{}, {"scale": 0.2}, {"softcap": 1.5}, {"is_causal": 1}, {"softmax_precision": 1}]
)
def test_attention(attributes):
    check_op("Attention", [floats(*s) for s in QKV], attributes, 24)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_masks_and_scores(number, mode):
    inputs = [*[floats(*s) for s in QKV], masks()[number]]
    # The reference gives capped scores as the raw ones.
    attributes = {"qk_matmul_output_mode": mode, "softcap": 2.0 if mode else 0.0}
    check_op("Attention", inputs, attributes, 24, outputs=4, symbolic=False)


def test_heads_share_keys():
    shapes = (2, 6, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)
    check_op("Attention", [floats(*s) for s in shapes], {}, 24, symbolic=False)


def test_rank_3_and_past():
    inputs = [floats(2, 4, 24), floats(2, 4, 24), floats(2, 4, 15), None]
    attributes = {"q_num_heads": 3, "kv_num_heads": 3, "is_causal": 1}
    check_op("Attention", inputs[:3], attributes, 24, symbolic=False)
    past = [floats(2, 3, 5, 8), floats(2, 3, 5, 5)]
    check_op("Attention", inputs + past, attributes, 24, outputs=3, symbolic=False)


def test_lengths():
    inputs = [*[floats(*s) for s in QKV], None, None, None, np.array([6, 4])]
    check_op("Attention", inputs, {"is_causal": 1}, 24, symbolic=False)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [0, 4])
def test_rotary(interleaved, width):
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": width}
    half = (width or 8) // 2
    positions = RNG.integers(0, 9, (2, 4))
    inputs = [floats(2, 3, 4, 8), floats(9, half), floats(9, half), positions]
    check_op("RotaryEmbedding", inputs, attributes, 23, symbolic=False)
    inputs = [floats(2, 4, 24), floats(2, 4, half), floats(2, 4, half)]
    check_op("RotaryEmbedding", inputs, {**attributes, "num_heads": 3}, 23, symbolic=False)
