"""Operators over packed sequences of different lengths, of onnxruntime's own domain.

Tokens of all requests stand side by side; request b has those from `starts[b]` to `starts[b + 1]`.
"""

from __future__ import annotations

from sardonyx.base import errors, integer, quotients, sizes
from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.ranges import rising
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.linear_attention import linear_attention
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    exp,
    log,
    maximum,
    reshape,
    rsqrt,
    sigmoid,
    slice_axis,
    transpose,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
_CONVOLUTION, _NET = "VarlenCausalConvWithState", "GatedDeltaNet"


def start_of(starts: Tensor, request: Dim) -> Scalar:
    """Where a request begins."""
    return scalar.cast(scalar.load(starts, (request,)), INT64)


def sound_starts(starts: Tensor, tokens: Dim) -> Tensor:
    """Offsets of requests that have a token each, int64; a run with other ones is a fault."""
    return rising(starts, "cumulative_sequence_length", tokens, least=1)


def requests_of(starts: Tensor, tokens: Dim) -> Tensor:
    """The request of each token, int64[tokens]: how many begin at it or before, but the first."""
    batch = starts.shape[0] - 1
    (token,), (over,) = indices((tokens,)), reduced_indices((batch,))
    begun = start_of(starts, over) <= scalar.size(token)
    counts = make_reduce((tokens,), (batch,), "sum", scalar.cast(begun, INT64), INT64)
    return compute((tokens,), lambda t: scalar.binary("max", scalar.load(counts, (t,)) - 1, 0))


def row_of(place: Scalar, extent: Dim) -> Dim:
    """A place that is known to be there wherever what is loaded is used."""
    last = scalar.binary("min", place, scalar.size(extent - 1))
    return scalar.as_index(scalar.binary("max", last, 0), extent)


# -- convolution ------------------------------------------------------------------------------


@op(_CONVOLUTION, 1, domain=DOMAIN)
def varlen_causal_conv_with_state(
    x: Tensor,
    w: Tensor,
    starts: Tensor,
    bias: Tensor | None,
    initial_state: Tensor,
    capture_count: Tensor | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each channel of tokens (T, C) by taps (C, 1, K) that look back, into a state at the start."""
    where = _CONVOLUTION
    if x.rank != 2 or w.rank != 3 or starts.rank != 1 or dilation < 1:
        what = "It needs tokens of two axes, taps of three, and a dilation of at least one"
        raise InvalidGraph(message(where, what))
    if activation not in ("none", "silu", "swish"):
        expected = "none, silu or swish"
        raise InvalidGraph(message(where, "Bad activation", expected=expected, got=activation))
    if not 0 <= state_update_capacity <= 8 or bool(state_update_capacity) != (
        capture_count is not None
    ):
        what = "capture_count goes with a state_update_capacity of 1 to 8"
        raise InvalidGraph(message(where, what, got=str(state_update_capacity)))
    (tokens, channels), taps = x.shape, w.shape[2]
    batch = starts.shape[0] - 1
    behind = (taps - 1) * dilation
    assume_shape(w.shape, (channels, 1, taps), where, "The weight")
    assume_shape(initial_state.shape, (batch, channels, behind), where, "initial_state")
    starts = rising(starts, "cumulative_sequence_length", tokens)
    requests = requests_of(starts, tokens)

    def at(request: Dim, local: Scalar, channel: Dim) -> Scalar:
        """A sample of a request: before its first token, of the state."""
        place = start_of(starts, request) + local
        old = scalar.load(
            initial_state, (request, channel, row_of(local + scalar.size(behind), behind))
        )
        new = scalar.load(x, (row_of(place, tokens), channel))
        return scalar.select(local >= 0, new, old) if behind != 0 else new

    (token, channel), (tap,) = indices(x.shape), reduced_indices((taps,))
    request = scalar.as_index(scalar.load(requests, (token,)), batch)
    back = (taps - 1 - tap) * dilation
    local = scalar.size(token - back) - start_of(starts, request)
    value = scalar.cast(at(request, local, channel), FLOAT)
    term = value * scalar.cast(scalar.load(w, (channel, 0, tap)), FLOAT)
    result: Tensor = make_reduce(x.shape, (taps,), "sum", term, FLOAT)
    if bias is not None:
        assume_shape(bias.shape, (channels,), where, "The bias")
        result = result + cast(bias, FLOAT)
    if activation != "none":
        result = result * sigmoid(result)

    def kept(b: Dim, c: Dim, i: Dim) -> Scalar:
        length = start_of(starts, b + 1) - start_of(starts, b)
        return at(b, length + scalar.size(i - behind), c)

    final = compute(initial_state.shape, kept)
    if capture_count is None:
        return cast(result, x.dtype), final, None
    counts = cast(capture_count, INT64)

    def captured(b: Dim, slot: Dim, c: Dim) -> Scalar:
        length = start_of(starts, b + 1) - start_of(starts, b)
        most = scalar.binary("min", scalar.load(counts, (b,)), length)
        there = scalar.size(slot) < most
        return scalar.select(there, at(b, scalar.size(slot), c), 0.0)

    updates = compute((batch, state_update_capacity, channels), captured)
    return cast(result, x.dtype), final, updates


# -- GatedDeltaNet ----------------------------------------------------------------------------


@op(_NET, 1, domain=DOMAIN)
def gated_delta_net(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    starts: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    initial_state: Tensor | None = None,
    a_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    capture_count: Tensor | None = None,
    state_update_active: Tensor | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    scope: Scope,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """LinearAttention of packed tokens, (T, heads, size) each, with states (B, heads, V, K)."""
    if state_update_capacity:
        what = "Its attribute state_update_capacity is not supported"
        raise errors.NotImplemented(message(_NET, what, expected="0"))
    shape = query.shape[:-1] if key is None else query.shape[:-2]
    parts = _packed(query, key, value, initial_state)
    queries, keys, values = (cast(_flat(x, 3), FLOAT) for x in parts)
    tokens, heads, depth = queries.shape
    count, width = values.shape[1:]
    shared = quotients.exact_quotient(count, heads)
    assume_shape(keys.shape, queries.shape, _NET, "key")
    assume_equal(values.shape[0], tokens, _NET, "Values differ in number")
    if shared is None:
        what = "The heads of queries do not share those of values evenly"
        raise InvalidGraph(message(_NET, what, got=f"{heads} and {count}"))
    if qk_l2_norm:
        queries, keys = (_unit(x) for x in (queries, keys))
    gates = (
        None if decay is None else _decays(decay, a_log, dt_bias, gate_activation, tokens, count)
    )
    rates = None if beta is None else cast(_flat(beta, 2), FLOAT)
    if rates is not None and beta_activation == "sigmoid":
        rates = sigmoid(rates)
    elif beta_activation not in ("none", "sigmoid"):
        raise InvalidGraph(message(_NET, "Bad beta_activation", got=beta_activation))
    if initial_state is None and starts is None:
        raise InvalidGraph(message(_NET, "It needs cu_seqlens or initial_state"))
    batch = initial_state.shape[0] if starts is None else starts.shape[0] - 1  # type: ignore[union-attr]  # one of them is there
    rows = _Rows(starts, batch, tokens)
    past = None if initial_state is None else transpose(cast(initial_state, FLOAT), (0, 1, 3, 2))
    queries, keys, values = (
        _joined(rows.padded(x))
        for x in (_shared(queries, count, shared), _shared(keys, count, shared), values)
    )
    result, last, _ = linear_attention(
        queries, keys, values, past, None if gates is None else _joined(rows.padded(gates)),
        None if rates is None else _joined(rows.padded(rates)), (_whole(count), _whole(count)),
        scale, update_rule, scope,
    )  # fmt: skip
    found = rows.packed(reshape(result, (*result.shape[:2], count, width)))
    output = cast(reshape(found, (*shape, count, width)), query.dtype)
    return output, cast(transpose(last, (0, 1, 3, 2)), FLOAT), None


def _whole(count: Dim) -> int:
    if not isinstance(count, int):
        raise errors.NotImplemented(message(_NET, "The number of heads is not known"))
    return count


def _flat(x: Tensor, rank: int) -> Tensor:
    """(T, ...) of a rank; a batch and a length before it are one axis."""
    if x.rank == rank:
        return x
    if x.rank != rank + 1:
        raise InvalidGraph(message(_NET, "An input has the wrong rank", got=str(list(x.shape))))
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _packed(
    query: Tensor, key: Tensor | None, value: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, out of one tensor or three."""
    if key is not None and value is not None:
        return query, key, value
    if key is not None or value is not None or state is None:
        what = "Packed queries, keys and values need initial_state, and no other inputs"
        raise InvalidGraph(message(_NET, what))
    _, count, width, depth = state.shape
    whole = _flat(query, 2)
    rest = whole.shape[1] - count * width
    heads = quotients.exact_quotient(rest, depth * 2)
    if heads is None:
        what = "The width of the packed input does not fit the state"
        raise InvalidGraph(message(_NET, what, got=str(list(query.shape))))
    each = heads * depth
    ends = [0, each, each * 2, whole.shape[1]]
    first, second, third = (slice_axis(whole, 1, ends[k], ends[k + 1]) for k in range(3))
    tokens = whole.shape[0]
    narrow, wide = (tokens, heads, depth), (tokens, count, width)
    return reshape(first, narrow), reshape(second, narrow), reshape(third, wide)


def _unit(x: Tensor) -> Tensor:
    """Vectors of length one, as the models that have them compute them."""
    return x * rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def _decays(
    decay: Tensor, a_log: Tensor | None, dt_bias: Tensor | None, activation: str, tokens: Dim,
    count: Dim,
) -> Tensor:  # fmt: skip
    """Logarithms of what is kept: (T, heads), or (T, heads, depth)."""
    few = sizes.product(decay.shape) == tokens * count
    gates = cast(_flat(decay, 2 if few else 3), FLOAT)
    if activation == "none":
        return gates
    if activation != "qwen" or a_log is None or dt_bias is None:
        what = "gate_activation is none, or qwen with the inputs a_log and dt_bias"
        raise InvalidGraph(message(_NET, what, got=activation))
    for x in (a_log, dt_bias):
        assume_shape(x.shape, (count,), _NET, "a_log or dt_bias")
    wider = gates + dt_bias if few else gates + reshape(dt_bias, (count, 1))
    softplus = maximum(wider, 0.0) + log(exp(-abs(wider)) + 1.0)
    factor = exp(a_log) * -1.0
    return softplus * (factor if few else reshape(factor, (count, 1)))


def _shared(x: Tensor, count: Dim, shared: Dim) -> Tensor:
    """(T, heads, size) with each head as often as values share it."""
    if shared == 1:
        return x
    shape = (x.shape[0], count, x.shape[2])
    return compute(shape, lambda t, h, d: scalar.load(x, (t, integer.floordiv(h, shared), d)))


def _joined(x: Tensor) -> Tensor:
    """(B, T, ...) with three axes."""
    return x if x.rank == 3 else reshape(x, (*x.shape[:2], sizes.product(x.shape[2:])))


class _Rows:
    """Packed tokens as a batch: all of one length, or padded with zeros to that of all tokens."""

    def __init__(self, starts: Tensor | None, batch: Dim, tokens: Dim) -> None:
        self.batch, self.tokens = batch, tokens
        self.starts = starts
        if starts is not None:
            self.starts = rising(starts, "cu_seqlens", tokens)
        self.length = tokens
        if starts is None:
            self.length = integer.floordiv(tokens, batch)
            what = "The tokens are not shared evenly"
            assume_equal(self.length * batch, tokens, _NET, what)

    def padded(self, x: Tensor) -> Tensor:
        """(B, length, ...) of (T, ...)."""
        shape = (self.batch, self.length, *x.shape[1:])
        if self.starts is None:
            return reshape(x, shape)
        starts = self.starts

        def body(b: Dim, t: Dim, *rest: Dim) -> Scalar:
            place = start_of(starts, b) + scalar.size(t)
            inside = place < start_of(starts, b + 1)
            return scalar.select(inside, scalar.load(x, (row_of(place, self.tokens), *rest)), 0.0)

        return compute(shape, body)

    def packed(self, x: Tensor) -> Tensor:
        """(T, ...) of (B, length, ...)."""
        shape = (self.tokens, *x.shape[2:])
        if self.starts is None:
            return reshape(x, shape)
        starts, requests = self.starts, requests_of(self.starts, self.tokens)

        def body(t: Dim, *rest: Dim) -> Scalar:
            b = scalar.as_index(scalar.load(requests, (t,)), self.batch)
            local = scalar.size(t) - start_of(starts, b)
            return scalar.load(x, (b, row_of(local, self.length), *rest))

        return compute(shape, body)
