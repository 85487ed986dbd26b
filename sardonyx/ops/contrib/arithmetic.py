"""Indices, arithmetic and matrices of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, errors, integer, sizes
from sardonyx.base.dtypes import BOOL, INT32, INT64, UINT32
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.transformer import fused_mat_mul
from sardonyx.ops.core.contents import integers
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import check_list
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.core.steps import over_steps
from sardonyx.ops.generation.generate import range_11, trilu_14
from sardonyx.ops.onnx.gather import gather_nd
from sardonyx.ops.onnx.padding import pad_11
from sardonyx.ops.onnx.spectral import dft_17
from sardonyx.ops.onnx.unique import unique_11
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    argmax,
    assume_equal,
    broadcast_shapes,
    cast,
    compute,
    concat,
    constant,
    gather,
    load_broadcast,
    matmul,
    normalise_axis,
    reshape,
    unsqueeze,
    where,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"


# -- shapes and indices -----------------------------------------------------------------------


@op("Pad", 1, domain=DOMAIN)
def pad_contrib(
    x: Tensor, pads: Tensor, value: Tensor | None = None, *, mode: str = "constant"
) -> Tensor:
    """ONNX's Pad; the counts may lie in one row."""
    flat = pads if pads.rank == 1 else reshape(pads, (pads.shape[-1],))
    return pad_11(x, flat, value, mode=mode)


@op("Trilu", 1, domain=DOMAIN)
def trilu_contrib(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """ONNX's Trilu."""
    return trilu_14(x, k, upper=upper)


@op("Range", 1, domain=DOMAIN)
def range_contrib(start: Tensor, limit: Tensor, delta: Tensor | None = None) -> Tensor:
    """ONNX's Range, by steps of 1 if none are given."""
    return range_11(start, limit, constant(1, start.dtype) if delta is None else delta)


@op("GatherND", 1, domain=DOMAIN, flags=("strings",))
def gather_nd_contrib(x: Tensor, positions: Tensor) -> Tensor:
    """ONNX's GatherND as it was before it was ONNX's."""
    return gather_nd(x, positions)


@op("Unique", 1, domain=DOMAIN)
def unique_contrib(x: Tensor) -> tuple[Tensor, ...]:
    """Elements in the order in which they come first, which of them each is, and how often."""
    check_list(x, "Unique")
    found, _, group, counts = unique_11(x, sorted=0)
    return found, group, counts


@op("ExpandDims", 1, domain=DOMAIN)
def expand_dims(x: Tensor, axis: Tensor) -> Tensor:
    """A new axis of size 1."""
    (number,) = integers(axis, "The axis")
    return unsqueeze(x, (normalise_axis(number, x.rank + 1, "ExpandDims"),))


@op("TorchEmbedding", 1, domain=DOMAIN)
def torch_embedding(
    weight: Tensor,
    at: Tensor,
    padding_idx: Tensor | None = None,
    scale_grad_by_freq: Tensor | None = None,
) -> Tensor:
    """Rows of a table; the other inputs say how it is trained."""
    if weight.rank < 2:
        what = "The table needs two axes"
        raise InvalidGraph(message("TorchEmbedding", what, got=str(list(weight.shape))))
    return gather(weight, at)


@op("UnfoldTensor", 1, domain=DOMAIN)
def unfold_tensor(x: Tensor, *, size: int, dim: int = -1, step: int = 1) -> Tensor:
    """Windows along an axis, each along a new last axis."""
    axis = normalise_axis(dim, x.rank, "UnfoldTensor")
    if size < 1 or step < 1:
        what = f"There are no windows of {size} with steps of {step}"
        raise InvalidGraph(message("UnfoldTensor", what))
    count = integer.floordiv(x.shape[axis] - size, step) + 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)

    def body(*at: Dim) -> Scalar:
        place = at[axis] * step + at[-1]
        return scalar.load(x, (*at[:axis], place, *at[axis + 1 : -1]))

    return compute(shape, body)


#: Tokens of a run are compared one by one, in one expression.
_LONGEST_RUN = 512


@op("NGramRepeatBlock", 1, domain=DOMAIN)
def n_gram_repeat_block(ids: Tensor, scores: Tensor, *, ngram_size: int) -> Tensor:
    """-inf for tokens that would repeat an n-gram if they came next."""
    where_ = "NGramRepeatBlock"
    if ids.rank != 2 or scores.rank != 2 or ngram_size < 1:
        raise InvalidGraph(message(where_, "It needs ids and scores of two axes"))
    assume_equal(ids.shape[0], scores.shape[0], where_, "The batches differ")
    length = ids.shape[1]
    count = integer.maximum(length + (1 - ngram_size), 0)
    if count == 0:
        return scores
    if ngram_size > _LONGEST_RUN:
        what = f"Runs of {ngram_size} tokens are too long"
        raise errors.NotImplemented(message(where_, what, expected=f"at most {_LONGEST_RUN}"))
    over = reduced_indices((count,))[0]
    batch, token = indices(scores.shape)
    start = length + (1 - ngram_size)
    next_one = scalar.load(ids, (batch, over + (ngram_size - 1)))
    hit = scalar.compare("eq", scalar.cast(next_one, INT64), scalar.size(token))
    for k in range(ngram_size - 1):
        before = scalar.load(ids, (batch, over + k))
        # There are no n-grams if there are too few tokens, and then nothing is loaded.
        last = scalar.load(ids, (batch, integer.maximum(start + k, 0)))
        hit = hit & scalar.compare("eq", before, last)
    found = make_reduce(scores.shape, (count,), "max", scalar.cast(hit, dtypes.UINT8), dtypes.UINT8)
    return where(cast(found, BOOL), float("-inf"), scores)


# -- arithmetic -------------------------------------------------------------------------------


@op("TransposeMatMul", 1, domain=DOMAIN)
def transpose_mat_mul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803 - the schema's name
) -> Tensor:
    """The former name of FusedMatMul."""
    return fused_mat_mul(a, b, alpha=alpha, transA=transA, transB=transB)


@op("MatMulInteger16", 1, domain=DOMAIN)
def mat_mul_integer16(a: Tensor, b: Tensor) -> Tensor:
    """Product of 16-bit matrices into 32 bits."""
    wide = INT32 if a.dtype.kind == "i" else UINT32
    return matmul(cast(a, wide), cast(b, wide))


@op("MulInteger", 1, domain=DOMAIN)
def mul_integer(
    a: Tensor,
    a_zero: Tensor | None = None,
    b: Tensor | None = None,
    b_zero: Tensor | None = None,
) -> Tensor:
    """The product of codes less their zero points, in int32."""
    if b is None:
        raise InvalidGraph(message("MulInteger", "Its second factor is missing"))
    parts = []
    for x, zero in ((a, a_zero), (b, b_zero)):
        value = cast(x, INT32)
        parts.append(value if zero is None else value - cast(reshape(zero, ()), INT32))
    return parts[0] * parts[1]


@op("ReduceSumInteger", 1, domain=DOMAIN)
def reduce_sum_integer(x: Tensor, *, axes: Sequence[int], keepdims: int = 1) -> Tensor:
    """Sums of codes over axes, all if none are named, in 32 bits."""
    wide = INT32 if x.dtype.kind == "i" else UINT32
    return cast(x, wide).sum(tuple(axes) or None, keepdims=bool(keepdims))


@op("IsAllFinite", 1, domain=DOMAIN)
def is_all_finite(*inputs: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """Whether no element is infinite, or no number; with a flag one of the two alone counts."""
    if isinf_only and isnan_only:
        raise InvalidGraph(message("IsAllFinite", "It cannot look for one alone, twice"))
    every = constant(True, BOOL)
    for x in inputs:
        at = reduced_indices(x.shape)
        value = scalar.cast(scalar.load(x, at), accumulator(x.dtype))
        infinite = scalar.compare("eq", scalar.unary("abs", value), float("inf"))
        none = scalar.compare("ne", value, value)
        bad = none if isnan_only else infinite if isinf_only else infinite | none
        worst = make_reduce((), x.shape, "max", scalar.cast(bad, dtypes.UINT8), dtypes.UINT8)
        every = every & ~cast(worst, BOOL)
    return every


@op("ComplexMul", 1, domain=DOMAIN)
def complex_mul(a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers, whose parts lie along the last axis."""
    return _complex_product(a, b, 1.0)


@op("ComplexMulConj", 1, domain=DOMAIN)
def complex_mul_conj(a: Tensor, b: Tensor) -> Tensor:
    """The product with the conjugate of the second."""
    return _complex_product(a, b, -1.0)


def _complex_product(a: Tensor, b: Tensor, sign: float) -> Tensor:
    shape = broadcast_shapes(a.shape, b.shape)
    assume_equal(shape[-1], 2, "ComplexMul", "The last axis does not hold two parts")

    def body(*at: Dim) -> Scalar:
        (p, q), (r, s) = ([load_broadcast(x, (*at[:-1], part)) for part in (0, 1)] for x in (a, b))
        s = s * sign
        real = scalar.compare("eq", scalar.size(at[-1]), 0)
        return scalar.select(real, p * r - q * s, p * s + q * r)

    return compute(shape, body)


@op("Rfft", 1, domain=DOMAIN)
def rfft(x: Tensor, *, signal_ndim: int = 1, normalized: int = 0, onesided: int = 1) -> Tensor:
    """The one-sided transform of real numbers along the last axis."""
    if signal_ndim != 1 or normalized or not onesided:
        what = "Only one-sided transforms of one axis that are not normalised are supported"
        raise errors.NotImplemented(message("Rfft", what))
    return dft_17(unsqueeze(x, (x.rank,)), axis=x.rank - 1, onesided=1)


@op("Irfft", 1, domain=DOMAIN)
def irfft(x: Tensor, *, signal_ndim: int, normalized: int = 0, onesided: int = 1) -> Tensor:
    """The inverse of Rfft, for an even number of values."""
    if signal_ndim != 1 or normalized or not onesided:
        what = "Only one-sided transforms of one axis that are not normalised are supported"
        raise errors.NotImplemented(message("Irfft", what))
    values = dft_17(x, axis=x.rank - 2, inverse=1, onesided=1)
    return reshape(values, values.shape[:-1])


@op("Inverse", 1, domain=DOMAIN)
def inverse(x: Tensor, *, scope: Scope) -> Tensor:
    """Inverses of matrices, by elimination with the largest pivot of each column."""
    if x.rank < 2:
        raise InvalidGraph(message("Inverse", f"Matrices are needed, not {list(x.shape)}"))
    count = x.shape[-1]
    assume_equal(x.shape[-2], count, "Inverse", "The matrices are not square")
    wide = accumulator(x.dtype)
    batch = sizes.product(x.shape[:-2])
    flat = reshape(cast(x, wide), (batch, count, count))
    whole = (batch, count, count)
    identity = compute(
        whole,
        lambda b, i, j: scalar.cast(scalar.compare("eq", scalar.size(i), scalar.size(j)), wide),
    )
    steps = compute((count,), scalar.size)

    def step(slices: list[Tensor], states: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        (state,) = states
        column = scalar.as_index(scalar.load(slices[0], ()), count)

        def size(b: Dim, i: Dim) -> Scalar:
            magnitude = scalar.unary("abs", scalar.load(state, (b, i, column)))
            left = scalar.size(i) >= scalar.load(slices[0], ())
            return scalar.select(left, magnitude, -1.0)

        best = argmax(compute((batch, count), size), 1)

        def reduced(b: Dim, i: Dim, j: Dim) -> Scalar:
            here = scalar.load(best, (b,))
            pivot = scalar.as_index(here, count)
            top = scalar.load(state, (b, pivot, j)) / scalar.load(state, (b, pivot, column))
            is_top = scalar.compare("eq", scalar.size(i), scalar.load(slices[0], ()))
            swapped = scalar.compare("eq", scalar.size(i), here)
            row = scalar.as_index(
                scalar.select(swapped, scalar.load(slices[0], ()), scalar.size(i)), count
            )
            rest = scalar.load(state, (b, row, j)) - scalar.load(state, (b, row, column)) * top
            return scalar.select(is_top, top, rest)

        return [compute(state.shape, reduced)], []

    (last,), _ = over_steps(scope, [steps], [concat([flat, identity], 2)], step)
    found = compute(whole, lambda b, i, j: scalar.load(last, (b, i, j + count)))
    return cast(reshape(found, x.shape), x.dtype)
