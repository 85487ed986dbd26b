"""What an expression depends on: which of its parts a loop leaves as they are."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.tensor.scalar import Scalar


class Dependence:
    """Answers what varies with which index variables, and remembers the answers."""

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}

    def varies(self, x: Scalar | Dim, among: frozenset[Atom], loads: frozenset[Scalar]) -> bool:
        """Whether `x` depends on one of the atoms, or on one of the given loads."""
        if isinstance(x, int):
            return False
        if isinstance(x, sizes.Size):
            for atom in sizes.atoms_of(x):
                if atom in among:
                    return True
                if isinstance(atom.payload, Scalar) and self.varies(atom.payload, among, loads):
                    return True
            return False
        key = (x, among, loads)
        found = self._known.get(key)
        if found is None:
            found = x in loads or self._scalar_varies(x, among, loads)
            self._known[key] = found
        return found

    def _scalar_varies(self, x: Scalar, among: frozenset[Atom], loads: frozenset[Scalar]) -> bool:
        if x.op == "load":
            return any(self.varies(i, among, loads) for i in x.at)
        if x.op in ("size", "check_index") and self.varies(x.dim, among, loads):
            return True
        return any(self.varies(a, among, loads) for a in x.arguments)

    def split(
        self, value: Dim, inside: frozenset[Atom], loads: frozenset[Scalar]
    ) -> tuple[Dim, Dim]:
        """`value` as (part that depends on none of `inside` and `loads`, rest)."""
        fixed: Dim = 0
        for monomial, coefficient in sizes.terms_of(value):
            term: Dim = sizes.of_monomial(monomial, coefficient)
            if not self.varies(term, inside, loads):
                fixed = sizes.add(fixed, term)
        return fixed, sizes.add(value, sizes.multiply(fixed, -1))


def has_load(x: Scalar) -> bool:
    """Whether evaluating `x` reads memory."""
    if x.op == "load":
        return True
    if x.op == "size":
        return any(isinstance(a.payload, Scalar) for a in sizes.atoms_of(x.dim, "opaque"))
    return any(has_load(a) for a in x.arguments)
