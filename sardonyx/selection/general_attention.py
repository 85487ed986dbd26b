"""Attentions for any number of queries and heads: one kernel serves the stages of a network.

Micro-kernels do the work, so the kernel around them gets as arguments what only changes how often
and from where they are called. Keys, and what lies along them, stay numbers: panels, softmax and
scratch follow from those.
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx.base import sizes
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.matmul.micro import ROWS, tile_rows
from sardonyx.plan.axes import extent_of
from sardonyx.plan.canonical import Canonical, structure_of
from sardonyx.plan.groups import Attention
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_group import Generaliser
from sardonyx.tensor.tensor import Buffer, Tensor

_NO_TILES = Reason("the target does not compute in tiles of rows")
_UNKNOWN = Reason("only a run knows how many queries there are")


@dataclass(frozen=True, slots=True)
class GeneralAttention:
    """An attention whose numbers of queries and of heads are symbols.

    Attributes:
        group: It, over stand-ins.
        strides: Of the stand-ins.
        counts: Row counts of its tiles, in blocks of the rows that `rows` says.
        rows: Rows of a block.
        key: Equal where one kernel serves.
        actual: What the stand-ins stand for.
        values: What the symbols stand for.
    """

    group: Attention
    strides: dict[Tensor, tuple[Dim, ...]]
    counts: tuple[int, ...]
    rows: int
    key: tuple[object, ...]
    actual: dict[Buffer, Buffer]
    values: dict[Atom, Dim]

    def build(self, lanes: int, block_sizes: BlockSizes, name: str) -> Kernel:
        """The kernel."""
        with compiling:
            from sardonyx.kernel.attention.kernel import AttentionKernel

        counts = self.counts if block_sizes.rows == self.rows else ROWS
        return AttentionKernel(self.group, self.strides, lanes, block_sizes, name, counts).build()


def general_attention(canonical: Canonical, block_sizes: BlockSizes) -> GeneralAttention | Reason:
    """An attention for any number of queries and heads; why its form depends on them."""
    g = canonical.group
    assert isinstance(g, Attention)  # noqa: S101 - narrows the type for the checker
    rows = extent_of(g.row)
    if not block_sizes.transpose_stores:
        return _NO_TILES
    if not isinstance(rows, int):
        return _UNKNOWN
    if rows < max(ROWS):
        return Reason("{} queries, fewer than the {} of a tile", rows, max(ROWS))
    return _Making(canonical).make(block_sizes.rows)


class _Making(Generaliser):
    """Makes a `GeneralAttention`."""

    def make(self, block: int) -> GeneralAttention:
        """The attention with symbols for the extents of its rows and batches."""
        g = self._canonical.group
        assert isinstance(g, Attention)  # noqa: S101 - narrows the type for the checker
        rows, least = int(extent_of(g.row)), max(ROWS)
        counts = tile_rows(rows, block)
        more = self._symbol("rows", rows - least) + least
        self._extents[sizes.variable(g.row)] = more
        for k, axis in enumerate(v for v in g.batch if v != 0):
            self._extents[sizes.variable(axis)] = self._symbol(f"batch {k}", extent_of(axis))
        axes = (*g.batch, g.row)
        made = tuple(self._variable(v, k, "o") for k, v in enumerate(axes))
        self._atoms = sizes.in_place_of(axes, made)
        query, keys, score, scores, values, result, epilogue = map(
            self._body, (g.query, g.keys, g.score, g.scores, g.values, g.result, g.epilogue)
        )
        root = replace(g.root, buffer=self._stand_in(g.root.buffer, g.at))
        at = tuple(substitute(i, self._atoms) for i in g.at)
        group = replace(
            g, root=root, batch=made[:-1], row=made[-1], query=query, keys=keys, score=score,
            scores=scores, values=values, result=result, epilogue=epilogue, at=at,
        )  # fmt: skip
        shapes = tuple((b.shape, b.dtype, self._strides[b]) for b in self._stand_ins.values())
        return GeneralAttention(
            group, self._strides, counts, block,
            ("general", counts, block, *structure_of(group), shapes), self.actual, self.values,
        )  # fmt: skip
