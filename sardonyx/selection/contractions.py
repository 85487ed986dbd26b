"""Contractions: the table of what can compute one, from libraries to kernels of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sardonyx.base import sizes
from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.long_sums import is_long
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.blockwise import Blockwise, in_blocks
from sardonyx.plan.canonical import as_rows
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.layout import row_major
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import roles
from sardonyx.plan.swap_operands import is_across_batches
from sardonyx.selection.general_contraction import GeneralContraction
from sardonyx.selection.invocation import Invocation, is_constant, is_prepared
from sardonyx.selection.matmul import general_invocations, own_kernel
from sardonyx.selection.table import Candidate, Table, always
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Tensor, indices, make_map
from sardonyx.tensor.traverse import loads_of

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector

_NO_LIBRARIES = Reason("the target has no libraries")
_ONCE = Reason("it is computed once, by the processor, when the session is made")
_NO_BLOCKS = Reason("the target has no thread blocks")
_NO_COLUMNS = Reason("it has no columns: vectors run across its batches")
_NO_UNIT = Reason("nothing in a thread block multiplies its types")
_TILES_OF_ROWS = Reason("it has columns, and the target does not compute in tiles of rows")
_CODES = Reason("its factors are codes, which are multiplied by their columns")
_CHANGES = Reason("its right factor changes from run to run")
_THREADS = Reason("thread blocks take sizes as they are")
_ROUNDED = Reason("its factors are rounded to bfloat16")
_NO_DOTS = Reason("the target has no instruction for sums of four products of bytes")
_LONG = Reason("its sums are so long that they are added up in float64")
_NOT_CODES = Reason("its right factor is no matrix of constant codes with a scale for each block")


class ContractionTask:
    """A contraction that is to be computed.

    Args:
        selector: Builds kernels.
        group: The contraction.
        strides: Of all buffers.
        pack: Whether constant factors may be packed, and several kernels built of which sizes
            choose one. What a library mostly does has one kernel, that shares its operands.
    """

    def __init__(
        self,
        selector: KernelSelector,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        pack: bool = True,
    ) -> None:
        self.selector, self.group, self.strides, self.pack = selector, group, strides, pack

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the right factor never changes, and may be packed."""
        return self.pack and all(is_constant(x.tensor) for x in loads_of(self.group.right))

    @cached_property
    def offered(self) -> list[Invocation] | str:
        """What a library takes, or why it does not."""
        accelerator = self.selector.options.accelerator
        assert accelerator is not None  # noqa: S101 - `_no_library` looked
        with compiling:
            from sardonyx.selection.vendor_products import accelerated

        return accelerated(self.selector, self.group, self.strides, accelerator)

    @property
    def refusal(self) -> str | None:
        """Why no library takes it, "" where none was asked; None if one does."""
        found = self.__dict__.get("offered", "")
        return found if isinstance(found, str) else None

    @cached_property
    def general(self) -> GeneralContraction | Reason:
        """It for any sizes."""
        return self.selector.general_product(self.group, self.strides)

    @cached_property
    def codes(self) -> Blockwise | None:
        """It with its factors as codes in blocks."""
        return in_blocks(self.group)


# -- libraries --------------------------------------------------------------------------------


def _no_library(task: ContractionTask) -> Reason | None:
    if task.selector.options.accelerator is None:
        return _NO_LIBRARIES
    if is_prepared(task.group):
        return _ONCE
    return Reason(task.offered) if isinstance(task.offered, str) else None


def _library(task: ContractionTask) -> list[Invocation]:
    assert not isinstance(task.offered, str)  # noqa: S101 - `_no_library` looked
    return task.offered


# -- tiles of thread blocks -------------------------------------------------------------------


def _no_tiles(task: ContractionTask) -> Reason | None:
    tiling = task.selector.block_sizes.tiling
    if tiling is None:
        return _NO_BLOCKS
    if is_prepared(task.group):
        return _ONCE
    with compiling:
        from sardonyx.kernel.gpu.tile_schedule import takes

    if takes(task.group, tiling):
        return None
    return _NO_COLUMNS if roles(task.group) is None else _NO_UNIT


def _tiles(task: ContractionTask) -> list[Invocation]:
    with compiling:
        from sardonyx.selection.tiles import tiled_product

    tiling = task.selector.block_sizes.tiling
    assert tiling is not None  # noqa: S101 - `_no_tiles` looked
    return tiled_product(task.selector, task.group, task.strides, tiling, task.pack)


def _tile_cost(task: ContractionTask) -> Dim | None:
    with compiling:
        from sardonyx.kernel.gpu.tile_schedule import cycles_of

    tiling = task.selector.block_sizes.tiling
    assert tiling is not None  # noqa: S101 - `_no_tiles` looked
    canonical = task.selector.canonical(task.group, task.strides)
    assert isinstance(canonical.group, Contraction)  # noqa: S101 - narrows the type
    return cycles_of(canonical.group, canonical.strides, tiling)


# -- a sum in each lane -----------------------------------------------------------------------


def _no_lanes(task: ContractionTask) -> Reason | None:
    """Why vectors run along columns, rather than across batches."""
    group, selector = task.group, task.selector
    found = roles(group)
    if found is None:
        return None
    if not selector.block_sizes.transpose_stores:
        return _TILES_OF_ROWS
    if integer_factors(group) is not None:
        return _CODES
    if is_across_batches(group, *found, selector.options.lanes):
        return None
    width, depth = (sizes.product(map(extent_of, axes)) for axes in (found[2], group.reduced))
    return Reason(
        "sums of {} for {} columns, with {} batch axes: vectors of {} lanes run along columns",
        depth, width, len(found[0]), selector.options.lanes,
    )  # fmt: skip


def _lanes(task: ContractionTask) -> list[Invocation]:
    """A contraction without columns (a depthwise convolution): every lane sums its own.

    A constant right factor is packed with the axes that it shares with the left one last, so
    that lanes lie side by side.
    """
    group, strides, steps = task.group, task.strides, list[Invocation]()
    fixed = all(is_constant(x.tensor) for x in loads_of(group.right))
    if fixed and loads_of(group.right):
        used = {a for d in dims_of(group.right) for a in sizes.atoms_of(d, "index")}
        order = [v for v in (*group.reduced, *group.loops) if sizes.as_atom(v) in used]
        shape = tuple(map(extent_of, order))
        atoms = dict(zip(map(sizes.variable, order), indices(shape), strict=True))
        value = scalar.cast(group.right, group.accumulator)
        contents = make_map(shape, rewrite(value, atoms=atoms))
        packed, steps = task.selector.packed_buffer(contents, strides)
        strides = {**strides, packed: row_major(shape)}
        group = replace(group, right=load(packed, tuple(order)))
    return [*steps, task.selector.rows(as_rows(group), strides)]


# -- products ---------------------------------------------------------------------------------


def _not_general(task: ContractionTask) -> Reason | None:
    selector = task.selector
    if not task.is_fixed:
        return _CHANGES
    if selector.block_sizes.has_thread_blocks:
        return _THREADS
    if _is_rounded(selector, task.group):
        return _ROUNDED
    return task.general if isinstance(task.general, Reason) else None


def _is_rounded(selector: KernelSelector, group: Contraction) -> bool:
    """Whether the factors of a contraction are rounded to bfloat16."""
    if not selector.options.bf16_products:
        return False
    with compiling:
        from sardonyx.kernel.matmul.bf16_product import may_round

    return may_round(group)


def _general(task: ContractionTask) -> list[Invocation]:
    assert not isinstance(task.general, Reason)  # noqa: S101 - `_not_general` looked
    return general_invocations(task.selector, task.general, task.group, task.strides)


def _not_in_blocks(task: ContractionTask) -> Reason | None:
    if not task.is_fixed:
        return _CHANGES
    if not task.selector.options.dots:
        return _NO_DOTS
    if is_long(task.group.reduced, value_type(task.group.accumulator)):
        return _LONG
    return _NOT_CODES if task.codes is None else None


def _in_blocks(task: ContractionTask) -> list[Invocation]:
    with compiling:
        from sardonyx.selection.blockwise import blockwise_product

    assert task.codes is not None  # noqa: S101 - `_not_in_blocks` looked
    return blockwise_product(task.selector, task.codes, task.strides)


def _own_kernel(task: ContractionTask) -> list[Invocation]:
    return own_kernel(task.selector, task.group, task.strides, task.is_fixed)


def _own_cost(task: ContractionTask) -> Dim | None:
    selector = task.selector
    if selector.block_sizes.has_thread_blocks or integer_factors(task.group) is not None:
        return None
    if roles(task.group) is None:
        return None
    canonical = selector.canonical(task.group, task.strides)
    assert isinstance(canonical.group, Contraction)  # noqa: S101 - narrows the type
    return ContractionSchedule(
        canonical.group, canonical.strides, selector.options.lanes, selector.block_sizes
    ).cost_ns()


_Row = Candidate[ContractionTask, list[Invocation]]

#: A library, where there is one. The kernel that computes the same stays for what it cannot do.
LIBRARY: _Row = Candidate("library", _no_library, _library, tries=True)
#: Kernels alone.
PRODUCTS: Table[ContractionTask, list[Invocation]] = (
    Candidate("tiles of thread blocks", _no_tiles, _tiles, _tile_cost),
    Candidate("a sum in each lane", _no_lanes, _lanes),
    Candidate("product of any sizes", _not_general, _general),
    Candidate("product of codes in blocks", _not_in_blocks, _in_blocks),
    Candidate("kernel of its own", always, _own_kernel, _own_cost),
)
CONTRACTIONS: Table[ContractionTask, list[Invocation]] = (LIBRARY, *PRODUCTS)
