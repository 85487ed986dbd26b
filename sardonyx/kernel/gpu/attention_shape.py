"""Which attentions matrix units take, and how many thread blocks share the keys of a query."""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.representation import HALVES, value_type
from sardonyx.kernel.language.types import F32, Type, memory_type
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.plan.axes import extent_of
from sardonyx.plan.groups import Attention

#: Tiles of keys that a thread block has at least, where several share the keys of a query: by the
#: bytes of an element. Fewer cost more than they save (197 keys on an H200).
_LEAST_STEPS = {2: 4, 4: 2}
#: Largest width of values, and depth of queries, that registers hold.
_WIDEST, _DEEPEST = 128, 128


def element_of(group: Attention, tiling: Tiling) -> Type | None:
    """How factors lie in shared memory; None if matrix units do not take them."""
    has_matrices = tiling.thread_blocks.has_matrices
    kinds = {group.query.dtype, group.keys.dtype, group.values.dtype}
    width = extent_of(group.column)
    depth = sizes.product(map(extent_of, group.depth))
    if not (isinstance(width, int) and isinstance(depth, int)):
        return None
    if not (0 < width <= _WIDEST and 0 < depth <= _DEEPEST):
        return None
    if value_type(group.score.dtype) != F32 or value_type(group.result.dtype) != F32:
        return None
    if len(kinds) == 1 and kinds <= set(HALVES):
        half = memory_type(kinds.pop())
        return half if has_matrices(half.scalar) else None
    takes_floats = tiling.tf32 and has_matrices("tf32")
    return F32 if takes_floats and kinds <= {dtypes.FLOAT, *HALVES} else None


def shared_keys(
    group: Attention, steps: Dim, element: Type, queries: int, tiling: Tiling
) -> tuple[Dim, Dim]:
    """How many tiles of queries there are, and how many thread blocks share the keys of each.

    Args:
        group: The attention.
        steps: How many tiles of keys there are.
        element: How factors lie in shared memory.
        queries: Queries of a tile.
        tiling: What is known of the device.
    """
    tiles = integer.ceildiv(extent_of(group.row), queries)
    cells = sizes.product((*map(extent_of, group.batch), tiles))
    wanted = integer.floordiv(2 * tiling.processors, integer.maximum(1, cells))
    most = integer.floordiv(steps, _LEAST_STEPS[element.size_bytes])
    return cells, integer.maximum(1, integer.minimum(wanted, most))


def number_of(dim: Dim) -> int:
    """A size that is known to be a number."""
    assert isinstance(dim, int)  # noqa: S101 - `element_of` saw to it
    return dim


def power(number: int, least: int) -> int:
    """The next power of two."""
    return max(least, 1 << (number - 1).bit_length())
