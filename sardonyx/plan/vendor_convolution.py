"""Contractions that are convolutions, as libraries know them: images, filters, windows."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.roles import index_atoms, roles
from sardonyx.plan.vendor_offers import (
    OfferEpilogue,
    Operand,
    Strides,
    length_of,
    origin_of,
    step_along,
)
from sardonyx.tensor.scalar import Scalar, whole_number

#: More spatial axes no library has.
_MOST_SPATIAL = 3


def convolution_numbers(spatial: int) -> tuple[str, ...]:
    """Names of the numbers of a convolution with so many spatial axes."""
    each = ("size", "filter", "out", "stride", "dilation", "pad", "image_step", "out_step")
    counts = ("n", "channels", "filters", "groups")
    whole = (*counts, "image_n", "image_channel", "out_n", "out_filter")
    return (*whole, *(f"{name}_{axis}" for axis in range(spatial) for name in each))


class Windows:
    """A contraction as a convolution, if its indices allow.

    Attributes:
        refusal: Why they do not; "" if they do.
        image: The load of the image.
        filters: Variables of the filters' axes: group, filter of it, one for each spatial axis,
            channel of it. Without groups there is no axis of them.
        bias, residual: Added loads of each kind.
        numbers: See `convolution_numbers`.
        out, biases, residuals: Operands.

    Args:
        group: The contraction.
        finish: What of its epilogue is to be part of it.
        strides: Of all buffers.
    """

    def __init__(self, group: Contraction, finish: OfferEpilogue, strides: Strides) -> None:
        self.group, self.finish = group, finish
        self.bias: list[Scalar] = []
        self.residual: list[Scalar] = []
        self.refusal = self._read(strides)

    def _read(self, strides: Strides) -> str:
        group, image, window = self.group, self.group.left, None
        if image.op == "select" and image.arguments[2].op == "constant":
            if image.arguments[2].payload != 0:
                return "what lies outside the image is not 0"
            window, image = image.arguments[0], image.arguments[1]
        found = roles(group)
        if image.op != "load" or found is None:
            return "no image is read in place"
        spatial = len(image.at) - 2
        if not 1 <= spatial <= _MOST_SPATIAL:
            return "it has no spatial axes, or too many"
        batch, rows, columns = found
        if len(batch) > 1:
            return "it goes over several axes besides rows and columns"
        if len(columns) != 1:
            return "it has several axes of filters"
        self.image = image
        column, at = columns[0], image.at
        right = index_atoms(group.right)
        channel = at[1]
        if batch:
            channel = self._channel_of_group(batch[0], channel)
            if channel == 0:
                return "its groups have one channel each, or are none of the image's channels"
        if channel != 0 and not (channel in group.reduced and sizes.as_atom(channel) in right):
            return "the second axis of the image is not summed as its channels"
        if at[0] != 0 and at[0] not in rows:
            return "the first axis of the image is no batch"
        axes = []
        for axis in range(spatial):
            read = self._axis(at[axis + 2], rows, group.reduced)
            if read is None:
                return "a spatial index is none of a window"
            axes.append(read)
        used = [at[0], *(a[0] for a in axes)]
        taps = [a[1] for a in axes]
        if {*rows, *group.reduced} - {*used, *taps, channel}:
            return "an axis is not one of a window"
        if len({v for v in used if v != 0}) < sum(v != 0 for v in used):
            return "two axes of the image move together"
        if window is not None and not self._is_border(window):
            return "the window is cut by more than the image's border"
        return self._measure(strides, column, channel, batch[0] if batch else 0, axes)

    def _channel_of_group(self, group: Dim, index: Dim) -> Dim:
        """The variable of a group's channels; 0 if the index does not go from group to group."""
        found = sizes.coefficient_of(index, sizes.variable(group))
        if found is None or sizes.as_atom(found[1]) is None or found[1] not in self.group.reduced:
            return 0
        return found[1] if found[0] == extent_of(found[1]) else 0

    @staticmethod
    def _axis(
        index: Dim, rows: list[Dim], reduced: tuple[Dim, ...]
    ) -> tuple[Dim, Dim, int, int, int] | None:
        """Out variable, tap, stride, dilation and padding of a spatial index."""
        out: Dim = 0
        tap: Dim = 0
        stride = dilation = 1
        for atom in sizes.atoms_of(index, "index"):
            variable = sizes.of_atom(atom)
            linear = sizes.coefficient_of(index, atom)
            if linear is None or not isinstance(linear[0], int) or linear[0] < 1:
                return None
            if variable in rows and out == 0:
                out, stride = variable, linear[0]
            elif variable in reduced and tap == 0:
                tap, dilation = variable, linear[0]
            else:
                return None
            index = linear[1]
        if not isinstance(index, int) or index > 0:
            return None
        return out, tap, stride, dilation, -index

    def _is_border(self, condition: Scalar) -> bool:
        """Whether a condition asks for no more than that the indices are inside the image."""
        if condition.op == "and":
            return all(map(self._is_border, condition.arguments))
        if condition.op not in ("ge", "lt"):
            return False
        index, limit = map(whole_number, condition.arguments)
        for axis in range(2, len(self.image.at)):
            if index is not None and index == self.image.at[axis]:
                inside = 0 if condition.op == "ge" else self.image.tensor.shape[axis]
                return limit == inside
        return False

    def _measure(
        self,
        strides: Strides,
        column: Dim,
        channel: Dim,
        groups: Dim,
        axes: list[tuple[Dim, Dim, int, int, int]],
    ) -> str:
        group, image = self.group, self.image
        offset = offset_of(strides[group.root.buffer], group.at)
        # Filters of a group lie behind those of the one before.
        variables = [self.image.at[0], column, *(a[0] for a in axes), groups]
        own_filters = 0 if groups == 0 else extent_of(column)
        out = [step_along(offset, v) for v in variables]
        if any(s is None for s in out) or out[1] != 1 or out[-1] != own_filters:
            return "its filters do not lie side by side in the result"
        for added in self.finish.added:
            place = offset_of(strides[added.tensor], added.at)
            own = [step_along(place, v) for v in variables]
            if added.dtype is not group.root.buffer.dtype:
                continue
            if own == [0, 1, *[0] * len(axes), own_filters]:
                self.bias.append(added)
            elif own == out:
                self.residual.append(added)
        if len(self.bias) + len(self.residual) < len(self.finish.added) or len(self.residual) > 1:
            return "what is added is neither one for each filter nor of the result's form"
        steps, shape = strides[image.tensor], image.tensor.shape
        many = length_of(groups)
        numbers: list[Dim] = [
            length_of(image.at[0]), shape[1], many * extent_of(column), many,
            steps[0], steps[1], *(s for s in out[:2] if s is not None),
        ]  # fmt: skip
        for axis, (variable, tap, stride, dilation, pad) in enumerate(axes):
            step = out[axis + 2]
            numbers += [
                shape[axis + 2], length_of(tap), length_of(variable), stride, dilation, pad,
                steps[axis + 2], 0 if step is None else step,
            ]  # fmt: skip
        if many * length_of(channel) != shape[1]:
            return "it sums a part of the channels"
        self.numbers = tuple(numbers)
        filters = (groups, column) if groups != 0 else (column,)
        self.filters = (*filters, *(a[1] for a in axes), channel)
        self.out = Operand(group.root.buffer, origin_of(offset))
        self.residuals = tuple(
            Operand(x.buffer, origin_of(offset_of(strides[x.tensor], x.at))) for x in self.residual
        )
        self.biases = tuple(
            Operand(x.buffer, origin_of(offset_of(strides[x.tensor], x.at))) for x in self.bias
        )
        return ""

    def numbers_with(self, steps: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The numbers, for an image with other strides."""
        spatial = len(steps) - 2
        names = convolution_numbers(spatial)
        found = dict(zip(names, self.numbers, strict=True))
        found |= {"image_n": steps[0], "image_channel": steps[1]}
        found |= {f"image_step_{axis}": steps[axis + 2] for axis in range(spatial)}
        return tuple(found.values())
