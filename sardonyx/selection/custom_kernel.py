"""The invocation of a kernel that has loops of its own: its operands and outputs as views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import sardonyx.kernel.custom  # noqa: F401 - registers the kernels
from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.task import CustomTask, View, builder_of, needs_all_outputs
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.groups import CustomKernel
from sardonyx.plan.layout import row_major
from sardonyx.selection.invocation import UNREAD, Invocation, invocation_of
from sardonyx.selection.table import Candidate, Table, always
from sardonyx.tensor.tensor import Buffer, Call, Tensor, indices

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector

Strides = Mapping[Tensor, tuple[Dim, ...]]
Rename = Callable[[Buffer], Buffer]


def special(selector: KernelSelector, group: CustomKernel, strides: Strides) -> Invocation:
    """The invocation that computes `group`."""
    names: dict[Buffer, Buffer] = {}

    def rename(tensor: Buffer) -> Buffer:
        found = names.get(tensor)
        if found is None:
            found = names[tensor] = placeholder(len(names), tensor.shape, tensor.dtype)
        return found

    operands = tuple(_view(*o, strides, rename) for o in group.views)
    outputs = _outputs(group, strides, rename)
    task = CustomTask(
        group.call.kernel, operands, outputs, group.call.attributes, selector.options.lanes
    )
    kernel = selector.kernels.get(task)
    if kernel is None:
        build = builder_of(task.name)
        kernel = selector.kernels[task] = build(task, selector.name(task.name))
    return invocation_of(kernel, {v: k for k, v in names.items()}, group)


@dataclass(frozen=True, slots=True)
class CustomKernelTask:
    """An invocation of a kernel with loops of its own."""

    selector: KernelSelector
    group: CustomKernel
    strides: Strides


def _build(task: CustomKernelTask) -> list[Invocation]:
    return [special(task.selector, task.group, task.strides)]


#: The operator names its kernel: there is no other.
CUSTOM_KERNELS: Table[CustomKernelTask, list[Invocation]] = (
    Candidate("loops of its own", always, _build),
)


def _view(
    tensor: Buffer, shape: tuple[Dim, ...], at: tuple[Dim, ...], strides: Strides, rename: Rename
) -> View:
    offset = sizes.total(i * s for i, s in zip(at, strides[tensor], strict=True))
    steps: list[Dim] = []
    for variable in indices(shape):
        atom = sizes.as_atom(variable)
        linear = (0, offset) if atom is None else sizes.coefficient_of(offset, atom)
        assert linear is not None  # noqa: S101 - the planner gives memory to any other view
        steps.append(linear[0])
        offset = linear[1]
    return View(rename(tensor), tensor.dtype, shape, tuple(steps), offset)


def _outputs(group: CustomKernel, strides: Strides, rename: Rename) -> tuple[View | None, ...]:
    by_number = {r.tensor.output: r for r in group.outputs if isinstance(r.tensor, Call)}
    found: list[View | None] = []
    for number in range(len(group.call.all_outputs)):
        root = by_number.get(number)
        if root is not None:
            buffer = root.buffer
            found.append(View(rename(buffer), buffer.dtype, buffer.shape, strides[buffer]))
        elif needs_all_outputs(group.call.kernel):
            shape, dtype = group.call.all_outputs[number]
            spare = Buffer(shape, dtype, (UNREAD, group.call, number))
            found.append(View(rename(spare), dtype, shape, row_major(shape)))
        else:
            found.append(None)
    return tuple(found)
