"""FlexAttention of ai.onnx.preview: graphs of the model change scores and probabilities."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.attention import float_type, scaled_scores, weighted_values
from sardonyx.ops.onnx.normalisation import softmax_over
from sardonyx.tensor.language import Tensor, accumulator, assume_shape, cast

_WHERE = "FlexAttention"


@op(_WHERE, 1, domain="ai.onnx.preview")
def flex_attention_1(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    prob_mod: Graph | None = None,
    scale: float | None = None,
    score_mod: Graph | None = None,
    softmax_precision: int | None = None,
    scope: Scope,
) -> Tensor:
    """prob_mod(softmax(score_mod(q @ k' * scale))) @ v, of (batch, heads, sequence, size)."""
    for name, x in (("Q", q), ("K", k), ("V", v)):
        if x.rank != 4:
            what = f"The input {name} has the wrong number of axes"
            raise InvalidGraph(message(_WHERE, what, expected="4", got=str(list(x.shape))))
    precise = accumulator(q.dtype)
    if softmax_precision is not None:
        precise = float_type(_WHERE, softmax_precision)
    scores = cast(scaled_scores(q, k, accumulator(q.dtype), scale), precise)
    scores = _modified("score_mod", score_mod, scores, scope)
    probabilities = _modified("prob_mod", prob_mod, softmax_over(scores, (3,)), scope)
    return cast(weighted_values(probabilities, cast(v, precise)), v.dtype)


def _modified(name: str, graph: Graph | None, x: Tensor, scope: Scope) -> Tensor:
    """What a graph of the model makes of scores or probabilities, which keeps type and shape."""
    if graph is None:
        return x
    outputs = scope.inline(graph, [x])
    if len(outputs) != 1 or outputs[0].dtype is not x.dtype:
        got = ", ".join(f"{o.dtype}{list(o.shape)}" for o in outputs)
        what = f"The graph {name} must give one tensor like its input"
        raise InvalidGraph(message(_WHERE, what, expected=f"{x.dtype}{list(x.shape)}", got=got))
    assume_shape(outputs[0].shape, x.shape, _WHERE, f"What {name} gives")
    return outputs[0]
