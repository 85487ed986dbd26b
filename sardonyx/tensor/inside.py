"""Every element that a tensor reads must lie inside what it is read from.

Lowerings state which sizes they take as equal, but a missing statement must not become a read of
foreign memory. So every index of every tensor is looked at once more: where it is not provably
inside its axis, its largest and smallest values, at the corners of the loops around it, become
conditions of the plan.

Under a `select` that compares positions, what it compares is known (padding and concatenation
choose so). Where that does not prove enough, nothing is demanded of an index that is more than a
variable, as its corners need not be reached. Nor of one that meets a variable twice, since its
extremes are not at the corners: those are reshapes, whose sizes their lowering states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sardonyx.base import integer, sizes
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Atom, Dim, Size
from sardonyx.base.substitution import rebuild, substitute
from sardonyx.tensor.assumptions import Assumption, assume_equal, collected
from sardonyx.tensor.scalar import Scalar, whole_number
from sardonyx.tensor.tensor import Contract, Reduce, Tensor
from sardonyx.tensor.traverse import bodies_of, loads_of, parts_of

#: More index variables in one index have too many corners; no lowering makes such.
_MOST_VARIABLES = 4


def assume_inside(tensor: Tensor, where: str) -> None:
    """Take everything that `tensor` reads as lying inside what it is read from.

    Raises:
        InvalidGraph: Something provably lies outside; the text begins with `where`.
    """
    equal: Mapping[Atom, Dim] | None = None
    for body in bodies_of(tensor):
        if not any(_leaves_axes(load) for load in loads_of(body)):
            continue
        if equal is None:
            equal = _equalities(collected())
            loops = (
                *tensor.shape,
                *(tensor.extents if isinstance(tensor, Reduce | Contract) else ()),
            )
        for load, known in _loads(body):
            for index, extent in zip(load.at, load.tensor.shape, strict=True):
                if _is_own_axis(index, extent) or (not equal and _is_inside(index, extent, known)):
                    continue
                _check(index, extent, loops, known, equal, where)


def _leaves_axes(load: Scalar) -> bool:
    """Whether an index of a load is anything but a variable that runs over its axis."""
    return not all(map(_is_own_axis, load.at, load.tensor.shape))


def _is_own_axis(index: Dim, extent: Dim) -> bool:
    """Whether the index runs over exactly the axis: almost all do."""
    if isinstance(index, int):
        return isinstance(extent, int) and 0 <= index < extent
    atom = sizes.as_atom(index)
    return atom is not None and atom.kind == "index" and atom.arguments[0] is extent


class _Known(NamedTuple):
    """What the `select`s around an expression tell.

    Attributes:
        facts: Sizes that are at least 0.
        compared: Variables that were compared, whether or not that gave a fact.
    """

    facts: tuple[Dim, ...] = ()
    compared: frozenset[Atom] = frozenset()


_NOTHING = _Known()


@remembering(1 << 12)
def _under(known: _Known, condition: Scalar, holds: bool) -> _Known:
    """What is known where a condition holds or does not."""
    facts = (*known.facts, *_facts(condition, holds))
    return _Known(facts, known.compared | _positions(condition))


def _loads(body: Scalar) -> Iterator[tuple[Scalar, _Known]]:
    """Every load, with what is known where it takes place."""
    stack = [(body, _NOTHING)]
    seen: set[tuple[Scalar, _Known]] = set()
    while stack:
        node, known = stack.pop()
        if (node, known) in seen:
            continue
        seen.add((node, known))
        if node.op == "select":
            condition, chosen, other = node.arguments
            stack.append((condition, known))
            stack.append((chosen, _under(known, condition, True)))
            stack.append((other, _under(known, condition, False)))
            continue
        dims: tuple[Dim, ...] = ()
        if node.op == "load":
            yield node, known
            dims = node.at
        elif node.op == "size":
            dims = (node.dim,)
        loaded = (atom.payload for dim in dims for atom in sizes.opaque_in(dim))
        stack.extend((value, known) for value in loaded if isinstance(value, Scalar))
        stack.extend((argument, known) for argument in node.arguments)


def _positions(condition: Scalar) -> frozenset[Atom]:
    """Variables whose values a condition compares, apart from those that it reads at."""
    found: set[Atom] = set()
    for node in parts_of(condition):  # a load has no parts
        if node.op == "size":
            found |= sizes.atoms_of(node.dim)
    return frozenset(found)


def _facts(condition: Scalar, holds: bool) -> tuple[Dim, ...]:
    """What follows from a condition, or from its opposite, for positions."""
    found: dict[Dim, None] = {}
    stack = [(condition, holds)]
    seen: set[tuple[Scalar, bool]] = set()
    while stack:
        node, holds = part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if node.op == ("and" if holds else "or"):
            stack.extend((x, holds) for x in reversed(node.arguments))
        elif node.op == "not":
            stack.append((node.arguments[0], not holds))
        else:
            found.update(dict.fromkeys(_fact(node, holds)))
    return tuple(found)


def _fact(condition: Scalar, holds: bool) -> tuple[Dim, ...]:
    """The same of one comparison."""
    if condition.op not in _AT_LEAST_ZERO:
        return ()
    left, right = map(whole_number, condition.arguments)
    if left is None or right is None:
        return ()
    return _AT_LEAST_ZERO[condition.op](left - right, holds)


#: Comparison of two numbers -> what is not negative, given their difference and whether it holds.
_AT_LEAST_ZERO: dict[str, Callable[[Dim, bool], tuple[Dim, ...]]] = {
    "lt": lambda d, holds: (-d - 1 if holds else d,),
    "le": lambda d, holds: (-d if holds else d - 1,),
    "gt": lambda d, holds: (d - 1 if holds else -d,),
    "ge": lambda d, holds: (d if holds else -d - 1,),
    "eq": lambda d, holds: (d, -d) if holds else (),
    "ne": lambda d, holds: () if holds else (d, -d),
}


@remembering(1 << 8)
def _equalities(assumed: tuple[Assumption, ...]) -> Mapping[Atom, Dim]:
    """Symbols that are assumed to equal something else, and what that is."""
    found: dict[Atom, Dim] = {}
    for a, b in assumed:
        left, right = substitute(a, found), substitute(b, found)
        if left is right:
            continue
        for one, other in ((left, right), (right, left)):
            atom = sizes.as_atom(one)
            if atom is None or atom.kind != "symbol" or atom in sizes.atoms_of(other):
                continue
            found = {key: substitute(value, {atom: other}) for key, value in found.items()}
            found[atom] = other
            break
    return found


@remembering(1 << 14)
def _is_inside(index: Dim, extent: Dim, known: _Known) -> bool:
    """Whether an index never leaves its axis, whatever is assumed: layers share most indices."""
    return not any(True for _ in _excesses(index, extent, known, {}))


def _check(
    index: Dim,
    extent: Dim,
    loops: tuple[Dim, ...],
    known: _Known,
    equal: Mapping[Atom, Dim],
    where: str,
) -> None:
    for excess in _excesses(index, extent, known, equal):
        what = f"An index {index!r} leaves an axis of size {extent!r}"
        assume_equal(_runs(loops) * excess, 0, where, what)


def _excesses(index: Dim, extent: Dim, known: _Known, equal: Mapping[Atom, Dim]) -> Iterator[Dim]:
    """By how much an index may leave its axis, at each corner where that is not known to be 0."""
    beyond = extent - 1 - index
    is_loaded = bool(sizes.opaque_in(index))  # such has no value for an empty axis
    open_ends = [
        which
        for which, distance in enumerate((index, beyond))
        if not _is_fact(distance, known.facts)
    ]
    variables = _variables(index) if open_ends else None
    is_last = not is_loaded and variables is not None and any(map(_is_chosen, variables))
    if not (is_loaded or is_last):
        distances = (index, beyond)
        open_ends = [which for which in open_ends if not integer.is_nonnegative(distances[which])]
    if not open_ends or variables is None or len(variables) > _MOST_VARIABLES:
        return
    ranges = [_ends(index, atom) for atom in variables]
    demanding = known.compared.isdisjoint(variables) or _is_variable(index, variables)
    for which in open_ends:
        distance = beyond if which else index
        if _follows(distance, known.facts, equal):
            continue
        for corner in itertools.product(*(ends[which] for ends in ranges)):
            left = substitute(distance, dict(zip(variables, corner, strict=True)))
            left = _divisible(substitute(left, equal))
            if demanding and not _never_negative(left) and not _is_open(left):
                if is_last and integer.is_nonnegative(distance):
                    break
                yield integer.maximum(-left, 0)


def _is_chosen(variable: Atom) -> bool:
    """Whether a variable ends at a minimum or maximum, so that bounds alone prove little.

    Such a corner is taken apart first.
    """
    extent = variable.arguments[0]
    return any(atom.kind in ("max", "min") for atom in sizes.atoms_of(extent))


#: Facts of choices farther out are only tried if that is quick.
_MOST_TRIED = 8


def _is_fact(distance: Dim, facts: tuple[Dim, ...]) -> bool:
    """Whether a size is one of the facts: a part of a joined tensor is chosen where it has room."""
    return distance in facts or any(integer.is_same(distance, fact) for fact in reversed(facts))


def _follows(distance: Dim, facts: tuple[Dim, ...], equal: Mapping[Atom, Dim]) -> bool:
    """Whether a size is at least one of the facts, which are at least 0. The latest knows most."""
    near = reversed(facts[-_MOST_TRIED:])
    return any(_never_negative(substitute(distance - fact, equal)) for fact in near)


def _never_negative(dim: Dim, depth: int = 6) -> bool:
    if isinstance(dim, int):
        return dim >= 0
    if depth and _follows_from_cases(dim, depth):
        return True
    if integer.is_nonnegative(dim):
        return True
    bound = _at_least(dim)
    return bound is not dim and integer.is_nonnegative(bound)


def _follows_from_cases(dim: Size, depth: int) -> bool:
    """Whether a size is at least 0 whichever side a minimum or maximum in it takes."""
    # x - max(a, b) >= 0 where x - a >= 0 and x - b >= 0; x - min(a, b) >= 0 where one is.
    for rule, forms in ((all, (("max", -1), ("min", 1))), (any, (("min", -1), ("max", 1)))):
        for monomial, coefficient in dim.terms:
            if len(monomial) == 1 and (monomial[0].kind, coefficient) in forms:
                rest = dim - sizes.of_monomial(monomial, coefficient)
                cases = [rest + x * coefficient for x in monomial[0].arguments]
                cases.sort(key=_is_symbolic)  # what is a number takes no time
                return rule(_never_negative(x, depth - 1) for x in cases)
    return False


def _is_symbolic(dim: Dim) -> bool:
    return isinstance(dim, Size)


def _is_variable(index: Dim, variables: list[Atom]) -> bool:
    """Whether an index is a variable, perhaps times a size."""
    linear = sizes.coefficient_of(index, variables[0]) if len(variables) == 1 else None
    return linear is not None and linear[1] == 0


def _variables(index: Dim) -> list[Atom] | None:
    """The index variables and loaded values in an index; None if one is met twice."""
    found: list[Atom] = []
    stack = [index]
    while stack:
        for monomial, _ in sizes.terms_of(stack.pop()):
            for atom in monomial:
                if atom.kind in ("index", "opaque"):
                    found.append(atom)
                else:
                    stack.extend(atom.arguments)
    return found if len(set(found)) == len(found) else None


def _ends(index: Dim, atom: Atom) -> tuple[list[Dim], list[Dim]]:
    """Values of a variable that make an index smallest, and largest."""
    low: Dim = 0
    high = atom.arguments[0] - 1
    if atom.kind == "opaque":
        # Where the axis is empty there is no value at all, and these two are not in order.
        return list(atom.arguments), list(atom.arguments)
    slope = _slope(index, atom)
    if slope is None:
        return [low, high], [low, high]
    return ([low], [high]) if slope >= 0 else ([high], [low])


def _slope(dim: Dim, atom: Atom) -> int | None:
    """1 where `dim` never falls as `atom` grows, -1 where it never rises; None if not known."""
    slopes: set[int] = set()
    for monomial, coefficient in sizes.terms_of(dim):
        for place, factor in enumerate(monomial):
            if factor is not atom and atom not in sizes.atoms_of(sizes.of_atom(factor)):
                continue
            others = sizes.of_monomial(monomial[:place] + monomial[place + 1 :], 1)
            inner = _atom_slope(factor, atom)
            if inner is None or not integer.is_nonnegative(others):
                return None
            slopes.add(inner if coefficient > 0 else -inner)
    slopes.discard(0)
    return None if len(slopes) > 1 else next(iter(slopes), 0)


def _atom_slope(factor: Atom, atom: Atom) -> int | None:
    if factor is atom:
        return 1
    left, right = factor.arguments
    if factor.kind == "floordiv":
        return None if atom in sizes.atoms_of(right) else _slope(left, atom)
    slopes = {_slope(left, atom), _slope(right, atom)} - {0}
    return None if len(slopes) > 1 else next(iter(slopes), 0)


def _divisible(dim: Dim) -> Dim:
    """The same where all divisors are positive, and a number where one is 0.

    A divisor of 0 comes from an empty axis, and then from an empty loop: the sum of its excess
    does not count, but must be one.
    """

    if not _has_divisions(dim):
        return dim

    def replace(atom: Atom) -> Dim | None:
        if atom.kind != "floordiv":
            return None
        numerator, divisor = map(_divisible, atom.arguments)
        if numerator == -1:
            return -1
        return integer.floordiv(numerator, integer.maximum(divisor, 1))

    return rebuild(dim, replace)


def _has_divisions(dim: Dim) -> bool:
    return any(atom.kind == "floordiv" for atom in sizes.atoms_of(dim))


def _at_least(dim: Dim) -> Dim:
    """A bound from below in which -b * (a // b) has become -a, and b * (a // b) a + 1 - b."""
    if not _has_divisions(dim):
        return dim
    result: Dim = 0
    for monomial, coefficient in sizes.terms_of(dim):
        term = sizes.of_monomial(monomial, coefficient)
        if len(monomial) == 1 and monomial[0].kind == "floordiv":
            numerator, divisor = monomial[0].arguments
            if isinstance(divisor, int) and coefficient % divisor == 0:
                bound = numerator if coefficient < 0 else numerator + (1 - divisor)
                term = bound * (coefficient // divisor)
        result = result + term
    return result


def _is_open(dim: Dim) -> bool:
    """Whether a size contains what only a kernel knows."""
    return bool(sizes.atoms_of(dim, "index") or sizes.opaque_in(dim))


def _runs(loops: tuple[Dim, ...]) -> Dim:
    """1 if every loop runs, 0 if one of them is empty."""
    symbolic = (_divisible(d) for d in loops if isinstance(d, Size) or d < 1)
    return sizes.product(integer.minimum(d, 1) for d in symbolic)
