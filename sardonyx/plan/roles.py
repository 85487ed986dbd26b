"""What the index variables of a contraction are: batches, rows or columns."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import dims_of
from sardonyx.plan.groups import Contraction
from sardonyx.tensor.scalar import Scalar


def roles(group: Contraction) -> tuple[list[Dim], list[Dim], list[Dim]] | None:
    """Batch, row and column variables; None where there are no columns."""
    left, right = (index_atoms(b) for b in (group.left, group.right))
    batch: list[Dim] = []
    rows: list[Dim] = []
    columns: list[Dim] = []
    for variable in group.loops:
        atom = sizes.as_atom(variable)
        if atom is None:
            continue
        if atom in right and atom not in left:
            columns.append(variable)
        elif atom in left and atom not in right:
            rows.append(variable)
        else:
            batch.append(variable)
    return (batch, rows, columns) if columns else None


def index_atoms(body: Scalar) -> set[Atom]:
    """The index variables that an expression uses."""
    found: set[Atom] = set()
    for dim in dims_of(body):
        found |= sizes.atoms_of(dim, "index")
    return found
