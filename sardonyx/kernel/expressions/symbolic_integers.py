"""Symbolic integers to kernel statements: what an index, a size or an offset is at one place."""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.dependence import Dependence
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64
from sardonyx.tensor.scalar import Scalar


class SymbolicIntegers:
    """The part of `Expression` that writes symbolic integers; see there for the attributes."""

    builder: Builder
    atoms: dict[Atom, Operand]
    vector: Atom | None
    lanes: int
    _outer: SymbolicIntegers | None
    dependence: Dependence
    _dims: dict[Dim, Operand]
    _guarded_dims: dict[tuple[Dim, Operand], Operand]
    _own: dict[SymbolicIntegers, frozenset[Atom]]

    def scalar(self, x: Scalar, guard: Operand | None = None) -> Operand:
        """The value of a scalar expression."""
        raise NotImplementedError

    def is_vector(self, x: Scalar | Dim) -> bool:
        """Whether it has a value for each lane."""
        raise NotImplementedError

    def dim(self, value: Dim, guard: Operand | None = None) -> Operand:
        """An i64 (or a vector of them) with the value of a symbolic integer.

        What it reads from memory is read only in lanes where `guard` holds.
        """
        if isinstance(value, int):
            return self.builder.constant(I64, value)
        if guard is not None and not any(
            isinstance(atom.payload, Scalar) for atom in sizes.opaque_in(value)
        ):
            guard = None
        found = self._find_dim(value, guard)
        if found is None:
            found = self._write_dim(value, guard)
            if guard is None:
                self._dims[value] = found
            else:
                self._guarded_dims[value, guard] = found
        return found

    def _find_dim(self, value: Dim, guard: Operand | None) -> Operand | None:
        level: SymbolicIntegers | None = self
        vector = self.is_vector(value)
        while level is not None:
            found = level._dims.get(value)
            if found is None and guard is not None:
                found = level._guarded_dims.get((value, guard))
            if found is not None and (found.type.lanes > 1) == vector:
                return found
            level = level._outer
        return None

    def _write_dim(self, value: sizes.Size, guard: Operand | None) -> Operand:
        b = self.builder
        result: Operand | None = None
        for monomial, coefficient in self._invariant_first(value, guard):
            term: Operand | None = None
            if monomial is None:
                term = coefficient  # type: ignore[assignment]  # without monomial it is an Operand
            else:
                for atom in monomial:
                    factor = self.atom(atom, guard)
                    term = factor if term is None else term * factor
                if term is None:
                    term = b.constant(I64, coefficient)  # type: ignore[arg-type]  # beside a monomial it is a number
                elif coefficient != 1:
                    term = term * coefficient
            result = term if result is None else result + term
        return result if result is not None else b.constant(I64, 0)

    def _invariant_first(
        self, value: sizes.Size, guard: Operand | None
    ) -> list[tuple[tuple[Atom, ...] | None, object]]:
        """Terms of `value`, with the part that an outer loop has computed as one term."""
        level = self._outer
        while level is not None:
            fixed, rest = self.dependence.split(value, self._own_atoms(level), frozenset())
            found = level._dims.get(fixed) if isinstance(fixed, sizes.Size) else None
            if found is not None and found.type.lanes == 1 and not self.is_vector(fixed):
                terms = sizes.terms_of(rest)
                if len(terms) < 2:
                    return [(None, found), *terms]
                common = self.dim(rest, guard)  # of neighbours
                return [(None, found), (None, common)]
            level = level._outer
        return list(value.terms)

    def _own_atoms(self, outer: SymbolicIntegers) -> frozenset[Atom]:
        """The atoms that have another value here than outside; none changes once it is made."""
        found = self._own.get(outer)
        if found is None:
            others = outer.atoms
            own = [a for a, value in self.atoms.items() if value is not others.get(a)]
            found = self._own[outer] = frozenset(own)
        return found

    def atom(self, atom: Atom, guard: Operand | None = None) -> Operand:
        """The value of one atom; `guard` as in `dim`."""
        b = self.builder
        if atom in self.atoms:
            value = self.atoms[atom]
            if atom is self.vector and self.lanes > 1:
                return b.iota(I64.with_lanes(self.lanes)) + value
            return value
        if atom.kind == "opaque" and isinstance(atom.payload, Scalar):
            return self.scalar(atom.payload, guard)
        if atom.kind not in ("floordiv", "max", "min"):
            raise EngineError(message(f"kernel {b.program.name}", f"{atom!r} has no value here"))
        left, right = (self.dim(x, guard) for x in atom.arguments)
        if atom.kind == "floordiv":
            return self._floor_divide(atom.arguments[0], left, right)
        return b.binary(atom.kind, left, right)

    def _floor_divide(self, numerator: Dim, left: Operand, right: Operand) -> Operand:
        b = self.builder
        quotient = left // right
        if integer.is_nonnegative(numerator):
            return quotient
        remainder = left - quotient * right
        return quotient - b.convert(remainder < 0, I64)
