"""LinearAttention and CausalConvWithState as onnxruntime has them: with windows of states."""

from __future__ import annotations

from sardonyx.base import errors, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.linear_attention import causal_convolution, linear_attention
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_equal, compute, reshape, slice_axis, transpose
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"


def _latest(where: str, past: Tensor | None, window: int) -> Tensor | None:
    """The state that goes on: the last one of a window."""
    if window < 0:
        raise InvalidGraph(message(where, f"There is no state_window {window}"))
    if past is None or not window:
        return past
    assume_equal(past.shape[0], window, where, "The past state has another window")
    return reshape(slice_axis(past, 0, window - 1, window), past.shape[1:])


@op("LinearAttention", 1, domain=DOMAIN)
def linear_attention_contrib(
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
    state_window: int = 0,
    update_rule: str = "gated_delta",
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """ONNX's operator; queries may share heads of keys, and the last states be kept."""
    where = "LinearAttention"
    most, least = max(q_num_heads, kv_num_heads), min(q_num_heads, kv_num_heads)
    if least < 1 or most % least:
        what = f"{q_num_heads} heads of queries and {kv_num_heads} of keys do not share evenly"
        raise InvalidGraph(message(where, what))
    result, last, every = linear_attention(
        query, key, value, _latest(where, past_state, state_window), decay, beta,
        (q_num_heads, kv_num_heads), scale, update_rule, scope, every=state_window > 0,
    )  # fmt: skip
    if every is None:
        return result, last
    states, length = every, every.shape[0]

    def body(slot: Dim, *at: Dim) -> Scalar:
        step = scalar.size(length - state_window + slot)
        there = scalar.as_index(scalar.binary("max", step, 0), length)
        return scalar.select(step >= 0, scalar.load(states, (there, *at)), 0.0)

    return result, compute((state_window, *last.shape), body)


@op("CausalConvWithState", 1, domain=DOMAIN)
def causal_conv_with_state_contrib(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Tensor, Tensor]:
    """ONNX's operator; taps may lie apart, channels come last, and the last states be kept."""
    where = "CausalConvWithState"
    if ndim != 1:
        what = f"Images of {ndim} axes are not supported"
        raise errors.NotImplemented(message(where, what, expected="1"))
    past = _latest(where, past_state, state_window)
    image, before = (_first(t) if t is not None and channels_last else t for t in (x, past))
    assert image is not None  # noqa: S101 - narrows the type for the checker
    result, padded = causal_convolution(image, w, bias, before, activation, dilation)
    length, behind = image.shape[2], padded.shape[2] - image.shape[2]
    if channels_last:
        result = reshape(transpose(result, (0, 2, 1)), x.shape)
    single = (*image.shape[:2], behind)
    begin = length - state_window if state_window else length - 1

    def body(slot: Dim, n: Dim, c: Dim, i: Dim) -> Scalar:
        step = scalar.size(begin + slot)
        end = scalar.as_index(scalar.binary("max", step + 1, 0), length + 1)
        value = scalar.load(padded, (n, c, end + i))
        return scalar.select(step >= 0, value, 0.0) if state_window else value

    states = compute((max(state_window, 1), *single), body)
    if channels_last:
        states = reshape(
            transpose(states, (0, 1, 3, 2)),
            (states.shape[0], x.shape[0], behind, *x.shape[2:]),
        )
    return result, states if state_window else reshape(states, states.shape[1:])


def _first(x: Tensor) -> Tensor:
    """(N, L, ...) as (N, C, L)."""
    return transpose(reshape(x, (*x.shape[:2], sizes.product(x.shape[2:]))), (0, 2, 1))
