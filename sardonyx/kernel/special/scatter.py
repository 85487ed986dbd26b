"""Copies of a tensor with some elements replaced (ONNX operator spec: Scatter*).

Blocks never write the same element, and each applies its updates in order, so results do not depend
on the number of threads.
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.program import Operand
from sardonyx.kernel.special.frame import KernelFrame, volume, without
from sardonyx.kernel.special.task import SpecialTask, View, special
from sardonyx.kernel.types import I1, I64

_REDUCE = {"add": "add", "mul": "mul", "min": "min", "max": "max"}
_LOGIC = {"add": "or", "max": "or", "mul": "and", "min": "and"}


def _update(frame: KernelFrame, y: View, at: list[Operand], value: Operand, reduction: str) -> None:
    """Replace the element at `at`, or reduce `value` into it."""
    if reduction != "none":
        old = frame.load(y, at)
        table = _LOGIC if old.type == I1 else _REDUCE
        value = frame.builder.binary(table[reduction], old, value)
    frame.store(y, at, value)


@special("scatter_elements")
def build_scatter_elements(task: SpecialTask, symbol: str) -> Kernel:
    """x, int64 positions, updates; axis, reduction -> y like x. A block is a line along `axis`."""
    x, positions, updates = task.operands
    y = task.outputs[0]
    assert y is not None  # noqa: S101 - a kernel without result is never planned
    axis = int(task.attribute("axis")) % len(x.shape)  # type: ignore[call-overload]
    reduction = str(task.attribute("reduction", "none"))
    frame = KernelFrame(task, symbol)
    b = frame.builder
    length, count = frame.dim(x.shape[axis]), frame.dim(positions.shape[axis])
    lines, touched = without(x.shape, axis), without(positions.shape, axis)
    with b.parallel() as line:
        lead = frame.coordinates(line, lines)

        def at(i: Operand) -> list[Operand]:
            return [*lead[:axis], i, *lead[axis:]]

        with b.for_(0, length) as i:
            frame.store(y, at(i), frame.load(x, at(i)))
        inside: Operand = b.compare("ge", line, 0)
        for coordinate, extent in zip(lead, touched, strict=True):
            inside = b.binary("and", inside, b.compare("lt", coordinate, frame.dim(extent)))
        with b.if_(inside), b.for_(0, count) as i:
            place, valid = frame.checked(b.convert(frame.load(positions, at(i)), I64), length)
            with b.if_(valid):
                _update(frame, y, at(place), frame.load(updates, at(i)), reduction)
    cost = sizes.multiply(sizes.add(volume(x.shape), volume(positions.shape)), 2)
    return frame.kernel(volume(lines), cost)


@special("scatter_nd")
def build_scatter_nd(task: SpecialTask, symbol: str) -> Kernel:
    """x, int64 positions (..., depth), updates; depth, reduction -> y like x.

    A block is one index of the first axis that positions leave whole; there is one block if they
    leave none.
    """
    x, positions, updates = task.operands
    y = task.outputs[0]
    assert y is not None  # noqa: S101 - a kernel without result is never planned
    depth = int(task.attribute("depth"))  # type: ignore[call-overload]
    reduction = str(task.attribute("reduction", "none"))
    frame = KernelFrame(task, symbol)
    b = frame.builder
    outer, slices = x.shape[:depth], x.shape[depth:]
    blocks: Dim = slices[0] if slices else 1
    with b.parallel() as block:
        own = [block] if slices else []
        for at in frame.loops((*outer, *slices[1:])):
            place = [*at[:depth], *own, *at[depth:]]
            frame.store(y, place, frame.load(x, place))
        for which in frame.loops(positions.shape[:-1]):
            target: list[Operand] = []
            valid: Operand = b.compare("ge", block, 0)
            for k in range(depth):
                index = b.convert(frame.load(positions, [*which, b.value(I64, k)]), I64)
                moved, inside = frame.checked(index, frame.dim(outer[k]))
                target.append(moved)
                valid = b.binary("and", valid, inside)
            with b.if_(valid):
                for rest in frame.loops(slices[1:]):
                    value = frame.load(updates, [*which, *own, *rest])
                    _update(frame, y, [*target, *own, *rest], value, reduction)
    cost = sizes.multiply(sizes.add(volume(x.shape), volume(updates.shape)), 2)
    return frame.kernel(blocks, cost)
