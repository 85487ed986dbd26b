"""SparseAttentionIndexer: which keys a following attention may read.

Its schema and onnxruntime's docs/contrib_ops/cuda/sparse_attention_indexer.md say what it computes.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import integer
from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.buffers import in_buffer, length_of_past
from sardonyx.ops.contrib.varlen import row_of
from sardonyx.ops.core.ranges import ROTARY
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.gather import scatter_nd
from sardonyx.ops.onnx.indexing import (
    IndexPolicy,
    RotaryTables,
    best,
    check_inputs,
    entries_seen,
    heads_of,
    normal,
    policy_of,
    pooled_windows,
    scale_of,
    selected_entries,
    selected_tokens,
    split_key,
    total_scores,
    with_one_more,
)
from sardonyx.ops.onnx.reduction import cum_sum
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    constant,
    known_tensor,
    matmul,
    mean,
    reshape,
    slice_axis,
    transpose,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_NAME = "SparseAttentionIndexer"


@op(_NAME, 1, domain=DOMAIN)
def sparse_attention_indexer(
    query: Tensor,
    key: Tensor | None,
    query_norm_weight: Tensor,
    key_norm_weight: Tensor,
    cosine: Tensor,
    sine: Tensor,
    mask: Tensor | None,
    past_key: Tensor,
    gate: Tensor | None = None,
    position_bias: Tensor | None = None,
    head_weights: Tensor | None = None,
    position_ids: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    past_proj_buffer: Tensor | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    scale: float | None = None,
    token_budget: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Places of keys for each query of (batch, length, heads * size), and the keys for next time.

    qsa: tokens of the best complete blocks of those that a query sees, and the rest of them. csa:
    the best entries that were compressed of `compress_ratio` tokens each.
    """
    policy = policy_of(
        _NAME, policy_mode, compress_ratio, token_budget, index_topk, epsilon, scale,
        head_weight_scale,
    )  # fmt: skip
    check_inputs(
        policy,
        [
            (x, False, name)
            for x, name in (
                (gate, "gate"), (position_bias, "position_bias"), (head_weights, "head_weights"),
                (position_ids, "position_ids"), (past_proj_buffer, "past_proj_buffer"),
            )
        ],
    )  # fmt: skip
    if mask is not None:
        check_inputs(policy, [(mask, True, "mask")])
    size = query_norm_weight.shape[0]
    if query.rank != 3 or past_key.rank != 3:  # noqa: PLR2004 - batch, length, width
        what = "It needs queries of three axes, and a past of three"
        got = f"{list(query.shape)}, {list(past_key.shape)}"
        raise InvalidGraph(message(_NAME, what, got=got))
    query, key = split_key(policy, query, key, size)
    batch, length = query.shape[:2]
    width = size if policy.is_tokens else size * 2
    assume_shape(key_norm_weight.shape, (size,), _NAME, "key_norm_weight")
    assume_shape(key.shape, (batch, length, width), _NAME, "key")
    assume_shape(past_key.shape, (batch, past_key.shape[1], size), _NAME, "past_key")
    rotary = RotaryTables(cosine, sine, policy)
    rotary.check(batch)
    before = past_key.shape[1]
    if past_sequence_length is not None:
        before = length_of_past(_NAME, past_key, past_sequence_length)
    queries = heads_of(policy, query, query_norm_weight)
    if policy.is_tokens:
        present = _continued(past_key, key, before, past_sequence_length is not None)
        chosen = _tokens(policy, rotary, queries, key_norm_weight, mask, present, before)
        return chosen, present, None
    for x, wanted, name in (
        (gate, (batch, length, width), "gate"),
        (position_bias, (compress_ratio, width), "position_bias"),
        (head_weights, (batch, length, queries.shape[2]), "head_weights"),
        (position_ids, (batch, length), "position_ids"),
    ):
        if x is not None:
            assume_shape(x.shape, wanted, _NAME, name)
    if (
        gate is None or position_bias is None or head_weights is None or position_ids is None
        or past_proj_buffer is None
    ):  # fmt: skip
        raise InvalidGraph(message(_NAME, "An input of csa is missing"))
    windows = _Windows(policy, past_proj_buffer, key, gate)
    new = windows.compressed(rotary, position_bias, key_norm_weight, before)
    present = _continued(
        past_key, cast(new, past_key.dtype), before, past_sequence_length is not None
    )
    # New entries count as they were computed, older ones as they were stored.
    keys = concat([cast(slice_axis(past_key, 1, 0, before), FLOAT), new], 1)

    def position(row: Dim) -> Scalar:
        at = integer.floordiv(row, length), integer.modulo(row, length)
        return scalar.load(position_ids, at)

    rotated = rotary.rotate(
        queries, lambda at: (at[0], scalar.load(position_ids, at[:2])), "position_ids"
    )
    scores = _scores(policy, rotated, keys, head_weights)

    def seen(row: Dim) -> Scalar:
        return entries_seen(policy, position(row), scalar.size(keys.shape[1]))

    places, _ = selected_entries(policy, best(policy, _hidden(scores, seen)), seen)
    return reshape(places, (batch, length, policy.capacity)), present, windows.kept()


def _continued(past: Tensor, new: Tensor, before: Dim, in_place: bool) -> Tensor:
    """The past (batch, places, size) with what is new: behind it, or within its capacity."""
    if not in_place:
        return concat([past, new], 1)
    found = in_buffer(_NAME, unsqueeze(past, (1,)), unsqueeze(new, (1,)), before)
    return reshape(found, past.shape)


def _scores(policy: IndexPolicy, queries: Tensor, keys: Tensor, weights: Tensor | None) -> Tensor:
    """Scores (batch * length, entries) of queries (batch, length, heads, size)."""
    batch, length, heads, size = queries.shape
    rows = batch * length
    flat = reshape(queries, (batch, length * heads, size))
    each = matmul(flat * scale_of(policy, size), transpose(keys, (0, 2, 1)))
    shared = None if weights is None else reshape(weights, (rows, heads))
    return total_scores(policy, reshape(each, (rows, heads, keys.shape[1])), shared)


def _hidden(scores: Tensor, seen: Callable[[Dim], Scalar]) -> Tensor:
    """Scores of the first entries alone, of as many as a row sees."""

    def body(row: Dim, entry: Dim) -> Scalar:
        inside = scalar.size(entry) < seen(row)
        return scalar.select(inside, scalar.load(scores, (row, entry)), float("-inf"))

    return compute(scores.shape, body)


# -- tokens -----------------------------------------------------------------------------------


def _tokens(
    policy: IndexPolicy, rotary: RotaryTables, queries: Tensor, weight: Tensor, mask: Tensor | None,
    present: Tensor, before: Dim,
) -> Tensor:  # fmt: skip
    """Tokens of the best blocks; blocks are made of the tokens that are seen, without gaps."""
    batch, length, _, size = queries.shape
    total, ratio = before + length, policy.ratio
    blocks = integer.floordiv(total, ratio)
    order, counts, every = None, None, with_one_more(present, 1)
    if mask is not None:
        assume_shape(mask.shape, (batch, total), policy.where, "mask")
        order, counts = _visible(mask)

    def token(b: Dim, number: Scalar) -> Scalar:
        if order is None:
            return number
        return scalar.load(order, (b, row_of(number, order.shape[1])))

    def seen(row: Dim) -> Scalar:
        at = before + integer.modulo(row, length)
        if counts is None:
            return scalar.size(at + 1)
        return scalar.load(counts, (integer.floordiv(row, length), at))

    def key(b: Dim, block: Dim, inside: Dim, d: Dim) -> Scalar:
        number = scalar.size(block * ratio + inside)
        place = row_of(token(b, number), every.shape[1])
        return scalar.cast(scalar.load(every, (b, place, d)), FLOAT)

    pooled = mean(compute((batch, blocks, ratio, size), key), (2,))
    keys = rotary.rotate(
        normal(policy, pooled, weight),
        lambda at: (at[0], token(at[0], scalar.size(at[1] * ratio))),
    )
    rotated = rotary.rotate(queries, lambda at: (at[0], scalar.size(before + at[1])), ROTARY)
    scores = _scores(policy, rotated, keys, None)
    chosen = best(policy, _hidden(scores, lambda row: scalar.binary("div", seen(row), ratio)))
    places, _ = selected_tokens(
        policy, chosen, seen, lambda row, number: token(integer.floordiv(row, length), number)
    )
    return reshape(places, (batch, length, policy.capacity))


def _visible(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the tokens that are not masked, in order, and how many there are up to each."""
    batch, total = mask.shape

    def shown(b: Dim, t: Dim) -> Scalar:
        return scalar.cast(scalar.compare("ne", scalar.load(mask, (b, t)), 0), INT64)

    counts = cum_sum(compute(mask.shape, shown), known_tensor((1,), (), INT64))

    def place(b: Dim, t: Dim, part: Dim) -> Scalar:
        # What is masked goes to one place more.
        rank = scalar.select(shown(b, t) > 0, scalar.load(counts, (b, t)) - 1, scalar.size(total))
        is_request = scalar.compare("eq", scalar.size(part), 0)
        return scalar.select(is_request, scalar.size(b), rank)

    places = compute((batch, total, 2), place)
    wider = constant(0, INT64, (batch, total + 1))
    order = scatter_nd(wider, places, compute(mask.shape, lambda b, t: scalar.size(t)))
    return order, counts


# -- compressed entries -----------------------------------------------------------------------


class _Windows:
    """Tokens that wait in a buffer (2, batch, waiting, 2 * size), keys and gates, and new ones.

    If `ratio` or more wait, the first `ratio` of them are the last window that was complete.
    """

    def __init__(self, policy: IndexPolicy, buffer: Tensor, key: Tensor, gate: Tensor) -> None:
        if buffer.rank != 4:  # noqa: PLR2004 - as the docstring says
            what, got = "past_proj_buffer must have four axes", str(list(buffer.shape))
            raise InvalidGraph(message(policy.where, what, got=got))
        batch, length, width = key.shape
        ratio, waiting = policy.ratio, buffer.shape[2]
        wanted = (2, batch, waiting, width)
        assume_shape(buffer.shape, wanted, policy.where, "past_proj_buffer")
        what = "past_proj_buffer holds less than twice compress_ratio tokens"
        few = integer.minimum(waiting, 2 * ratio - 1)
        assume_equal(waiting, few, policy.where, what)
        self.policy, self.batch, self.width = policy, batch, width
        former = (reshape(slice_axis(buffer, 0, k, k + 1), buffer.shape[1:]) for k in (0, 1))
        self.keys, self.gates = (
            concat([old, new], 1) for old, new in zip(former, (key, gate), strict=True)
        )
        #: Where the first window that is not compressed begins.
        self.first = integer.floordiv(waiting, ratio) * ratio
        open_tokens = waiting + length - self.first
        self.count = integer.floordiv(open_tokens, ratio)

    def compressed(self, rotary: RotaryTables, bias: Tensor, weight: Tensor, before: Dim) -> Tensor:
        """The entries of windows that are complete now, (batch, windows, size) in float32."""
        policy, ratio = self.policy, self.policy.ratio
        size = self.width // 2

        def element(
            is_value: bool, b: Dim, window: Dim, slot: Dim, channel: Dim
        ) -> tuple[Scalar, Scalar]:
            source = with_one_more(self.keys if is_value else self.gates, 1)
            at = self.first + (window - 1) * ratio
            place = scalar.size(at + slot)
            found = scalar.load(source, (b, row_of(place, source.shape[1]), channel))
            return scalar.cast(found, FLOAT), place >= 0

        pooled = pooled_windows(policy, (self.batch, self.count, size), element, bias)

        def place(at: tuple[Dim, ...]) -> tuple[Dim, Scalar]:
            return at[0], scalar.size((before + at[1]) * ratio)

        return rotary.rotate(normal(policy, pooled, weight), place)

    def kept(self) -> Tensor:
        """The buffer for next time: the last complete window of these, and what is behind it."""
        last = self.first + (self.count - 1) * self.policy.ratio
        start = integer.minimum(self.count, 1) * last
        both = (slice_axis(x, 1, start, x.shape[1]) for x in (self.keys, self.gates))
        return concat([unsqueeze(x, (0,)) for x in both], 0)
