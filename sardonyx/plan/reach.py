"""Which roots depend on which."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.inline import Root
from sardonyx.tensor.tensor import Reduce, Tensor


class Reach:
    """Which roots a root depends on, as bit sets over root numbers."""

    def __init__(self, roots: list[Root]) -> None:
        by_buffer: dict[Tensor, Root] = {r.buffer: r for r in roots}
        self.sources: dict[Root, list[Root]] = {}
        self.before: dict[Root, int] = {}
        #: Reductions by what they read.
        self.reductions: dict[Tensor, list[Root]] = {}
        for root in roots:
            sources = [by_buffer[s] for s in root.sources if s in by_buffer]
            self.sources[root] = sources
            bits = 0
            for source in sources:
                bits |= self.before[source] | 1 << source.order
            self.before[root] = bits
            if isinstance(root.tensor, Reduce):
                for tensor in root.sources:
                    self.reductions.setdefault(tensor, []).append(root)

    def needs(self, root: Root, members: set[Root]) -> bool:
        """Whether `root` depends on a member through a root that is not one."""
        wanted = sum(1 << m.order for m in members)
        return any(
            source not in members and self.before[source] & wanted for source in self.sources[root]
        )

    def feeds(self, root: Root, members: set[Root]) -> bool:
        """Whether a member depends on `root` through a root that is not a member."""
        bit = 1 << root.order
        return any(
            source is not root and source not in members and self.before[source] & bit
            for member in members
            for source in self.sources[member]
        )


def loops_over(shape: tuple[Dim, ...], name: str) -> tuple[Dim, ...]:
    """Index variables of a kernel over axes of these sizes."""
    return tuple(sizes.numbered_index(d, k, name) for k, d in enumerate(shape))
