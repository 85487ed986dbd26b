"""Recurrent networks: RNN, GRU, LSTM (ONNX operator spec; Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.ops.core.regions import Outside, seen_inside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.recurrence import Activation, NamedFunctions, Network, Step
from sardonyx.tensor.language import Tensor, concat, constant, matmul, slice_axis

#: Of a direction: what a further state gives all gates, and the new one for a hidden state.
Beside = Callable[[int, Outside], tuple[Activation, Activation]]

_ADDED = {"layout": 14}
#: Before, it said whether the first output might be left out, as every output now may be.
_REMOVED = {"output_sequence": 7}


@op("RNN", 1, 7, 14, 22, added=_ADDED, removed=_REMOVED)
def rnn_1(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    scope: Scope,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Tensor, ...]:
    """H = f(X W + H R + b)."""
    n = Network(
        scope, x, w, r, b, sequence_lens, [initial_h], direction, layout, 1, hidden_size, clip
    )
    given = NamedFunctions(activations, activation_alpha, activation_beta)
    functions = n.functions(given, ["Tanh"])

    def make(number: int, outside: Outside) -> Step:
        product = n.state_product(number, outside)
        (f,) = functions[number]
        return lambda given, state: [f(n.limit(given + product(state[0])))]

    return n.run(n.whole_bias, make)


@op(
    "GRU", 1, 3, 7, 14, 22, added={**_ADDED, "linear_before_reset": 3}, removed=_REMOVED
)  # fmt: skip
def gru_1(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    scope: Scope,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    """H = (1 - z) h + z H with gates z (update), r (reset) and the candidate h."""
    n = Network(
        scope, x, w, r, b, sequence_lens, [initial_h], direction, layout, 3, hidden_size, clip
    )
    given = NamedFunctions(activations, activation_alpha, activation_beta)
    functions = n.functions(given, ["Sigmoid", "Tanh"])
    wide = n.hidden * 3

    def added_bias(bias: Tensor) -> Tensor:
        own = slice_axis(bias, 0, 0, wide)
        state = slice_axis(bias, 0, wide, wide * 2)
        if linear_before_reset:  # the reset gate acts on the state's bias of the candidate, too
            nothing = constant(0.0, n.wide, (n.hidden,))
            state = concat([n.part(state, 0, 0), n.part(state, 0, 1), nothing], 0)
        return own + state

    def make(number: int, outside: Outside) -> Step:
        weights = n.recurrent_of(number, outside)
        f, g = functions[number]

        def step(given: Tensor, state: list[Tensor]) -> list[Tensor]:
            (h,) = state
            if linear_before_reset:
                product = matmul(h, weights)
                linear = n.part(product, 1, 2)
                if b is not None:
                    start = n.hidden * 5
                    last = slice_axis(n.of(b, number), 0, start, start + n.hidden)
                    linear = linear + seen_inside(last, outside)
            else:
                split = n.hidden * 2
                product = matmul(h, slice_axis(weights, 1, 0, split))
            z, r_ = (f(n.limit(n.part(given, 1, k) + n.part(product, 1, k))) for k in (0, 1))
            if linear_before_reset:
                inner = r_ * linear
            else:
                inner = matmul(r_ * h, slice_axis(weights, 1, split, wide))
            candidate = g(n.limit(n.part(given, 1, 2) + inner))
            return [(1.0 - z) * candidate + z * h]

        return step

    return n.run(added_bias, make)


@op("LSTM", 1, 7, 14, 22, added=_ADDED, removed=_REMOVED)
def lstm_1(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    scope: Scope,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Tensor, ...]:
    """C = f C + i c, H = o h(C) with gates i, o, f and the candidate c, and perhaps peepholes."""
    n = Network(
        scope, x, w, r, b, sequence_lens, [initial_h, initial_c], direction, layout, 4,
        hidden_size, clip,
    )  # fmt: skip
    given = NamedFunctions(activations, activation_alpha, activation_beta)
    return long_short_term(n, p, given, bool(input_forget))


def long_short_term(
    n: Network,
    p: Tensor | None,
    given: NamedFunctions,
    input_forget: bool,
    beside: Beside | None = None,
) -> tuple[Tensor, ...]:
    """The outputs of an LSTM, whatever its products are.

    Args:
        n: The network.
        p: Peepholes: [directions, 3 * hidden].
        given: The functions of all directions.
        input_forget: Whether the gates of input and forgetting are coupled.
        beside: What the network's further state is, if it has one.
    """
    functions = n.functions(given, ["Sigmoid", "Tanh", "Tanh"])

    def make(number: int, outside: Outside) -> Step:
        product = n.state_product(number, outside)
        f, g, h = functions[number]
        more = None if beside is None else beside(number, outside)
        peepholes: list[Tensor | None] = [None] * 3
        if p is not None:
            own = n.of(p, number)
            peepholes = [seen_inside(n.part(own, 0, k), outside) for k in range(3)]

        def step(given: Tensor, state: list[Tensor]) -> list[Tensor]:
            before, cell, *rest = state
            gates = given + product(before)
            if more is not None:
                gates = gates + more[0](rest[0])

            def gate(k: int, peephole: Tensor | None, seen: Tensor) -> Tensor:
                value = n.part(gates, 1, k)
                return f(n.limit(value if peephole is None else value + peephole * seen))

            in_ = gate(0, peepholes[0], cell)
            forget = 1.0 - in_ if input_forget else gate(2, peepholes[2], cell)
            new = forget * cell + in_ * g(n.limit(n.part(gates, 1, 3)))
            out = gate(1, peepholes[1], new)
            hidden = out * h(new)
            return [hidden, new] if more is None else [hidden, new, more[1](hidden)]

        return step

    return n.run(n.whole_bias, make)
