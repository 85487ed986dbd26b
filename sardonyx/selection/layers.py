"""Groups of one structure, built once: those of other layers get the same work on their buffers.

What is packed for a layer is found again by its contents, as layers may share weights. Work on
placeholders can be kept for other models (`selection.layer_codec`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from sardonyx.base.records import dataclass
from sardonyx.plan.canonical import Canonical, Shareable
from sardonyx.plan.groups import Contraction, Group
from sardonyx.selection.invocation import Invocation, is_constant
from sardonyx.tensor.rewriting import Renaming
from sardonyx.tensor.tensor import Buffer, Map, Reduce, make_map, make_reduce

#: How keys of buffers begin that are packed once, and of those with a left factor laid out.
PACKED = "packed"
_LAID_OUT = ("image", "moved")
#: How the key of a buffer begins that work brings with it, and its contents.
Brought = tuple[str, Map | Reduce]


@dataclass(eq=False, slots=True)
class Layer:
    """What groups of one structure become.

    Attributes:
        buffers: The buffers of one such group by placeholder.
        invocations: What computes it.
        own: Which of them are for the group itself; others write what it needs.
        made: Buffers that only they write and read: how their keys begin, and contents.
    """

    buffers: Mapping[Buffer, Buffer]
    invocations: Sequence[Invocation]
    own: Sequence[bool]
    made: Mapping[Buffer, Brought]

    def on(
        self,
        buffers: Mapping[Buffer, Buffer],
        group: Shareable | None,
        packed: dict[object, Buffer],
    ) -> Layer:
        """The same for another group.

        Args:
            buffers: Its buffers by placeholder.
            group: The group, if there is one.
            packed: What is packed, by its contents: nothing packs that again, and what is new is
                added.
        """
        places = {actual: buffers[stand_in] for stand_in, actual in self.buffers.items()}
        renaming = Renaming(lambda buffer: places.get(buffer, buffer))
        there: set[Buffer] = set()
        made: dict[Buffer, Brought] = {}
        for before, (kind, contents) in self.made.items():
            moved = _renamed(contents, renaming)
            found = packed.get(moved) if kind == PACKED else None
            if found is None:
                found = Buffer(before.shape, before.dtype, (kind, moved))
                found.constant = before.constant
                if kind == PACKED:
                    packed[moved] = found
                made[found] = kind, moved
            else:
                there.add(found)
            places[before] = found
        invocations, own = list[Invocation](), list[bool]()
        for invocation, is_own in zip(self.invocations, self.own, strict=True):
            writes = tuple(places.get(b, b) for b in invocation.writes)
            if not there.issuperset(writes):
                held = group if is_own else invocation.group
                invocations.append(_on(invocation, places, writes, held))
                own.append(is_own)
        return Layer(buffers, invocations, own, made)


class LayerKeeper(Protocol):
    """Keeps what groups became, by their structure."""

    def find(
        self,
        key: tuple[object, ...],
        buffers: Mapping[Buffer, Buffer],
        name: Callable[[str], str],
    ) -> Layer | None:
        """What a structure became before, on placeholders, its machine code being there, too.

        Args:
            key: The structure.
            buffers: Those of a group of that structure by placeholder.
            name: Gives a kernel a name, from how such names begin.
        """

    def keep(self, key: tuple[object, ...], layer: Layer) -> None:
        """Take what a structure became."""


@dataclass(slots=True)
class Layers:
    """Work of groups by their structure."""

    _known: dict[object, Layer] = field(default_factory=dict)

    def of(
        self,
        canonical: Canonical,
        group: Shareable,
        packed: dict[object, Buffer],
        form: Callable[[], list[Invocation]],
        name: Callable[[str], str],
        keeper: LayerKeeper | None = None,
    ) -> Sequence[Invocation]:
        """The invocations that compute a group.

        Args:
            canonical: The group over placeholders.
            group: The group.
            packed: What is packed, by its contents; what the group needs is added.
            form: Gives them where no group of this structure was built.
            name: Gives a kernel a name, from how such names begin.
            keeper: Has what groups of other models became.
        """
        fixed = tuple(map(is_constant, canonical.buffers.values()))
        remark = group.contraction.remark if isinstance(group, Contraction) else ""
        key = (canonical.key, fixed, remark)
        known = self._known.get(key)
        if known is None and keeper is not None:
            known = keeper.find(key, canonical.buffers, name)
            if known is not None:
                self._known[key] = known
        if known is not None:
            return known.on(canonical.buffers, group, packed).invocations
        invocations = form()
        made = _made(invocations, set(canonical.buffers.values()))
        if made is not None:
            own = [_is_for(i, group) for i in invocations]
            layer = self._known[key] = Layer(canonical.buffers, invocations, own, made)
            if keeper is not None:
                keeper.keep(key, layer)
        return invocations


def _is_for(invocation: Invocation, group: Shareable) -> bool:
    """Whether an invocation is for a group itself: its nodes are the group's.

    Packing has a group of its own. A kernel may be built for another form of the group, whose roots
    are others: that it writes the group's results tells then.
    """
    held = invocation.group
    if held is None:
        return False
    results = [r.buffer for r in group.roots]
    return [r.buffer for r in held.roots] == results or not set(results).isdisjoint(
        invocation.writes
    )


def brought(key: object) -> Brought | None:
    """How the key of a buffer begins that work brings with it, and the contents; None of others."""
    if not (isinstance(key, tuple) and len(key) == 2 and key[0] in (PACKED, *_LAID_OUT)):
        return None
    kind, contents = key
    return (kind, contents) if isinstance(contents, Map | Reduce) else None


def _made(invocations: Sequence[Invocation], own: set[Buffer]) -> dict[Buffer, Brought] | None:
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
    made: dict[Buffer, Brought] = {}
    for buffer in written:
        found = brought(buffer.key)
        if found is None:
            return None
        made[buffer] = found
    return made


def _renamed(contents: Map | Reduce, renaming: Renaming) -> Map | Reduce:
    body = renaming.visit(contents.body)
    if isinstance(contents, Map):
        return make_map(contents.shape, body)
    return make_reduce(contents.shape, contents.extents, contents.kind, body, contents.dtype)


def _on(
    invocation: Invocation,
    places: Mapping[Buffer, Buffer],
    writes: tuple[Buffer, ...],
    group: Group | None,
) -> Invocation:
    """An invocation on other buffers, for another group."""
    arguments = (places.get(a, a) if isinstance(a, Buffer) else a for a in invocation.arguments)
    return replace(
        invocation,
        arguments=tuple(arguments),
        reads=tuple(places.get(b, b) for b in invocation.reads),
        writes=writes,
        group=group,
    )
