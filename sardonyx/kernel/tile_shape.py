"""Sizes of the tiles of a product, by what they leave of the device."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.base.sizes import Dim
from sardonyx.kernel.grain import Tiling


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile and the four warps that compute it.

    Attributes:
        rows, columns: Sizes of the tile.
        warp_rows, warp_columns: How the warps lie in it.
        stages: Steps of the sum that shared memory holds.
        splits: Parts that the sum is cut into.
    """

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int = 3
    splits: int = 1


#: For matrix units, with the part of the best rate that each reaches.
_MATRIX = (
    (TileShape(128, 128, 2, 2), 1.0),
    (TileShape(128, 64, 2, 2), 0.85),
    (TileShape(64, 128, 2, 2), 0.85),
    (TileShape(64, 64, 2, 2), 0.65),
    (TileShape(32, 64, 2, 2, 4), 0.4),
    (TileShape(32, 32, 2, 2, 4), 0.25),
    (TileShape(16, 64, 1, 4, 4), 0.2),
)
_FMA = ((TileShape(64, 64, 1, 4), 1.0), (TileShape(32, 64, 1, 4), 0.6))

#: Multiplications of a multiprocessor in one cycle.
_RATES = {"f16": 1200, "bf16": 1200, "tf32": 600, "fma": 90}
#: Cycles: of a step whatever its size, of a tile's beginning and end, of a second kernel.
_STEP, _TILE, _FINISH = 220, 2000, 4000
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)


def choose_shape(
    kind: str, rows: Dim, columns: Dim, lead: Dim, steps: Dim, tiling: Tiling
) -> TileShape:
    """The tile that should take the least time; sizes that only a run knows count as large."""
    m, n, count, k = (x if isinstance(x, int) else 1024 for x in (rows, columns, lead, steps))
    count = count if isinstance(lead, int) else 1
    depth = 32 if kind in ("f16", "bf16") else 16
    fixed = all(isinstance(x, int) for x in (rows, columns, lead, steps))
    best: tuple[float, TileShape] | None = None
    for shape, rate in _FMA if kind == "fma" else _MATRIX:
        tiles = count * -(-m // shape.rows) * -(-n // shape.columns)
        work = shape.rows * shape.columns * depth / (_RATES[kind] * rate)
        for splits in _SPLITS if fixed else (1,):
            if splits > 1 and k // splits < 4:
                break
            waves = -(-tiles * splits // tiling.processors)
            time = waves * (-(-k // splits) * max(work, _STEP / min(3, max(1, waves))) + _TILE)
            if splits > 1:
                time += _FINISH + splits * m * n * count / (tiling.processors * 8)
            if best is None or time < best[0]:
                best = (time, TileShape(
                    shape.rows, shape.columns, shape.warp_rows, shape.warp_columns,
                    shape.stages, splits,
                ))  # fmt: skip
    assert best is not None  # noqa: S101 - there is always a shape
    return best[1]
