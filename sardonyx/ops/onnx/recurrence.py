"""What recurrent networks have in common: inputs and attributes, activations, the loop over steps.

What the input gives to all gates is one product over the whole sequence. Then a loop takes a slice
of it per step, adds the product of the state, and applies the gates. Half floats are computed in
float. A sequence that has ended keeps its state, and its outputs are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple

from sardonyx.base import dtypes, errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.ranges import ranged
from sardonyx.ops.core.regions import Outside, results_of, seen_inside, stand_in
from sardonyx.ops.core.scope import Scope
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


class NamedFunctions(NamedTuple):
    """Activations as attributes name them.

    Attributes:
        names: Those of all directions; none for an operator's own.
        alphas: Parameters of those that take some, in order.
        betas: The second ones.
    """

    names: Sequence[str]
    alphas: Sequence[float]
    betas: Sequence[float]


@dataclass(slots=True)
class Network:
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
        more: Widths of further states, which are zero before the first step.
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
    more: Sequence[Dim] = field(default=(), kw_only=True)
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
        if self.layout not in (0, 1):
            no_layout = "There is no such one"
            number = str(self.layout)
            raise InvalidGraph(message("layout", no_layout, expected="0 or 1", got=number))
        if self.layout:
            self.x = transpose(self.x, (1, 0, 2))
            self.initial = [s if s is None else transpose(s, (1, 0, 2)) for s in self.initial]
        self.count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(self.direction, 0)
        if not self.count:
            raise InvalidGraph(message("direction", f"{self.direction!r} is none"))
        self.hidden = self.recurrent.shape[2]
        length, batch, width = self.x.shape
        wide = self.hidden * self.gates
        expected = [
            ("hidden_size", (self.hidden_size or self.hidden,), (self.hidden,)),
            ("W", self.weights.shape, (self.count, wide, width)),
            ("R", self.recurrent.shape, (self.count, wide, self.hidden)),
        ]
        if self.bias is not None:
            expected.append(("B", self.bias.shape, (self.count, wide * 2)))
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
        start = self.hidden * number
        return slice_axis(tensor, axis, start, start + self.hidden)

    def limit(self, x: Tensor) -> Tensor:
        """What goes into an activation."""
        return x if self.clipped is None else clip(x, -self.clipped, self.clipped)

    def run(
        self,
        added_bias: Callable[[Tensor], Tensor],
        step: Callable[[int, Outside], Step],
    ) -> tuple[Tensor, ...]:
        """The output of every step, then the last states, each over all directions.

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
        given = self.input_product(number)
        if self.bias is not None:
            given = given + added_bias(self.of(self.bias, number))
        outside: Outside = {}
        key = (self.scope.name, number)
        counter = sizes.measured(f"{self.scope.name}:step{number}", 0)
        is_reverse = self.direction == "reverse" or number == 1
        last = length - (counter + 1)
        place = last if is_reverse else counter
        slice_ = buffer((*key, "gates"), given.shape[1:], self.wide)
        sliced = Sliced(stand_in(given, outside), slice_, place)
        carried = []
        firsts = [None if state is None else self.of(state, number) for state in self.initial]
        widths = [self.hidden] * len(firsts) + list(self.more)
        for k, width in enumerate(widths):
            given_first = firsts[k] if k < len(firsts) else None
            first = constant(0.0, self.wide, (batch, width)) if given_first is None else given_first
            inside = buffer((*key, "state", k), (batch, width), self.wide)
            carried.append(Carried(stand_in(first, outside), inside))
        before: list[Tensor] = [c.inside for c in carried]
        after = step(number, outside)(slice_, before)
        output = after[0]
        if self.lengths is not None:
            ends = seen_inside(self._ends(self.lengths, length), outside)
            active = self._active(ends, place, batch)
            output = where(active, output, 0.0)
            after = [where(active, a, b) for a, b in zip(after, before, strict=True)]
        body = Body([*after, output])
        region = Repetition(
            list(outside.values()), [{} for _ in (*carried, output)], length, counter, None, False,
            carried, [sliced], [place], None, body,
        )  # fmt: skip
        shapes = [(c.inside.shape, c.inside.dtype) for c in carried]
        specs = [*shapes, ((length, *output.shape), output.dtype)]
        *states, everything = results_of(self.scope, "loop", region, outside, specs)
        return [everything, *states]

    def _ends(self, lengths: Tensor, length: Dim) -> Tensor:
        """How many steps each sequence has; a fault below 0, and above all steps."""
        return ranged(lengths, "sequence_lens", 0, length)

    def _active(self, ends: Tensor, place: Dim, batch: Dim) -> Tensor:
        """Whether each sequence has a step at this place, as a column: bool[batch, 1]."""

        def body(row: Dim, _: Dim) -> Scalar:
            return scalar.size(place) < scalar.load(ends, (row,))

        return compute((batch, 1), body, dtypes.BOOL)

    def input_product(self, number: int) -> Tensor:
        """What the input gives to all gates of a direction: [length, batch, gates * hidden]."""
        return matmul(cast(self.x, self.wide), transpose(self.of(self.weights, number), (1, 0)))

    def state_product(self, number: int, outside: Outside) -> Activation:
        """What gives all gates of a direction for a state [batch, hidden]."""
        weights = self.recurrent_of(number, outside)
        return lambda state: matmul(state, weights)

    def recurrent_of(self, number: int, outside: Outside) -> Tensor:
        """The recurrent weights of a direction, as the right factor: [hidden, gates * hidden]."""
        return seen_inside(transpose(self.of(self.recurrent, number), (1, 0)), outside)

    def functions(self, given: NamedFunctions, defaults: Sequence[str]) -> list[list[Activation]]:
        """The activations of each direction."""
        chosen = list(given.names) or list(defaults) * self.count
        if len(chosen) != len(defaults) * self.count:
            raise InvalidGraph(
                message(
                    "activations",
                    "Their number is wrong",
                    expected=str(len(defaults) * self.count),
                    got=str(len(chosen)),
                )  # fmt: skip
            )
        found = _activations(chosen, given.alphas, given.betas)
        each = len(defaults)
        return [found[k * each : (k + 1) * each] for k in range(self.count)]

    def whole_bias(self, bias: Tensor) -> Tensor:
        """Both halves of the bias together."""
        half = self.hidden * self.gates
        return slice_axis(bias, 0, 0, half) + slice_axis(bias, 0, half, half * 2)
