"""Sizes of the tiles of a product, by what they leave of the device."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.gpu.tile_factor import WORD
from sardonyx.kernel.language.compiled import symbols_of
from sardonyx.kernel.language.context import TICKETS
from sardonyx.kernel.loops.block_sizes import Tiling

#: Bytes along the depth that one step has.
STEP_BYTES = 64
#: Rows in which the threads lie that sum a tile without matrix units.
SUM_ROWS = 8
#: Elements between the ends of two rows of a finished tile: other banks for the next row.
GAP = 8
#: Behind a finished tile there is room for a word.
BEHIND_BYTES = 16


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile and the four warps that compute it.

    Attributes:
        rows, columns: Sizes of the tile.
        warp_rows, warp_columns: How the warps lie in it.
        stages: Steps of the sum that shared memory holds.
    """

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int = 3

    def shared_bytes(self, sum_bytes: int) -> int:
        """Shared memory that its steps need, or its sums of so many bytes, which lie there at last.

        Sums of matrix units go there in parts: their `sum_bytes` are 0.
        """
        staged = self.stages * (self.rows + self.columns) * STEP_BYTES
        return max(staged, self.rows * (self.columns + GAP) * sum_bytes + BEHIND_BYTES)

    @property
    def may_split(self) -> bool:
        """Whether a finished tile fits into shared memory, so that parts of sums can meet."""
        return self.rows * self.columns <= 64 * 128


@dataclass(frozen=True, slots=True)
class TileChoice:
    """One way to compute a product.

    Attributes:
        shape: Of its tiles.
        parts: Into how many parts the sum is cut, each by a thread block of its own.
        used: 1 if a run is to use it, else 0.
    """

    shape: TileShape
    parts: Dim = 1
    used: Dim = 1


@dataclass(frozen=True, slots=True)
class Extents:
    """Sizes of a product: `lead` matrices of `rows` by `columns`, summed in `steps` steps."""

    rows: Dim
    columns: Dim
    lead: Dim
    steps: Dim

    @property
    def are_known(self) -> bool:
        """Whether all are numbers, rather than sizes that a run brings."""
        return all(isinstance(x, int) for x in (self.rows, self.columns, self.lead, self.steps))

    def tiles(self, shape: TileShape) -> Dim:
        """Tiles of all matrices."""
        down = integer.ceildiv(self.rows, shape.rows)
        across = integer.ceildiv(self.columns, shape.columns)
        return sizes.product((self.lead, down, across))


#: For matrix units, with the part of the best rate that each reaches.
_MATRIX = (
    (TileShape(128, 128, 2, 2), 1.0),
    (TileShape(128, 64, 2, 2, 4), 0.85),
    (TileShape(64, 128, 2, 2, 4), 0.85),
    (TileShape(64, 64, 2, 2, 4), 0.65),
    (TileShape(32, 64, 2, 2, 4), 0.5),
    (TileShape(16, 64, 1, 4, 4), 0.3),
)
_FMA = ((TileShape(64, 64, 1, 4), 1.0), (TileShape(32, 64, 1, 4), 0.8))

#: Elements of a step that a device's costs are of.
_AREA = 128 * 128
#: Elements of a large tile, of which two fit on a multiprocessor; of others three.
_LARGE = 64 * 128
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Bytes along the depth that a part of a sum has at least.
_LEAST_BYTES = 512


Rated = Sequence[tuple[TileShape, float]]


def shapes_of(kind: str, sum_bytes: int, tiling: Tiling) -> Rated:
    """Tiles for a unit that fit into shared memory, largest first; with the rate of each."""
    device = tiling.thread_blocks
    if kind != "fma":
        return [pair for pair in _MATRIX if pair[0].shared_bytes(0) <= device.shared_bytes]
    # A thread sums words of rows times words of columns, see `SumMultiplier`.
    word = WORD // sum_bytes
    down, across = SUM_ROWS * word, device.threads // SUM_ROWS * word
    return [
        (shape, rate)
        for shape, rate in _FMA
        if shape.shared_bytes(sum_bytes) <= device.shared_bytes
        and not shape.rows % down
        and not shape.columns % across
    ]


def cycles(kind: str, shapes: Rated, extents: Extents, tiling: Tiling) -> int | None:
    """Cycles of the device that the best way takes; None where a run brings sizes.

    For the arguments see `choose`.
    """
    if not extents.are_known:
        return None
    return round(min(time for time, _ in _times(kind, shapes, extents, tiling)))


def choose(kind: str, shapes: Rated, extents: Extents, tiling: Tiling) -> list[TileChoice]:
    """Ways to compute a product, of which each run uses one.

    Args:
        kind: What multiplies, see `Unit`.
        shapes: What `shapes_of` gives for it: one at least.
        extents: Sizes of the product.
        tiling: What is known of the device.
    """
    e = extents
    if e.are_known:
        times = _times(kind, shapes, extents, tiling)
        return [min(times, key=lambda pair: pair[0])[1]]
    large, small = _candidates(shapes, extents)
    # Large tiles are worth their price from about 60 % of the multiprocessors on.
    enough = integer.floordiv(e.tiles(large) * 5, 3 * tiling.processors)
    symbols = {a.name: 1 for a in symbols_of(enough)}
    if sizes.evaluate(enough, symbols) > 0:  # and more, where sizes are larger
        return [TileChoice(large)]
    used: Dim = 0 if large == small else integer.minimum(1, enough)
    count = integer.maximum(1, e.tiles(small))
    parts: Dim = integer.floordiv(tiling.processors * 3 // 2, count)
    parts = integer.minimum(parts, integer.floordiv(e.steps, _LEAST_BYTES // STEP_BYTES))
    unused = 1 - used
    found = [TileChoice(large, 1, used), TileChoice(small, integer.maximum(1, parts), unused)]
    return [c for c in found if c.used != 0]


def _candidates(rated: Rated, extents: Extents) -> tuple[TileShape, TileShape]:
    shapes = [shape for shape, _ in rated]
    rows, columns = extents.rows, extents.columns
    fitting = [
        s for s in shapes
        if not (isinstance(rows, int) and s.rows >= 2 * max(16, rows))
        and not (isinstance(columns, int) and s.columns >= 2 * max(64, columns))
    ]  # fmt: skip
    fitting = fitting or shapes[-1:]
    small = [s for s in fitting if s.may_split and s.rows <= 64 and s.columns == 64]
    return fitting[0], (small or fitting[-1:])[0]


def _times(
    kind: str, shapes: Rated, extents: Extents, tiling: Tiling
) -> list[tuple[float, TileChoice]]:
    """Ways to compute a product, with the cycles that each should take."""
    e = extents
    steps, costs = int(e.steps), tiling.thread_blocks.costs
    times: list[tuple[float, TileChoice]] = []
    for shape, rate in shapes:
        tiles = int(e.tiles(shape))
        area = shape.rows * shape.columns
        together = 2 if area >= _LARGE else 3
        busy, alone = (dict(x)[kind] * area / _AREA for x in (costs.busy, costs.alone))
        for parts in _PARTS:
            each = -(-steps // parts)
            short = each * STEP_BYTES < _LEAST_BYTES
            if parts > 1 and (short or not shape.may_split or tiles >= TICKETS):
                break
            blocks = max(1, -(-tiles * parts // tiling.processors))
            waves, resident = -(-blocks // together), min(blocks, together)
            time = waves * (each * max(costs.step + alone, resident * busy / rate) + costs.tile)
            if parts > 1:
                time += costs.meet + costs.part * parts
            times.append((time, TileChoice(shape, parts)))
    return times
