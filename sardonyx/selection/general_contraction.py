"""Products for any sizes: one kernel serves the layers of a network, and those of other networks.

The work of a product is done by micro-kernels, which take sizes as arguments anyway. So the kernel
around them gets its own as arguments, too, where only numbers tell it from others: a contraction
along one axis that the left factor holds side by side, of a constant right factor, whose results
lie side by side along the columns, perhaps of several heads. That is every convolution of 1 by 1
taps over channels-last images, and every Gemm with weights. Here `x[i, k] * w[j, k]` over 3136
rows, 144 columns and sums of 96 becomes the same over a rows, 48 b columns and sums of c, called
with a = 3136, b = 3, c = 96. Constants in doubles are multiplied so, too.
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.matmul.balance import balanced_rows
from sardonyx.kernel.matmul.contraction_schedule import (
    DEEP_BLOCKS,
    BlockLoops,
    ContractionSchedule,
    is_deep,
    is_long,
    panel_vectors,
)
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.kernel.matmul.long_sums import is_long as is_long_sum
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.canonical import Canonical, structure_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import roles
from sardonyx.selection.general_group import Generaliser
from sardonyx.selection.invocation import is_prepared
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, Tensor, indices, make_map

#: Sums of fewer products, and fewer columns, have kernels of their own.
_LEAST = 8
#: What runs once and multiplies no more has tiles of single rows: their micro-kernel is compiled in
#: 8 ms, those of all row counts in 55. They take twice the time, 10 ms at most.
_BRIEF = 2**26
#: Elements of a constant factor, at most, that an image's row is multiplied with in no time.
_SLIGHT = 2**16


_NOT_PLAIN = Reason("its factors are not both plain loads of floats, summed as such")
_BATCHES = Reason("both factors have an axis of batches")
_DEPTH_APART = Reason("what is summed does not lie side by side in its left factor")
_COLUMNS_APART = Reason("its columns do not lie side by side in what is written")


@dataclass(frozen=True, slots=True)
class GeneralContraction:
    """A product whose sizes are symbols.

    Attributes:
        group: It, over stand-ins.
        strides: Of the stand-ins.
        loops: How a block goes over rows and sums; brief where it runs once, for a short time.
        block_sizes: How much a block does otherwise.
        key: Equal where one kernel serves.
        actual: What the stand-ins stand for.
        values: What the symbols stand for.
    """

    group: Contraction
    strides: dict[Tensor, tuple[Dim, ...]]
    loops: BlockLoops
    block_sizes: BlockSizes
    key: tuple[object, ...]
    actual: dict[Buffer, Buffer]
    values: dict[Atom, Dim]

    def build(self, lanes: int, name: str) -> tuple[Kernel, list[Packing]]:
        """The kernel, and how its right factor is packed."""
        schedule = ContractionSchedule(self.group, self.strides, lanes, self.block_sizes)
        schedule.loops = self.loops
        with compiling:
            from sardonyx.kernel.matmul.contraction import ContractionKernel

        kernel, packings = ContractionKernel(schedule, name, packed=True).build()
        kernel.program.as_written = True  # its time goes by in micro-kernels
        return kernel, packings

    def contents(self, packing: Packing) -> Map:
        """What is packed, of actual buffers and sizes."""
        contents = packing.contents
        shape = tuple(substitute(d, self.values) for d in contents.shape)
        atoms = self.values | sizes.in_place_of(indices(contents.shape), indices(shape))

        def actual(x: Scalar) -> Scalar:
            return load(self.actual[x.buffer], x.at)

        return make_map(shape, rewrite(contents.body, actual, atoms))


def is_brief(group: Contraction) -> bool:
    """Whether a product multiplies constants, in doubles, and not many of them."""
    if group.accumulator is not dtypes.DOUBLE or not is_prepared(group):
        return False
    work = sizes.product(map(extent_of, (*group.loops, *group.reduced)))
    return isinstance(work, int) and work <= _BRIEF


def _is_slight(group: Contraction, rows: list[Dim], column: Dim, depth: Dim) -> bool:
    """Whether a product takes so little time that its sizes do not count.

    Such are the gates of squeeze-and-excitation, each of other sizes: a row for an image of 1 by 1.
    """
    width, deep = extent_of(column), extent_of(depth)
    if not isinstance(width, int) or not isinstance(deep, int) or width * deep > _SLIGHT:
        return False
    pooled = group.at[1:].count(0) >= 2
    return pooled and not any(isinstance(extent_of(v), int) for v in rows)


def general_product(
    canonical: Canonical, lanes: int, block_sizes: BlockSizes, *, brief: bool = False
) -> GeneralContraction | Reason:
    """A product of a constant right factor for any sizes; why its form depends on them.

    Args:
        canonical: The product.
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block does.
        brief: What `is_brief` says.
    """
    g = canonical.group
    assert isinstance(g, Contraction)  # noqa: S101 - narrows the type for the checker
    found = roles(g)
    if found is None or not _is_plain(g, dtypes.DOUBLE if brief else dtypes.FLOAT):
        return _NOT_PLAIN
    if brief:
        lanes //= 2
    batch, rows, columns = found
    summed = [v for v in g.reduced if v != 0]
    if batch:
        return _BATCHES
    if len(columns) not in (1, 2) or len(summed) != 1:
        return Reason("axes that are summed: {}, that have columns: {}", len(summed), len(columns))
    column = next((v for v in columns if _is_dense(canonical, g.root.buffer, g.at, v)), columns[0])
    depth, heads = summed[0], next((v for v in columns if v is not column), 0)
    known = [extent_of(v) for v in (column, depth)]
    slight = heads == 0 and not brief and _is_slight(g, rows, column, depth)
    if not slight:
        if not all(isinstance(n, int) and n >= _LEAST for n in known):
            return Reason("{} columns, sums of {}: fewer than {}", *known, _LEAST)
        if int(known[0]) < lanes:
            return Reason("{} columns, fewer than the {} lanes", known[0], lanes)
    if not _is_dense(canonical, g.left.tensor, g.left.at, depth):
        return _DEPTH_APART
    steps = (
        _step(canonical, g.root.buffer, g.at, column),
        _step(canonical, g.root.buffer, g.at, heads),
    )
    if steps[0] != 1 or steps[1] == known[0] or not isinstance(extent_of(heads), int):
        return _COLUMNS_APART  # heads that lie side by side are columns of one panel
    making = _Making(canonical, lanes, block_sizes, brief=brief, slight=slight)
    return making.make(rows, column, heads, depth)


def _is_plain(group: Contraction, dtype: DType) -> bool:
    """Whether both factors are loads of a type that the sum has, too."""
    kinds = {group.accumulator, group.left.dtype, group.right.dtype, group.result.dtype}
    loads = group.left.op == "load" and group.right.op == "load"
    return loads and kinds == {dtype}


def _step(canonical: Canonical, tensor: Tensor, at: tuple[Dim, ...], variable: Dim) -> Dim | None:
    """How far apart elements lie along an axis; None if that depends on where."""
    if variable == 0:
        return 0
    offset = offset_of(canonical.strides[tensor], at)
    linear = sizes.coefficient_of(offset, sizes.variable(variable))
    return None if linear is None else linear[0]


def _is_dense(canonical: Canonical, tensor: Tensor, at: tuple[Dim, ...], variable: Dim) -> bool:
    return _step(canonical, tensor, at, variable) == 1


class _Making(Generaliser):
    """Makes a `GeneralContraction`."""

    def __init__(
        self,
        canonical: Canonical,
        lanes: int,
        block_sizes: BlockSizes,
        *,
        brief: bool,
        slight: bool,
    ) -> None:
        super().__init__(canonical)
        self._lanes, self._block_sizes = lanes, block_sizes
        self._is_brief, self._is_slight = brief, slight

    def make(self, rows: list[Dim], column: Dim, heads: Dim, depth: Dim) -> GeneralContraction:
        """The product with symbols for the extents of these axes; 0 for no heads.

        Where results of some columns lie apart from others' (the heads of an attention), the
        number of columns of each stays: indices of all of them are made of it.
        """
        g, block_sizes = self._canonical.group, self._block_sizes
        assert isinstance(g, Contraction)  # noqa: S101 - narrows the type for the checker
        width = int(extent_of(column))
        count = sizes.product(map(extent_of, rows))
        vectors = most = block_sizes.vectors_of(count)
        if not self._is_slight:
            vectors = panel_vectors(width, self._lanes, most)
        panel = vectors * self._lanes
        for row in rows:
            self._extents[sizes.variable(row)] = self._size(extent_of(row), "row")
        panels = -(-width // panel)
        if heads == 0:
            # Full panels matter only to an epilogue that finishes several vectors at once.
            units = (panel, self._lanes) if is_long(g.epilogue) else (self._lanes,)
            unit = next((n for n in units if width % n == 0 and not self._is_slight), 1)
            self._extents[sizes.variable(column)] = self._symbol("column", width // unit) * unit
        else:
            count_of_heads = int(extent_of(heads))
            self._extents[sizes.variable(heads)] = self._symbol("heads", count_of_heads)
            panels *= count_of_heads
        self._extents[sizes.variable(depth)] = self._symbol("depth", extent_of(depth))
        deep = not self._is_brief and is_deep(extent_of(depth), count)
        long = is_long_sum(g.reduced, value_type(g.accumulator))
        block = balanced_rows(count, panels, block_sizes.rows * (DEEP_BLOCKS if deep else 1))
        block_rows = self._symbol("block", block) if rows else 1  # one needs no other micro-kernels
        group = self._group(g)
        shapes = tuple((b.shape, b.dtype, self._strides[b]) for b in self._stand_ins.values())
        return GeneralContraction(
            group, self._strides, BlockLoops(block_rows, self._is_brief, deep, long),
            replace(block_sizes, vectors=vectors, wide=vectors),
            ("general", vectors, self._is_brief, deep, long, *structure_of(group), shapes),
            self.actual, self.values,
        )  # fmt: skip

    def _group(self, g: Contraction) -> Contraction:
        loops = tuple(self._variable(v, k, "o") for k, v in enumerate(g.loops))
        reduced = tuple(self._variable(v, k, "n") for k, v in enumerate(g.reduced))
        self._atoms = sizes.in_place_of((*g.loops, *g.reduced), (*loops, *reduced))
        left, right, result, epilogue = map(self._body, (g.left, g.right, g.result, g.epilogue))
        root = replace(g.root, buffer=self._stand_in(g.root.buffer, g.at))
        contraction = root
        if g.contraction is not g.root:
            buffer = self._stand_in(g.contraction.buffer, g.result.at)
            contraction = replace(g.contraction, buffer=buffer)
        at = tuple(substitute(i, self._atoms) for i in g.at)
        return replace(
            g, root=root, contraction=contraction, loops=loops, at=at, reduced=reduced, left=left,
            right=right, result=result, epilogue=epilogue,
        )  # fmt: skip
