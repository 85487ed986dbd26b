"""Attention with a state of fixed size instead of keys and values, and the convolution before it.

Both carry what a decoder needs of the past from call to call (ONNX operator spec: LinearAttention,
CausalConvWithState). States and sums are kept in float.
"""

from __future__ import annotations

import math

from sardonyx.base import integer
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.core.steps import over_steps
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    constant,
    contract,
    exp,
    reshape,
    sigmoid,
    slice_axis,
    transpose,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

_LINEAR = "LinearAttention"
_CONVOLUTION = "CausalConvWithState"

#: For each rule: whether the state decays, and whether what it holds for a key is corrected.
_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


def _check_rank(where: str, what: str, x: Tensor, rank: int) -> None:
    if x.rank != rank:
        text = f"{what} has the wrong number of axes"
        raise InvalidGraph(message(where, text, expected=str(rank), got=str(list(x.shape))))


@op(_CONVOLUTION, 27)
def causal_conv_with_state_27(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    """Each channel convolved with taps before and at its place; also gives what comes before.

    x: (N, C, L), w: (C, 1, k), bias: (C), past and present state: (N, C, k - 1).
    """
    result, padded = causal_convolution(x, w, bias, past_state, activation, 1)
    length = x.shape[2]
    return result, slice_axis(padded, 2, length, padded.shape[2])


def causal_convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    past_state: Tensor | None,
    activation: str,
    dilation: int,
) -> tuple[Tensor, Tensor]:
    """The convolution, and what it went over: the past state and `x`."""
    if activation not in ("none", "silu", "swish") or dilation < 1:
        what = f"Bad activation, or dilation {dilation}"
        raise InvalidGraph(
            message(_CONVOLUTION, what, expected="silu, swish or none", got=activation)
        )
    _check_rank(_CONVOLUTION, "The input", x, 3)
    _check_rank(_CONVOLUTION, "The weight", w, 3)
    batch, channels, _ = x.shape
    taps = w.shape[2]
    assume_shape(w.shape, (channels, 1, taps), _CONVOLUTION, "The weight")
    behind = (taps - 1) * dilation
    if past_state is None:
        past_state = constant(0.0, x.dtype, (batch, channels, behind))
    assume_shape(past_state.shape, (batch, channels, behind), _CONVOLUTION, "The past state")
    padded = concat([past_state, x], 2)
    wide = accumulator(x.dtype)

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        n, c, i = at
        place = i + over[0] * dilation
        return scalar.load(padded, (n, c, place)), scalar.load(w, (c, 0, over[0]))

    result = contract(x.shape, (taps,), body, wide)
    if bias is not None:
        assume_shape(bias.shape, (channels,), _CONVOLUTION, "The bias")
        result = result + unsqueeze(cast(bias, wide), (0, 2))
    if activation != "none":
        result = result * sigmoid(result)
    return cast(result, x.dtype), padded


@op(_LINEAR, 27)
def linear_attention_27(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """Outputs (B, T, heads * width), and the state (B, heads of keys, depth, width) after them."""
    if kv_num_heads < 1 or q_num_heads < 1 or q_num_heads % kv_num_heads:
        what = f"{q_num_heads} heads of queries do not share {kv_num_heads} of keys evenly"
        raise InvalidGraph(message(_LINEAR, what))
    result, last, _ = linear_attention(
        query, key, value, past_state, decay, beta, (q_num_heads, kv_num_heads), scale,
        update_rule, scope,
    )  # fmt: skip
    return result, last


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None,
    decay: Tensor | None,
    beta: Tensor | None,
    heads: tuple[int, int],
    scale: float,
    update_rule: str,
    scope: Scope,
    every: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(outputs, the state after them, with `every` the state after each step, along axis 0).

    Args:
        query: (B, T, heads * depth), as key and value.
        key: Its heads may be shared by queries, or the other way round.
        value: With as many heads as keys.
        past_state: (B, heads of keys, depth, width).
        decay: Logarithms of what is kept.
        beta: How much is corrected.
        heads: Numbers of those of queries and of keys.
        scale: Of outputs; 0: by the depth.
        update_rule: One of ONNX's.
        scope: Of the node.
        every: Whether all states are wanted.
    """
    _check_rule(update_rule, decay, beta)
    q_num_heads, kv_num_heads = heads
    # (T, B, heads, size): a step reads a slice along the first axis.
    queries = _by_step("query", query, q_num_heads)
    keys, values = _by_step("key", key, kv_num_heads), _by_step("value", value, kv_num_heads)
    length, batch, _, depth = queries.shape
    if isinstance(depth, int) and depth < 1:
        raise InvalidGraph(message(_LINEAR, "The heads have no elements"))
    width = values.shape[3]
    assume_equal(depth, keys.shape[3], _LINEAR, "Queries and keys differ in size")
    for x in (keys, values):
        assume_equal(batch, x.shape[1], _LINEAR, "The batches differ")
        assume_equal(length, x.shape[0], _LINEAR, "The inputs differ in length")
    wholes = [queries, keys, values]
    if decay is not None:
        gates = _by_step("decay", decay, kv_num_heads)
        wholes.append(exp(_spread(gates, 3, depth, "The decay does not fit")))
    if beta is not None:
        _check_rank(_LINEAR, "The input beta", beta, 3)
        rates = unsqueeze(transpose(cast(beta, FLOAT), (1, 0, 2)), (3,))
        wholes.append(_spread(rates, 2, kv_num_heads, "The input beta does not fit"))
    shape = (batch, kv_num_heads, depth, width)
    if past_state is None:
        first, kept_as = constant(0.0, FLOAT, shape), query.dtype
    else:
        assume_shape(past_state.shape, shape, _LINEAR, "The past state")
        first, kept_as = cast(past_state, FLOAT), past_state.dtype
    factor = compute((), lambda: _scale(scale, depth))
    group, shared = q_num_heads // kv_num_heads or 1, kv_num_heads // q_num_heads
    if shared > 1:
        alone = queries
        wholes[0] = compute(
            (length, batch, kv_num_heads, depth),
            lambda t, b, h, k: scalar.load(alone, (t, b, integer.floordiv(h, shared), k)),
        )

    def step(slices: list[Tensor], states: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        q, k, v, *rest = slices
        (state,) = states
        if decay is not None:
            state = state * unsqueeze(rest.pop(0), (3,))
        if beta is not None:
            v = (v - _read(state, k, 1)) * rest.pop(0)
        state = state + unsqueeze(k, (3,)) * unsqueeze(v, (2,))
        return [state], [_read(state, q, group) * factor, *([state] if every else [])]

    (last,), (outputs, *states) = over_steps(scope, wholes, [first], step)
    shown = max(q_num_heads, kv_num_heads)
    packed = reshape(transpose(outputs, (1, 0, 2, 3)), (batch, length, shown * width))
    after = cast(states[0], kept_as) if every else None
    return cast(packed, query.dtype), cast(last, kept_as), after


def _check_rule(rule: str, decay: Tensor | None, beta: Tensor | None) -> None:
    if rule not in _RULES:
        expected = ", ".join(_RULES)
        raise InvalidGraph(message(_LINEAR, "Bad update_rule", expected=expected, got=rule))
    for name, given, needed in zip(("decay", "beta"), (decay, beta), _RULES[rule], strict=True):
        if (given is not None) != needed:
            what = f"The update_rule {rule} {'needs' if needed else 'takes no'} input {name}"
            raise InvalidGraph(message(_LINEAR, what))


def _by_step(name: str, x: Tensor, heads: int) -> Tensor:
    """(B, T, heads * size) as floats (T, B, heads, size)."""
    _check_rank(_LINEAR, f"The input {name}", x, 3)
    size = integer.floordiv(x.shape[2], heads)
    assume_equal(x.shape[2], size * heads, _LINEAR, f"The width of {name} is not {heads} heads")
    return transpose(cast(reshape(x, (*x.shape[:2], heads, size)), FLOAT), (1, 0, 2, 3))


def _spread(x: Tensor, axis: int, extent: Dim, what: str) -> Tensor:
    """`x` with one element for each of `extent`, or one for all, as only the run may know."""
    size = x.shape[axis]
    if size == 1 or integer.known_equal(size, extent) is True:
        return x
    fits = (size - 1) * (size - extent)
    assume_equal(fits, 0, _LINEAR, what)

    def body(*at: Dim) -> Scalar:
        place = integer.minimum(at[axis], size - 1)
        return scalar.load(x, (*at[:axis], place, *at[axis + 1 :]))

    return compute((*x.shape[:axis], extent, *x.shape[axis + 1 :]), body)


def _scale(scale: float, depth: Dim) -> Scalar:
    if scale != 0.0:
        return scalar.constant(scale, FLOAT)
    if isinstance(depth, int):
        return scalar.constant(1 / math.sqrt(depth), FLOAT)
    return scalar.unary("rsqrt", scalar.cast(scalar.size(depth), FLOAT))


def _read(state: Tensor, by: Tensor, group: int) -> Tensor:
    """What a state holds for keys or queries, `group` of which share a head: (B, heads, width)."""

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        b, head, m = at
        held = scalar.load(state, (b, integer.floordiv(head, group), over[0], m))
        return scalar.load(by, (b, head, over[0])), held

    shape = (*by.shape[:2], state.shape[3])
    return contract(shape, (state.shape[2],), body)
