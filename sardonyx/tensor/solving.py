"""Index maps turned round: who loads a given element."""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.integer import known_equal
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.tensor import scalar
from sardonyx.tensor.reshaping import source_indices
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, indices, reduced_indices


@dataclass(frozen=True, slots=True)
class SolvedPlaces:
    """Where a given element is loaded, in terms of its own indices and of `reduced_indices(free)`.

    Attributes:
        values: What each index variable of the loading tensor is.
        conditions: Bools that all must hold for such a place to exist.
        free: Extents of what is left undecided: all these values load the element.
        guarded: Variables whose values may lie outside their axes, unless the conditions hold.
    """

    values: dict[Atom, Dim]
    conditions: list[Scalar]
    free: Shape
    guarded: set[Atom]


def solve(at: Shape, loaded: Shape, shape: Shape, extents: Shape) -> SolvedPlaces | None:
    """The places in (shape, extents) where the element `indices(loaded)` is loaded.

    Args:
        at: The indices of the load.
        loaded: The shape of what is loaded.
        shape: That of the tensor that loads.
        extents: What it reduces over.

    Returns:
        None where data decides, or the equations are not linear.
    """
    if any(sizes.opaque_in(i) for i in at):
        return None
    if not extents and _is_reshape(at, loaded, shape):
        back = source_indices(shape, loaded, indices(loaded))
        pairs = zip(map(sizes.as_atom, indices(shape)), back, strict=True)
        return SolvedPlaces({a: value for a, value in pairs if a is not None}, [], (), set())
    return _Solver(shape, extents).run(at, loaded)


def _is_reshape(at: Shape, loaded: Shape, shape: Shape) -> bool:
    """Whether elements are loaded in their order, each once."""
    if known_equal(sizes.product(loaded), sizes.product(shape)) is not True:
        return False
    return known_equal(_position(at, loaded), _position(indices(shape), shape)) is True


def _position(at: Shape, shape: Shape) -> Dim:
    """The row-major position of an element."""
    position: Dim = 0
    for i, extent in zip(at, shape, strict=True):
        position = position * extent + i
    return position


class _Solver:
    """Solves index = wanted for one variable at a time.

    Axes of the tensor that loads are solved for before what it reduces over: what is left to sum
    over are then the few taps of a window, not its many positions.
    """

    def __init__(self, shape: Shape, extents: Shape) -> None:
        # Variables of the loaded tensor have the same names, so these get others while solving.
        self.names: dict[Atom, Atom] = {}
        for name, variables in (("t", indices(shape)), ("s", reduced_indices(extents))):
            for number, atom in enumerate(map(sizes.as_atom, variables)):
                if atom is not None:
                    renamed = sizes.numbered_index(atom.arguments[0], number, name)
                    self.names[atom] = sizes.variable(renamed)
        self.unknown = list(self.names.values())
        self.solved: dict[Atom, Dim] = {}
        #: Pairs (a, b) of what must be equal, and of a <= b.
        self.equal: list[tuple[Dim, Dim]] = []
        self.ordered: list[tuple[Dim, Dim]] = []
        self.guarded: set[Atom] = set()

    def run(self, at: Shape, loaded: Shape) -> SolvedPlaces | None:
        new = {atom: sizes.of_atom(name) for atom, name in self.names.items()}
        wanted = indices(loaded)
        # An axis of extent 1 has the one index 0, whatever it is written as.
        equations = [
            (substitute(i, new), want)
            for i, want, extent in zip(at, wanted, loaded, strict=True)
            if extent != 1
        ]
        # What is one variable has no conditions.
        equations.sort(key=lambda pair: sizes.as_atom(pair[0]) is None)
        if not all(self._equation(i, want) for i, want in equations):
            return None
        free = tuple(atom.arguments[0] for atom in self.unknown)
        left = {
            atom: value for atom, value in zip(self.unknown, reduced_indices(free), strict=True)
        }
        for atom, value in reversed(self.solved.items()):
            left[atom] = substitute(value, left)
        values = {atom: left[name] for atom, name in self.names.items()}
        conditions = [
            scalar.compare(op, scalar.size(substitute(a, left)), scalar.size(substitute(b, left)))
            for op, pairs in (("eq", self.equal), ("le", self.ordered))
            for a, b in pairs
        ]
        guarded = {atom for atom, name in self.names.items() if name in self.guarded}
        return SolvedPlaces(values, conditions, free, guarded)

    def _equation(self, i: Dim, wanted: Dim) -> bool:
        """Use index = wanted; whether it could be used."""
        i = substitute(i, self.solved)
        among = sizes.atoms_of(i)
        present = [atom for atom in self.unknown if atom in among]
        if not present:
            if known_equal(i, wanted) is not True:
                self.equal.append((i, wanted))
            return True
        for atom in present:
            linear = sizes.coefficient_of(i, atom)
            if linear is not None and isinstance(linear[0], int) and linear[0]:
                self._solve(atom, linear[0], wanted - linear[1])
                return True
        return False

    def _solve(self, atom: Atom, coefficient: int, value: Dim) -> None:
        """Note that coefficient * atom = value."""
        step = abs(coefficient)
        value = value * (1 if coefficient > 0 else -1)
        quotient = integer.floordiv(value, step)
        conditions = len(self.equal) + len(self.ordered)
        if step != 1 and known_equal(rest := integer.modulo(value, step), 0) is not True:
            self.equal.append((rest, 0))
        for low, high in ((0, quotient), (quotient, atom.arguments[0] - 1)):
            if not integer.is_nonnegative(high - low):
                self.ordered.append((low, high))
        if len(self.equal) + len(self.ordered) > conditions:
            self.guarded.add(atom)
        self.unknown.remove(atom)
        self.solved[atom] = quotient
