"""The left factor of a contraction, copied into the order in which rows can be walked in place.

A contraction sums along the channels of its left factor. Where these lie apart (an image from
outside has its planes one after the other) or where reading is more than a load (borders that
mirror), every block would gather its rows element by element, once for each panel and tap. A copy
with the channels side by side is written once instead.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import extent_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import is_plain_operand
from sardonyx.plan.pad_input import sums_of
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load, make_load
from sardonyx.tensor.tensor import Buffer, Map, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

#: Elements of a row that are worth walking in place.
_SHORTEST = 8

_NO_CHANNELS = Reason(
    "no axis of at least {} elements is summed alone along one of its left factor", _SHORTEST
)
_NO_WINDOW = Reason(
    "what computes its left factor has no windows, or fewer than {} channels", _SHORTEST
)


def in_order(group: Contraction) -> tuple[Map, Buffer, Contraction] | Reason:
    """What the copy is, where it is to lie (row-major), and the contraction that reads it there.

    The reason where there is nothing to walk along.
    """
    if is_plain_operand(group.left):
        return _moved(group)
    return _computed(group)


def _moved(group: Contraction) -> tuple[Map, Buffer, Contraction] | Reason:
    """The tensor that the left factor loads, with the axis of the channels last."""
    (x,) = dict.fromkeys(loads_of(group.left))
    axis = _channel_axis(group, x)
    if axis is None:
        return _NO_CHANNELS
    order = [*(k for k in range(len(x.at)) if k != axis), axis]
    shape = tuple(x.tensor.shape[k] for k in order)
    own = indices(shape)
    at = [own[order.index(k)] for k in range(len(order))]
    copied = make_map(shape, make_load(x.tensor, tuple(at)))
    place = buffer(("moved", copied), shape, x.dtype)
    there = load(place, tuple(x.at[k] for k in order))
    left = rewrite(group.left, lambda y: there if y is x else None)
    return copied, place, replace(group, left=left)


def _channel_axis(group: Contraction, x: Scalar) -> int | None:
    """The axis along which the longest reduced axis runs alone, or beside its group."""
    _, rows = _by_role(group)
    still = {sizes.variable(v) for v in rows}
    best: tuple[int, int] | None = None
    for variable in group.reduced:
        extent, atom = extent_of(variable), sizes.as_atom(variable)
        if atom is None or not isinstance(extent, int) or extent < _SHORTEST:
            continue
        for axis, index in enumerate(x.at):
            linear = sizes.coefficient_of(index, atom)
            if linear is None or linear[0] != 1 or sizes.atoms_of(index, "index") & still:
                continue
            if best is None or extent > best[0]:
                best = extent, axis
    return None if best is None else best[1]


def _computed(group: Contraction) -> tuple[Map, Buffer, Contraction] | Reason:
    """All that windows see, at the sums of rows and taps, with the channels last."""
    batch, rows = _by_role(group)
    left, sums = sums_of(group.left, rows, group.reduced)
    taps = [s.tap for s in sums]
    channels = [v for v in group.reduced if v not in taps and sizes.as_atom(v) is not None]
    if not sums or not _is_long(channels):
        return _NO_WINDOW
    lead = [*batch, *(v for v in rows if all(v is not s.row for s in sums))]
    axes = [*lead, *(s.whole for s in sums), *channels]
    shape = tuple(map(extent_of, axes))
    own = indices(shape)
    atoms = dict(zip(map(sizes.variable, axes), own, strict=True))
    image = make_map(shape, rewrite(left, atoms=atoms))
    place = buffer(("moved", image), shape, left.dtype)
    at = [s.row * s.step + s.tap for s in sums]
    return image, place, replace(group, left=load(place, (*lead, *at, *channels)))


def _is_long(channels: list[Dim]) -> bool:
    extents = [extent_of(v) for v in channels]
    return math.prod(d for d in extents if isinstance(d, int)) >= _SHORTEST


def _by_role(group: Contraction) -> tuple[list[Dim], list[Dim]]:
    ours, others = index_atoms(group.left), index_atoms(group.right)
    mine = [v for v in group.loops if sizes.as_atom(v) in ours]
    batch = [v for v in mine if sizes.as_atom(v) in others]
    return batch, [v for v in mine if v not in batch]
