"""A loop over the steps of sequences, for operators that are recurrences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import sizes
from sardonyx.ops.core.regions import Outside, results_of, stand_in
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor.language import Tensor, assume_equal
from sardonyx.tensor.region import Body, Carried, Repetition, Sliced
from sardonyx.tensor.tensor import buffer

#: (slices of this step, carried tensors) -> (carried tensors for the next step, outputs).
Step = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


def over_steps(
    scope: Scope, wholes: Sequence[Tensor], initial: Sequence[Tensor], step: Step
) -> tuple[list[Tensor], list[Tensor]]:
    """What is carried after the last step, and the outputs of all steps along a new first axis.

    Args:
        scope: Of the node.
        wholes: Tensors of which a step reads a slice along the first axis; one at least.
        initial: What is carried, before the first step.
        step: One step. It may read nothing but its arguments and constants.
    """
    trips = wholes[0].shape[0]
    for whole in wholes[1:]:
        assume_equal(trips, whole.shape[0], scope.name, "The inputs differ in length")
    outside: Outside = {}
    counter = sizes.measured(f"{scope.name}:step", 0)
    slices = [buffer((scope.name, "slice", k), x.shape[1:], x.dtype) for k, x in enumerate(wholes)]
    states = [buffer((scope.name, "state", k), x.shape, x.dtype) for k, x in enumerate(initial)]
    after, outputs = step(list(slices), list(states))
    sliced = [
        Sliced(stand_in(whole, outside), slice_, counter)
        for whole, slice_ in zip(wholes, slices, strict=True)
    ]
    carried = [
        Carried(stand_in(first, outside), inside)
        for first, inside in zip(initial, states, strict=True)
    ]
    body = Body([*after, *outputs])
    region = Repetition(
        list(outside.values()), [{} for _ in body.outputs], trips, counter, None, False,
        carried, sliced, [counter] * len(outputs), None, body,
    )  # fmt: skip
    specs = [(x.shape, x.dtype) for x in states]
    specs += [((trips, *x.shape), x.dtype) for x in outputs]
    results = list(results_of(scope, "loop", region, outside, specs))
    return results[: len(states)], results[len(states) :]
