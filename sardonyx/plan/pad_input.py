"""Convolutions of few channels read an image that is laid out for them.

A window over an image of three channels, one plane after the other, is many short runs of elements,
and at the borders some of them are not there. Where the left factor of a contraction depends on
sums `step * row + tap`, it is written once with those sums as axes: borders and all, channels last,
so that a window's last tap and all its channels are one run. Spectra of a signal by convolution,
and the first layer of most vision models are such contractions. Where windows do not overlap
(patches), all of a window is one run.

Where factors are 8-bit codes, the image has codes, the border that of 0, and runs end with a few
elements that belong to no tap, whose factors are 0: kernels take four at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.codes import Codes
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, buffer, indices, make_map

#: How many codes a kernel takes at a time.
GROUP = 4
#: With more channels, each tap is a run that is long enough.
_MOST_CHANNELS = 7
#: The shortest run that is worth it where each panel reads its rows anew, and on a device.
LEAST_RUN, LEAST_ON_DEVICE = 3, 8


_UNKNOWN = Reason("only a run knows how long its sums are")
_NO_WINDOW = Reason("its left factor has no windows")


@dataclass(frozen=True, slots=True)
class Sum:
    """`step * row + tap`, in place of which `whole` stands: index variables."""

    row: Dim
    tap: Dim
    step: int
    whole: Dim


def with_borders(
    group: Contraction, least_run: int = LEAST_RUN
) -> tuple[Map, Buffer, Contraction] | Reason:
    """What the image is, where it is to lie (row-major), and the contraction that reads it there.

    The reason where the contraction is no convolution of few channels, or its runs are shorter
    than `least_run` elements.
    """
    integers = integer_factors(group)
    codes = None if integers is None else integers[0]
    left = scalar.cast(group.left, group.accumulator) if codes is None else codes.filled
    ours, others = index_atoms(left), index_atoms(group.right)
    rows = [v for v in group.loops if _is_in(v, ours) and not _is_in(v, others)]
    batch = [v for v in group.loops if _is_in(v, ours) and _is_in(v, others)]
    reduced = [v for v in group.reduced if sizes.as_atom(v) is not None]
    if not all(isinstance(extent_of(v), int) for v in reduced):
        return _UNKNOWN
    least = [v for v in reduced if all(_step(left, row, v) is None for row in rows)]
    found = math.prod(_known(v) for v in least)
    if found > _MOST_CHANNELS:
        return Reason("{} channels, more than {}: each tap is long enough", found, _MOST_CHANNELS)
    left, sums = sums_of(left, rows, reduced)
    taps = [s.tap for s in sums]
    channels = [v for v in reduced if v not in taps]
    count = math.prod(_known(v) for v in channels)
    if not sums:
        return _NO_WINDOW
    if not 0 < count <= _MOST_CHANNELS:
        return Reason("{} channels, more than {}: each tap is long enough", count, _MOST_CHANNELS)
    run = _known(taps[-1]) * count
    if run < least_run:
        return Reason("a run would have {} elements, fewer than {}", run, least_run)
    lead = [*batch, *(v for v in rows if all(v is not s.row for s in sums))]
    apart = len(sums) > 1 and all(s.step >= _known(s.tap) for s in sums)
    lay = _patches if apart else _written
    return lay(group, left, codes, lead, sums, channels)


def _written(
    group: Contraction,
    left: Scalar,
    codes: Codes | None,
    lead: list[Dim],
    sums: list[Sum],
    channels: list[Dim],
) -> tuple[Map, Buffer, Contraction]:
    count = math.prod(_known(v) for v in channels)
    *outer, last = sums
    wholes = [extent_of(s.whole) for s in outer]
    length = _known(last.tap) * count
    spare = 0 if codes is None else -length % GROUP
    along = extent_of(last.whole) * count + spare
    shape = (*map(extent_of, lead), *wholes, along)
    own = indices(shape)
    atoms = dict(zip(map(sizes.variable, [*lead, *(s.whole for s in outer)]), own, strict=False))
    atoms |= _split(own[-1], last.whole, channels)
    body = rewrite(left, atoms=atoms)
    if spare:
        behind = scalar.size(own[-1]) < scalar.size(along - spare)
        body = scalar.select(behind, body, scalar.constant(0, left.dtype))
    image = make_map(shape, body)
    place = buffer(("image", image), shape, left.dtype)
    run = sizes.numbered_index(length + spare, 0, "run")
    at = [s.row * s.step + s.tap for s in outer]
    start = last.row * (last.step * count)
    inside = load(place, (*lead, *at, start + run))
    reduced = (*(s.tap for s in outer), run)
    return image, place, _over_runs(group, codes, inside, reduced, last.tap, channels)


def _over_runs(
    group: Contraction,
    codes: Codes | None,
    inside: Scalar,
    reduced: tuple[Dim, ...],
    along: Dim,
    others: Sequence[Dim],
) -> Contraction:
    """The contraction that reads runs: the last of `reduced`, of all of `along` and `others`."""
    run = reduced[-1]
    length = math.prod(_known(v) for v in (along, *others))
    right = rewrite(group.right, atoms=_split(run, along, others))
    if codes is not None:
        inside = replace(codes, code=inside, window=None).whole
    if _known(run) > length:
        tapped = scalar.size(run) < scalar.size(length)
        right = scalar.select(tapped, right, 0)
    return replace(group, left=inside, right=right, reduced=reduced)


def _patches(
    group: Contraction,
    left: Scalar,
    codes: Codes | None,
    lead: list[Dim],
    sums: list[Sum],
    channels: list[Dim],
) -> tuple[Map, Buffer, Contraction]:
    """Windows that do not overlap are rows of a matrix: no larger, and one run each."""
    order: list[Dim] = [*channels, *(s.tap for s in sums)]
    first, others = order[0], order[1:]
    length = math.prod(_known(v) for v in (first, *others))
    spare = 0 if codes is None else -length % GROUP
    axes = [*lead, *(s.row for s in sums)]
    shape = (*map(extent_of, axes), length + spare)
    own = indices(shape)
    at = dict(zip(map(sizes.variable, axes), own, strict=False))
    parts = _split(own[-1], first, others)
    for s in sums:
        begin = at[sizes.variable(s.row)] * s.step
        parts[sizes.variable(s.whole)] = begin + parts[sizes.variable(s.tap)]
    body = rewrite(left, atoms=at | parts)
    if spare:
        behind = scalar.size(own[-1]) < scalar.size(length)
        body = scalar.select(behind, body, scalar.constant(0, left.dtype))
    matrix = make_map(shape, body)
    place = buffer(("image", matrix), shape, left.dtype)
    run = sizes.numbered_index(length + spare, 0, "run")
    return matrix, place, _over_runs(group, codes, load(place, (*axes, run)), (run,), first, others)


def _split(flat: Dim, along: Dim, channels: Sequence[Dim]) -> dict[Atom, Dim]:
    """A position along an axis, and the channels, of their common number."""
    found: dict[Atom, Dim] = {}
    for variable in reversed(channels):
        found[sizes.variable(variable)] = integer.modulo(flat, extent_of(variable))
        flat = integer.floordiv(flat, extent_of(variable))
    found[sizes.variable(along)] = flat
    return found


def sums_of(left: Scalar, rows: Sequence[Dim], reduced: Sequence[Dim]) -> tuple[Scalar, list[Sum]]:
    """Where an expression depends on sums of a row axis and a tap; the expression over these."""
    sums: list[Sum] = []
    for tap in reduced:
        for row in rows:
            found = None if any(s.row is row for s in sums) else _sum(left, row, tap, len(sums))
            if found is not None:
                sums.append(found)
                left = rewrite(left, atoms=_in_place_of(found))
                break
    return left, sums


def _sum(left: Scalar, row: Dim, tap: Dim, number: int) -> Sum | None:
    """The sum of a row axis and a tap, if nothing depends on either of them otherwise."""
    step = _step(left, row, tap)
    if step is None:
        return None
    reach = (extent_of(row) - 1) * step + extent_of(tap)
    # Nothing is read for no rows at all: the image may be smaller than a window.
    extent = reach * integer.minimum(extent_of(row), 1)
    found = Sum(row, tap, step, sizes.numbered_index(extent, number, "sum"))
    moved = rewrite(left, atoms=_in_place_of(found))
    back = row * step + tap
    return found if rewrite(moved, atoms={sizes.variable(found.whole): back}) is left else None


def _step(left: Scalar, row: Dim, tap: Dim) -> int | None:
    for dim in dims_of(left):
        if sizes.variable(tap) not in sizes.atoms_of(dim, "index"):
            continue
        along, across = (sizes.coefficient_of(dim, sizes.variable(v)) for v in (tap, row))
        if along is None or across is None or along[0] != 1:
            return None
        return across[0] if isinstance(across[0], int) and across[0] > 0 else None
    return None


def _in_place_of(s: Sum) -> dict[Atom, Dim]:
    return {sizes.variable(s.row): 0, sizes.variable(s.tap): s.whole}


def _is_in(variable: Dim, atoms: set[Atom]) -> bool:
    return sizes.as_atom(variable) in atoms


def _known(variable: Dim) -> int:
    extent = extent_of(variable)
    assert isinstance(extent, int)  # noqa: S101 - `with_borders` looked
    return extent
