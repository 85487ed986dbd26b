"""Sizes of the tiles of a product, by what they leave of the device."""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import symbols_of
from sardonyx.kernel.language.context import TICKETS
from sardonyx.kernel.loops.block_sizes import Tiling

#: Bytes along the depth that one step has.
STEP_BYTES = 64


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

# Measured on an H200. Cycles of a step of 128 by 128 elements (64 by 64 without matrix units): when
# thread blocks keep a multiprocessor busy, and, beyond _STEP, when one is alone there.
_BUSY = {"f16": 580, "bf16": 580, "tf32": 815, "fma": 3640}
_ALONE = {"f16": 530, "bf16": 530, "tf32": 900, "fma": 2600}
_AREA = 128 * 128
#: Cycles: of any step, of a tile's beginning and end, of parts that meet, and of each of them.
_STEP, _TILE, _MEET, _PART = 250, 3000, 1400, 500
#: Elements of a large tile, of which two fit on a multiprocessor; of others three.
_LARGE = 64 * 128
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Bytes along the depth that a part of a sum has at least.
_LEAST_BYTES = 512


def choose(kind: str, extents: Extents, tiling: Tiling) -> list[TileChoice]:
    """Ways to compute a product, of which each run uses one."""
    e = extents
    if all(isinstance(x, int) for x in (e.rows, e.columns, e.lead, e.steps)):
        return [_best(kind, extents, tiling)]
    large, small = _candidates(kind, extents)
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


def _candidates(kind: str, extents: Extents) -> tuple[TileShape, TileShape]:
    shapes = [shape for shape, _ in (_FMA if kind == "fma" else _MATRIX)]
    rows, columns = extents.rows, extents.columns
    fitting = [
        s for s in shapes
        if not (isinstance(rows, int) and s.rows >= 2 * max(16, rows))
        and not (isinstance(columns, int) and s.columns >= 2 * max(64, columns))
    ]  # fmt: skip
    fitting = fitting or shapes[-1:]
    small = [s for s in fitting if s.may_split and s.rows <= 64 and s.columns == 64]
    return fitting[0], (small or fitting[-1:])[0]


def _best(kind: str, extents: Extents, tiling: Tiling) -> TileChoice:
    """The one that should take the least time."""
    e = extents
    steps = int(e.steps)
    times: list[tuple[float, TileChoice]] = []
    for shape, rate in _FMA if kind == "fma" else _MATRIX:
        tiles = int(e.tiles(shape))
        area = shape.rows * shape.columns
        together = 2 if area >= _LARGE else 3
        busy, alone = (x[kind] * area / _AREA for x in (_BUSY, _ALONE))
        for parts in _PARTS:
            each = -(-steps // parts)
            short = each * STEP_BYTES < _LEAST_BYTES
            if parts > 1 and (short or not shape.may_split or tiles >= TICKETS):
                break
            blocks = max(1, -(-tiles * parts // tiling.processors))
            waves, resident = -(-blocks // together), min(blocks, together)
            time = waves * (each * max(_STEP + alone, resident * busy / rate) + _TILE)
            if parts > 1:
                time += _MEET + _PART * parts
            times.append((time, TileChoice(shape, parts)))
    return min(times, key=lambda pair: pair[0])[1]
