"""Groups of one structure, formed once: those of other layers get the same work on their buffers.

What is packed for a layer is found again by its contents, as layers may share weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from sardonyx.base.records import dataclass
from sardonyx.codegen.invocation import Invocation, is_constant
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Product, Rows
from sardonyx.tensor.rewriting import Renaming
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, make_map, make_reduce

#: How keys of buffers begin that are packed once, and of those with a left factor laid out.
PACKED = "packed"
_LAID_OUT = ("image", "moved")


@dataclass(eq=False, slots=True)
class _Formed:
    """What a group became.

    Attributes:
        group: The group.
        buffers: Its buffers by placeholder.
        invocations: What computes it.
        made: Buffers that only they write and read.
    """

    group: Product | Rows
    buffers: Mapping[Buffer, Tensor]
    invocations: Sequence[Invocation]
    made: tuple[Buffer, ...]


@dataclass(slots=True)
class Layers:
    """Work of groups by their structure."""

    _known: dict[object, _Formed] = field(default_factory=dict)

    def of(
        self,
        canonical: Canonical,
        group: Product | Rows,
        packed: dict[object, Buffer],
        form: Callable[[], list[Invocation]],
    ) -> list[Invocation]:
        """The invocations that compute a group.

        Args:
            canonical: The group over placeholders.
            group: The group.
            packed: What is packed, by its contents; what the group needs is added.
            form: Gives them where no group of this structure was formed.
        """
        fixed = tuple(map(is_constant, canonical.buffers.values()))
        remark = group.contraction.remark if isinstance(group, Product) else ""
        key = (canonical.key, fixed, remark)
        known = self._known.get(key)
        if known is not None:
            return _moved(known, group, canonical.buffers, packed)
        invocations = form()
        made = _made(invocations, set(canonical.buffers.values()))
        if made is not None:
            self._known[key] = _Formed(group, canonical.buffers, invocations, made)
        return invocations


def _moved(
    known: _Formed,
    group: Product | Rows,
    buffers: Mapping[Buffer, Tensor],
    packed: dict[object, Buffer],
) -> list[Invocation]:
    """The same on the buffers of another group."""
    places = {actual: buffers[stand_in] for stand_in, actual in known.buffers.items()}
    renaming = Renaming(lambda tensor: places.get(tensor, tensor))
    there: set[Tensor] = set()
    for before in known.made:
        kind, contents = before.key  # type: ignore[misc]  # `_made` looked
        moved = _renamed(contents, renaming)
        found = packed.get(moved) if kind == PACKED else None
        if found is None:
            found = Buffer(before.shape, before.dtype, (kind, moved))
            found.constant = before.constant
            if kind == PACKED:
                packed[moved] = found
        else:
            there.add(found)
        places[before] = found
    result = []
    for invocation in known.invocations:
        writes = tuple(places.get(b, b) for b in invocation.writes)
        if not there.issuperset(writes):
            result.append(_on(invocation, places, writes, known.group, group))
    return result


def _made(invocations: Sequence[Invocation], own: set[Tensor]) -> tuple[Buffer, ...] | None:
    """Buffers that work brings with it; None if it has others than can be made again."""
    written: dict[Buffer, None] = {}
    for invocation in invocations:
        if invocation.call is not None or invocation.kernel.host is not None:
            return None
        for buffer in invocation.writes:
            if buffer not in own:
                written[buffer] = None
    for invocation in invocations:
        for argument in (*invocation.arguments, *invocation.reads):
            if isinstance(argument, Buffer) and argument not in own and argument not in written:
                return None
    for buffer in written:
        key = buffer.key
        if not (
            isinstance(key, tuple)
            and key[0] in (PACKED, *_LAID_OUT)
            and isinstance(key[1], Map | Reduce)
        ):
            return None
    return tuple(written)


def _renamed(contents: Map | Reduce, renaming: Renaming) -> Map | Reduce:
    body = renaming.visit(contents.body)
    if isinstance(contents, Map):
        return make_map(contents.shape, body)
    return make_reduce(contents.shape, contents.extents, contents.kind, body, contents.dtype)


def _on(
    invocation: Invocation,
    places: Mapping[Tensor, Tensor],
    writes: tuple[Tensor, ...],
    before: Product | Rows,
    group: Product | Rows,
) -> Invocation:
    """An invocation on other buffers, for another group where it was for the one before."""
    arguments = (places.get(a, a) if isinstance(a, Buffer) else a for a in invocation.arguments)
    held = invocation.group
    own = held is not None and [r.buffer for r in held.roots] == [r.buffer for r in before.roots]
    return replace(
        invocation,
        arguments=tuple(arguments),
        reads=tuple(places.get(b, b) for b in invocation.reads),
        writes=writes,
        group=group if own else held,
    )
