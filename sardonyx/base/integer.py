"""What holds for integers but not in any ring: division with rounding, order, bounds.

Divisions, minima and maxima are simplified where bounds prove that they may be, and the bounds of
an expression follow from those of the divisions, minima and maxima in it. What was found is
remembered until `remembering.forget`.
"""

from __future__ import annotations

from math import gcd

from sardonyx.base.quotients import divide_with_remainder, exact_quotient
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import (
    Atom,
    Dim,
    Monomial,
    Size,
    as_atom,
    atoms_of,
    coefficient_of,
    constant_of,
    defined,
    definition_of,
    from_ordered,
    from_terms,
    leaves_of,
    make_atom,
    of_atom,
    of_monomial,
    opaque_in,
    stands_for,
    terms_of,
)


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b, rounded toward minus infinity; `b` must be positive when it is used.

    It is 0 for a `b` of 0: an index into an axis without elements, which no loop reaches.
    """
    if b == 1:
        return a
    if b == 0:
        return 0
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if a == 0:
        return 0
    return _floordiv(a, b)


@remembering(1 << 16)
def weight(a: Dim) -> int:
    """How many atoms it has when written out, parts that are shared counted again and again."""
    if isinstance(a, int):
        return 0
    inner = (
        1 + sum(weight(x) for x in atom.arguments if atom.kind != "index")
        for monomial, _ in a.terms
        for atom in monomial
    )
    return sum(inner)


#: Numbers from here on stay where they are written: sums of their products could overflow in a run.
_LARGE = 1 << 24


@remembering(1 << 16)
def _floordiv(a: Dim, b: Dim) -> Dim:
    quotient, rest = divide_with_remainder(a, b)
    if rest == 0:
        return quotient
    if is_nonnegative(rest) and is_nonnegative(b - 1 - rest):
        return quotient
    reduced = _without_small(rest, b) if isinstance(b, int) else _without_place(rest, b)
    if reduced is not None:
        return quotient + floordiv(*reduced)
    if isinstance(b, int):
        constant = constant_of(rest)
        if constant < 0 and b < _LARGE:  # (x - 1) // 4 -> (x + 3) // 4 - 1, which has bounds
            steps = constant // b
            return floordiv(rest - steps * b, b) + quotient + steps
    atom = as_atom(rest)
    if atom is not None and atom.kind == "index" and atom.arguments[0] == b:
        return quotient  # i // n -> 0 for i in 0 .. n - 1, whatever is known of n
    constant = constant_of(rest)
    atom = as_atom(rest - constant)
    if atom is not None and atom.kind == "floordiv":  # (x // c + k) // d -> (x + k * c) // (c * d)
        inner, divisor = atom.arguments
        more = divisor * constant
        if max(abs(constant), abs(constant_of(more))) < _LARGE:
            return quotient + floordiv(inner + more, divisor * b)
    return quotient + of_atom(make_atom(("floordiv", rest, b), "floordiv", "", (rest, b)))


def _without_small(a: Dim, b: int) -> tuple[Dim, Dim] | None:
    """(x, d) with a // b == x // d: (k * x + r) // (k * d) == x // d for 0 <= r < k."""
    terms = terms_of(a)
    variable = [c for m, c in terms if m]
    factors = {gcd(b, c) for c in variable} | {gcd(b, *variable)}
    for k in sorted(factors - {1}, reverse=True):
        large = {m: c // k for m, c in terms if not m or c % k == 0}
        small = from_terms({m: c - large.get(m, 0) * k for m, c in terms})
        fits = is_nonnegative(small) and is_nonnegative(k - 1 - small)
        if fits:
            return from_terms(large), b // k
    return None


def _without_place(a: Dim, b: Size) -> tuple[Dim, Dim] | None:
    """The same for a `b` of symbols: (i * h * w + j * w + k) // (4 * h * w) == i // 4.

    What is left out is a place in a block, or in a row of one, whose size has symbols of `b`.
    """
    common = gcd(*(c for _, c in b.terms))
    lead, unit = b.terms[0][0], b.terms[0][1] // common
    shared = [x for x in lead if all(x in m for m, _ in b.terms)]
    found: dict[Dim, int] = {}
    for m, c in terms_of(a):
        if all(x in m for x in lead):
            factor = gcd(common, c // unit)
            found[from_terms({n: d // common * factor for n, d in b.terms})] = len(lead)
        part = tuple([x for x in shared if x in m])
        if part:
            found[of_monomial(part, gcd(common, c))] = len(part)
    for size in sorted(found, key=found.__getitem__, reverse=True):
        count = exact_quotient(b, size)
        if count is None or count == 1:
            continue
        large, small = divide_with_remainder(a, size)
        if is_nonnegative(small) and is_nonnegative(size - 1 - small):
            return large, count
    return None


def modulo(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of `b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return a - floordiv(a, b) * b


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up."""
    return floordiv(a + b - 1, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of the two."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return _maximum(a, b)


@remembering(1 << 14)
def _maximum(a: Dim, b: Dim) -> Dim:
    if is_nonnegative(a - b):
        return a
    if is_nonnegative(b - a):
        return b
    a, b = _ordered(a, b)
    return of_atom(make_atom(("max", a, b), "max", "", (a, b)))


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of the two."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return _minimum(a, b)


@remembering(1 << 14)
def _minimum(a: Dim, b: Dim) -> Dim:
    if is_nonnegative(a - b):
        return b
    if is_nonnegative(b - a):
        return a
    a, b = _ordered(a, b)
    return of_atom(make_atom(("min", a, b), "min", "", (a, b)))


def _ordered(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    keys = [tuple((tuple(x.order for x in m), c) for m, c in terms_of(x)) for x in (a, b)]
    return (a, b) if keys[0] <= keys[1] else (b, a)


@remembering(1 << 16)
def bounds(a: Dim) -> tuple[Dim, Dim | None]:
    """(lowest, highest) in terms of symbols only; highest None if unbounded.

    Index variables are taken at 0 and extent - 1, which assumes that their loops run at all.
    """
    if isinstance(a, int):
        return a, a
    lowest: Dim = 0
    highest: Dim | None = 0
    for monomial, coefficient in a.terms:
        low: Dim = 1
        high: Dim | None = 1
        for atom in monomial:
            atom_low, atom_high = _atom_bounds(atom)
            if not (is_nonnegative(atom_low) and is_nonnegative(low)):
                return _wide_bounds(a)
            low = low * atom_low
            high = None if high is None or atom_high is None else high * atom_high
        if coefficient >= 0:
            lowest = lowest + low * coefficient
            highest = None if highest is None or high is None else highest + high * coefficient
        else:
            if high is None:
                return _wide_bounds(a)
            lowest = lowest + high * coefficient
            highest = None if highest is None else highest + low * coefficient
    return lowest, highest


_UNBOUNDED_BELOW = -(1 << 62)


def _wide_bounds(_: Dim) -> tuple[Dim, Dim | None]:
    return _UNBOUNDED_BELOW, None


@remembering(1 << 14)
def _atom_bounds(atom: Atom) -> tuple[Dim, Dim | None]:
    if atom.kind == "symbol":
        itself = of_atom(atom)
        if _atom_nonnegative(atom):
            return itself, itself
        return atom.arguments[0], atom.arguments[1] if len(atom.arguments) > 1 else None
    if atom.kind == "index":
        return 0, bounds(atom.arguments[0] - 1)[1]
    if atom.kind == "opaque":
        return bounds(atom.arguments[0])[0], bounds(atom.arguments[1])[1]
    (a_low, a_high), (b_low, b_high) = (bounds(x) for x in atom.arguments)
    if atom.kind == "floordiv":
        if not is_nonnegative(a_low):
            return _UNBOUNDED_BELOW, None
        if not isinstance(a_low, int) and a_low is a_high and b_low is b_high:
            itself = of_atom(atom)
            return itself, itself
        if isinstance(atom.arguments[1], int):
            return floordiv(a_low, atom.arguments[1]), None if a_high is None else floordiv(
                a_high, atom.arguments[1]
            )
        return 0, a_high
    if atom.kind == "max":
        if a_high is not None and b_high is not None:
            return maximum(a_low, b_low), maximum(a_high, b_high)
        return maximum(a_low, b_low), None
    highs = [x for x in (a_high, b_high) if x is not None]
    low = minimum(a_low, b_low)
    if len(highs) == 2:
        return low, minimum(*highs)
    return low, highs[0] if highs else None


#: A sum of more atoms, written out, is summarised: work on sizes takes as long as they are.
_MOST_WRITTEN = 24
#: Symbols that are replaced by what they stand for, where that may prove something.
_MOST_EXPANDED = 3


def summarised(a: Dim) -> Dim:
    """`a`, or where it is long, and never negative, a symbol that stands for it.

    Where sizes follow from sizes, again and again, expressions stay short, and work stays linear.
    """
    if isinstance(a, int) or weight(a) <= _MOST_WRITTEN:
        return a
    constant = constant_of(a)
    rest = a - constant
    if atoms_of(a, "index") or opaque_in(a) or isinstance(rest, int) or not is_nonnegative(rest):
        return a
    # Constants and common factors stay in sight: they decide on emptiness and divisions.
    factor = gcd(*(c for _, c in rest.terms))
    short = from_ordered([(m, c // factor) for m, c in rest.terms])
    if isinstance(short, int) or weight(short) <= _MOST_WRITTEN // 2:
        return a
    return defined(short) * factor + constant


def _expanded(a: Dim) -> Dim:
    """`a` with the latest symbol in it that stands for something written out.

    `a` itself if there is none, or if that makes it no shorter: then nothing cancels.
    """
    found: Atom | None = None
    for monomial, _ in terms_of(a):
        for atom in monomial:
            if atom.kind == "symbol" and definition_of(atom) is not None:
                found = atom if found is None or atom.order > found.order else found
    linear = None if found is None else coefficient_of(a, found)
    if found is None or linear is None:
        return a
    full = linear[0] * stands_for(found) + linear[1]
    return full if len(terms_of(full)) < len(terms_of(a)) else a


@remembering(1 << 16)
def is_nonnegative(a: Dim) -> bool:
    """Whether `a` is provably at least 0 (symbols are at least 0)."""
    for _ in range(_MOST_EXPANDED):
        if _is_nonnegative(a):
            return True
        full = _expanded(a)
        if full is a:
            return False
        a = full
    return _is_nonnegative(a)


@remembering(1 << 16)
def _is_nonnegative(a: Dim) -> bool:
    if isinstance(a, int):
        return a >= 0
    if all([c >= 0 for _, c in a.terms]) and all(
        _atom_nonnegative(x) for m, _ in a.terms for x in m
    ):
        return True
    smallest = _extreme(a)
    return smallest is not a and is_nonnegative(smallest)


def _atom_nonnegative(atom: Atom) -> bool:
    if atom.kind == "index" or (atom.kind == "symbol" and not atom.arguments):
        return True
    if atom.kind in ("symbol", "opaque"):
        return is_nonnegative(atom.arguments[0])
    left, right = (is_nonnegative(x) for x in atom.arguments)
    return (left or right) if atom.kind == "max" else left and (right or atom.kind == "floordiv")


def _extreme(a: Size) -> Dim:
    """`a` with every bounded atom at the end of its range that makes `a` smallest."""
    sums: dict[Monomial, int] = {}
    changes = False
    for monomial, coefficient in a.terms:
        value: Dim = 1
        kept: list[Atom] = []
        for atom in monomial:
            if atom.kind == "symbol" and not (len(atom.arguments) > 1 and coefficient < 0):
                factor: Dim | None = None
            elif not _atom_nonnegative(atom):
                factor = None
            else:
                low, high = _atom_bounds(atom) if atom.kind != "symbol" else atom.arguments
                factor = low if coefficient > 0 else high
            if factor is None or (isinstance(factor, int) and factor == _UNBOUNDED_BELOW):
                kept.append(atom)
            else:
                value = value * factor
        if len(kept) == len(monomial):
            sums[monomial] = sums.get(monomial, 0) + coefficient
            continue
        changes = True
        if kept:  # at once: one by one, long products take the square of their length
            value = of_monomial(tuple(kept), 1) * value
        for m, c in terms_of(value):
            sums[m] = sums.get(m, 0) + c * coefficient
    return from_terms(sums) if changes else a


def is_same(a: Dim, b: Dim) -> bool:
    """Whether two expressions are one written in two ways; quicker than `known_equal`."""
    return _difference(a, b) == 0


def _difference(a: Dim, b: Dim) -> Dim:
    """a - b, a number where symbols that stand for something hide that."""
    difference = a - b
    for _ in range(_MOST_EXPANDED):
        if isinstance(difference, int):
            break
        full = _expanded(difference)
        if full is difference:
            break
        difference = full
    return difference


def known_equal(a: Dim, b: Dim) -> bool | None:
    """True or False when that is provable, else None."""
    difference = _difference(a, b)
    if isinstance(difference, int):
        return difference == 0
    if is_nonnegative(difference - 1) or is_nonnegative(-1 - difference):
        return False
    return None


def hangs_on_choice(a: Dim) -> bool:
    """Whether it contains a symbol that `sizes.measured` gave and that can only be 0 or 1."""
    if isinstance(a, int):
        return False
    return any(atom.arguments == (0, 1) for atom in leaves_of(a))
