"""What an expression depends on: which of its parts a loop leaves as they are."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim, Monomial
from sardonyx.tensor.noted_checks import may_divide_by_zero
from sardonyx.tensor.operations import CHECKS
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import parts_of


class Dependence:
    """Answers what varies with which index variables, and remembers the answers."""

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}

    def varies(self, x: Scalar | Dim, among: frozenset[Atom], loads: frozenset[Scalar]) -> bool:
        """Whether `x` depends on one of the atoms, or on one of the given loads."""
        if isinstance(x, int):
            return False
        if isinstance(x, sizes.Size):
            for monomial, _ in x.terms:
                for atom in monomial:
                    if self._atom_varies(atom, among, loads):
                        return True
            return False
        key = (x, among, loads)
        found = self._known.get(key)
        if found is None:
            found = x in loads or self._scalar_varies(x, among, loads)
            self._known[key] = found
        return found

    def _atom_varies(self, atom: Atom, among: frozenset[Atom], loads: frozenset[Scalar]) -> bool:
        if atom in among:
            return True
        payload = atom.payload
        if payload is not None and isinstance(payload, Scalar):
            return self.varies(payload, among, loads)
        composed = atom.kind in ("floordiv", "max", "min")
        return composed and any(self.varies(x, among, loads) for x in atom.arguments)

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
        fixed: list[tuple[Monomial, int]] = []
        rest: list[tuple[Monomial, int]] = []
        for term in sizes.terms_of(value):
            varies = False
            for atom in term[0]:
                if self._atom_varies(atom, inside, loads):
                    varies = True
                    break
            (rest if varies else fixed).append(term)
        if not rest:
            return value, 0
        return (sizes.from_ordered(fixed), sizes.from_ordered(rest)) if fixed else (0, value)


def needs_guard(x: Scalar) -> bool:
    """Whether evaluating `x` reads memory or checks an index: not where it is not chosen."""
    return any(map(_reads_or_checks, parts_of(x)))


def _reads_or_checks(x: Scalar) -> bool:
    if x.op == "size":
        return any(isinstance(a.payload, Scalar) for a in sizes.opaque_in(x.dim))
    return x.op in ("load", *CHECKS)


def is_total(x: Scalar | Dim, at_hand: Callable[[Scalar], bool]) -> bool:
    """Whether `x` has a value wherever it is written: it reads no memory, and cannot fail.

    Args:
        x: What is asked about.
        at_hand: Whether a part of it has been written before.
    """
    total = _Total(at_hand)
    return total.of_scalar(x) if isinstance(x, Scalar) else total.of_dim(x)


class _Total:
    """What `is_total` finds out. Closures that call each other would be left to the collector."""

    __slots__ = ("_at_hand", "_known")

    def __init__(self, at_hand: Callable[[Scalar], bool]) -> None:
        self._at_hand = at_hand
        self._known: dict[Scalar, bool] = {}

    def of_dim(self, value: Dim) -> bool:
        for atom in sizes.atoms_of(value) if isinstance(value, sizes.Size) else ():
            if isinstance(atom.payload, Scalar) and not self.of_scalar(atom.payload):
                return False
            if atom.kind == "floordiv" and not isinstance(atom.arguments[1], int):
                return False
        return True

    def of_scalar(self, part: Scalar) -> bool:
        found = self._known.get(part)
        if found is None:
            found = self._known[part] = self._at_hand(part) or self._of_parts(part)
        return found

    def _of_parts(self, part: Scalar) -> bool:
        if part.op in ("load", *CHECKS):
            return False
        if part.op == "size":
            return self.of_dim(part.dim)
        return not may_divide_by_zero(part) and all(map(self.of_scalar, part.arguments))
