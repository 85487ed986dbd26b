"""Symbolic integers: sizes of tensors, and the indices that run over them.

A `Size` is a polynomial with integer coefficients over atoms. An atom is a symbol (a dimension
that is known when a run begins), an index variable with its extent, a floor division, a maximum or
minimum, or an opaque value with bounds (an index that is loaded from a tensor). Polynomials are
kept in one normal form and interned, so equal expressions are the same object. `a % b` is written
`a - b * (a // b)`, so that `b * (a // b) + a % b` is `a` again.

Everything here takes and gives plain `int` where the value is a constant: `Dim = int | Size`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Union


class Atom:
    """What polynomials are made of. Compared by identity; made only through the functions below."""

    __slots__ = ("arguments", "kind", "name", "order", "payload")

    def __init__(
        self, kind: str, name: str, arguments: tuple[Dim, ...], order: int, payload: object
    ) -> None:
        self.kind = kind  #: symbol, index, floordiv, max, min, opaque
        self.name = name
        #: floordiv, max, min: operands. index: (extent,). opaque: (lowest, highest). symbol: the
        #: same if it is measured, with `highest` only where there is one; else nothing.
        self.arguments = arguments
        self.order = order
        self.payload = payload

    def __repr__(self) -> str:
        if self.kind in ("symbol", "index", "opaque"):
            return self.name
        left, right = self.arguments
        if self.kind == "floordiv":
            return f"({left!r} // {right!r})"
        return f"{self.kind}({left!r}, {right!r})"


Monomial = tuple[Atom, ...]


class Size:
    """A symbolic integer that is not a known constant. See the module's text."""

    __slots__ = ("__weakref__", "_hash", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return multiply(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return add(self, multiply(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return add(other, multiply(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return modulo(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return modulo(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self!r} is zero is not known before a run")

    def __int__(self) -> int:
        raise TypeError(f"{self!r} is not known before a run")

    def __repr__(self) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [repr(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(
                f" {sign} {'*'.join(factors)}"
                if parts
                else ("-" * (coefficient < 0)) + "*".join(factors)
            )
        return "".join(parts) if len(parts) == 1 else f"({''.join(parts)})"


Dim = Union[int, Size]  # noqa: UP007 - evaluated at run time, where Size | int has no support

_SIZES: dict[tuple[tuple[Monomial, int], ...], Size] = {}
_ATOMS: dict[object, Atom] = {}
_ORDER = itertools.count()
_INDEX = itertools.count()


def _atom(
    key: object, kind: str, name: str, arguments: tuple[Dim, ...], payload: object = None
) -> Atom:
    found = _ATOMS.get(key)
    if found is None:
        found = _ATOMS.setdefault(key, Atom(kind, name, arguments, next(_ORDER), payload))
    return found


def _monomial_key(term: tuple[Monomial, int]) -> tuple[int, tuple[int, ...]]:
    return (-len(term[0]), tuple(a.order for a in term[0]))


def _intern(key: tuple[tuple[Monomial, int], ...]) -> Size:
    found = _SIZES.get(key)
    return _SIZES.setdefault(key, Size(key)) if found is None else found


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = sorted(((m, c) for m, c in terms.items() if c), key=_monomial_key)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    key = tuple(kept)
    return _intern(key)


def _of_atom(atom: Atom) -> Size:
    key = (((atom,), 1),)
    return _intern(key)


def terms_of(a: Dim) -> tuple[tuple[Monomial, int], ...]:
    """The polynomial as (monomial, coefficient) pairs; a constant has the empty monomial."""
    if isinstance(a, Size):
        return a.terms
    return (((), a),) if a else ()


def symbol(name: str) -> Size:
    """A dimension that is known when a run begins; never negative. Same name, same symbol."""
    return _of_atom(_atom(("symbol", name), "symbol", name, ()))


def measured(name: str, lowest: Dim, highest: Dim | None = None) -> Size:
    """A symbol that gets a value between these while a run goes on. Found again by all three."""
    limits = (lowest,) if highest is None else (lowest, highest)
    return _of_atom(_atom(("measured", name, limits), "symbol", name, limits))


def is_measured(a: Dim) -> bool:
    """Whether it contains a symbol that `measured` gave."""
    return any(atom.arguments for atom in atoms_of(a, "symbol"))


def index(extent: Dim, name: str = "i") -> Size:
    """A new index variable with values 0 to `extent` - 1."""
    number = next(_INDEX)
    return _of_atom(_atom(("index", number), "index", f"{name}{number}", (extent,)))


def numbered_index(extent: Dim, number: int, name: str = "i") -> Dim:
    """An index variable found again by (extent, number): structure made of these can be compared.

    An axis of extent 1 has the one index 0, so 0 is what it gives.
    """
    if extent == 1:
        return 0
    key = ("numbered", name, number, extent)
    return _of_atom(_atom(key, "index", f"{name}{number}", (extent,)))


def opaque(payload: object, lowest: Dim, highest: Dim, name: str = "value") -> Size:
    """A value that only the run knows, from `lowest` to `highest`, identified by `payload`."""
    key = ("opaque", payload, lowest, highest)
    return _of_atom(_atom(key, "opaque", name, (lowest, highest), payload))


def of_atom(atom: Atom) -> Size:
    """The expression that consists of `atom`."""
    return _of_atom(atom)


def of_monomial(monomial: Monomial, coefficient: int) -> Dim:
    """The expression `coefficient` times the product of the atoms."""
    return _from_terms({monomial: coefficient})


def as_atom(a: Dim) -> Atom | None:
    """The atom that `a` consists of, if it is one alone."""
    if isinstance(a, Size) and len(a.terms) == 1:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    sums = dict(terms_of(a))
    for monomial, coefficient in terms_of(b):
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return _from_terms(sums)


def multiply(a: Dim, b: Dim) -> Dim:
    """a * b."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1:
        return b
    if b == 1:
        return a
    products: dict[Monomial, int] = {}
    for m, c in terms_of(a):
        for n, d in terms_of(b):
            key = tuple(sorted(m + n, key=lambda x: x.order)) if m and n else m or n
            products[key] = products.get(key, 0) + c * d
    return _from_terms(products)


def product(factors: Iterable[Dim]) -> Dim:
    """The product of all; 1 for none."""
    result: Dim = 1
    for factor in factors:
        result = multiply(result, factor)
    return result


def total(summands: Iterable[Dim]) -> Dim:
    """The sum of all; 0 for none."""
    result: Dim = 0
    for summand in summands:
        result = add(result, summand)
    return result


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
            factor = _from_terms({reduced: coefficient // lead_coefficient})
            candidate = add(rest, multiply(multiply(factor, b), -1))
            if len(terms_of(candidate)) < len(terms_of(rest)) or (
                isinstance(b, int) and candidate != rest
            ):
                quotient, rest = add(quotient, factor), candidate
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


@lru_cache(maxsize=1 << 16)
def _floordiv(a: Dim, b: Dim) -> Dim:
    quotient, rest = divide_with_remainder(a, b)
    if rest == 0:
        return quotient
    if is_nonnegative(rest) and is_nonnegative(add(add(b, -1), multiply(rest, -1))):
        return quotient
    if isinstance(b, int):
        # (k * x + c) // (k * d) == (x + c // k) // d for 0 <= c < k
        from math import gcd

        variable = [c for m, c in terms_of(rest) if m]
        common = gcd(b, *variable)
        if common > 1:
            constant = sum(c for m, c in terms_of(rest) if not m)
            reduced = _from_terms({m: c // common for m, c in terms_of(rest) if m})
            return add(quotient, floordiv(add(reduced, constant // common), b // common))
    atom = as_atom(rest)
    if atom is not None and atom.kind == "index" and atom.arguments[0] == b:
        return quotient  # i // n -> 0 for i in 0 .. n - 1, whatever is known of n
    if atom is not None and atom.kind == "floordiv":  # (x // c) // d -> x // (c * d)
        inner, divisor = atom.arguments
        return add(quotient, floordiv(inner, multiply(divisor, b)))
    return add(quotient, _of_atom(_atom(("floordiv", rest, b), "floordiv", "", (rest, b))))


def modulo(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of `b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return add(a, multiply(multiply(floordiv(a, b), b), -1))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up."""
    return floordiv(add(a, add(b, -1)), b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of the two."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if is_nonnegative(add(a, multiply(b, -1))):
        return a
    if is_nonnegative(add(b, multiply(a, -1))):
        return b
    a, b = _ordered(a, b)
    return _of_atom(_atom(("max", a, b), "max", "", (a, b)))


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of the two."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if is_nonnegative(add(a, multiply(b, -1))):
        return b
    if is_nonnegative(add(b, multiply(a, -1))):
        return a
    a, b = _ordered(a, b)
    return _of_atom(_atom(("min", a, b), "min", "", (a, b)))


def _ordered(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    keys = [tuple((tuple(x.order for x in m), c) for m, c in terms_of(x)) for x in (a, b)]
    return (a, b) if keys[0] <= keys[1] else (b, a)


@lru_cache(maxsize=1 << 16)
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
            low = multiply(low, atom_low)
            high = None if high is None or atom_high is None else multiply(high, atom_high)
        if coefficient >= 0:
            lowest = add(lowest, multiply(low, coefficient))
            highest = (
                None
                if highest is None or high is None
                else add(highest, multiply(high, coefficient))
            )
        else:
            if high is None:
                return _wide_bounds(a)
            lowest = add(lowest, multiply(high, coefficient))
            highest = None if highest is None else add(highest, multiply(low, coefficient))
    return lowest, highest


_UNBOUNDED_BELOW = -(1 << 62)


def _wide_bounds(_: Dim) -> tuple[Dim, Dim | None]:
    return _UNBOUNDED_BELOW, None


def _atom_bounds(atom: Atom) -> tuple[Dim, Dim | None]:
    if atom.kind == "symbol":
        itself = _of_atom(atom)
        if _atom_nonnegative(atom):
            return itself, itself
        return atom.arguments[0], atom.arguments[1] if len(atom.arguments) > 1 else None
    if atom.kind == "index":
        return 0, bounds(add(atom.arguments[0], -1))[1]
    if atom.kind == "opaque":
        return bounds(atom.arguments[0])[0], bounds(atom.arguments[1])[1]
    (a_low, a_high), (b_low, b_high) = (bounds(x) for x in atom.arguments)
    if atom.kind == "floordiv":
        if not is_nonnegative(a_low):
            return _UNBOUNDED_BELOW, None
        if not isinstance(a_low, int) and a_low is a_high and b_low is b_high:
            itself = _of_atom(atom)
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


@lru_cache(maxsize=1 << 16)
def is_nonnegative(a: Dim) -> bool:
    """Whether `a` is provably at least 0 (symbols are at least 0)."""
    if isinstance(a, int):
        return a >= 0
    if all(c >= 0 and all(x.kind == "symbol" and not x.arguments for x in m) for m, c in a.terms):
        return True
    if all(c >= 0 and all(_atom_nonnegative(x) for x in m) for m, c in a.terms):
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
    result: Dim = 0
    for monomial, coefficient in a.terms:
        value: Dim = 1
        for atom in monomial:
            if atom.kind == "symbol" and not (len(atom.arguments) > 1 and coefficient < 0):
                factor: Dim | None = _of_atom(atom)
            elif not _atom_nonnegative(atom):
                factor = None
            else:
                low, high = _atom_bounds(atom) if atom.kind != "symbol" else atom.arguments
                factor = low if coefficient > 0 else high
            if factor is None or (isinstance(factor, int) and factor == _UNBOUNDED_BELOW):
                factor = _of_atom(atom)
            value = multiply(value, factor)
        result = add(result, multiply(value, coefficient))
    return result


def known_equal(a: Dim, b: Dim) -> bool | None:
    """True or False when that is provable, else None."""
    difference = add(a, multiply(b, -1))
    if isinstance(difference, int):
        return difference == 0
    if is_nonnegative(add(difference, -1)) or is_nonnegative(add(multiply(difference, -1), -1)):
        return False
    return None


def variable(a: Dim) -> Atom:
    """The atom that `a` consists of; TypeError if it is anything else."""
    atom = as_atom(a)
    if atom is None:
        raise TypeError(f"{a!r} is not a single variable")
    return atom


def variables(dims: Iterable[Dim]) -> list[Atom]:
    """The atoms among `dims`: index variables without the 0 of axes of extent 1."""
    return [atom for atom in map(as_atom, dims) if atom is not None]


def atoms_of(a: Dim, kind: str | None = None) -> set[Atom]:
    """All atoms in `a`, also those inside divisions, perhaps of one kind only."""
    found: set[Atom] = set()
    if isinstance(a, Size):
        for monomial, _ in a.terms:
            for atom in monomial:
                if atom.kind in ("floordiv", "max", "min"):
                    for argument in atom.arguments:
                        found |= atoms_of(argument, kind)
                if kind is None or atom.kind == kind:
                    found.add(atom)
    return found


def substitute(a: Dim, replacements: Mapping[Atom, Dim]) -> Dim:
    """`a` with atoms replaced, everywhere, and simplified again."""
    if isinstance(a, int) or not replacements:
        return a
    return rebuild(a, lambda atom: replacements.get(atom))


def rebuild(a: Dim, replace: Callable[[Atom], Dim | None]) -> Dim:
    """`a` with each atom replaced by what `replace` gives, or kept where it gives None."""
    if isinstance(a, int):
        return a
    result: Dim = 0
    for monomial, coefficient in a.terms:
        value: Dim = coefficient
        for atom in monomial:
            value = multiply(value, _rebuild_atom(atom, replace))
        result = add(result, value)
    return result


def _rebuild_atom(atom: Atom, replace: Callable[[Atom], Dim | None]) -> Dim:
    found = replace(atom)
    if found is not None:
        return found
    if atom.kind in ("floordiv", "max", "min"):
        left, right = (rebuild(x, replace) for x in atom.arguments)
        if (left, right) != atom.arguments:
            return {"floordiv": floordiv, "max": maximum, "min": minimum}[atom.kind](left, right)
    return _of_atom(atom)


def coefficient_of(a: Dim, atom: Atom) -> tuple[Dim, Dim] | None:
    """(c, rest) with a == c * atom + rest, both without `atom`; None if `a` is not linear in it."""
    factor: Dim = 0
    rest: Dim = 0
    for monomial, coefficient in terms_of(a):
        count = monomial.count(atom)
        others = tuple(x for x in monomial if x is not atom)
        part = _from_terms({others: coefficient})
        if any(atom in atoms_of(_of_atom(x)) for x in others) or count > 1:
            return None
        if count:
            factor = add(factor, part)
        else:
            rest = add(rest, part)
    return factor, rest


def evaluate(a: Dim, symbols: Mapping[str, int], atoms: Mapping[Atom, int] | None = None) -> int:
    """The number, given every symbol by name and other atoms by identity; else KeyError."""
    if isinstance(a, int):
        return a
    result = 0
    for monomial, coefficient in a.terms:
        for atom in monomial:
            coefficient *= _evaluate_atom(atom, symbols, atoms or {})
        result += coefficient
    return result


def _evaluate_atom(atom: Atom, symbols: Mapping[str, int], atoms: Mapping[Atom, int]) -> int:
    if atom in atoms:
        return atoms[atom]
    if atom.kind == "symbol":
        return symbols[atom.name]
    if atom.kind in ("index", "opaque"):
        raise KeyError(atom.name)
    left, right = (evaluate(x, symbols, atoms) for x in atom.arguments)
    if atom.kind == "floordiv":
        return left // right
    return max(left, right) if atom.kind == "max" else min(left, right)
