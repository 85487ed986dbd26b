"""Quotients of symbolic integers, where they are polynomials."""

from __future__ import annotations

from sardonyx.base.sizes import Dim, Monomial, from_terms, terms_of


def _monomial_quotient(numerator: Monomial, denominator: Monomial) -> Monomial | None:
    rest = list(numerator)
    for atom in denominator:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def divide_with_remainder(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Polynomials (q, r) with a == q * b + r, where q takes what divides without remainder."""
    if isinstance(a, int) and isinstance(b, int):
        return divmod(a, b)
    lead_monomial, lead_coefficient = terms_of(b)[0]
    quotient: Dim = 0
    rest = a
    for _ in range(8):
        for monomial, coefficient in terms_of(rest):
            reduced = _monomial_quotient(monomial, lead_monomial)
            if reduced is None or abs(coefficient) < abs(lead_coefficient):
                continue
            factor = from_terms({reduced: coefficient // lead_coefficient})
            candidate = rest - factor * b
            if len(terms_of(candidate)) < len(terms_of(rest)) or (
                isinstance(b, int) and candidate != rest
            ):
                quotient, rest = quotient + factor, candidate
                break
        else:
            break
    return quotient, rest


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b as a polynomial, or None when that is not one."""
    if b == 0:
        return None
    quotient, rest = divide_with_remainder(a, b)
    return quotient if rest == 0 else None
