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
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms
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
        step = step * shape[axis]
    return tuple(strides)


#: Name of the pass.
LAYOUTS = "layouts"

_PLAIN = Reason("nothing is fused: all buffers are row-major")
_CALLER = Reason("the caller reads it row-major")
_CUSTOM = Reason("kernels with loops of their own write row-major")
_COLUMNS = Reason("its columns lie side by side, as they are computed")
_COLUMNS_LAST = Reason("its columns are the last axis already")
_FOLLOWS = Reason("it follows the largest tensor that it reads")
_SIMPLER = Reason("its readers' offsets are simpler so")
_ROW_MAJOR = Reason("what it reads, or who reads it, is row-major")
_NO_SOURCE = Reason("it reads no tensor whose order it could follow")


def choose_layouts(
    group: Group, orders: dict[Tensor, Order], *, fuse: bool = True
) -> list[tuple[Materialized, Reason, bool]]:
    """Add the axis orders of a group's buffers to `orders`; why each is as it is, and no other.

    Buffers from outside are row-major. The truth value is whether an order is not the file's.

    Args:
        group: What is computed.
        orders: Those of the groups before it.
        fuse: Whether orders are chosen at all.
    """
    found = []
    for root in group.roots:
        natural = tuple(range(len(root.tensor.shape)))
        order, reason = _order_of(group, root, orders) if fuse else (natural, _PLAIN)
        orders[root.buffer] = order
        found.append((root, reason, order != natural))
    return found


def _order_of(
    group: Group, root: Materialized, orders: dict[Tensor, Order]
) -> tuple[Order, Reason]:
    natural = tuple(range(len(root.tensor.shape)))
    if root.is_output:
        return natural, _CALLER
    if isinstance(group, CustomKernel):
        return natural, _CUSTOM
    if isinstance(group, Attention):
        return _attention_order(group)
    if isinstance(group, Contraction):
        return _product_order(group, orders)
    return _rows_order(group, root, orders)


def _attention_order(group: Attention) -> tuple[Order, Reason]:
    """Columns lie side by side, as they are computed; the rest as readers want it."""
    column = sizes.variable(group.column)
    natural = tuple(range(len(group.at)))
    inner = [k for k in natural if column in sizes.atoms_of(group.at[k], "index")]
    if inner and inner[-1] != natural[-1]:
        return tuple([k for k in natural if k not in inner] + inner), _COLUMNS
    order = _order_for_readers(group.root)
    return order, _ROW_MAJOR if order == natural else _SIMPLER


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
                    offset = sizes.total(i * s for i, s in zip(x.at, strides, strict=True))
                    count += len(sizes.atoms_of(offset, "floordiv"))
    return count


def _product_order(group: Contraction, orders: dict[Tensor, Order]) -> tuple[Order, Reason]:
    left, right = (index_atoms(b) for b in (group.left, group.right))
    columns = []
    for axis, index in enumerate(group.at):
        atoms = sizes.atoms_of(index, "index")
        # A group's number is in both factors; a pixel's, beside the phase in it, is of the rows.
        if any(a in right - left for a in atoms) and not atoms & (left - right):
            columns.append(axis)
    if not columns:
        return _followed(group.left, group.at, orders)
    # Short ones are phases of a transposed convolution: pixels beside pixels, where they are.
    long = [k for k in columns if not _is_short(group.root.tensor.shape[k])]
    columns = long or columns
    others = [k for k in range(len(group.at)) if k not in columns]
    is_moved = others + columns != list(range(len(group.at)))
    return tuple(others + columns), _COLUMNS if is_moved else _COLUMNS_LAST


def _is_short(extent: Dim) -> bool:
    return isinstance(extent, int) and extent < _SHORT


def _rows_order(
    group: LoopNest, root: Materialized, orders: dict[Tensor, Order]
) -> tuple[Order, Reason]:
    stage = next(s for s in group.stages if s.root is root)
    body = stage.body
    if not loads_of(body):
        return tuple(range(len(root.tensor.shape))), _NO_SOURCE
    return _followed(body, stage.indices, orders)


def _followed(
    body: Scalar, indices: tuple[Dim, ...], orders: dict[Tensor, Order]
) -> tuple[Order, Reason]:
    order = _follow(body, indices, orders)
    return order, _ROW_MAJOR if order == tuple(range(len(indices))) else _FOLLOWS


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
