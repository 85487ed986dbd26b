"""Symbolic sizes as JSON: a table holds each distinct one once, operands before their users."""

from __future__ import annotations

from typing import Any

from sardonyx.base import integer, sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim

_COMBINE = {"floordiv": integer.floordiv, "max": integer.maximum, "min": integer.minimum}


class DimWriter:
    """Writes sizes.

    Attributes:
        table: What `DimReader` reads first.
    """

    def __init__(self) -> None:
        self.table: list[Any] = []
        self._places: dict[object, int] = {}

    def dim(self, dim: Dim) -> Any:
        """An integer, or a list with the place in the table."""
        if isinstance(dim, int):
            return dim
        if dim not in self._places:
            terms = [[c, [self._atom(a) for a in m]] for m, c in sizes.terms_of(dim)]
            self._places[dim] = self._add(terms)
        return [self._places[dim]]

    def dims(self, dims: tuple[Dim, ...]) -> list[Any]:
        """Several of them."""
        return [self.dim(x) for x in dims]

    def _add(self, entry: Any) -> int:
        self.table.append(entry)
        return len(self.table) - 1

    def _atom(self, atom: Atom) -> int:
        if atom not in self._places:
            self._places[atom] = self._add(self._atom_entry(atom))
        return self._places[atom]

    def _atom_entry(self, atom: Atom) -> dict[str, Any]:
        definition = sizes.definition_of(atom)
        if atom.kind == "symbol" and definition is not None:
            for inner in sizes.definitions_in(definition, self._places.__contains__):
                self._atom(inner)
            return {"defined": [self.dim(definition)]}
        if atom.kind == "symbol":
            return {"symbol": [atom.name, *map(self.dim, atom.arguments)]}
        if atom.kind in _COMBINE:
            return {atom.kind: [self.dim(x) for x in atom.arguments]}
        raise EngineError(message("plan", f"{atom!r} cannot be written to a file"))


class DimReader:
    """Reads what `DimWriter` wrote.

    Args:
        table: The writer's.
    """

    def __init__(self, table: list[Any]) -> None:
        self._values: list[Any] = []
        for entry in table:
            self._values.append(self._entry(entry))

    def dim(self, written: Any) -> Dim:
        """A size."""
        if isinstance(written, int):
            return written
        found: Dim = self._values[written[0]]
        return found

    def dims(self, written: list[Any]) -> tuple[Dim, ...]:
        """Several of them."""
        return tuple(map(self.dim, written))

    def _entry(self, entry: Any) -> Any:
        if isinstance(entry, list):
            return sizes.total(
                sizes.product(self._values[a] for a in atoms) * coefficient
                for coefficient, atoms in entry
            )
        ((kind, value),) = entry.items()
        return self._named_entry(kind, value)

    def _named_entry(self, kind: str, value: Any) -> Any:
        if kind == "symbol":
            name, *limits = value
            return sizes.measured(name, *map(self.dim, limits)) if limits else sizes.symbol(name)
        if kind == "defined":
            (definition,) = map(self.dim, value)
            if isinstance(definition, int):
                raise EngineError(message("plan", "A symbol stands for a number"))
            return sizes.defined(definition)
        return _COMBINE[kind](*map(self.dim, value))
