"""Which convolutions are computed with Winograd's filters (see `winograd`), and in what blocks."""

from __future__ import annotations

import math
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.language.types import F32
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.micro import ROWS
from sardonyx.kernel.matmul.winograd import TAPS
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.reasons import Reason
from sardonyx.tensor.rewriting import rewrite

#: Fewer channels do not pay for the transforms.
_LEAST_CHANNELS = 16
#: The transformed inputs of a block, or filters of a panel, should stay in the cache of a core.
MOST_KEPT_BYTES = 5 << 18
#: So many times as many tiles have a block where their inputs do not stay there anyway.
_FURTHER = 2
#: Outputs along an axis of which only a run knows how many there are.
_ASSUMED_SIZE = 56
#: Cycles that a transform takes for each place and vector, and bytes of weights that pass in one.
_TRANSFORM_CYCLES = 7
_WEIGHT_BYTES = 8
#: F(4, 3) rounds more and holds more than twice the weights of F(2, 3): it must gain something.
_MORE_IS_WORTH = {2: 0.9, 4: 0.8}


_OFF = Reason("transformed tiles are switched off")
_NOT_WALKED = Reason("its rows are copied, or not summed in float32")
_NO_WINDOW = Reason("its left factor has no windows")
_UNKNOWN = Reason("only a run knows its channels")
_STEPS = Reason("its windows move by more than their taps, so that tiles do not overlap")


@dataclass(frozen=True, slots=True)
class WinogradTiles:
    """How a contraction is such a convolution.

    Attributes:
        outputs: Outputs of a tile along each axis.
        image: The row axes along which tiles lie.
        taps: The reduced axes that move along them.
        apart: Elements between neighbouring taps, and so between those of a tile.
        others: The row axes that are left.
        tiles: Tiles that a block transforms, at most.
    """

    outputs: int
    image: tuple[Dim, Dim]
    taps: tuple[Dim, Dim]
    apart: tuple[int, int]
    others: tuple[Dim, ...]
    tiles: int

    @property
    def side(self) -> int:
        """Inputs of a tile along each axis."""
        return self.outputs + TAPS - 1

    @property
    def places(self) -> int:
        """Products of a tile."""
        return self.side**2

    def tile_axes(self) -> list[Dim]:
        """Extents of the axes that number tiles: as many in a row as taps are apart interlock."""
        pairs = zip(self.image, self.apart, strict=True)
        along = [integer.ceildiv(extent_of(v), self.outputs * apart) * apart for v, apart in pairs]
        return [*map(extent_of, self.others), *along]


def fitting(s: ContractionSchedule, most_tiles: int, outputs: int = -1) -> WinogradTiles | Reason:
    """How a contraction with a constant right factor is best computed so; why directly, if so.

    Args:
        s: The contraction, computed directly.
        most_tiles: How many tiles a block may transform.
        outputs: Those of a tile along each axis that somebody chose, 0 for directly; -1 for what
            takes the fewest cycles.
    """
    if not most_tiles or not outputs:
        return _OFF
    depth, column = s.access.depth_extent, extent_of(s.axes.column)
    if s.element != F32 or not s.access.direct or s.loops.is_long:
        return _NOT_WALKED
    taps = s.access.taps
    if not taps:
        return _NO_WINDOW
    if len(taps) != 2:
        return Reason("its windows have {} axes of taps, not 2", len(taps))
    if not isinstance(depth, int) or not isinstance(column, int):
        return _UNKNOWN
    if depth < _LEAST_CHANNELS:
        return Reason("{} channels, fewer than {}", depth, _LEAST_CHANNELS)
    column = -(-column // s.lanes) * s.lanes  # vectors, full or not
    if any(extent_of(t) != TAPS for t in taps):
        extents = " x ".join(str(extent_of(t)) for t in taps)
        return Reason("{} taps, not {} x {}", extents, TAPS, TAPS)
    image, apart = list[Dim](), list[int]()
    for tap in taps:
        steps = {v: _apart(s, tap, v) for v in s.axes.rows if v not in image}
        along = [(v, step) for v, step in steps.items() if step]
        if not along:
            return _STEPS
        image.append(along[0][0])
        apart.append(along[0][1])
    others = tuple(v for v in s.axes.rows if v not in image)
    best, tiles, tried_cycles = math.inf, None, list[float]()
    for size, worth in _MORE_IS_WORTH.items():
        tried = WinogradTiles(
            size, (image[0], image[1]), (taps[0], taps[1]), (apart[0], apart[1]), others, 0
        )
        if size == outputs:
            return _with_sizes(s, tried, depth, most_tiles)
        best = min(best, _direct_cycles(s, tried, depth * column))
        cycles = _cycles(s, tried, depth, column)
        tried_cycles.append(cycles)
        if cycles < worth * best:
            best, tiles = cycles, _with_sizes(s, tried, depth, most_tiles)
    if tiles is None:
        what = "direct sums take {:.3g} cycles, tiles of 2 x 2 {:.3g}, tiles of 4 x 4 {:.3g}"
        return Reason(what, best, *tried_cycles)
    return tiles


def _apart(s: ContractionSchedule, tap: Dim, row: Dim) -> int:
    """How many elements of a row axis are between neighbours of a tap, if the left factor depends
    on that sum of the two alone; else 0.
    """
    moved = sizes.variable(tap)
    for index in s.factors.body.at:
        along, across = (sizes.coefficient_of(index, sizes.variable(v)) for v in (tap, row))
        if moved in sizes.atoms_of(index, "index") and along is not None and across is not None:
            apart = _ratio(along[0], across[0])
            atoms = {sizes.variable(row): row + tap * -apart}
            where = [substitute(s.access.offset, atoms)]
            if s.factors.window is not None:
                where += dims_of(rewrite(s.factors.window, atoms=atoms))
            return 0 if any(moved in sizes.atoms_of(d, "index") for d in where) else apart
    return 0


def _ratio(along: Dim, across: Dim) -> int:
    """How often the one step goes into the other, a positive number; else 0."""
    if along == across:
        return int(along != 0)
    if isinstance(along, int) and isinstance(across, int) and across > 0 and along % across == 0:
        return max(0, along // across)
    return 0


def _size(extent: Dim, otherwise: int = _ASSUMED_SIZE) -> int:
    return extent if isinstance(extent, int) else otherwise


def _images(form: WinogradTiles) -> int:
    """How many images there are; one, where only a run knows."""
    return math.prod(_size(extent_of(v), 1) for v in form.others)


def _tile_count(form: WinogradTiles) -> int:
    pairs = zip(form.image, form.apart, strict=True)
    along = [-(-_size(extent_of(v)) // (form.outputs * apart)) * apart for v, apart in pairs]
    return _images(form) * math.prod(along)


def _direct_cycles(s: ContractionSchedule, form: WinogradTiles, work: int) -> float:
    rows: float = _images(form) * math.prod(_size(extent_of(v)) for v in form.image)
    if s.has_far_taps:  # those that meet only padding are left out: the outer ones near a border
        for v, apart in zip(form.image, form.apart, strict=True):
            rows *= (1 + (TAPS - 1) * max(0.0, 1 - apart / max(1, _size(extent_of(v))))) / TAPS
    return rows * TAPS**2 * work / s.lanes + 4 * TAPS**2 * work / _WEIGHT_BYTES


def _cycles(s: ContractionSchedule, form: WinogradTiles, depth: int, column: int) -> float:
    work = form.places * depth * column
    moved = form.places * _TRANSFORM_CYCLES * (2 * depth + column)
    return _tile_count(form) * (work + moved) / s.lanes + 4 * work / _WEIGHT_BYTES


def _with_sizes(
    s: ContractionSchedule, form: WinogradTiles, depth: int, most_tiles: int
) -> WinogradTiles:
    """The form with the size of its blocks.

    Filters pass a core once for each block. Where the inputs of so many tiles as a block may have
    would not stay in its cache, fewer do, or the double comes from memory for each panel as
    filters do: whatever moves fewer elements for each tile, place and channel.
    """
    fit = MOST_KEPT_BYTES // (form.places * depth * s.element.size_bytes)
    tiles = max(ROWS[0], min(most_tiles, fit // ROWS[0] * ROWS[0]))
    panels, many = s.panels(), _FURTHER * most_tiles
    assert isinstance(panels, int)  # noqa: S101 - `fitting` saw that the columns are known
    columns = panels * s.width
    if tiles < most_tiles and columns / many + panels + 1 < columns / tiles:
        tiles = many
    if all(isinstance(d, int) for d in form.tile_axes()):
        tiles = max(1, min(tiles, _tile_count(form)))
    return replace(form, tiles=tiles)
