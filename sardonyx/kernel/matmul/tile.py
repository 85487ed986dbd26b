"""What the parts of a contraction's kernel pass on: a block of rows, a tile, and its products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64
from sardonyx.kernel.matmul.micro import ends_well


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The rows that a block computes, in the columns of one panel.

    Attributes:
        level: The emitter inside the block.
        low, high: Its first row, and the one behind the last.
        first_column: The first column of the panel.
        panel: Where the panel lies.
        depth: Elements of a row that each tap reads.
        extents: Of the axes that blocks and rows go over.
    """

    level: Expression
    low: Operand
    high: Operand
    first_column: Operand
    panel: Operand
    depth: Operand
    extents: dict[Dim, Operand]


@dataclass(frozen=True, slots=True)
class RowTile:
    """Rows of a block that a micro-kernel multiplies at once.

    Attributes:
        first: The first one.
        count: How many.
        line: Where their sums go.
    """

    first: Operand
    count: Operand
    line: Operand


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Rows times a panel: operands of a micro-kernel.

    Attributes:
        table: Pointers to rows, `count` for each tap.
        count: Rows.
        taps: How many parts rows have.
        depth: Elements of each.
        panel: Where the columns of the first element are.
        target: Where the sums go.
    """

    table: Operand
    count: Operand
    taps: Operand | int
    depth: Operand
    panel: Operand
    target: Operand


def unflattened(
    b: Builder, flat: Operand, axes: Sequence[Dim], extents: Mapping[Dim, Operand]
) -> dict[Atom, Operand]:
    """Values of the axes at element number `flat` of all of them, in row-major order."""
    found = b.coordinates(flat, [extents[axis] for axis in axes])
    return dict(zip(map(sizes.variable, axes), found, strict=True))


def rows_of_next_tile(b: Builder, rest: Operand, counts: Sequence[int]) -> Operand:
    """How many of the `rest` rows the next tile has: the most that leave no single row.

    Args:
        b: Where statements go.
        rest: How many rows are left.
        counts: The row counts that tiles may have, the largest first.
    """
    count: Operand = b.constant(I64, counts[-1])
    for rows in reversed(counts[:-1]):
        enough = rest >= rows
        if not ends_well(rows):
            enough = enough & b.ne(rest, rows + 1)
        count = b.select(enough, b.value(I64, rows), count)
    return count


def call_by_rows(
    b: Builder, count: Operand, names: Mapping[int, str], operands: Sequence[Operand]
) -> None:
    """Call the micro-kernel for `count` rows, of those that `names` has by their rows."""
    for rows, name in names.items():
        with b.if_(b.eq(count, rows)):
            b.call(name, operands)
