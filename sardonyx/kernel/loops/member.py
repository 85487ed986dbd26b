"""One stage of a `LoopNest` group, as a kernel computes it."""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.groups import Stage
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of


@dataclass(eq=False, slots=True)
class Member:
    """A stage after its axes were split and merged."""

    stage: Stage
    body: Scalar
    indices: tuple[Dim, ...]
    position: Dim
    level: int = 0
    in_memory: bool = True
    in_scratch: bool = False
    unrolled: list[Scalar] | None = None


def loads_of_members(members: Iterable[Member], of: Iterable[Tensor]) -> frozenset[Scalar]:
    """Loads of values that the group itself computes, `of` its buffers."""
    own = set(of)
    return frozenset(x for m in members for x in loads_of(m.body) if x.tensor in own)
