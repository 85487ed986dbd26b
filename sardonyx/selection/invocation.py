"""Kernels with the arguments of one group: what becomes commands of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.plan.groups import Contraction, Group, LoopNest
from sardonyx.plan.plan import LibraryCall
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

#: How keys of buffers begin that kernels write for themselves.
UNREAD = "unread output"
#: Names of the nodes that a tensor comes from, each once.
Origins = Mapping[Tensor, tuple[str, ...]]


@dataclass(eq=False, slots=True)
class Invocation:
    """A kernel with the arguments of one group: what becomes a command.

    Attributes:
        kernel: Shared by all groups of equal structure.
        arguments: Buffers and sizes in slot order.
        reads: Buffers read.
        writes: Buffers written.
        group: Where it comes from.
        note: Why neither a library nor integers do it, where that was looked for.
        call: What a library may do instead.
        call_arguments: Buffers and sizes of that call.
        places: For buffers among the arguments that are part of others: of which, and at which
            byte they begin. `reads` and `writes` name the others.
    """

    kernel: Kernel
    arguments: tuple[Buffer | Dim, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    group: Group | None = None
    note: str = ""
    call: LibraryCall | None = None
    call_arguments: tuple[Buffer | Dim, ...] = ()
    places: Mapping[Buffer, tuple[Buffer, Dim]] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Every size that must be known before it begins."""
        kernel = self.kernel
        every = (*self.arguments, *self.call_arguments)
        passed = (a for a in every if not isinstance(a, Buffer))
        shapes = (d for b in self.writes for d in b.shape)
        begins = (begin for _, begin in self.places.values())
        return (*passed, *shapes, *begins, kernel.blocks, kernel.cost_ns, kernel.scratch_bytes)


def invocation_of(kernel: Kernel, actual: Mapping[Buffer, Buffer], group: Group) -> Invocation:
    """A kernel for a group, whose buffers stand for those of the kernel."""
    arguments = tuple(actual[a] if isinstance(a, Buffer) else a for a in kernel.arguments)
    written = {r.buffer for r in group.roots}
    buffers = [a for a in arguments if isinstance(a, Buffer)]
    written.update(b for b in buffers if isinstance(b.key, tuple) and b.key[0] == UNREAD)
    reads = tuple(b for b in buffers if b not in written)
    writes = tuple(b for b in buffers if b in written)
    return Invocation(kernel, arguments, reads, writes, group)


def moved_to(made: Invocation, places: Mapping[Buffer, Buffer]) -> Invocation:
    """The same for other buffers: `places` has one for each."""
    return replace(
        made,
        arguments=tuple(places[a] if isinstance(a, Buffer) else a for a in made.arguments),
        reads=tuple(places[b] for b in made.reads),
        writes=tuple(places[b] for b in made.writes),
    )  # fmt: skip


def origin_of(invocation: Invocation, origins: Origins) -> tuple[str, ...]:
    """Names of the nodes that an invocation computes, in their order."""
    group = invocation.group
    each = [origins.get(root.tensor, ()) for root in group.roots] if group is not None else []
    if len(each) == 1:  # perhaps as long as a joined tensor has parts, each with an invocation
        return each[0]
    return tuple(dict.fromkeys(name for names in each for name in names))


def is_constant(tensor: Tensor) -> bool:
    """Whether the contents never change."""
    return isinstance(tensor, Buffer) and tensor.constant is not None


def is_prepared(group: Contraction | LoopNest) -> bool:
    """Whether a group never changes, and so is computed once, by the processor."""
    own: set[Tensor]
    if isinstance(group, LoopNest):
        own = set()
        for stage in group.stages:
            loads = loads_of(stage.body)
            if not all(x.tensor in own or is_constant(x.tensor) for x in loads):
                return False
            own.add(stage.root.buffer)
        return True
    bodies = (group.left, group.right, group.epilogue)
    return all(x is group.result or is_constant(x.tensor) for b in bodies for x in loads_of(b))
