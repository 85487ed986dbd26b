"""AttnLSTM: an LSTM that sees, beside its input, what an attention found in a memory.

The equations are those of the operator's schema; the attention is Bahdanau's (Bahdanau, Cho and
Bengio 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.regions import Outside, seen_inside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.recurrence import Activation, NamedFunctions, Network
from sardonyx.ops.onnx.recurrent import long_short_term
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    cast,
    compute,
    concat,
    exp,
    matmul,
    reshape,
    slice_axis,
    tanh,
    transpose,
    unsqueeze,
    where,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_NAME = "AttnLSTM"


@op(_NAME, 1, domain=DOMAIN)
def attn_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    query_weights: Tensor | None = None,
    memory_weights: Tensor | None = None,
    scores: Tensor | None = None,
    memory: Tensor | None = None,
    memory_seq_lens: Tensor | None = None,
    layer: Tensor | None = None,
    *,
    scope: Scope,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Tensor, ...]:
    """LSTM of concat(X_t, A_t-1), where A is the attention of the hidden state to a memory.

    A = sum(softmax(sum(V * tanh(M MW + H QW))) * M) over the steps of the memory M that count; with
    AW, it is concat(H, A) AW. W has rows for the input and, behind them, for A.
    """
    if query_weights is None or memory_weights is None or scores is None or memory is None:
        raise InvalidGraph(message(_NAME, "It needs the inputs QW, MW, V and M"))
    _check_axes(x=(x, 3), W=(w, 3), R=(r, 3), QW=(query_weights, 3), MW=(memory_weights, 3),
                V=(scores, 2), M=(memory, 3), AW=(layer, 3), P=(p, 2),
                memory_seq_lens=(memory_seq_lens, 1))  # fmt: skip
    given, whole = x.shape[2], w.shape[2]
    depth, size = memory.shape[2], scores.shape[1]
    width = depth if layer is None else layer.shape[2]
    assume_shape(w.shape[2:], (given + width,), _NAME, "The last axis of W")
    own, attended = slice_axis(w, 2, 0, given), slice_axis(w, 2, given, whole)
    n = Network(
        scope, x, own, r, b, sequence_lens, [initial_h, initial_c], direction, 0, 4, hidden_size,
        clip, more=(width,),
    )  # fmt: skip
    batch, steps = x.shape[1], memory.shape[1]
    for tensor, wanted, name in (
        (query_weights, (n.count, n.hidden, size), "QW"),
        (memory_weights, (n.count, depth, size), "MW"), (scores, (n.count, size), "V"),
        (memory, (batch, steps, depth), "M"), (memory_seq_lens, (batch,), "memory_seq_lens"),
        (layer, (n.count, depth + n.hidden, width), "AW"),
        (p, (n.count, n.hidden * 3), "P"),
    ):  # fmt: skip
        if tensor is not None:
            assume_shape(tensor.shape, wanted, _NAME, name)
    attention = _Attention(memory, memory_seq_lens, query_weights, memory_weights, scores, layer)

    def beside(number: int, outside: Outside) -> tuple[Activation, Activation]:
        weights = seen_inside(transpose(n.of(attended, number), (1, 0)), outside)
        return lambda state: matmul(state, weights), attention.reader(n, number, outside)

    functions = NamedFunctions(activations, activation_alpha, activation_beta)
    found = long_short_term(n, p, functions, bool(input_forget), beside)
    return found[:3]


def _check_axes(**given: tuple[Tensor | None, int]) -> None:
    for name, (tensor, rank) in given.items():
        if tensor is not None and tensor.rank != rank:
            what = f"The input {name} has the wrong number of axes"
            got = str(list(tensor.shape))
            raise InvalidGraph(message(_NAME, what, expected=str(rank), got=got))


@dataclass(frozen=True, slots=True)
class _Attention:
    """What is attended to, and the weights of all directions.

    Attributes:
        memory: M, (batch, steps, depth).
        lengths: How many steps of each count, int32[batch]; None: all.
        query_weights: QW, (directions, hidden, size).
        memory_weights: MW, (directions, depth, size).
        scores: V, (directions, size).
        layer: AW, (directions, hidden + depth, width), or None.
    """

    memory: Tensor
    lengths: Tensor | None
    query_weights: Tensor
    memory_weights: Tensor
    scores: Tensor
    layer: Tensor | None

    def reader(self, n: Network, number: int, outside: Outside) -> Callable[[Tensor], Tensor]:
        """What gives the attention of a direction for a hidden state (batch, hidden)."""
        batch, steps, depth = self.memory.shape
        memory, there = cast(self.memory, n.wide), self._there()
        keys = seen_inside(matmul(memory, n.of(self.memory_weights, number)), outside)
        query_weights = seen_inside(n.of(self.query_weights, number), outside)
        scores = seen_inside(n.of(self.scores, number), outside)
        values = seen_inside(where(unsqueeze(there, (2,)), memory, 0.0), outside)
        counts = seen_inside(there, outside)
        layer = None if self.layer is None else seen_inside(n.of(self.layer, number), outside)

        def read(hidden: Tensor) -> Tensor:
            query = unsqueeze(matmul(hidden, query_weights), (1,))
            found = where(counts, (tanh(keys + query) * scores).sum(2), float("-inf"))
            e = exp(found - found.max(1, keepdims=True))
            align = reshape(e / e.sum(1, keepdims=True), (batch, 1, steps))
            context = reshape(matmul(align, values), (batch, depth))
            return context if layer is None else matmul(concat([hidden, context], 1), layer)

        return read

    def _there(self) -> Tensor:
        """Which steps count, bool[batch, steps]; a count of none, or of too many, is a fault."""
        shape, lengths = self.memory.shape[:2], self.lengths

        def body(row: Dim, step: Dim) -> Scalar:
            if lengths is None:
                return scalar.constant(True, dtypes.BOOL)
            given = scalar.load(lengths, (row,))
            count = scalar.check_range(given, "memory_seq_lens", 1, shape[1])
            return scalar.size(step) < count

        return compute(shape, body, dtypes.BOOL)
