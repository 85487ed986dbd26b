"""Axes that hold an image's rows side by side, as two axes again.

Transformers hand images on as sequences: element (i, j) lies at `16 * i + j`, and a window over it
reads `16 * (i + di) + j + dj`. Said as (i + di, j + dj) of two axes, with the same addresses, only
extents tell such a window from one over another image.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.canonical import Canonical, placeholder
from sardonyx.plan.groups import LoopNest, Stage
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

#: Shorter rows are no image's.
_LEAST = 4

Indices = tuple[Dim, ...]


def unfolded(canonical: Canonical) -> Canonical:
    """The same group, whose buffers have two axes wherever all indices of one are of that form."""
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    accesses: dict[Buffer, list[Indices]] = {}
    for s in g.stages:
        accesses.setdefault(s.root.buffer, []).append(s.indices)
        for x in loads_of(s.body):
            accesses.setdefault(x.buffer, []).append(x.at)
    widths = {b: _widths(b, places) for b, places in accesses.items()}
    if not any(map(any, widths.values())):
        return canonical
    made = {
        b: placeholder(number, _shape(b.shape, widths[b]), b.dtype)
        for number, b in enumerate(accesses)
    }
    strides: dict[Tensor, Indices] = {
        made[b]: tuple(
            step
            for old, width in zip(canonical.strides[b], widths[b], strict=True)
            for step in ((old * width, old) if width else (old,))
        )
        for b in accesses
    }

    def moved(x: Scalar) -> Scalar:
        return load(made[x.buffer], _split(x.at, widths[x.buffer]))

    stages = [
        Stage(
            replace(s.root, buffer=made[s.root.buffer]), s.kind, rewrite(s.body, moved),
            _split(s.indices, widths[s.root.buffer]), s.full, s.stored,
        )
        for s in g.stages
    ]  # fmt: skip
    found = Canonical(LoopNest(g.outer, g.inner, stages), strides)
    before = {new: canonical.buffers[old] for old, new in made.items()}
    found.buffers = {b: before[new] for b, new in found.buffers.items()}
    return found


def _widths(buffer: Buffer, places: Iterable[Indices]) -> list[int]:
    """For each axis of a buffer how long the rows are that it holds; 0 if it stays as it is."""
    found = []
    for extent, indices in zip(buffer.shape, zip(*places, strict=True), strict=True):
        widths = {_width(extent, index) for index in indices}
        found.append(widths.pop() if len(widths) == 1 else 0)
    return found


def _width(extent: Dim, index: Dim) -> int:
    """How long the rows are of which an index says row and column; 0 if it does not."""
    terms = [(atoms, step) for atoms, step in sizes.terms_of(index) if atoms]
    if not isinstance(extent, int) or any(len(atoms) > 1 or step < 1 for atoms, step in terms):
        return 0
    steps = sorted(step for _, step in terms)
    for k in range(1, len(steps)):
        width = math.gcd(*steps[k:])
        if width > max(_LEAST, *steps[:k]) and extent % width == 0 and extent > width:
            return width
    return 0


def _shape(extents: Indices, widths: list[int]) -> Indices:
    """Extents with two, rows and their length, in place of those that hold rows."""
    found: list[Dim] = []
    for extent, width in zip(extents, widths, strict=True):
        found += (integer.floordiv(extent, width), width) if width else (extent,)
    return tuple(found)


def _split(indices: Indices, widths: list[int]) -> Indices:
    """Indices with two in place of those along axes that hold rows."""
    found: list[Dim] = []
    for index, width in zip(indices, widths, strict=True):
        found += _row_and_column(index, width) if width else (index,)
    return tuple(found)


def _row_and_column(index: Dim, width: int) -> tuple[Dim, Dim]:
    """Which row, and where in it; the latter may be a little before the row, or behind it."""
    row: Dim = 0
    column: Dim = 0
    for atoms, step in sizes.terms_of(index):
        if not atoms:
            rest = (step + width // 2) % width - width // 2
            row = row + (step - rest) // width
            column = column + rest
        elif step % width == 0:
            row = row + sizes.of_monomial(atoms, step // width)
        else:
            column = column + sizes.of_monomial(atoms, step)
    return row, column
