"""Scan: a graph once for each slice of its inputs, as a region of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.regions import Repeated, stand_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    compute,
    constant,
    normalise_axis,
    reshape,
    transpose,
)
from sardonyx.tensor.region import Sliced
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, buffer


@op("Scan", 9, 11, 16, 19, 21, 23, 24, flags=("strings",))
def scan_9(
    *inputs: Tensor,
    body: Graph,
    num_scan_inputs: int,
    scope: Scope,
    scan_input_axes: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Tensor, ...]:
    """A graph once for each slice of its inputs; its own outputs are stacked again."""
    split = len(inputs) - num_scan_inputs
    if not 0 <= split < len(inputs):
        raise InvalidGraph(message("Scan", f"{num_scan_inputs} of {len(inputs)} are to be sliced"))
    _check_lists(
        num_scan_inputs, len(body.outputs) - split,
        (scan_input_axes, scan_input_directions), (scan_output_axes, scan_output_directions),
    )  # fmt: skip
    initial = inputs[:split]
    wholes = [
        _moved_axis(x, scan_input_axes[k] if scan_input_axes else 0, 0)
        for k, x in enumerate(inputs[split:])
    ]
    trips = wholes[0].shape[0]
    for whole in wholes[1:]:
        assume_equal(trips, whole.shape[0], "Scan", "The inputs differ in length")
    slices = [buffer((scope.name, "slice", k), x.shape[1:], x.dtype) for k, x in enumerate(wholes)]
    repeated = Repeated(scope, body, initial, slices)
    repeated.settle([], 0)
    backwards = trips - (repeated.counter + 1)
    sliced = []
    for k, (whole, slice_) in enumerate(zip(wholes, slices, strict=True)):
        reverse = bool(scan_input_directions and scan_input_directions[k])
        place = backwards if reverse else repeated.counter
        sliced.append(Sliced(stand_in(whole, repeated.outside), slice_, place))
    results = repeated.region(trips, None, False, sliced, [bool(d) for d in scan_output_directions])
    if not scan_output_axes:
        return results
    stacked = [
        _moved_axis(x, 0, axis) for x, axis in zip(results[split:], scan_output_axes, strict=True)
    ]
    return (*results[:split], *stacked)


def _check_lists(
    sliced: int,
    stacked: int,
    of_inputs: tuple[Sequence[int], Sequence[int]],
    of_outputs: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> None:
    """Refuse axes and directions that are not one for each that is sliced, or stacked."""
    for count, (axes, directions) in ((sliced, of_inputs), (stacked, of_outputs)):
        if any(given and len(given) != count for given in (axes, directions)):
            what, expected = "Its axes or directions do not fit", f"{count} items, or none"
            raise InvalidGraph(message("Scan", what, expected=expected))
        if any(d not in (0, 1) for d in directions):
            got = str(list(directions))
            raise InvalidGraph(message("Scan", "Bad directions", expected="0 or 1", got=got))


def _moved_axis(x: Tensor, source: int, target: int) -> Tensor:
    source = normalise_axis(source, x.rank, "Scan")
    target = normalise_axis(target, x.rank, "Scan")
    order = [k for k in range(x.rank) if k != source]
    order.insert(target, source)
    return x if source == target else transpose(x, order)


# -- version 8: batches -----------------------------------------------------------------------


@op("Scan", 8)
def scan_8(
    lengths: Tensor | None = None,
    *inputs: Tensor,
    body: Graph,
    num_scan_inputs: int,
    scope: Scope,
    directions: Sequence[int] = (),
) -> tuple[Tensor, ...]:
    """The same for each sequence of a batch, each of its own length; what is beyond it is zero."""
    split = len(inputs) - num_scan_inputs
    if not 0 <= split < len(inputs):
        raise InvalidGraph(message("Scan", f"{num_scan_inputs} of {len(inputs)} are to be sliced"))
    _check_lists(num_scan_inputs, 0, ((), directions))
    return _Batched(scope, body, inputs[:split], inputs[split:], lengths, directions).run()


class _Batched:
    """All sequences as one loop: where a sequence begins, its own first state comes in.

    Args:
        scope: What surrounds the node.
        graph: What is done at each step.
        states: First states: [batch, ...].
        wholes: What is scanned: [batch, length, ...].
        lengths: [batch], None if all sequences are as long as they can be.
        directions: For each of `wholes` whether it is read backwards.
    """

    def __init__(
        self,
        scope: Scope,
        graph: Graph,
        states: Sequence[Tensor],
        wholes: Sequence[Tensor],
        lengths: Tensor | None,
        directions: Sequence[int],
    ) -> None:
        if any(x.rank < 2 for x in wholes) or any(x.rank < 1 for x in states):
            raise InvalidGraph(message("Scan", "An input has no axis of the batch, or of time"))
        if directions and len(directions) != len(wholes):
            expected, got = str(len(wholes)), str(len(directions))
            raise InvalidGraph(message("Scan", "Bad directions", expected=expected, got=got))
        self.scope, self.states, self.wholes, self.lengths = scope, states, wholes, lengths
        self.backwards = [bool(d) for d in directions] or [False] * len(wholes)
        self.batches, self.length = wholes[0].shape[:2]
        for x in (*wholes, *states, *(() if lengths is None else (lengths,))):
            assume_equal(self.batches, x.shape[0], "Scan", "The inputs differ in their batches")
        for x in wholes:
            assume_equal(self.length, x.shape[1], "Scan", "The inputs differ in length")
        first = [constant(0, x.dtype, x.shape[1:]) for x in states]
        self.repeated = Repeated(scope, graph, first, [])
        self.sliced: list[Sliced] = []
        steps = integer.maximum(self.length, 1)
        self.batch = integer.floordiv(self.repeated.counter, steps)
        self.step = integer.modulo(self.repeated.counter, steps)

    def run(self) -> tuple[Tensor, ...]:
        """The last state of each sequence, then what its steps gave."""
        repeated = self.repeated
        repeated.outside = {}
        repeated.inside = [repeated.input(k, x) for k, x in enumerate(repeated.initial)]
        end = None if self.lengths is None else self._end(self.lengths)
        before = [self._entered(k, x) for k, x in enumerate(self.states)]
        read = [self._read(k, x, end) for k, x in enumerate(self.wholes)]
        repeated.body = body = repeated.make_body([*before, *read], repeated.outside)
        count = len(before)
        for old, new in zip(before, body.outputs, strict=False):
            assume_shape(new.shape, old.shape, "Scan", "A state that changes its shape")
        after = body.outputs[:count]
        slices = body.outputs[count:]
        if end is not None:
            active = scalar.size(self.step) < end
            after = [_chosen(active, a, b) for a, b in zip(after, before, strict=True)]
            slices = [_chosen(active, x, constant(0, x.dtype, x.shape)) for x in slices]
        # Every state is kept: the one at the end of each sequence is a result.
        body.outputs = [*after, *after, *slices]
        trips = self.batches * self.length
        results = repeated.region(trips, None, False, self.sliced, ())[count:]
        parted = [reshape(x, (self.batches, self.length, *x.shape[1:])) for x in results]
        last = [self._last(x, y) for x, y in zip(self.states, parted[:count], strict=True)]
        return (*last, *parted[count:])

    def _slice(self, name: object, whole: Tensor, place: Dim | None = None) -> Buffer:
        """What an iteration reads of a tensor: by default what belongs to its sequence."""
        inside = buffer((self.scope.name, "slice", name), whole.shape[1:], whole.dtype)
        place = self.batch if place is None else place
        self.sliced.append(Sliced(stand_in(whole, self.repeated.outside), inside, place))
        return inside

    def _end(self, lengths: Tensor) -> Scalar:
        """How long the sequence is; a fault if that is negative, or more than there is."""
        given = scalar.load(self._slice("length", lengths), ())
        return scalar.check_range(given, "sequence_lens", 0, self.length)

    def _entered(self, number: int, state: Tensor) -> Tensor:
        """A state as a step finds it."""
        first, carried = self._slice(("state", number), state), self.repeated.inside[number]
        begins = scalar.compare("eq", scalar.size(self.step), 0)
        return _chosen(begins, first, carried)

    def _read(self, number: int, whole: Tensor, end: Scalar | None) -> Tensor:
        """The slice of a step."""
        if self.backwards[number] and end is not None:
            sequence = self._slice(number, whole)
            place = scalar.binary("max", end - scalar.size(self.step) - 1, 0)
            index = scalar.as_index(place, self.length)
            return compute(sequence.shape[1:], lambda *at: scalar.load(sequence, (index, *at)))
        flat = reshape(whole, (sizes.multiply(*whole.shape[:2]), *whole.shape[2:]))
        if not self.backwards[number]:
            return self._slice(number, flat, self.repeated.counter)
        start = self.batch * self.length
        return self._slice(number, flat, start + (self.length - 1 - self.step))

    def _last(self, first: Tensor, states: Tensor) -> Tensor:
        """The state after the last step, or the first one if there is no step."""
        some = scalar.size(self.length) >= 1

        def body(b: Dim, *at: Dim) -> Scalar:
            after = scalar.load(states, (b, self.length - 1, *at))
            return scalar.select(some, after, scalar.load(first, (b, *at)))

        return compute(first.shape, body)


def _chosen(condition: Scalar, one: Tensor, other: Tensor) -> Tensor:
    """One of two tensors of the same shape."""

    def body(*at: Dim) -> Scalar:
        return scalar.select(condition, scalar.load(one, at), scalar.load(other, at))

    return compute(one.shape, body)
