"""Contractions of few columns and long rows: their factors change places.

Lanes run along columns, such as the filters of a convolution. Where these do not fill a vector (a
vocoder's last layers, maps of depths, masks of a few classes), lanes stay empty. If elements lie
side by side along a row axis in all that the left factor reads, and can in what is written (where
that has an order already, squares of results are transposed), that axis makes better columns: the
left factor is packed as it is read, vector by vector, and the other one has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms, roles
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, Tensor, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

#: Longest reduction of lanes that is written out instead of looped over.
LONGEST_WINDOW = 50
#: Elements of a sum at most, where nobody knows how long rows are: packing for one element costs
#: as much as for a whole vector.
_SHORT_SUM = 160
#: Lanes that would stay empty, at least: packing in each run costs as much as some lanes bring.
_EMPTY = 4


#: Name of the pass.
SWAP_OPERANDS = "swap operands"
SWAPPED = Reason("its columns are fewer than the lanes, and a row axis fills them")

_NO_COLUMNS = Reason("it has no columns")
_CODES = Reason("its factors are codes, which are packed in one order")
_ACROSS = Reason("lanes lie across its batches")
_NO_WINDOW = Reason("its right factor is no image with windows")
_SCATTERED = Reason("a window of its own for each row would make the image larger")


def with_long_columns(
    group: Contraction, orders: Mapping[Tensor, tuple[int, ...]], lanes: int
) -> Contraction | Reason:
    """The contraction with its factors exchanged; the reason where that would not fill vectors.

    Args:
        group: A contraction.
        orders: How axes of what it reads lie in memory, where not in their order.
        lanes: 32-bit lanes of a vector register.
    """
    found = roles(group)
    if found is None:
        return _NO_COLUMNS
    if integer_factors(group) is not None:
        return _CODES
    batch, rows, columns = found
    if is_across_batches(group, batch, rows, columns, lanes):
        return _ACROSS
    lanes = lanes * 32 // max(32, group.accumulator.size_bytes * 8)
    count = sizes.product(map(extent_of, columns))
    if not isinstance(count, int) or count + _EMPTY > lanes:
        return Reason("its {} columns fill vectors of {} lanes", count, lanes)
    own = {sizes.variable(c) for c in columns}
    depth = sizes.product(map(extent_of, group.reduced))
    if any(_fills(extent_of(r), lanes, depth) and _is_along(group, r, own, orders) for r in rows):
        return replace(group, left=group.right, right=group.left)
    return Reason("{} columns: lanes of {} stay empty, and no row axis fills them", count, lanes)


def is_across_batches(
    group: Contraction,
    batch: Sequence[Dim],
    rows: Sequence[Dim],
    columns: Sequence[Dim],
    lanes: int,
) -> bool:
    """Whether columns are so few, of so short sums, that lanes lie better across batches.

    Groups of a convolution are such batches.
    """
    width, depth = (sizes.product(map(extent_of, axes)) for axes in (columns, group.reduced))
    if not (batch and rows and isinstance(width, int) and isinstance(depth, int)):
        return False
    return 2 * width <= lanes and depth <= LONGEST_WINDOW


def _fills(extent: Dim, lanes: int, depth: Dim) -> bool:
    """Whether vectors along an axis are full but for an eighth, as far as is known."""
    if not isinstance(extent, int):
        return isinstance(depth, int) and depth <= _SHORT_SUM
    return extent >= lanes and 8 * extent >= 7 * lanes * -(-extent // lanes)


def _is_along(
    group: Contraction, row: Dim, columns: set[Atom], orders: Mapping[Tensor, tuple[int, ...]]
) -> bool:
    """Whether elements lie side by side along a row in what the left factor reads, and can in
    the result: there it has an axis without any of the columns.

    A row axis of unknown size must be the last one of what is read: others may be batches of one.
    """
    atom = sizes.variable(row)
    read = [x for x in loads_of(group.left) if atom in index_atoms(x)]
    if not isinstance(extent_of(row), int) and any(atom not in _atoms(x.at[-1]) for x in read):
        return False
    written = [i for i in group.at if atom in _atoms(i)]
    return (
        bool(read)
        and all(_step(_last(x.at, orders.get(x.tensor)), atom) == 1 for x in read)
        and len(written) == 1
        and _step(written[0], atom) == 1
        and not _atoms(written[0]) & columns
    )


def _last(at: tuple[Dim, ...], order: tuple[int, ...] | None) -> Dim:
    """The index along which neighbours lie."""
    return at[-1 if order is None else order[-1]]


def _atoms(index: Dim) -> Set[Atom]:
    return sizes.atoms_of(index, "index")


def _step(index: Dim, atom: Atom) -> Dim | None:
    linear = sizes.coefficient_of(index, atom)
    return None if linear is None else linear[0]


def with_whole_image(group: Contraction) -> tuple[Map, Buffer, Contraction] | Reason:
    """All that the windows of an exchanged contraction see, borders and all; why it has none.

    Returns:
        What the image is, where it is to lie (row-major), and the contraction that reads it there
        without a condition for each element.
    """
    found = roles(group)
    if found is None or group.right.op == "load":
        return _NO_WINDOW
    right, sums = group.right, dict[Dim, tuple[Dim, Dim, int]]()
    for column in found[2]:
        for tap in group.reduced:
            apart = _apart(right, column, tap)
            if apart is None:
                continue
            extent = extent_of(column)
            reach = extent + (extent_of(tap) - 1) * apart
            whole = sizes.numbered_index(reach, len(sums), "sum")
            moved = rewrite(right, atoms={sizes.variable(column): whole, sizes.variable(tap): 0})
            back = column + tap * apart
            if rewrite(moved, atoms={sizes.variable(whole): back}) is not right:
                return _SCATTERED
            right, sums[column] = moved, (whole, tap, apart)
            break
    taps = [v for v in group.reduced if all(v is not tap for _, tap, _ in sums.values())]
    if not sums:
        return _NO_WINDOW
    if _meet(right, [c for c in found[2] if c not in sums], taps):
        return _SCATTERED
    used = index_atoms(right)
    loops = (*found[0], *group.reduced, *found[2])
    lead = [v for v in loops if v not in sums and sizes.as_atom(v) in used]
    axes = [*lead, *(whole for whole, *_ in sums.values())]
    shape = tuple(map(extent_of, axes))
    atoms = dict(zip(map(sizes.variable, axes), indices(shape), strict=True))
    image = make_map(shape, rewrite(right, atoms=atoms))
    place = buffer(("image", image), shape, right.dtype)
    at = [c + tap * apart for c, (_, tap, apart) in sums.items()]
    return image, place, replace(group, right=load(place, (*lead, *at)))


def _meet(body: Scalar, columns: Sequence[Dim], taps: Sequence[Dim]) -> bool:
    """Whether an index depends on a column and a tap."""
    some, others = ({sizes.variable(v) for v in axes if v != 0} for axes in (columns, taps))
    return any(_atoms(dim) & some and _atoms(dim) & others for dim in dims_of(body))


def _apart(body: Scalar, column: Dim, tap: Dim) -> int | None:
    """How far taps are apart, in columns, if the body depends on a sum of the two."""
    for dim in dims_of(body):
        steps = (sizes.coefficient_of(dim, sizes.variable(v)) for v in (column, tap))
        along, across = steps
        if along is not None and across is not None and along[0] == 1:
            step, extent = across[0], extent_of(tap)
            if isinstance(step, int) and step > 0 and isinstance(extent, int):
                return step
    return None
