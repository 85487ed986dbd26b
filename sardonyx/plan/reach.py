"""Which roots depend on which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.inline import Materialized
from sardonyx.tensor.region import Body, Branches, Repetition
from sardonyx.tensor.tensor import Call, Contract, Reduce, Tensor
from sardonyx.tensor.traverse import bodies_of, dims_of, topological


class Reach:
    """Which roots a root depends on, as bit sets over root numbers.

    A root depends on what it reads, and on that in which a symbol is measured that it needs: all of
    the latter has run before a kernel begins.

    Args:
        roots: All of them, those that are read before their readers.
        measured: Where symbols come from that only a run brings.
    """

    def __init__(
        self, roots: list[Materialized], measured: Mapping[Dim, Tensor] | None = None
    ) -> None:
        by_buffer: dict[Tensor, Materialized] = {r.buffer: r for r in roots}
        self.sources: dict[Materialized, list[Materialized]] = {}
        self.before: dict[Materialized, int] = {}
        #: Reductions by what they read.
        self.reductions: dict[Tensor, list[Materialized]] = {}
        for root in roots:
            self.sources[root] = [by_buffer[s] for s in root.sources if s in by_buffer]
            if isinstance(root.tensor, Reduce):
                for tensor in root.sources:
                    self.reductions.setdefault(tensor, []).append(root)
        #: Where symbols that a root needs are measured.
        self.awaited: dict[Materialized, list[Materialized]] = self._find_awaited(
            roots, measured or {}
        )
        for root in roots:
            self._add(root)

    def _find_awaited(
        self, roots: list[Materialized], measured: Mapping[Dim, Tensor]
    ) -> dict[Materialized, list[Materialized]]:
        by_tensor: dict[Tensor, Materialized] = {}
        for root in roots:
            by_tensor[root.tensor] = by_tensor[root.buffer] = root
        origins = {s: by_tensor[t] for s, t in measured.items() if t in by_tensor}
        if not origins:
            return {}
        found: dict[Materialized, list[Materialized]] = {}
        for root in roots:
            others = dict.fromkeys(origins[s] for s in _symbols_of(root) if s in origins)
            found[root] = [other for other in others if not _are_one_call(root, other)]
        return found

    def _add(self, root: Materialized) -> None:
        """Find what is before a root: what it awaits may come later in the order of reading."""
        stack = [(root, False)]
        entered: set[Materialized] = set()
        while stack:
            current, expanded = stack.pop()
            if current in self.before or (current in entered and not expanded):
                continue  # in a cycle of sizes: `plan.levels` says so
            needed = [*self.sources[current], *self.awaited.get(current, ())]
            if not expanded:
                entered.add(current)
                stack.append((current, True))
                stack.extend((n, False) for n in needed if n not in self.before)
                continue
            bits = 0
            for other in needed:
                bits |= self.before.get(other, 0) | 1 << other.order
            self.before[current] = bits

    def needs(self, root: Materialized, members: set[Materialized]) -> bool:
        """Whether `root` depends on a member through a root that is not one, or by a size."""
        wanted = sum(1 << m.order for m in members)
        return any(
            source not in members and self.before[source] & wanted for source in self.sources[root]
        ) or any(
            (self.before[other] | 1 << other.order) & wanted for other in self.awaited.get(root, ())
        )

    def feeds(self, root: Materialized, members: set[Materialized]) -> bool:
        """Whether a member depends on `root` through a root that is not a member, or by a size."""
        bit = 1 << root.order
        return any(
            source is not root and source not in members and self.before[source] & bit
            for member in members
            for source in self.sources[member]
        ) or any(
            (self.before[other] | 1 << other.order) & bit
            for member in members
            for other in self.awaited.get(member, ())
        )


def _are_one_call(a: Materialized, b: Materialized) -> bool:
    """Whether both are results of one call: it brings sizes of its own results."""
    x, y = a.tensor, b.tensor
    return isinstance(x, Call) and isinstance(y, Call) and x.invocation == y.invocation


def _symbols_of(root: Materialized) -> Iterator[Dim]:
    """Symbols that must be known before a root is computed, some of them several times."""
    for dim in _dims_of(root):
        for atom in sizes.leaves_of(dim):
            yield sizes.of_atom(atom)


def _dims_of(root: Materialized) -> Iterator[Dim]:
    yield from root.tensor.shape
    if isinstance(root.tensor, (Contract, Reduce)):
        yield from root.tensor.extents
    for body in (*root.bodies, *root.operands):
        yield from dims_of(body)
    if isinstance(root.tensor, Call):
        for _, value in root.tensor.attributes:
            if isinstance(value, (Branches, Repetition)):
                yield from _dims_of_region(value)


def _dims_of_region(region: Branches | Repetition) -> Iterator[Dim]:
    if isinstance(region, Repetition):
        yield region.trips
    bodies: list[Body] = (
        [region.body] if isinstance(region, Repetition) else [region.then, region.otherwise]
    )
    for body in bodies:
        for tensor in topological([*body.outputs, *(m.tensor for m in body.measured.values())]):
            yield from tensor.shape
            for expression in bodies_of(tensor):
                yield from dims_of(expression)
            if isinstance(tensor, Call):
                for _, value in tensor.attributes:
                    if isinstance(value, (Branches, Repetition)):
                        yield from _dims_of_region(value)


def loops_over(shape: tuple[Dim, ...], name: str) -> tuple[Dim, ...]:
    """Index variables of a kernel over axes of these sizes."""
    return tuple(sizes.numbered_index(d, k, name) for k, d in enumerate(shape))
