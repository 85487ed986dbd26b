"""What of an expression loops leave as it is: found first, so that it is written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.dependence import is_total
from sardonyx.tensor.scalar import Scalar

if TYPE_CHECKING:
    from sardonyx.kernel.expressions.expression import Expression


class Hoisting:
    """What `Expression.hoist` finds. Closures that call each other would be left to the collector.

    Args:
        level: Where it is written.
        inside, loads, addresses: As of `hoist`.

    Attributes:
        found: What does not depend on the loops.
    """

    __slots__ = ("_addresses", "_inside", "_level", "_loads", "_seen", "found")

    def __init__(
        self,
        level: Expression,
        inside: frozenset[Atom],
        loads: frozenset[Scalar],
        *,
        addresses: bool,
    ) -> None:
        self._level, self._inside, self._loads = level, inside, loads
        self._addresses = addresses
        self._seen: set[Scalar] = set()
        self.found: list[Scalar | Dim] = []

    def _take(self, value: Dim, *, guarded: bool) -> None:
        fixed = self._level.dependence.split(value, self._inside, self._loads)[0]
        if not guarded or is_total(fixed, self._level.is_written):
            self.found.append(fixed)

    def visit(self, x: Scalar, *, guarded: bool) -> None:
        """Find the parts of an expression, which may not be chosen if `guarded`."""
        level = self._level
        if x in self._seen or level.has_value(x):
            return
        self._seen.add(x)
        if (
            x.op != "constant"
            and not guarded
            and not level.dependence.varies(x, self._inside, self._loads)
        ):
            self.found.append(x)
            return
        if x.op == "load":
            for i in x.at:
                for atom in sizes.opaque_in(i):
                    if isinstance(atom.payload, Scalar):
                        self.visit(atom.payload, guarded=guarded)
            if x not in self._loads and self._addresses:
                self._take(level.place(x.tensor).offset(x.at), guarded=guarded)
        elif x.op == "size":
            self._take(x.dim, guarded=guarded)
        elif x.op == "select":
            self.visit(x.arguments[0], guarded=guarded)
            self.visit(x.arguments[1], guarded=True)
            self.visit(x.arguments[2], guarded=True)
            return
        for argument in x.arguments:
            self.visit(argument, guarded=guarded)
