"""DynamicSparseAttention: queries see the keys that another operator has selected for them."""

from __future__ import annotations

from sardonyx.base import errors, integer
from sardonyx.base.dtypes import BOOL, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import DOMAIN, HIDDEN, attend
from sardonyx.ops.contrib.grouped import cache_of, grouped_heads, lengths_of
from sardonyx.ops.contrib.paged import Angles, rotated_rows
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import ROTARY, ranged, row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.normalisation import rms_norm
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_shape,
    compute,
    concat,
    reshape,
    transpose,
    unsqueeze,
    where,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

_SPARSE = "DynamicSparseAttention"
_MODES = {("selected_only", "main"), ("local_plus_selected", "auxiliary")}


@op(_SPARSE, 1, domain=DOMAIN)
def dynamic_sparse_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    auxiliary_key: Tensor | None,
    auxiliary_value: Tensor | None,
    selected: Tensor,
    counts: Tensor,
    seqlens_k: Tensor,
    total_sequence_length: Tensor,
    cosine: Tensor | None = None,
    sine: Tensor | None = None,
    position_ids: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    head_sink: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of (B, S, width) to selected keys, and perhaps the last ones; and its cache.

    A query without keys, and without a sink, gives zeros.
    """
    if (attention_mode, selected_kv_source) not in _MODES or not is_causal:
        what = f"There is no {attention_mode} of {selected_kv_source}, or it is not causal"
        raise errors.NotImplemented(message(_SPARSE, what))
    local = attention_mode == "local_plus_selected"
    if local and (local_window_size < 1 or auxiliary_key is None):
        what = "local_plus_selected needs auxiliary_key, and a local_window_size of at least 1"
        raise InvalidGraph(message(_SPARSE, what))
    queries, keys, values = grouped_heads(_SPARSE, query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = queries.shape
    rows = batch * length
    (total,) = contents(
        reshape(scalar_of(total_sequence_length, _SPARSE), (1,)), "The length of all keys", 1
    )
    capacity: Dim = 0 if past_key is None else past_key.shape[2]
    what = "total_sequence_length is more than the past and the new keys"
    assume_at_most(total, capacity + length, _SPARSE, what)
    _, begins = lengths_of(_SPARSE, seqlens_k, batch, length, total, capacity)
    if q_norm_weight is not None and k_norm_weight is not None:
        queries = rms_norm(queries, q_norm_weight, -1, qk_norm_epsilon, 1)[0]
        keys = rms_norm(keys, k_norm_weight, -1, qk_norm_epsilon, 1)[0]
    if position_ids is not None:
        assume_shape(position_ids.shape, (batch, length), _SPARSE, "position_ids")

    def split(row: Dim) -> tuple[Dim, Dim]:
        return integer.floordiv(row, length), integer.modulo(row, length)

    def place(row: Dim) -> Scalar:
        b, i = split(row)
        return scalar.load(begins, (b,)) + scalar.size(i)

    def position(row: Dim) -> Scalar:
        return place(row) if position_ids is None else scalar.load(position_ids, split(row))

    name = ROTARY if position_ids is None else "position_ids"
    flat = reshape(transpose(queries, (0, 2, 1, 3)), (rows, num_heads, size))
    if do_rotary:
        angles = Angles(cosine, sine, rotary_offset, bool(rotary_interleaved))
        flat = rotated_rows(_SPARSE, flat, position, angles, name)
        new = reshape(transpose(keys, (0, 2, 1, 3)), (rows, kv_num_heads, size))
        new = rotated_rows(_SPARSE, new, position, angles, name)
        keys = transpose(reshape(new, (batch, length, kv_num_heads, size)), (0, 2, 1, 3))
    present = [
        cache_of(_SPARSE, past, new, begins, total)
        for past, new in ((past_key, keys), (past_value, values))
    ]
    sources = present
    if local and auxiliary_key is not None:
        if auxiliary_value is None and not auxiliary_kv_shared:
            raise InvalidGraph(message(_SPARSE, "It has auxiliary_key, but no auxiliary_value"))
        other = auxiliary_key if auxiliary_value is None else auxiliary_value
        sources = [auxiliary_key, other]
    assume_shape(selected.shape, (rows, selected.shape[1]), _SPARSE, "selected_indices")
    assume_shape(counts.shape, (rows,), _SPARSE, "selected_counts")
    counts = ranged(counts, "selected_counts", 0, selected.shape[1])

    def is_chosen(row: Dim, m: Dim) -> Scalar:
        found = scalar.size(m) < scalar.load(counts, (row,))
        if not local:
            found = found & (scalar.cast(scalar.load(selected, (row, m)), INT64) <= place(row))
        return found

    def picked(source: Tensor) -> Tensor:
        extent = source.shape[2]

        def body(row: Dim, head: Dim, m: Dim, d: Dim) -> Scalar:
            given = scalar.cast(scalar.load(selected, (row, m)), INT64)
            at = row_in(scalar.select(is_chosen(row, m), given, 0), "selected_indices", extent)
            return scalar.load(source, (split(row)[0], head, at, d))

        return compute((rows, kv_num_heads, selected.shape[1], size), body)

    def recent(source: Tensor) -> Tensor:
        shape = (rows, kv_num_heads, total, size)
        return compute(
            shape, lambda row, head, j, d: scalar.load(source, (split(row)[0], head, j, d))
        )

    def is_near(row: Dim, j: Dim) -> Scalar:
        here = place(row)
        return (scalar.size(j) <= here) & (scalar.size(j) > here - local_window_size)

    near: Dim = total if local else 0
    seen = compute((rows, selected.shape[1]), is_chosen)
    read = [picked(source) for source in sources]
    if local:
        seen = concat([compute((rows, total), is_near), seen], 1)
        read = [concat([recent(p), x], 2) for p, x in zip(present, read, strict=True)]

    def change(score: Scalar, row: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        return scalar.select(scalar.load(seen, (row, j)), score, HIDDEN)

    result, _, _ = attend(
        unsqueeze(flat, (2,)), read[0], read[1], [change], scale, sink=head_sink,
        smooth=bool(smooth_softmax),
    )  # fmt: skip
    if head_sink is None and not smooth_softmax:
        (row,), (over,) = indices((rows,)), reduced_indices((near + selected.shape[1],))
        any_ = make_reduce((rows,), (seen.shape[1],), "max",
                           scalar.cast(scalar.load(seen, (row, over)), INT64), INT64)  # fmt: skip
        shown = compute((rows, 1, 1, 1), lambda r, *_: scalar.load(any_, (r,)) > 0, BOOL)
        result = where(shown, result, 0.0)
    return reshape(result, (batch, length, num_heads * size)), *present  # type: ignore[return-value]  # two of them
