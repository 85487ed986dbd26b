"""onnxruntime's operators on packed sequences, of which it runs none on a CPU, against NumPy."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(17)
HEADS, SIZE = 2, 3
WIDTH = HEADS * SIZE
#: Tokens of each sequence, and how long they are with padding.
BATCHES = [((1, 2, 4), 4), ((3,), 3), ((2, 0, 5, 1), 6)]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def layout(counts, longest):
    """Places of tokens, then of the padding; and where sequences start."""
    flat = np.arange(len(counts) * longest).reshape(-1, longest)
    real = np.arange(longest) < np.array(counts)[:, None]
    offsets = np.concatenate([flat[real], flat[~real]]).reshape(flat.shape).astype(np.int32)
    return offsets, np.cumsum([0, *counts]).astype(np.int32)


def attention(q, k, v, starts, scale=None, bias=None):
    """Sequence by sequence, head by head."""
    result = np.zeros((len(q), v.shape[1]))
    values = v.shape[1] // HEADS
    for b, (begin, end) in enumerate(zip(starts, starts[1:], strict=False)):
        for h in range(HEADS):
            part = slice(h * SIZE, (h + 1) * SIZE)
            own = slice(h * values, (h + 1) * values)
            scores = q[begin:end, part].astype(float) @ k[begin:end, part].T.astype(float)
            scores = scores * (scale or SIZE**-0.5)
            if bias is not None:
                one = bias[min(b, len(bias) - 1), min(h, bias.shape[1] - 1)]
                scores = scores + one[: end - begin, : end - begin]
            e = np.exp(scores)
            result[begin:end, own] = e / e.sum(-1, keepdims=True) @ v[begin:end, own]
    return result


@pytest.mark.parametrize(("counts", "longest"), BATCHES)
@pytest.mark.parametrize("form", ["apart", "bias", "packed", "attention bias", "wide values"])
def test_packed_multi_head_attention(counts, longest, form):
    offsets, starts = layout(counts, longest)
    total = sum(counts)
    q, k, v = floats(total, WIDTH), floats(total, WIDTH), floats(total, WIDTH)
    if form == "wide values":
        v = floats(total, 2 * WIDTH)
    given, bias, extra, attributes = [q, k, v], None, None, {"num_heads": HEADS}
    if form == "packed":
        stack = np.stack([x.reshape(total, HEADS, SIZE) for x in (q, k, v)], axis=2)
        given = [stack, None, None]
    if form == "bias":
        bias = floats(3 * WIDTH)
        q, k, v = (x + b for x, b in zip((q, k, v), np.split(bias, 3), strict=True))
    if form == "attention bias":
        extra = floats(1, HEADS, longest, longest)
        attributes["scale"] = 0.3
    expected = attention(q, k, v, starts, attributes.get("scale"), extra)
    inputs = [*given, bias, offsets, starts, extra]
    while inputs[-1] is None:
        inputs.pop()
    check_contrib("PackedMultiHeadAttention", inputs, attributes, [expected], engine=False)


@pytest.mark.parametrize(("counts", "longest"), BATCHES)
def test_packed_attention(counts, longest):
    offsets, starts = layout(counts, longest)
    x, weights, bias = floats(sum(counts), 5), floats(5, 3 * WIDTH), floats(3 * WIDTH)
    q, k, v = np.split(x @ weights + bias, 3, axis=1)
    inputs = [x, weights, bias, offsets, starts]
    expected = attention(q, k, v, starts)
    attributes = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH] * 3}
    for given in ({"num_heads": HEADS}, attributes):
        check_contrib("PackedAttention", inputs, given, [expected], engine=False)


@pytest.mark.parametrize(("counts", "longest"), BATCHES)
def test_padding_is_removed_and_restored(counts, longest):
    offsets, starts = layout(counts, longest)
    real = (np.arange(longest) < np.array(counts)[:, None])[:, :, None]
    x = floats(len(counts), longest, 4)
    rows = x[real[:, :, 0]]
    expected = [rows, offsets, starts, np.array([max(counts)], np.int32)]
    check_contrib("RemovePadding", [x, np.array(counts, np.int32)], {}, expected, engine=False)
    check_contrib("RestorePadding", [rows, offsets], {}, [x * real], engine=False)


def test_errors():
    offsets, starts = layout((1, 2), 2)
    x = floats(3, WIDTH)
    for inputs, text in (
        ([x, None, None, None, offsets, starts], "Without keys and values"),
        ([x, x, x, None, offsets, starts[:2]], "cumulative_sequence_length"),
        ([x, x, x[:, :5], None, offsets, starts], "The width is not 2 heads"),
    ):
        with pytest.raises(InvalidGraph, match=f"it .PackedMultiHeadAttention.*{text}"):
            check_contrib(
                "PackedMultiHeadAttention", inputs, {"num_heads": HEADS}, [x], symbolic=False
            )
