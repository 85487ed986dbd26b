"""Copies that step evenly: whatever axes weights have, one kernel packs them.

What lies in panels was a matrix, or filters, before: as steps, both are the same. Axes that source
and target walk as one are one; what is left is put in one order, with as many axes of one element
as it takes. Here the panels `p[i, h, w, c, l] = f[48 * i + l, c, h, w]` of filters of 3 by 3 taps
over 64 channels become `p[i, c, t, l]`, with steps 48 * 576, 9, 1, 576 in the source, where t runs
over 9 taps; and those of a matrix have one c.
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import offset_of
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.layout import row_major
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_copy import GeneralCopy, lanes_extent
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, Tensor, indices, make_map

#: Axes besides that of the lanes, and that along which the source lies: each takes a division.
_LEAST, _MOST = 1, 2


_UNKNOWN = Reason("it has no axes, or only a run knows its sizes")
_COMPUTES = Reason("it is more than elements of one tensor, with zeros behind them")
_UNEVEN = Reason("it does not go through its source in even steps")
_APART = Reason("its source does not lie side by side along any axis")


@dataclass(slots=True)
class _Axis:
    """An axis: its extent, its steps in source and target, and in the index that is limited."""

    extent: int
    source: int
    target: int
    limited: int = 0


def strided_copy(
    contents: Map, target: Buffer, strides: Mapping[Tensor, tuple[Dim, ...]]
) -> GeneralCopy | Reason:
    """A map of a constant as a copy for any sizes and steps; why it does not step evenly.

    Args:
        contents: What is written: elements of one tensor, perhaps 0 from some index on.
        target: Where, row-major.
        strides: Of what it reads.
    """
    if not contents.shape or not all(isinstance(d, int) and d > 0 for d in contents.shape):
        return _UNKNOWN
    found = _limit(contents.body)
    if found is None:
        return _COMPUTES
    body, limited, limit = found
    source = body.buffer
    offset = offset_of(strides.get(source) or row_major(source.shape), body.at)
    axes = _axes(contents.shape, offset, limited)
    if axes is None or axes[-1].target != 1:
        return _UNEVEN
    *others, last = axes
    inner = [] if last.source == 1 else [a for a in others if a.source == 1][-1:]
    outer = [a for a in others if a not in inner]
    if len(outer) > _MOST:
        return Reason("{} axes besides the innermost, more than {}", len(outer), _MOST)
    if not (inner or last.source == 1):
        return _APART
    # The axis that counts panels comes first: its index is limited together with the last one's.
    outer.sort(key=lambda a: (not a.limited, -a.target))
    outer += [_Axis(1, 0, 0) for _ in range(_LEAST - len(outer))]
    if any(a.limited for a in (*outer[1:], *inner)) or (limited != 0 and last.limited != 1):
        return _UNEVEN
    return _made(contents, target, source, [*outer, *inner, last], limit)


def _limit(body: Scalar) -> tuple[Scalar, Dim, int] | None:
    """What is read, the index that is less than a number where it is read, and that number.

    The index is 0 where everything is read.
    """
    if body.op == "load":
        return body, 0, 1
    if body.op != "select":
        return None
    condition, inside, outside = body.arguments
    if inside.op != "load" or outside.op != "constant" or outside.payload != 0:
        return None
    if condition.op != "lt" or [a.op for a in condition.arguments] != ["size", "constant"]:
        return None
    index, end = condition.arguments
    return inside, index.dim, int(end.payload)


def _axes(shape: tuple[Dim, ...], offset: Dim, limited: Dim) -> list[_Axis] | None:
    """The axes of more than one element, those that are walked as one merged."""
    found: list[_Axis] = []
    for index, extent, target in zip(indices(shape), shape, row_major(shape), strict=True):
        if extent == 1:
            continue
        atom = sizes.variable(index)
        steps = []
        for value in (offset, limited):
            linear = sizes.coefficient_of(value, atom)
            if linear is None or not isinstance(linear[0], int) or linear[0] < 0:
                return None
            steps.append(linear[0])
        offset, limited = (
            value + index * -step for value, step in zip((offset, limited), steps, strict=True)
        )
        made = _Axis(int(extent), steps[0], int(target), steps[1])
        before = found[-1] if found else None
        if (
            before is not None
            and not (before.limited or made.limited)
            and before.source == made.source * made.extent
        ):
            made.extent *= before.extent
            found.pop()
        found.append(made)
    return found if found and offset == 0 and limited == 0 else None


def _made(
    contents: Map, target: Buffer, source: Buffer, axes: list[_Axis], limit: int
) -> GeneralCopy:
    values: dict[Atom, Dim] = {}

    def symbol(name: str, value: int) -> Dim:
        made = sizes.symbol(f"general {name}")
        values[sizes.variable(made)] = value
        return made

    *others, last = axes
    outer = tuple(symbol(f"extent {k}", a.extent) for k, a in enumerate(others))
    shape = (*outer, lanes_extent(last.extent, values))
    read, write = list[Dim](), list[Dim]()
    for k, axis in enumerate(axes):
        lies_along = axis.source == 1 and (axis is last or axis is others[-1])
        read.append(1 if lies_along else symbol(f"from {k}", axis.source))
        write.append(1 if axis is last else symbol(f"to {k}", axis.target))
    stand_in = placeholder(0, shape, source.dtype)
    place = placeholder(1, shape, contents.dtype)
    own = indices(shape)
    body = load(stand_in, own)
    if last.limited:
        index = own[0] * symbol("step", axes[0].limited) + own[-1]
        inside = scalar.size(index) < scalar.size(symbol("limit", limit))
        body = scalar.select(inside, body, scalar.constant(0, source.dtype))
    return GeneralCopy(
        make_map(shape, body), place, {stand_in: tuple(read), place: tuple(write)},
        {stand_in: source, place: target}, values,
    )  # fmt: skip
