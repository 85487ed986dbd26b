"""Symbolic integers with some of their atoms replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sardonyx.base.integer import floordiv, maximum, minimum
from sardonyx.base.sizes import Atom, Dim, Monomial, from_terms, multiply, of_atom, terms_of

_COMPOSED = {"floordiv": floordiv, "max": maximum, "min": minimum}


def substitute(a: Dim, replacements: Mapping[Atom, Dim]) -> Dim:
    """`a` with atoms replaced, everywhere, and simplified again."""
    if isinstance(a, int) or not replacements:
        return a
    return rebuild(a, replacements.get)


def rebuild(a: Dim, replace: Callable[[Atom], Dim | None]) -> Dim:
    """`a` with each atom replaced by what `replace` gives, or kept where it gives None."""
    if isinstance(a, int):
        return a
    kept = []
    for monomial, _ in a.terms:
        stays = True
        for atom in monomial:
            if atom.kind in _COMPOSED or replace(atom) is not None:
                stays = False
                break
        kept.append(stays)
    if all(kept):
        return a
    sums: dict[Monomial, int] = {}
    for (monomial, coefficient), stays in zip(a.terms, kept, strict=True):
        if stays:
            sums[monomial] = sums.get(monomial, 0) + coefficient
            continue
        first, *others = monomial
        value = _rebuild_atom(first, replace)
        for atom in others:
            value = multiply(value, _rebuild_atom(atom, replace))
        for changed, number in terms_of(value):
            sums[changed] = sums.get(changed, 0) + number * coefficient
    return from_terms(sums)


def _rebuild_atom(atom: Atom, replace: Callable[[Atom], Dim | None]) -> Dim:
    found = replace(atom)
    if found is not None:
        return found
    if atom.kind in _COMPOSED:
        left, right = (rebuild(x, replace) for x in atom.arguments)
        if (left, right) != atom.arguments:
            return _COMPOSED[atom.kind](left, right)
    return of_atom(atom)
