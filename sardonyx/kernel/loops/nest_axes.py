"""The stages of a `LoopNest` group over the axes that its kernel goes over, and their passes."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.loops.member import Member
from sardonyx.plan.axes import Axes, extent_of
from sardonyx.plan.groups import LoopNest
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of


@dataclass(eq=False, frozen=True, slots=True)
class NestAxes:
    """The stages of a group over its axes.

    Attributes:
        outer, inner: The axes, split and merged.
        members: The stages over them.
        by_buffer: Member by the buffer that it gives.
        strides: Elements per step along each axis, for every buffer.
    """

    outer: list[Dim]
    inner: list[Dim]
    members: list[Member]
    by_buffer: dict[Tensor, Member]
    strides: dict[Tensor, tuple[Dim, ...]]


def nest_axes(
    group: LoopNest, given: dict[Tensor, tuple[Dim, ...]], lanes: int, *, scratch: bool
) -> NestAxes:
    """The stages of a group over axes that are split and merged.

    Args:
        group: The group.
        given: Elements per step along each axis, for every buffer that is read or written.
        lanes: Lanes for which short axes are joined; 1 to join none.
        scratch: Whether rows may be handed from pass to pass in the thread's scratch.
    """
    stages, strides = group.stages, dict(given)
    position: Dim = 0
    for i, extent in ((i, extent_of(i)) for i in group.inner):
        position = position * extent + i
    axes = Axes(
        (group.outer, group.inner),
        [s.body for s in stages],
        [(s.root.buffer, s.indices) for s in stages],
    )
    axes.split(strides)
    position = substitute(position, axes.values)
    members = [Member(s, axes.bodies[k], axes.stores[k][1], position) for k, s in enumerate(stages)]
    by_buffer: dict[Tensor, Member] = {m.stage.root.buffer: m for m in members}
    _set_levels(members, by_buffer)
    _set_memory(group, members, by_buffer, strides, scratch=scratch)
    merged = Axes(
        axes.spaces, [m.body for m in members], [(m.stage.root.buffer, m.indices) for m in members]
    )
    if any(m.stage.kind.startswith("arg") for m in members):  # they need positions along all axes
        merged.spaces, held = [merged.spaces[0]], merged.spaces[1]
        merged.merge(strides)
        merged.spaces.append(held)
    else:
        merged.merge(strides)
        passed = {m.stage.root.buffer for m in members if not m.in_memory}
        merged.join(strides, lanes, passed)
    outer, inner = merged.spaces
    for k, member in enumerate(members):
        member.body, member.indices = merged.bodies[k], merged.stores[k][1]
    return NestAxes(outer, inner, members, by_buffer, strides)


def _set_levels(members: list[Member], by_buffer: dict[Tensor, Member]) -> None:
    """In which pass each member runs."""
    for member in members:
        for x in loads_of(member.body):
            source = by_buffer.get(x.tensor)
            if source is not None:
                after = source.level + (source.stage.kind != "map")
                member.level = max(member.level, after)


def _set_memory(
    group: LoopNest,
    members: list[Member],
    by_buffer: dict[Tensor, Member],
    strides: dict[Tensor, tuple[Dim, ...]],
    *,
    scratch: bool,
) -> None:
    """Who needs memory between passes."""
    last: dict[Member, int] = {}
    for member in members:
        for x in loads_of(member.body):
            source = by_buffer.get(x.tensor)
            if source is not None:
                last[source] = max(last.get(source, 0), member.level)
    for member in members:
        stage = member.stage
        carried = stage.full and stage.kind == "map" and last.get(member, 0) > member.level
        member.in_memory = stage.stored or (carried and not scratch)
        member.in_scratch = carried and not member.in_memory
        if member.in_scratch:
            strides[stage.root.buffer] = _scratch_strides(group, member)


def _scratch_strides(group: LoopNest, member: Member) -> tuple[Dim, ...]:
    """Row-major strides over the inner axes, and none over the outer ones."""
    inner = [sizes.as_atom(i) for i in group.inner]
    step: Dim = 1
    by_atom: dict[Atom | None, Dim] = {}
    for variable, atom in reversed(list(zip(group.inner, inner, strict=True))):
        by_atom[atom] = step
        step = step * extent_of(variable)
    return tuple(by_atom.get(sizes.as_atom(i), 0) for i in member.stage.indices)
