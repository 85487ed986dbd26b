"""What the parts of a loop nest's kernel write with, and what is written once for a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import KernelParameters, Place
from sardonyx.kernel.language.types import Type
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.loops.member import Member, loads_of_members
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

_ALIGN = 64


@dataclass(eq=False, slots=True)
class NestContext:
    """What the parts of one kernel share.

    Attributes:
        schedule: How the kernel goes over the group's axes.
        outside: What no block changes.
        places: Where tensors lie.
        arguments: What the kernel's parameters are.
        scratch_bytes: Memory that each thread needs for rows between passes.
    """

    schedule: LoopNestSchedule
    outside: Expression
    places: dict[Tensor, Place]
    arguments: tuple[Buffer | Dim, ...]
    scratch_bytes: Dim

    @property
    def b(self) -> Builder:
        """Writes the kernel."""
        return self.outside.builder

    def hoist(
        self,
        level: Expression,
        members: Sequence[Member],
        moving: Sequence[Dim],
        *,
        unrolled: bool = False,
    ) -> None:
        """Write what none of the axes changes. A block has outer indices, perhaps no inner ones."""
        s = self.schedule
        atoms, own = atoms_of(moving), loads_of_members(members, s.nest.by_buffer)
        inner = atoms_of(s.nest.inner)
        for member in members:
            bodies = member.unrolled if unrolled and member.unrolled else [member.body]
            level.hoist(bodies, atoms, own, inner if member.stage.full else frozenset())


def begin_loop_nest(
    s: LoopNestSchedule, new_builder: Callable[[list[tuple[str, Type]]], Builder]
) -> NestContext:
    """A kernel without statements; its builder is made for parameters of names and types."""
    touched: list[Buffer] = []
    scratch_bytes: Dim = 0
    for member in s.nest.members:
        for x in loads_of(member.body):
            source = s.nest.by_buffer.get(x.tensor)
            if source is None or source.in_memory:
                touched.append(x.buffer)
        if member.in_memory:
            touched.append(member.stage.root.buffer)
    for member in s.nest.members:
        if member.in_scratch:
            scratch_bytes = scratch_bytes + row_bytes(s, member)
    parameters = KernelParameters(touched, [*s.all_dims(), scratch_bytes])
    b = new_builder(parameters.types())
    places = parameters.places(b, s.nest.strides)
    outside = Expression(b, parameters.atoms(b), places.__getitem__)
    if s.reads_anyway:
        outside.has_lanes = s.has_lanes
    return NestContext(s, outside, places, parameters.arguments, scratch_bytes)


def row_bytes(s: LoopNestSchedule, member: Member) -> Dim:
    """Scratch of a member that hands a row from pass to pass."""
    row = sizes.product(map(extent_of, s.nest.inner))
    size = row * member.stage.root.buffer.dtype.size_bytes
    return integer.ceildiv(size, _ALIGN) * _ALIGN


def atoms_of(axes: Sequence[Dim]) -> frozenset[Atom]:
    """The index variables among axes: one of one element has none."""
    return frozenset(a for a in map(sizes.as_atom, axes) if a is not None)
