"""LongformerAttention (Beltagy, Peters and Cohan 2020): windows, and tokens that see everything."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import DOMAIN, HIDDEN, attend
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import merge_heads, split_heads
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    compute,
    matmul,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar

_NAME = "LongformerAttention"


@op(_NAME, 1, domain=DOMAIN)
def longformer_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    global_weight: Tensor,
    global_bias: Tensor,
    flags: Tensor,
    *,
    num_heads: int,
    window: int,
) -> Tensor:
    """Attention of tokens (batch, length, width) to `window` tokens on each side, and global ones.

    Tokens whose flag is not zero are global: they see all tokens, with queries, keys and values of
    weights of their own, and all tokens see them. The mask is added to scores of its keys; rows
    whose own mask is below zero are zero. Any length will do, not only multiples of the windows.
    """
    if x.rank != 3 or window < 1 or num_heads < 1:  # noqa: PLR2004 - as the docstring says
        what = "It needs tokens of three axes, heads, and a window of at least one"
        raise InvalidGraph(message(_NAME, what, got=str(list(x.shape))))
    batch, length, width = x.shape
    thrice = width * 3
    for tensor, wanted, name in (
        (weight, (width, thrice), "weight"), (bias, (thrice,), "bias"),
        (mask, (batch, length), "mask"), (global_weight, (width, thrice), "global_weight"),
        (global_bias, (thrice,), "global_bias"), (flags, (batch, length), "global"),
    ):  # fmt: skip
        if tensor.rank != len(wanted):
            what = f"The input {name} has the wrong number of axes"
            got = str(list(tensor.shape))
            raise InvalidGraph(message(_NAME, what, expected=str(len(wanted)), got=got))
        assume_shape(tensor.shape, wanted, _NAME, name)

    def is_global(b: Dim, token: Dim) -> Scalar:
        return scalar.compare("ne", scalar.load(flags, (b, token)), 0)

    def masked(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        return score + scalar.cast(scalar.load(mask, (b, j)), score.dtype)

    def near(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        apart = scalar.size(i - j)
        seen = ((apart <= window) & (apart >= -window)) | is_global(b, j)
        return scalar.select(seen, score, HIDDEN)

    found = []
    for weights, added, changes in (
        (weight, bias, [masked, near]), (global_weight, global_bias, [masked])
    ):  # fmt: skip
        product = matmul(x, weights) + added
        ends = [width * k for k in range(4)]
        parts = [
            split_heads(slice_axis(product, 2, ends[k], ends[k + 1]), num_heads, _NAME)
            for k in range(3)
        ]
        found.append(merge_heads(attend(parts[0], parts[1], parts[2], changes, None)[0]))
    local, every = found

    def chosen(b: Dim, token: Dim, d: Dim) -> Scalar:
        value = scalar.select(
            is_global(b, token),
            scalar.load(every, (b, token, d)),
            scalar.load(local, (b, token, d)),
        )
        return scalar.select(scalar.load(mask, (b, token)) < 0.0, 0.0, value)

    return compute(x.shape, chosen)
