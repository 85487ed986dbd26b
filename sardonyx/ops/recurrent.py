"""Recurrent networks: RNN, GRU, LSTM (ONNX operator spec; Hochreiter and Schmidhuber 1997).

What the input gives to all gates is one product over the whole sequence. Then a loop takes a slice
of it per step, adds the product of the state, and applies the gates. Half floats are computed in
float. A sequence that has ended keeps its state, and its outputs are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sardonyx.base import dtypes, errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.control import Outside, results_of, seen_inside, stand_in
from sardonyx.ops.registry import Scope, op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    cast,
    clip,
    compute,
    concat,
    constant,
    exp,
    log,
    matmul,
    maximum,
    sigmoid,
    slice_axis,
    tanh,
    transpose,
    unsqueeze,
    where,
)
from sardonyx.tensor.region import Body, Carried, Repetition, Sliced
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer

Activation = Callable[[Tensor], Tensor]
#: (gates of the input, carried state) -> new state; the first part of it is the output.
Step = Callable[[Tensor, list[Tensor]], list[Tensor]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """An activation: what it does with alpha and beta, and their defaults (None: not taken)."""

    function: Callable[[Tensor, float, float], Tensor]
    alpha: float | None = None
    beta: float | None = None


#: ONNX operator spec, RNN: equations of the activation functions.
_ACTIVATIONS = {
    "relu": _Kind(lambda x, a, b: maximum(x, 0.0)),
    "tanh": _Kind(lambda x, a, b: tanh(x)),
    "sigmoid": _Kind(lambda x, a, b: sigmoid(x)),
    "affine": _Kind(lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": _Kind(lambda x, a, b: where(x < 0.0, x * a, x), 0.01),
    "thresholdedrelu": _Kind(lambda x, a, b: where(x < a, 0.0, x), 1.0),
    "scaledtanh": _Kind(lambda x, a, b: tanh(x * b) * a, 1.0, 1.0),
    "hardsigmoid": _Kind(lambda x, a, b: clip(x * a + b, 0.0, 1.0), 0.2, 0.5),
    "elu": _Kind(lambda x, a, b: where(x < 0.0, (exp(x) - 1.0) * a, x), 1.0),
    "softsign": _Kind(lambda x, a, b: x / (abs(x) + 1.0)),
    "softplus": _Kind(lambda x, a, b: maximum(x, 0.0) + log(exp(-abs(x)) + 1.0)),
}


def _activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """The functions; alphas and betas go to those that take some, in order."""
    left, right = list(alphas), list(betas)
    found: list[Activation] = []
    for name in names:
        kind = _ACTIVATIONS.get(name.lower())
        if kind is None:
            raise errors.NotImplemented(
                message("activation", "It is not known", expected=", ".join(_ACTIVATIONS), got=name)
            )
        alpha = kind.alpha if kind.alpha is None or not left else left.pop(0)
        beta = kind.beta if kind.beta is None or not right else right.pop(0)
        found.append(_bound(kind, alpha or 0.0, beta or 0.0))
    return found


def _bound(kind: _Kind, alpha: float, beta: float) -> Activation:
    return lambda x: kind.function(x, alpha, beta)


@dataclass(slots=True)
class _Network:
    """Inputs and attributes that the three operators have in common.

    Attributes:
        x: Sequence first: [length, batch, input].
        weights: [directions, gates * hidden, input].
        recurrent: [directions, gates * hidden, hidden].
        bias: [directions, 2 * gates * hidden].
        lengths: [batch].
        initial: State before the first step, each [directions, batch, hidden].
        direction: forward, reverse or bidirectional.
        layout: 1 if the batch comes first in what is given.
        gates: How many there are.
        hidden_size: As the attribute says.
        clipped: Bound of what goes into activations.
        count: Number of directions.
        hidden: Size of the state.
        wide: The type that is computed in.
    """

    scope: Scope
    x: Tensor
    weights: Tensor
    recurrent: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    initial: list[Tensor | None]
    direction: str
    layout: int
    gates: int
    hidden_size: int | None
    clipped: float | None
    count: int = field(init=False)
    hidden: Dim = field(init=False)
    wide: DType = field(init=False)

    def __post_init__(self) -> None:
        for name, tensor, rank in (
            ("X", self.x, 3), ("W", self.weights, 3), ("R", self.recurrent, 3), ("B", self.bias, 2),
            ("sequence_lens", self.lengths, 1),
            *(("initial state", state, 3) for state in self.initial),
        ):  # fmt: skip
            if tensor is not None and tensor.rank != rank:
                raise InvalidGraph(
                    message(name, "The number of axes is wrong", expected=str(rank),
                            got=str(list(tensor.shape)))
                )  # fmt: skip
        if self.layout:
            self.x = transpose(self.x, (1, 0, 2))
            self.initial = [s if s is None else transpose(s, (1, 0, 2)) for s in self.initial]
        self.count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(self.direction, 0)
        if not self.count:
            raise InvalidGraph(message("direction", f"{self.direction!r} is none"))
        self.hidden = self.recurrent.shape[2]
        length, batch, width = self.x.shape
        wide = sizes.multiply(self.hidden, self.gates)
        expected = [
            ("hidden_size", (self.hidden_size or self.hidden,), (self.hidden,)),
            ("W", self.weights.shape, (self.count, wide, width)),
            ("R", self.recurrent.shape, (self.count, wide, self.hidden)),
        ]
        if self.bias is not None:
            expected.append(("B", self.bias.shape, (self.count, sizes.multiply(wide, 2))))
        if self.lengths is not None:
            expected.append(("sequence_lens", self.lengths.shape, (batch,)))
        wanted = (self.count, batch, self.hidden)
        states = [s for s in self.initial if s is not None]
        expected += [("initial state", s.shape, wanted) for s in states]
        for name, got, want in expected:
            for a, b in zip(got, want, strict=True):
                assume_equal(a, b, name, "A size does not fit")
        self.wide = accumulator(self.x.dtype)

    def of(self, tensor: Tensor, number: int) -> Tensor:
        """What belongs to one direction, in the type that is computed in."""
        part = slice_axis(tensor, 0, number, number + 1)
        return cast(part.reshape(*tensor.shape[1:]), self.wide)

    def part(self, tensor: Tensor, axis: int, number: int) -> Tensor:
        """Gate `number` along an axis of all gates."""
        start = sizes.multiply(self.hidden, number)
        return slice_axis(tensor, axis, start, sizes.add(start, self.hidden))

    def limit(self, x: Tensor) -> Tensor:
        """What goes into an activation."""
        return x if self.clipped is None else clip(x, -self.clipped, self.clipped)

    def run(
        self,
        added_bias: Callable[[Tensor], Tensor],
        step: Callable[[int, Outside], Step],
    ) -> tuple[Tensor, ...]:
        """The output of every step, then the last state, each over all directions.

        Args:
            added_bias: What of the bias of a direction is added to the gates of the input.
            step: The step of a direction.
        """
        parts = [self._direction(number, added_bias, step) for number in range(self.count)]
        outputs: list[Tensor] = []
        for tensors in zip(*parts, strict=True):
            axis = 0 if len(outputs) else 1
            stacked = [unsqueeze(cast(x, self.x.dtype), (axis,)) for x in tensors]
            joined = stacked[0] if len(stacked) == 1 else concat(stacked, axis)
            if self.layout:
                order = (2, 0, 1, 3) if not outputs else (1, 0, 2)
                joined = transpose(joined, order)
            outputs.append(joined)
        return tuple(outputs)

    def _direction(
        self,
        number: int,
        added_bias: Callable[[Tensor], Tensor],
        step: Callable[[int, Outside], Step],
    ) -> list[Tensor]:
        length, batch, _ = self.x.shape
        given = matmul(cast(self.x, self.wide), transpose(self.of(self.weights, number), (1, 0)))
        if self.bias is not None:
            given = given + added_bias(self.of(self.bias, number))
        outside: Outside = {}
        key = (self.scope.name, number)
        counter = sizes.measured(f"{self.scope.name}:step{number}", 0)
        is_reverse = self.direction == "reverse" or number == 1
        last = sizes.add(length, sizes.multiply(sizes.add(counter, 1), -1))
        place = last if is_reverse else counter
        slice_ = buffer((*key, "gates"), given.shape[1:], self.wide)
        sliced = Sliced(stand_in(given, outside), slice_, place)
        carried = []
        for k, state in enumerate(self.initial):
            first = (
                constant(0.0, self.wide, (batch, self.hidden))
                if state is None
                else self.of(state, number)
            )
            inside = buffer((*key, "state", k), (batch, self.hidden), self.wide)
            carried.append(Carried(stand_in(first, outside), inside))
        before: list[Tensor] = [c.inside for c in carried]
        after = step(number, outside)(slice_, before)
        output = after[0]
        if self.lengths is not None:
            active = self._active(seen_inside(self.lengths, outside), place, batch)
            output = where(active, output, 0.0)
            after = [where(active, a, b) for a, b in zip(after, before, strict=True)]
        body = Body([*after, output])
        region = Repetition(
            list(outside.values()), [{} for _ in (*carried, output)], length, counter, None, False,
            carried, [sliced], [place], None, body,
        )  # fmt: skip
        shapes = [(c.inside.shape, c.inside) for c in carried]
        specs = [*shapes, ((length, *output.shape), output)]
        *states, everything = results_of("loop", region, outside, specs)
        return [everything, *states]

    def _active(self, lengths: Tensor, place: Dim, batch: Dim) -> Tensor:
        """Whether each sequence has a step at this place, as a column: bool[batch, 1]."""

        def body(row: Dim, _: Dim) -> Scalar:
            end = scalar.cast(scalar.load(lengths, (row,)), dtypes.INT64)
            return scalar.compare("lt", scalar.size(place), end)

        return compute((batch, 1), body, dtypes.BOOL)

    def recurrent_of(self, number: int, outside: Outside) -> Tensor:
        """The recurrent weights of a direction, as the right factor: [hidden, gates * hidden]."""
        return seen_inside(transpose(self.of(self.recurrent, number), (1, 0)), outside)

    def functions(
        self,
        names: Sequence[str],
        alphas: Sequence[float],
        betas: Sequence[float],
        defaults: Sequence[str],
    ) -> list[list[Activation]]:
        """The activations of each direction."""
        chosen = list(names) or list(defaults) * self.count
        if len(chosen) != len(defaults) * self.count:
            raise InvalidGraph(
                message(
                    "activations",
                    "Their number is wrong",
                    expected=str(len(defaults) * self.count),
                    got=str(len(chosen)),
                )  # fmt: skip
            )
        found = _activations(chosen, alphas, betas)
        each = len(defaults)
        return [found[k * each : (k + 1) * each] for k in range(self.count)]

    def whole_bias(self, bias: Tensor) -> Tensor:
        """Both halves of the bias together."""
        half = sizes.multiply(self.hidden, self.gates)
        return slice_axis(bias, 0, 0, half) + slice_axis(bias, 0, half, sizes.multiply(half, 2))


@op("RNN", 7, 14, 22)
def rnn_7(
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
) -> tuple[Tensor, ...]:
    """H = f(X W + H R + b)."""
    n = _Network(
        scope, x, w, r, b, sequence_lens, [initial_h], direction, layout, 1, hidden_size, clip
    )
    functions = n.functions(activations, activation_alpha, activation_beta, ["Tanh"])

    def make(number: int, outside: Outside) -> Step:
        weights = n.recurrent_of(number, outside)
        (f,) = functions[number]
        return lambda given, state: [f(n.limit(given + matmul(state[0], weights)))]

    return n.run(n.whole_bias, make)


@op("GRU", 7, 14, 22)
def gru_7(
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
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    """H = (1 - z) h + z H with gates z (update), r (reset) and the candidate h."""
    n = _Network(
        scope, x, w, r, b, sequence_lens, [initial_h], direction, layout, 3, hidden_size, clip
    )
    functions = n.functions(activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh"])
    wide = sizes.multiply(n.hidden, 3)

    def added_bias(bias: Tensor) -> Tensor:
        own = slice_axis(bias, 0, 0, wide)
        state = slice_axis(bias, 0, wide, sizes.multiply(wide, 2))
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
                    start = sizes.multiply(n.hidden, 5)
                    last = slice_axis(n.of(b, number), 0, start, sizes.add(start, n.hidden))
                    linear = linear + seen_inside(last, outside)
            else:
                split = sizes.multiply(n.hidden, 2)
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


@op("LSTM", 7, 14, 22)
def lstm_7(
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
) -> tuple[Tensor, ...]:
    """C = f C + i c, H = o h(C) with gates i, o, f and the candidate c, and perhaps peepholes."""
    n = _Network(
        scope, x, w, r, b, sequence_lens, [initial_h, initial_c], direction, layout, 4,
        hidden_size, clip,
    )  # fmt: skip
    functions = n.functions(
        activations, activation_alpha, activation_beta, ["Sigmoid", "Tanh", "Tanh"]
    )

    def make(number: int, outside: Outside) -> Step:
        weights = n.recurrent_of(number, outside)
        f, g, h = functions[number]
        peepholes: list[Tensor | None] = [None] * 3
        if p is not None:
            own = n.of(p, number)
            peepholes = [seen_inside(n.part(own, 0, k), outside) for k in range(3)]

        def step(given: Tensor, state: list[Tensor]) -> list[Tensor]:
            before, cell = state
            gates = given + matmul(before, weights)

            def gate(k: int, peephole: Tensor | None, seen: Tensor) -> Tensor:
                value = n.part(gates, 1, k)
                return f(n.limit(value if peephole is None else value + peephole * seen))

            in_ = gate(0, peepholes[0], cell)
            forget = 1.0 - in_ if input_forget else gate(2, peepholes[2], cell)
            new = forget * cell + in_ * g(n.limit(n.part(gates, 1, 3)))
            out = gate(1, peepholes[1], new)
            return [out * h(new), new]

        return step

    return n.run(n.whole_bias, make)
