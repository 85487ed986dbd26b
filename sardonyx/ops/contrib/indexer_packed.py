"""PackedSparseAttentionIndexer: SparseAttentionIndexer of packed requests, in states that stay.

A state has room for a fixed number of keys. A request whose new keys would not fit, or whose
lengths contradict each other, keeps its state and selects nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import integer
from sardonyx.base.dtypes import BOOL, FLOAT, INT32, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.varlen import requests_of, row_of, start_of
from sardonyx.ops.core.ranges import ROTARY
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
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
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_shape, compute, mean
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
_NAME = "PackedSparseAttentionIndexer"
_MOST_UPDATES = 8


@op(_NAME, 1, domain=DOMAIN)
def packed_sparse_attention_indexer(
    query: Tensor,
    key: Tensor | None,
    query_norm_weight: Tensor,
    key_norm_weight: Tensor,
    cosine: Tensor,
    sine: Tensor,
    starts: Tensor,
    pasts: Tensor,
    gate: Tensor | None,
    position_bias: Tensor | None,
    head_weights: Tensor | None,
    position_ids: Tensor | None,
    past_key_state: Tensor,
    past_kv_buffer: Tensor,
    past_gate_buffer: Tensor | None,
    past_state_lengths: Tensor,
    state_update_capture_count: Tensor | None = None,
    state_update_active: Tensor | None = None,
    *,
    compress_ratio: int,
    policy_mode: str,
    state_capacity: int,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    scale: float | None = None,
    state_update_capacity: int = 0,
    token_budget: int | None = None,
) -> tuple[Tensor | None, ...]:
    """Places of keys for queries of packed tokens (T, heads * size), their number, and states."""
    policy = policy_of(
        _NAME, policy_mode, compress_ratio, token_budget, index_topk, epsilon, scale,
        head_weight_scale,
    )  # fmt: skip
    others = (
        (gate, "gate"), (position_bias, "position_bias"), (head_weights, "head_weights"),
        (position_ids, "position_ids"), (past_gate_buffer, "past_gate_buffer"),
    )  # fmt: skip
    check_inputs(policy, [(x, False, name) for x, name in others])
    _check_updates(policy, state_update_capacity, state_update_capture_count, state_update_active)
    if query.rank != 2 or starts.rank != 1:  # noqa: PLR2004 - tokens, width
        what, got = "It needs tokens of two axes, and offsets of one", str(list(query.shape))
        raise InvalidGraph(message(_NAME, what, got=got))
    size, tokens = query_norm_weight.shape[0], query.shape[0]
    query, key = split_key(policy, query, key, size)
    queries = heads_of(policy, query, query_norm_weight)
    batch = starts.shape[0] - 1
    width = size if policy.is_tokens else size * 2
    waiting = (batch, 2 * compress_ratio - 1, width)
    for x, wanted, name in (
        (key, (tokens, width), "key"), (key_norm_weight, (size,), "key_norm_weight"),
        (pasts, (batch,), "past_sequence_lengths"), (gate, (tokens, width), "gate"),
        (position_bias, (compress_ratio, width), "position_bias"),
        (head_weights, (tokens, queries.shape[1]), "head_weights"),
        (position_ids, (tokens,), "position_ids"),
        (past_key_state, (batch, state_capacity, size), "past_key_state"),
        (past_kv_buffer, waiting, "past_kv_buffer"),
        (past_gate_buffer, waiting, "past_gate_buffer"),
        (past_state_lengths, (batch, 2), "past_state_lengths"),
        (state_update_capture_count, (batch,), "state_update_capture_count"),
    ):  # fmt: skip
        if x is not None:
            _check_shape(x, wanted, name)
    rotary = RotaryTables(cosine, sine, policy)
    rotary.check(batch)
    plan = _plan(policy, starts, pasts, past_state_lengths, tokens, state_capacity)
    keys = _Waiting(plan, past_kv_buffer, key)
    gates = None
    if past_gate_buffer is not None and gate is not None:
        gates = _Waiting(plan, past_gate_buffer, gate)
    new = _entries(policy, plan, rotary, keys, gates, position_bias, key_norm_weight, size)
    state = _state(plan, past_key_state, new)

    requests = requests_of(starts, tokens)

    def request(token: Dim) -> Dim:
        return scalar.as_index(scalar.load(requests, (token,)), batch)

    def position(token: Dim) -> Scalar:
        if position_ids is not None:
            return scalar.load(position_ids, (token,))
        b = request(token)
        past = scalar.cast(scalar.load(pasts, (b,)), INT64)
        return past + scalar.size(token) - start_of(starts, b)

    name = ROTARY if position_ids is None else "position_ids"
    rotated = rotary.rotate(queries, lambda at: (request(at[0]), position(at[0])), name)
    scores = total_scores(policy, _products(policy, rotated, state, request), head_weights)

    def usable(token: Dim, count: Scalar) -> Scalar:
        return scalar.select(scalar.load(plan.fits, (request(token),)), count, 0)

    def entries(token: Dim) -> Scalar:
        b = request(token)
        whole = scalar.load(plan.keys, (b,)) + scalar.load(plan.new, (b,))
        return usable(token, entries_seen(policy, position(token), whole))

    def hidden(token: Dim, entry: Dim) -> Scalar:
        inside = scalar.size(entry) < entries(token)
        return scalar.select(inside, scalar.load(scores, (token, entry)), float("-inf"))

    chosen = best(policy, compute(scores.shape, hidden))
    if policy.is_tokens:
        selected, counts = selected_tokens(
            policy, chosen, lambda token: usable(token, position(token) + 1), lambda _, n: n
        )
    else:
        selected, counts = selected_entries(policy, chosen, entries)
    updates = None
    if state_update_capture_count is not None:
        updates = _updates(
            policy, plan, keys, new, state_update_capture_count, state_update_active,
            state_update_capacity,
        )  # fmt: skip
    buffers = keys.kept(), None if gates is None else gates.kept()
    return selected, counts, state, *buffers, _lengths(plan, past_state_lengths), updates


def _check_updates(
    policy: IndexPolicy, capacity: int, counts: Tensor | None, active: Tensor | None
) -> None:
    most = _MOST_UPDATES if policy.is_tokens else 0
    if not 0 <= capacity <= most or bool(capacity) != (counts is not None):
        what = "state_update_capture_count goes with a state_update_capacity of 1 to 8, and qsa"
        raise InvalidGraph(message(_NAME, what, got=str(capacity)))
    if active is not None and not capacity:
        raise InvalidGraph(message(_NAME, "state_update_active needs a state_update_capacity"))


def _check_shape(x: Tensor, wanted: tuple[Dim, ...], name: str) -> None:
    if x.rank != len(wanted):
        what = f"The input {name} has the wrong number of axes"
        got = str(list(x.shape))
        raise InvalidGraph(message(_NAME, what, expected=str(len(wanted)), got=got))
    assume_shape(x.shape, wanted, _NAME, name)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of each request's tokens; all but `starts` are int64[batch].

    Attributes:
        policy: The policy.
        starts: Of the requests' tokens, int32[batch + 1].
        tokens: How many tokens are new.
        keys: How many keys the state had.
        waiting: How many tokens its buffer had.
        first: Where among those, and the new ones behind them, no key has been made yet.
        new: How many keys are made.
        kept: From which of the tokens on they wait again.
        left: How many wait then.
        fits: Whether all that is possible, bool[batch].
    """

    policy: IndexPolicy
    starts: Tensor
    tokens: Dim
    keys: Tensor
    waiting: Tensor
    first: Tensor
    new: Tensor
    kept: Tensor
    left: Tensor
    fits: Tensor


def _plan(
    policy: IndexPolicy, starts: Tensor, pasts: Tensor, lengths: Tensor, tokens: Dim, capacity: int
) -> _Plan:
    batch, ratio = lengths.shape[0], policy.ratio
    most = ratio - 1 if policy.is_tokens else 2 * ratio - 1

    def given(b: Dim, column: int) -> Scalar:
        return scalar.cast(scalar.load(lengths, (b, column)), INT64)

    def consistent(b: Dim) -> Scalar:
        """Whether offsets and lengths are what they can be."""
        begin, end = start_of(starts, b), start_of(starts, b + 1)
        whole = scalar.compare("eq", start_of(starts, 0), 0) & scalar.compare(
            "eq", start_of(starts, batch), scalar.size(tokens)
        )
        past = scalar.cast(scalar.load(pasts, (b,)), INT64)
        found = whole & (begin >= 0) & (end >= begin) & (end <= scalar.size(tokens)) & (past >= 0)
        found = found & (given(b, 0) >= 0) & (given(b, 0) <= capacity)
        found = found & (given(b, 1) >= 0) & (given(b, 1) <= most)
        if policy.is_tokens:
            same = scalar.compare("eq", given(b, 0) * ratio + given(b, 1), past)
            found = found & same
        return found

    sound = compute((batch,), consistent, BOOL)

    def safe(b: Dim, value: Scalar) -> Scalar:
        return scalar.select(scalar.load(sound, (b,)), value, 0)

    def count(b: Dim) -> Scalar:
        return start_of(starts, b + 1) - start_of(starts, b)

    keys = compute((batch,), lambda b: safe(b, given(b, 0)))
    waiting = compute((batch,), lambda b: safe(b, given(b, 1)))
    first = compute(
        (batch,),
        lambda b: scalar.binary("div", scalar.load(waiting, (b,)), ratio) * ratio,
    )
    total = compute((batch,), lambda b: scalar.load(waiting, (b,)) + safe(b, count(b)))
    new = compute(
        (batch,),
        lambda b: scalar.binary("div", scalar.load(total, (b,)) - scalar.load(first, (b,)), ratio),
    )

    def begin(b: Dim) -> Scalar:
        made, last = scalar.load(new, (b,)), 0 if policy.is_tokens else 1
        found = scalar.load(first, (b,)) + (made - last) * ratio
        return scalar.select(made > 0, found, 0)

    kept = compute((batch,), begin)
    left = compute((batch,), lambda b: scalar.load(total, (b,)) - scalar.load(kept, (b,)))

    def fits(b: Dim) -> Scalar:
        whole = scalar.load(keys, (b,)) + scalar.load(new, (b,))
        return scalar.load(sound, (b,)) & (whole <= capacity)

    return _Plan(
        policy, starts, tokens, keys, waiting, first, new, kept, left,
        compute((batch,), fits, BOOL),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Tokens in a buffer (batch, room, width), and the new ones (T, width) behind them."""

    plan: _Plan
    buffer: Tensor
    new: Tensor

    def at(self, b: Dim, place: Scalar, channel: Dim) -> Scalar:
        """An element; the place counts from the buffer's first token."""
        waiting, new = scalar.load(self.plan.waiting, (b,)), with_one_more(self.new, 0)
        old = scalar.load(self.buffer, (b, row_of(place, self.buffer.shape[1]), channel))
        row = row_of(start_of(self.plan.starts, b) + place - waiting, new.shape[0])
        return scalar.select(place < waiting, old, scalar.load(new, (row, channel)))

    def kept(self) -> Tensor:
        """The buffer for next time; places that hold nothing stay as they were."""
        plan = self.plan

        def body(b: Dim, slot: Dim, channel: Dim) -> Scalar:
            there = scalar.size(slot) < scalar.load(plan.left, (b,))
            place = scalar.load(plan.kept, (b,)) + scalar.size(slot)
            used = there & scalar.load(plan.fits, (b,))
            return scalar.select(
                used, self.at(b, place, channel), scalar.load(self.buffer, (b, slot, channel))
            )

        return compute(self.buffer.shape, body)


def _entries(
    policy: IndexPolicy, plan: _Plan, rotary: RotaryTables, keys: _Waiting, gates: _Waiting | None,
    bias: Tensor | None, weight: Tensor, size: Dim,
) -> Tensor:  # fmt: skip
    """New keys (batch, as many as there may be, size) in float32."""
    batch, ratio = plan.keys.shape[0], policy.ratio
    most = integer.maximum(integer.floordiv(plan.tokens + (ratio - 1), ratio), 1)

    def place_in(b: Dim, window: Dim, slot: Dim) -> Scalar:
        return scalar.load(plan.first, (b,)) + scalar.size(window * ratio + slot)

    if gates is None or bias is None:

        def token(b: Dim, block: Dim, slot: Dim, d: Dim) -> Scalar:
            return scalar.cast(keys.at(b, place_in(b, block, slot), d), FLOAT)

        pooled = mean(compute((batch, most, ratio, size), token), (2,))
    else:

        def element(
            is_value: bool, b: Dim, window: Dim, slot: Dim, channel: Dim
        ) -> tuple[Scalar, Scalar]:
            place = place_in(b, window - 1, slot)
            found = (keys if is_value else gates).at(b, place, channel)
            return scalar.cast(found, FLOAT), place >= 0

        pooled = pooled_windows(policy, (batch, most, size), element, bias)

    def place(at: tuple[Dim, ...]) -> tuple[Dim, Scalar]:
        return at[0], (scalar.load(plan.keys, (at[0],)) + scalar.size(at[1])) * ratio

    return rotary.rotate(normal(policy, pooled, weight), place)


def _state(plan: _Plan, past: Tensor, new: Tensor) -> Tensor:
    """The keys (batch, room, size) with new ones behind those that were there."""

    def body(b: Dim, entry: Dim, d: Dim) -> Scalar:
        at = scalar.size(entry) - scalar.load(plan.keys, (b,))
        is_new = (at >= 0) & (at < scalar.load(plan.new, (b,))) & scalar.load(plan.fits, (b,))
        made = scalar.cast(scalar.load(new, (b, row_of(at, new.shape[1]), d)), past.dtype)
        return scalar.select(is_new, made, scalar.load(past, (b, entry, d)))

    return compute(past.shape, body)


def _lengths(plan: _Plan, past: Tensor) -> Tensor:
    """How many keys and waiting tokens there are now, int32[batch, 2]."""

    def body(b: Dim, column: Dim) -> Scalar:
        keys = scalar.load(plan.keys, (b,)) + scalar.load(plan.new, (b,))
        is_keys = scalar.compare("eq", scalar.size(column), 0)
        found = scalar.select(is_keys, keys, scalar.load(plan.left, (b,)))
        fits = scalar.load(plan.fits, (b,))
        return scalar.select(fits, scalar.cast(found, INT32), scalar.load(past, (b, column)))

    return compute(past.shape, body)


def _products(
    policy: IndexPolicy, queries: Tensor, state: Tensor, request: Callable[[Dim], Dim]
) -> Tensor:
    """(tokens, heads, entries): each query times each key of its request, scaled."""
    tokens, heads, size = queries.shape
    shape = (tokens, heads, state.shape[1])
    (token, head, entry), (d,) = indices(shape), reduced_indices((size,))
    key = scalar.cast(scalar.load(state, (request(token), entry, d)), FLOAT)
    term = scalar.load(queries, (token, head, d)) * key
    found: Tensor = make_reduce(shape, (size,), "sum", term, FLOAT)
    return found * scale_of(policy, size)


def _updates(
    policy: IndexPolicy, plan: _Plan, keys: _Waiting, new: Tensor, counts: Tensor,
    active: Tensor | None, capacity: int,
) -> Tensor:  # fmt: skip
    """What each of the first tokens changed: the key that it completed, or the token itself."""
    batch, ratio, size = plan.keys.shape[0], policy.ratio, new.shape[2]
    switch = None if active is None else scalar_of(active, _NAME)

    def body(b: Dim, slot: Dim, d: Dim) -> Scalar:
        behind = scalar.load(plan.waiting, (b,)) + scalar.size(slot + 1)
        count = start_of(plan.starts, b + 1) - start_of(plan.starts, b)
        most = scalar.binary("min", scalar.cast(scalar.load(counts, (b,)), INT64), count)
        used = (scalar.size(slot) < most) & scalar.load(plan.fits, (b,))
        if switch is not None:
            used = used & scalar.compare("ne", scalar.load(switch, ()), 0)
        block = row_of(scalar.binary("div", behind, ratio) - 1, new.shape[1])
        made = scalar.cast(scalar.load(new, (b, block, d)), keys.new.dtype)
        completes = scalar.compare("eq", scalar.binary("rem", behind, ratio), 0)
        found = scalar.select(completes, made, keys.at(b, behind - 1, d))
        return scalar.select(used, found, 0.0)

    return compute((batch, capacity, size), body)
