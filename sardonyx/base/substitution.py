"""Symbolic integers with some of their atoms replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sardonyx.base.integer import floordiv, maximum, minimum, summarised
from sardonyx.base.sizes import (
    Atom,
    Dim,
    Monomial,
    atoms_of,
    definitions_in,
    from_terms,
    of_atom,
    of_monomial,
    stands_for,
    terms_of,
)

_COMPOSED = {"floordiv": floordiv, "max": maximum, "min": minimum}


def substitute(a: Dim, replacements: Mapping[Atom, Dim]) -> Dim:
    """`a` with atoms replaced, everywhere, and simplified again."""
    if isinstance(a, int) or not replacements:
        return a
    if any(atom.kind == "symbol" for atom in replacements):
        return rebuild_all(a, replacements.get, replacements)
    if atoms_of(a).isdisjoint(replacements):
        return a
    return rebuild(a, replacements.get, replacements)


def rebuild_all(
    a: Dim, replace: Callable[[Atom], Dim | None], among: Iterable[Atom] | None = None
) -> Dim:
    """`rebuild`, also inside what symbols stand for."""
    definitions = definitions_in(a)
    if not definitions:
        return rebuild(a, replace, among)
    moved: dict[Atom, Dim] = {}

    def replaced(atom: Atom) -> Dim | None:
        found = replace(atom)
        return moved.get(atom) if found is None else found

    for atom in definitions:
        definition = stands_for(atom)
        new = rebuild(definition, replaced)
        if new is not definition:
            moved[atom] = summarised(new)
    return rebuild(a, replaced)


def rebuild(
    a: Dim, replace: Callable[[Atom], Dim | None], among: Iterable[Atom] | None = None
) -> Dim:
    """`a` with each atom replaced by what `replace` gives, or kept where it gives None.

    A symbol that stands for something is one atom. `among` are the atoms that are replaced, if that
    is known: what contains none of them is not looked into.
    """
    if isinstance(a, int):
        return a
    if len(a.terms) == 1 and len(a.terms[0][0]) == 1:  # most indices are one variable
        ((atom,), factor) = a.terms[0]
        moved = replace(atom)
        if moved is None and atom.kind in _COMPOSED:
            moved = _recomposed(atom, replace, among)
        return a if moved is None else moved * factor
    sums: dict[Monomial, int] | None = None
    for number, (monomial, coefficient) in enumerate(a.terms):
        value: Dim | None = None
        for place, atom in enumerate(monomial):
            found = replace(atom)
            if found is None and atom.kind in _COMPOSED:
                found = _recomposed(atom, replace, among)
            if value is not None:
                value = value * (of_atom(atom) if found is None else found)
            elif found is not None:
                value = of_monomial(monomial[:place], 1) * found if place else found
        if value is None:
            if sums is not None:
                sums[monomial] = sums.get(monomial, 0) + coefficient
            continue
        if sums is None:
            sums = dict(a.terms[:number])
        for changed, factor in terms_of(value):
            sums[changed] = sums.get(changed, 0) + factor * coefficient
    return a if sums is None else from_terms(sums)


def _recomposed(
    atom: Atom, replace: Callable[[Atom], Dim | None], among: Iterable[Atom] | None
) -> Dim | None:
    """A division, minimum or maximum of replaced operands; None if they stay."""
    left, right = atom.arguments
    if among is not None and atoms_of(left).isdisjoint(among) and atoms_of(right).isdisjoint(among):
        return None
    new_left, new_right = rebuild(left, replace, among), rebuild(right, replace, among)
    if new_left == left and new_right == right:
        return None
    return _COMPOSED[atom.kind](new_left, new_right)
