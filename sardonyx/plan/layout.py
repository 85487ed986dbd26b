"""In which order the axes of each buffer lie in memory.

Layout is a stride order, not an operation: a contraction writes its columns (a convolution's
channels) side by side, what follows keeps the order of what it reads, and only what the caller or a
special kernel sees is row-major.
"""

from __future__ import annotations

from collections.abc import Set

from sardonyx.base import sizes
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.plan.groups import Attention, Contraction, CustomKernel, Group, LoopNest
from sardonyx.plan.inline import Materialized
from sardonyx.plan.roles import index_atoms
from sardonyx.plan.swap_operands import with_long_columns
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

#: Columns fewer than this would leave most of a panel's lanes empty.
_SHORT = 8
#: Axes from the outermost (largest stride) to the innermost.
Order = tuple[int, ...]


@remembering(1 << 14)
def row_major(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Strides, in elements, of an array that lies in C order."""
    return strides_in(shape, tuple(range(len(shape))))


@remembering(1 << 14)
def strides_in(shape: tuple[Dim, ...], order: Order) -> tuple[Dim, ...]:
    """Strides, in elements, of a dense array whose axes lie in `order`."""
    strides: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        strides[axis] = step
        step = sizes.multiply(step, shape[axis])
    return tuple(strides)


def choose_layouts(
    groups: list[Group], *, fuse: bool = True, lanes: int = 0
) -> dict[Tensor, Order]:
    """Axis orders of the buffers of all roots; buffers from outside are row-major.

    Without `fuse` all of them are. Which factor of a contraction has the columns depends on how
    it lies, so `groups` get contractions with the factors exchanged: see `plan.swap_operands`.

    Args:
        groups: What is computed, in order.
        fuse: Whether orders are chosen at all.
        lanes: 32-bit lanes of a vector register; 0 where contractions have none to fill.
    """
    orders: dict[Tensor, Order] = {}
    for number, group in enumerate(groups):
        if fuse and lanes and isinstance(group, Contraction):
            group = groups[number] = with_long_columns(group, orders, lanes)
        for root in group.roots:
            natural = tuple(range(len(root.tensor.shape)))
            if not fuse or root.is_output or isinstance(group, CustomKernel):
                orders[root.buffer] = natural
            elif isinstance(group, Attention):
                orders[root.buffer] = _attention_order(group)
            elif isinstance(group, Contraction):
                orders[root.buffer] = _product_order(group, orders)
            else:
                orders[root.buffer] = _rows_order(group, root, orders)
    return orders


def _attention_order(group: Attention) -> Order:
    """Columns lie side by side, as they are computed; the rest as readers want it."""
    column = sizes.variable(group.column)
    natural = tuple(range(len(group.at)))
    inner = [k for k in natural if column in sizes.atoms_of(group.at[k], "index")]
    if inner and inner[-1] != natural[-1]:
        return tuple([k for k in natural if k not in inner] + inner)
    return _order_for_readers(group.root)


def _order_for_readers(root: Materialized) -> Order:
    """The order, of two, in which the readers' offsets are simpler.

    The result of an attention, (N, heads, S, D), is mostly read as (N, S, heads * D): with the two
    middle axes swapped in memory those readers see one contiguous axis.
    """
    shape = root.tensor.shape
    natural = tuple(range(len(shape)))
    if len(shape) < 3:
        return natural
    swapped = (*natural[:-3], natural[-2], natural[-3], natural[-1])
    return min((natural, swapped), key=lambda order: _divisions(root, strides_in(shape, order)))


def _divisions(root: Materialized, strides: tuple[Dim, ...]) -> int:
    count = 0
    for reader in root.readers:
        for body in (*reader.bodies, *reader.operands):
            for x in loads_of(body):
                if x.tensor is root.buffer:
                    offset = sizes.total(
                        sizes.multiply(i, s) for i, s in zip(x.at, strides, strict=True)
                    )
                    count += len(sizes.atoms_of(offset, "floordiv"))
    return count


def _product_order(group: Contraction, orders: dict[Tensor, Order]) -> Order:
    left, right = (index_atoms(b) for b in (group.left, group.right))
    columns = []
    for axis, index in enumerate(group.at):
        atoms = sizes.atoms_of(index, "index")
        # A group's number is in both factors; a pixel's, beside the phase in it, is of the rows.
        if any(a in right - left for a in atoms) and not atoms & (left - right):
            columns.append(axis)
    if not columns:
        return _follow(group.left, group.at, orders)
    # Short ones are phases of a transposed convolution: pixels beside pixels, where they are.
    long = [k for k in columns if not _is_short(group.root.tensor.shape[k])]
    columns = long or columns
    return tuple([k for k in range(len(group.at)) if k not in columns] + columns)


def _is_short(extent: Dim) -> bool:
    return isinstance(extent, int) and extent < _SHORT


def _rows_order(group: LoopNest, root: Materialized, orders: dict[Tensor, Order]) -> Order:
    stage = next(s for s in group.stages if s.root is root)
    body = stage.body
    if not loads_of(body):
        return tuple(range(len(root.tensor.shape)))
    return _follow(body, stage.indices, orders)


def _volume(tensor: Tensor) -> tuple[int, int]:
    """A number to compare sizes by: symbols count as 64."""
    total = 1
    for d in tensor.shape:
        total *= d if isinstance(d, int) else 64
    return total, len(tensor.shape)


def _follow(body: Scalar, indices: tuple[Dim, ...], orders: dict[Tensor, Order]) -> Order:
    """Axes in the order in which the largest tensor that `body` loads has them."""
    natural = tuple(range(len(indices)))
    # An axis that is several in one (flattened channels and pixels) has the atoms of all.
    atoms = [sizes.atoms_of(i, "index") for i in indices]
    best: tuple[tuple[int, int, int], Order] | None = None
    for x in loads_of(body):
        tensor, at = x.tensor, x.at
        order = orders.get(tensor, tuple(range(len(at))))
        place: dict[int, tuple[int, int]] = {}
        used = [_index_atoms(i) for i in at]
        for axis, own in enumerate(atoms):
            for depth, source_axis in enumerate(order):
                if own & used[source_axis]:
                    place[axis] = (depth, axis)
        if not place:
            continue
        outermost = (-1, 0)
        found = tuple(sorted(natural, key=lambda k: place.get(k, outermost)))
        # What is repeated along an axis says nothing of what lies beside what.
        if not set().union(*atoms) <= index_atoms(x):
            found = natural
        shifted = found != natural
        rank = (*_volume(tensor), int(shifted))
        if best is None or rank > best[0]:
            best = (rank, found)
    if best is None or len(set(best[1])) != len(natural):
        return natural
    return _unit_axes_in_place(best[1], indices)


def _index_atoms(index: Dim) -> Set[sizes.Atom]:
    """Index variables that an index depends on, also where it is computed."""
    found = sizes.atoms_of(index, "index")
    for atom in sizes.opaque_in(index):
        if isinstance(atom.payload, Scalar):
            found |= index_atoms(atom.payload)
    return found


def _unit_axes_in_place(order: Order, indices: tuple[Dim, ...]) -> Order:
    """Axes of extent 1 have no place of their own: keep row-major where nothing else moved."""
    moving = [k for k in order if indices[k] != 0]
    return tuple(range(len(indices))) if moving == sorted(moving) else order
