"""Symbolic integers: sizes of tensors, and the indices that run over them.

A `Size` is a polynomial with integer coefficients over atoms. An atom is a symbol (a dimension
that is known when a run begins), an index variable with its extent, a floor division, a maximum or
minimum, or an opaque value with bounds (an index that is loaded from a tensor). Polynomials are
kept in one normal form and interned, so equal expressions are the same object. `a % b` is written
`a - b * (a // b)`, so that `b * (a // b) + a % b` is `a` again.

`+`, `-`, `*`, `//` and `%` are operators; the last two round toward minus infinity. Where the
divisor may be the number 0, call `base.integer`, which gives 0 then; it also rounds up and
compares. `base.substitution` replaces atoms. Everything takes and gives plain `int` where the
value is a constant: `Dim = int | Size`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Union

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.base.hashing import blake2b
from sardonyx.base.interning import WeakTable

#: No array of NumPy's has more axes.
MOST_AXES = 64


class Atom:
    """What polynomials are made of. Compared by identity; made only through the functions below."""

    __slots__ = ("__weakref__", "arguments", "kind", "name", "order", "payload")

    def __init__(
        self, kind: str, name: str, arguments: tuple[Dim, ...], order: int, payload: object
    ) -> None:
        self.kind = kind  #: symbol, index, floordiv, max, min, opaque
        self.name = name
        #: floordiv, max, min: operands. index: (extent,). opaque: (lowest, highest). symbol: the
        #: same if it is measured, with `highest` only where there is one; else nothing.
        self.arguments = arguments
        self.order = order
        #: opaque: what identifies it. symbol: the expression that it stands for, if there is one.
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
    """A symbolic integer that is not a known constant, compared by identity: see above."""

    __slots__ = ("__weakref__", "_atoms", "_leaves", "_opaque", "_text", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._text: str | None = None
        self._opaque: tuple[Atom, ...] | None = None
        self._atoms: Set[Atom] | None = None
        self._leaves: Set[Atom] | None = None

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return multiply(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return subtract(self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return subtract(other, self)

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _modulo(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _modulo(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self!r} is zero is not known before a run")

    def __int__(self) -> int:
        raise TypeError(f"{self!r} is not known before a run")

    def __repr__(self) -> str:
        if self._text is None:
            self._text = _cut(self._written())
        return self._text

    def _written(self) -> str:
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


def _floordiv(a: Dim, b: Dim) -> Dim:
    from sardonyx.base import integer  # it is made of this module

    return integer.floordiv(a, b)


def _modulo(a: Dim, b: Dim) -> Dim:
    from sardonyx.base import integer  # it is made of this module

    return integer.modulo(a, b)


#: Longer texts are cut: an expression that shares its parts may be written in exponential length.
_LONGEST_TEXT = 1000


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


Dim = Union[int, Size]  # noqa: UP007 - evaluated at run time, where Size | int has no support

# Weak, so that what a model's sizes are made of goes when the model does.
_SIZES: WeakTable[tuple[tuple[Monomial, int], ...], Size] = WeakTable(kept=1 << 14)
_ATOMS: WeakTable[object, Atom] = WeakTable(kept=1 << 12)
_ORDER = itertools.count()
_INDEX = itertools.count()


def make_atom(
    key: object, kind: str, name: str, arguments: tuple[Dim, ...], payload: object = None
) -> Atom:
    """The one atom with this key."""
    entry = _ATOMS.entries.get(key)
    found = None if entry is None else entry()
    if found is None:
        found = _ATOMS.add(key, Atom(kind, name, arguments, next(_ORDER), payload))
    return found


def _monomial_key(term: tuple[Monomial, int]) -> tuple[int, object]:
    monomial = term[0]
    if len(monomial) == 1:
        return (-1, monomial[0].order)
    return (-len(monomial), tuple([a.order for a in monomial]))


def _intern(key: tuple[tuple[Monomial, int], ...]) -> Size:
    entry = _SIZES.entries.get(key)
    found = None if entry is None else entry()
    if found is None:
        found = _SIZES.add(key, Size(key))
    return found


def from_terms(terms: Mapping[Monomial, int]) -> Dim:
    """The polynomial with these coefficients, in normal form."""
    kept = [term for term in terms.items() if term[1]]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > 1:
        kept.sort(key=_monomial_key)
    return _intern(tuple(kept))


def from_ordered(terms: list[tuple[Monomial, int]]) -> Dim:
    """The polynomial with some of the terms of another, in their order."""
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return _intern(tuple(terms))


def terms_of(a: Dim) -> tuple[tuple[Monomial, int], ...]:
    """The polynomial as (monomial, coefficient) pairs; a constant has the empty monomial."""
    if isinstance(a, Size):
        return a.terms
    return (((), a),) if a else ()


def constant_of(a: Dim) -> int:
    """The term without atoms."""
    if isinstance(a, int):
        return a
    monomial, coefficient = a.terms[-1]
    return 0 if monomial else coefficient


def symbol(name: str) -> Size:
    """A dimension that is known when a run begins; never negative. Same name, same symbol."""
    return of_atom(make_atom(("symbol", name), "symbol", name, ()))


def measured(name: str, lowest: Dim, highest: Dim | None = None) -> Size:
    """A symbol that gets a value between these while a run goes on. Found again by all three."""
    limits = (lowest,) if highest is None else (lowest, highest)
    return of_atom(make_atom(("measured", name, limits), "symbol", name, limits))


def is_measured(a: Dim) -> bool:
    """Whether it contains a symbol that `measured` gave, or one that stands for such."""
    return any(atom.arguments for atom in leaves_of(a))


def defined(definition: Size) -> Size:
    """A symbol that stands for an expression of symbols, which is never negative.

    Arithmetic takes it as any other symbol. Whoever needs its value works out the definition.
    """
    entry = _ATOMS.entries.get(("defined", definition))
    found = None if entry is None else entry()
    if found is None:
        name = f"size {_digest_of(definition)}"
        found = make_atom(("defined", definition), "symbol", name, (), definition)
    return of_atom(found)


def definition_of(atom: Atom) -> Size | None:
    """What a symbol stands for; None for other symbols and atoms."""
    return atom.payload if isinstance(atom.payload, Size) else None


def stands_for(atom: Atom) -> Size:
    """The same of a symbol that has one."""
    assert isinstance(atom.payload, Size)  # noqa: S101 - the caller knows
    return atom.payload


def _digest_of(a: Size) -> str:
    """A name for an expression of symbols that is the same in every process."""

    def text(dim: Dim) -> str:
        terms = (f"{c}*{'*'.join(sorted(map(named, m)))}" for m, c in terms_of(dim))
        return f"({'+'.join(sorted(terms))})"

    def named(atom: Atom) -> str:
        if atom.kind == "symbol":
            return f"{len(atom.name)}:{atom.name}{','.join(map(text, atom.arguments))}"
        return f"{atom.kind}{','.join(map(text, atom.arguments))}"

    return blake2b(text(a).encode(), digest_size=12).hexdigest()


def definitions_in(a: Dim, known: Callable[[Atom], bool] = lambda atom: False) -> list[Atom]:
    """The symbols with definitions that `a` is made of, each behind those in its own definition.

    Args:
        a: The expression.
        known: Tells symbols that are left out, with what only they are made of.
    """
    found: dict[Atom, None] = {}
    stack = [a]
    while stack:
        for atom in atoms_of(stack.pop()):
            if atom.kind != "symbol" or atom.payload is None:
                continue
            definition = definition_of(atom)
            if definition is not None and atom not in found and not known(atom):
                found[atom] = None
                stack.append(definition)
    return sorted(found, key=lambda atom: atom.order) if found else []


def leaves_of(a: Dim) -> Set[Atom]:
    """The symbols without definitions that `a` is made of, also inside definitions.

    Always in the same order, as all sets of atoms here: what is compiled hangs on it.
    """
    if not isinstance(a, Size):
        return _NO_ATOMS
    if a._leaves is None:
        # Definitions in definitions, each once however many sizes are made of it.
        for atom in definitions_in(a, lambda atom: stands_for(atom)._leaves is not None):
            definition = stands_for(atom)
            definition._leaves = _leaves_near(definition)
        a._leaves = _leaves_near(a)
    return a._leaves


def _leaves_near(a: Size) -> Set[Atom]:
    """The same, where those of the definitions in it are known."""
    found: dict[Atom, None] = {}
    for atom in atoms_of(a):
        if atom.kind == "symbol":
            definition = definition_of(atom)
            if definition is None:
                found[atom] = None
            else:
                found.update(dict.fromkeys(definition._leaves or _NO_ATOMS))
    return found.keys()


def index(extent: Dim, name: str = "i") -> Size:
    """A new index variable with values 0 to `extent` - 1."""
    number = next(_INDEX)
    return of_atom(make_atom(("index", number), "index", f"{name}{number}", (extent,)))


def numbered_index(extent: Dim, number: int, name: str = "i") -> Dim:
    """An index variable found again by (extent, number): structure made of these can be compared.

    An axis of extent 1 has the one index 0, so 0 is what it gives.
    """
    if extent == 1:
        return 0
    key = ("numbered", name, number, extent)
    return of_atom(make_atom(key, "index", f"{name}{number}", (extent,)))


def opaque(payload: object, lowest: Dim, highest: Dim, name: str = "value") -> Size:
    """A value that only the run knows, from `lowest` to `highest`, identified by `payload`."""
    key = ("opaque", payload, lowest, highest)
    return of_atom(make_atom(key, "opaque", name, (lowest, highest), payload))


def of_atom(atom: Atom) -> Size:
    """The expression that consists of `atom`."""
    return _intern((((atom,), 1),))


def of_monomial(monomial: Monomial, coefficient: int) -> Dim:
    """The expression `coefficient` times the product of the atoms."""
    return from_terms({monomial: coefficient})


def as_atom(a: Dim) -> Atom | None:
    """The atom that `a` consists of, if it is one alone."""
    if isinstance(a, Size) and len(a.terms) == 1:
        monomial, coefficient = a.terms[0]
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def name_of(symbol: Dim) -> str:
    """What a symbol is called."""
    atom = as_atom(symbol)
    assert atom is not None  # noqa: S101 - a symbol is an atom
    return atom.name


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int):
        a, b = b, a
    assert isinstance(a, Size)  # noqa: S101 - one of the two is
    if isinstance(b, int):
        return _add_number(a, b) if b else a
    sums = dict(a.terms)
    for monomial, coefficient in b.terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return _from_sums(a, sums)


def _from_sums(a: Size, sums: dict[Monomial, int]) -> Dim:
    """The polynomial with these coefficients, of which those of `a` come first."""
    if len(sums) == len(a.terms):  # no others: they are in order
        return from_ordered([term for term in sums.items() if term[1]])
    return from_terms(sums)


def subtract(a: Dim, b: Dim) -> Dim:
    """a - b; that is `add` of a negative `b`, which is not made for itself."""
    if a is b:
        return 0
    if isinstance(b, int):
        return add(a, -b)
    if isinstance(a, int):
        terms = [(m, -c) for m, c in b.terms]
        if not terms[-1][0]:
            a -= b.terms[-1][1]
            terms.pop()
        return from_ordered([*terms, ((), a)] if a else terms)
    sums = dict(a.terms)
    for monomial, coefficient in b.terms:
        sums[monomial] = sums.get(monomial, 0) - coefficient
    return _from_sums(a, sums)


def _add_number(a: Size, b: int) -> Dim:
    """a + b: the constant of a normal form is its last term."""
    monomial, coefficient = a.terms[-1]
    others, constant = (a.terms, b) if monomial else (a.terms[:-1], coefficient + b)
    return _intern((*others, ((), constant)) if constant else others)


def _monomial_product(a: Monomial, b: Monomial) -> Monomial:
    if len(a) == len(b) == 1 and a[0] is not b[0]:
        return a + b if a[0].order < b[0].order else b + a
    both = sorted(a + b, key=lambda x: x.order)
    for atom in a:
        if atom.arguments == (0, 1) and atom.kind == "symbol" and atom in b:
            both.remove(atom)  # m * m -> m for m of 0 and 1
    return tuple(both)


#: Products of sums double with each factor, powers with each square: a file of a few lines could
#: ask for any number. More than so many factors, if they are not 1, are no size in bytes.
_MOST_TERMS, _MOST_FACTORS = 1 << 13, 64


def multiply(a: Dim, b: Dim) -> Dim:
    """a * b.

    Raises:
        NotImplemented: There are too many terms, or factors in them, when it is written out.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(b, int):
        a, b = b, a
    if isinstance(a, int):
        return _scaled(b, a)
    products: dict[Monomial, int] = {}
    key: Monomial = ()
    for m, c in terms_of(a):
        for n, d in terms_of(b):
            key = _monomial_product(m, n) if m and n else m or n
            products[key] = products.get(key, 0) + c * d
        if len(products) > _MOST_TERMS or len(key) > _MOST_FACTORS:
            what = f"A size has more than {_MOST_TERMS} terms, or {_MOST_FACTORS} factors"
            do = "Declare more of the inputs' sizes as numbers"
            raise errors.NotImplemented(message("sizes", what, do=do))
    return from_terms(products)


def _scaled(a: Dim, factor: int) -> Dim:
    """a * factor: the order of the terms stays."""
    if factor == 1:
        return a
    if factor == 0:
        return 0
    return _intern(tuple([(m, c * factor) for m, c in terms_of(a)]))


def product(factors: Iterable[Dim]) -> Dim:
    """The product of all; 1 for none."""
    result: Dim = 1
    for factor in factors:
        result = multiply(result, factor)
    return result


def total(summands: Iterable[Dim]) -> Dim:
    """The sum of all; 0 for none."""
    number, first, sums = 0, None, dict[Monomial, int]()
    for summand in summands:
        if isinstance(summand, int):
            number += summand
        elif first is None:
            first = summand
        else:
            if not sums:
                sums.update(first.terms)
            for monomial, coefficient in summand.terms:
                sums[monomial] = sums.get(monomial, 0) + coefficient
    if first is None:
        return number
    if not sums:
        return _add_number(first, number) if number else first
    if number:
        sums[()] = sums.get((), 0) + number
    return from_terms(sums)


def inner_product(left: Iterable[Dim], right: Iterable[Dim]) -> Dim:
    """The sum of the products of two equally long rows: no product is made for itself."""
    number, sums = 0, dict[Monomial, int]()
    for a, b in zip(left, right, strict=True):
        if not isinstance(b, int):
            a, b = b, a
        if not isinstance(b, int):
            a, b = multiply(a, b), 1
        if isinstance(a, int):
            number += a * b
        else:
            for monomial, coefficient in a.terms:
                sums[monomial] = sums.get(monomial, 0) + coefficient * b
    if number:
        sums[()] = sums.get((), 0) + number
    return from_terms(sums)


def variable(a: Dim) -> Atom:
    """The atom that `a` consists of; TypeError if it is anything else."""
    atom = as_atom(a)
    if atom is None:
        raise TypeError(f"{a!r} is not a single variable")
    return atom


def variables(dims: Iterable[Dim]) -> list[Atom]:
    """The atoms among `dims`: index variables without the 0 of axes of extent 1."""
    return [atom for atom in map(as_atom, dims) if atom is not None]


def in_place_of(old: Iterable[Dim], new: Iterable[Dim]) -> dict[Atom, Dim]:
    """What stands for each index variable; the 0 of an axis of extent 1 is left out."""
    return {variable(a): b for a, b in zip(old, new, strict=True) if a != 0}


_NO_ATOMS: Set[Atom] = dict[Atom, None]().keys()
#: Kinds of atoms whose value is one of their arguments'.
_COMPOSED = ("floordiv", "max", "min")


def atoms_of(a: Dim, kind: str | None = None) -> Set[Atom]:
    """All atoms in `a`, also those inside divisions, perhaps of one kind only."""
    if not isinstance(a, Size):
        return _NO_ATOMS
    every = a._atoms
    if every is None:
        found: dict[Atom, None] = {}
        for monomial, _ in a.terms:
            for atom in monomial:
                found[atom] = None
                if atom.kind in _COMPOSED:
                    for argument in atom.arguments:
                        if isinstance(argument, Size):
                            found.update(dict.fromkeys(argument._atoms or atoms_of(argument)))
        every = a._atoms = found.keys()
    if kind is None or all(atom.kind == kind for atom in every):
        return every
    return dict.fromkeys([atom for atom in every if atom.kind == kind]).keys()


def opaque_in(a: Dim) -> tuple[Atom, ...]:
    """All opaque atoms in `a`, also those inside divisions, in their order."""
    if isinstance(a, int):
        return ()
    if a._opaque is None:
        found = [atom for atom in atoms_of(a) if atom.kind == "opaque"]
        found.sort(key=lambda x: x.order)
        a._opaque = tuple(found)
    return a._opaque


def coefficient_of(a: Dim, atom: Atom) -> tuple[Dim, Dim] | None:
    """(c, rest) with a == c * atom + rest, both without `atom`; None if `a` is not linear in it."""
    factor: dict[Monomial, int] = {}
    rest: list[tuple[Monomial, int]] = []
    for term in terms_of(a):
        monomial, coefficient = term
        others = monomial
        if atom in monomial:
            others = tuple([x for x in monomial if x is not atom])
            if len(others) < len(monomial) - 1:
                return None
        for x in others:
            if x.kind in _COMPOSED and any(atom in atoms_of(y) for y in x.arguments):
                return None
        if others is monomial:
            rest.append(term)
        else:
            factor[others] = coefficient
    if not factor:
        return 0, a
    return from_terms(factor), from_ordered(rest)


def step_along(a: Dim, atom: Atom) -> Dim | None:
    """How much `a` grows with each step of `atom`; None where that is not the same everywhere."""
    linear = coefficient_of(a, atom)
    return None if linear is None else linear[0]


#: No size comes near this. Definitions that square each other would have a million digits.
_END = 2**256


def evaluate(a: Dim, symbols: Mapping[str, int], atoms: Mapping[Atom, int] | None = None) -> int:
    """The number, given every symbol by name and other atoms by identity; else KeyError.

    What a definition gives is held within plus and minus 2^256.
    """
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
        definition = definition_of(atom)
        if definition is None:
            return symbols[atom.name]
        values = dict(atoms)
        for inner in definitions_in(of_atom(atom), atoms.__contains__):
            values[inner] = max(-_END, min(evaluate(stands_for(inner), symbols, values), _END))
        return values[atom]
    if atom.kind in ("index", "opaque"):
        raise KeyError(atom.name)
    left, right = (evaluate(x, symbols, atoms) for x in atom.arguments)
    if atom.kind == "floordiv":
        return left // right
    return max(left, right) if atom.kind == "max" else min(left, right)
