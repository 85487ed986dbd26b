"""Tensors to work: the kernels of a graph and of the bodies inside it, in an order that can run."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import field

from sardonyx.base import sizes
from sardonyx.base.object_types import ObjectType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.plan import pipeline
from sardonyx.plan.facts import FactSums, sums_of
from sardonyx.plan.grouping import pointwise
from sardonyx.plan.groups import CustomKernel, Group
from sardonyx.plan.inline import Materialized
from sardonyx.plan.layout import Order, row_major, strides_in
from sardonyx.plan.levels import Levels
from sardonyx.plan.pipeline import BlockPlan, PlanSettings
from sardonyx.plan.rings import Ring
from sardonyx.selection.invocation import Invocation
from sardonyx.selection.kernel_cache import KernelCache
from sardonyx.tensor.measuring import Measured
from sardonyx.tensor.region import REGIONS, Body, Branches, Region, Repetition
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Call, Tensor, indices, make_map
from sardonyx.tensor.traverse import operands_of, topological


@dataclass(eq=False, slots=True)
class RegionWork:
    """A branch or loop among the work of a block.

    Attributes:
        region: What it is.
        outside: The buffer behind each of the region's outside buffers.
        results: The buffer of each result.
        homes: Where each carried value lies between iterations; of one in a ring, what stands for
            it as the next iteration reads it.
        blocks: The work of its bodies, in the order of their fields.
        first: Copies of the first values of what is carried.
        last: For each block, copies of its outputs to where they are wanted.
        sizes: Every size that must be known before it begins.
        rings: Where carried values are computed that are not copied.
        after: For values in rings whose last ones somebody reads, copies of those.
        origin: Names of the nodes that it comes from.
    """

    region: Region
    outside: dict[Buffer, Buffer]
    results: list[Buffer]
    homes: list[Buffer]
    blocks: list[WorkBlock]
    first: list[Invocation]
    last: list[list[Invocation]]
    sizes: tuple[Dim, ...]
    rings: list[Ring] = field(default_factory=list)
    after: dict[int, Invocation] = field(default_factory=dict)
    origin: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """Buffers that it reads."""
        return tuple(self.outside.values())

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """Buffers that it writes."""
        return tuple(self.results)


Work = Invocation | RegionWork


@dataclass(eq=False, slots=True)
class WorkBlock:
    """Work that is done in order, with sizes that become known on the way.

    Attributes:
        works: What is done, by level, and in an order that can run.
        levels: When what can be done.
        sources: The buffer that each measured symbol is found in.
        measured: More about the measured symbols.
        guards: Pairs of sizes that must be equal, and why.
        outputs: The buffer of each output of a body, or of each result.
        groups: What was grouped.
        origins: Names of the nodes behind each tensor.
        sums: What is known of sums of products, for profiles.
        orders: How the axes of what groups compute lie in memory.
        made: The kernels of each group, those that pack for it too; none for a region.
    """

    works: list[Work]
    levels: Levels
    sources: dict[Dim, Buffer]
    measured: Mapping[Dim, Measured]
    guards: Mapping[tuple[Dim, Dim], str]
    outputs: list[Buffer]
    groups: list[Group]
    origins: Mapping[Tensor, tuple[str, ...]]
    results: dict[Tensor, Buffer] = field(default_factory=dict)
    sums: dict[Tensor, FactSums] = field(default_factory=dict)
    orders: Mapping[Tensor, Order] = field(default_factory=dict)
    made: dict[Group, Sequence[Invocation]] = field(default_factory=dict)

    def symbols(self, among: Container[Dim]) -> list[Dim]:
        """Those of some symbols that must be known before all is done."""
        used = [d for work in self.works for d in work.sizes]
        used += [d for pair in self.guards for d in pair]
        found = dict.fromkeys(a for d in dict.fromkeys(used) for a in sizes.leaves_of(d))
        return [s for s in map(sizes.of_atom, found) if s in among]

    def regions(self) -> Iterator[RegionWork]:
        """All branches and loops, those inside others too."""
        for work in self.works:
            if isinstance(work, RegionWork):
                yield work
                for block in work.blocks:
                    yield from block.regions()

    def blocks(self) -> Iterator[WorkBlock]:
        """This one, and all inside it."""
        yield self
        for region in self.regions():
            yield from region.blocks

    def invocations(self) -> Iterator[Invocation]:
        """All kernels, those of bodies too."""
        for work in self.works:
            if isinstance(work, Invocation):
                yield work
                continue
            for copies in (work.first, *work.last, work.after.values()):
                yield from copies
            for block in work.blocks:
                yield from block.invocations()


class Blocks:
    """Plans blocks for one target.

    Attributes:
        kernel_cache: Makes the kernels.
        settings: What planning passes go by.
        on_kernel: Called with each kernel that was built.
        seconds: Time by phase.
    """

    def __init__(
        self,
        kernel_cache: KernelCache,
        settings: PlanSettings,
        on_kernel: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:
        self.kernel_cache, self.settings, self.on_kernel = kernel_cache, settings, on_kernel
        self.seconds: dict[str, float] = {"group": 0.0, "form": 0.0, "emit": 0.0}

    def block(
        self,
        outputs: list[Tensor],
        guards: Mapping[tuple[Dim, Dim], str],
        origins: Mapping[Tensor, tuple[str, ...]],
        measured: Mapping[Dim, Measured],
        ends: Mapping[Dim, Tensor],
    ) -> WorkBlock:
        """The work that computes `outputs`.

        Args:
            outputs: What is wanted.
            guards: Pairs of sizes that must be equal, and why.
            origins: Names of the nodes behind each tensor.
            measured: Where the symbols come from that are measured.
            ends: The region whose end brings a symbol. It runs if the symbol is used, even if
                nothing reads its results.
        """
        regions: dict[Tensor, None] = {}
        while True:
            packings = dict(self.kernel_cache.packed)
            block = self._block(outputs, guards, origins, measured, ends, list(regions))
            missing = [s for s in block.symbols(ends) if s not in block.sources]
            if not missing:
                return block
            self.kernel_cache.packed.go_back(packings)
            regions.update((ends[s], None) for s in missing)

    def _block(
        self,
        outputs: list[Tensor],
        guards: Mapping[tuple[Dim, Dim], str],
        origins: Mapping[Tensor, tuple[str, ...]],
        measured: Mapping[Dim, Measured],
        ends: Mapping[Dim, Tensor],
        regions: list[Tensor],
    ) -> WorkBlock:
        start = time.perf_counter()
        wanted = list(dict.fromkeys(outputs))
        sources = list(dict.fromkeys([*(m.tensor for m in measured.values()), *regions]))
        outside = [o for t in topological([*wanted, *sources]) for o in _outside(t)]
        kept = list(dict.fromkeys([*sources, *outside]))
        awaited = {**{symbol: m.tensor for symbol, m in measured.items()}, **ends}
        planned = pipeline.run(BlockPlan(self.settings, wanted, kept, awaited))
        roots, groups, orders = planned.roots, planned.groups, planned.orders
        slots = self.settings.slots
        self.seconds["group"] += time.perf_counter() - start
        strides: dict[Tensor, tuple[Dim, ...]] = {
            b: strides_in(b.shape, order) for b, order in orders.items()
        }
        for root in roots:
            if root.tensor in slots:
                strides[root.buffer] = slots[root.tensor].strides
            for source in root.sources:
                strides.setdefault(source, row_major(source.shape))
        buffers: dict[Tensor, Buffer] = {r.tensor: r.buffer for r in roots}
        found: dict[Dim, Buffer] = {s: _buffer(m.tensor, buffers) for s, m in measured.items()}
        works: list[Work] = []
        by_group: dict[Group, Sequence[Invocation]] = {}
        for group in groups:
            if isinstance(group, CustomKernel) and group.call.kernel in REGIONS:
                work = self._region(group, buffers)
                named = (name for root in group.roots for name in origins.get(root.tensor, ()))
                work.origin = tuple(dict.fromkeys(named))
                works.append(work)
                for final, buffer in zip(work.region.finals, work.results, strict=True):
                    found.update((symbol, buffer) for symbol in final.values())
            else:
                start = time.perf_counter()
                by_group[group] = made = self.kernel_cache.form(group, strides)
                works.extend(made)
                end = time.perf_counter()
                self.seconds["form"] += end - start
                for invocation in made:
                    self.on_kernel(invocation.kernel)
                self.seconds["emit"] += time.perf_counter() - end
        levels = Levels(works, found)
        read = {tensor for work in works for tensor in work.reads}
        works.sort(key=lambda work: (levels.of(work), _is_last(work, read)))
        return WorkBlock(
            works, levels, found, measured, guards, [buffers[t] for t in outputs], groups,
            _with_inlined(groups, origins), {t: buffers[t] for t in wanted},
            sums_of(groups, origins), orders, by_group,
        )  # fmt: skip

    def _body(self, body: Body, kept: Mapping[int, Buffer] | None = None) -> WorkBlock:
        """The work of a body; `kept` are outputs, by number, that nothing is to be done for."""
        kept = kept or {}
        outputs = [x for k, x in enumerate(body.outputs) if k not in kept]
        with self.kernel_cache.for_slices():
            block = self.block(outputs, body.assumptions, body.origins, body.measured, body.ends)
        made = iter(block.outputs)
        block.outputs = [kept[k] if k in kept else next(made) for k in range(len(body.outputs))]
        return block

    def _region(self, group: CustomKernel, buffers: Mapping[Tensor, Buffer]) -> RegionWork:
        call = group.call
        region = call.attribute("region")
        assert isinstance(region, Region)  # noqa: S101 - narrows the type for the checker
        actual = [_buffer(operand, buffers) for operand in call.operands]
        outside = dict(zip(region.outside, actual, strict=True))
        made = {root.tensor.output: root.buffer for root in group.outputs}  # type: ignore[attr-defined]  # outputs of a special kernel are Calls
        results = [
            made.get(k) or Buffer(shape, dtype, ("unread", call, k))
            for k, (shape, dtype) in enumerate(call.all_outputs)
        ]
        if isinstance(region, Branches):
            blocks = [self._body(region.then), self._body(region.otherwise)]
            last = [
                [self._copy(b, r) for b, r in zip(block.outputs, results, strict=True)]
                for block in blocks
            ]
            needed = _sizes(region, call, blocks)
            return RegionWork(region, outside, results, [], blocks, [], last, needed)
        assert isinstance(region, Repetition)  # noqa: S101 - narrows the type for the checker
        sources, rings = pipeline.in_rings(group, region, self.settings)
        in_rings = {k for ring in rings for k in ring.members}
        skip = int(region.goes_on)
        kept = {skip + k: region.carried[source].inside for k, source in sources.items()}
        block = self._body(region.body, kept)
        homes = [
            Buffer(c.inside.shape, c.inside.dtype, ("carried", c.inside))
            if c.sizes or k in in_rings
            else results[k]
            for k, c in enumerate(region.carried)
        ]
        begins = [
            Buffer(h.shape, h.dtype, ("begin", h)) if k in in_rings else h
            for k, h in enumerate(homes)
        ]
        first = [self._copy(c.initial, h) for c, h in zip(region.carried, begins, strict=True)]
        after = {
            k: self._copy(Buffer(homes[k].shape, homes[k].dtype, ("end", homes[k])), results[k])
            for k in sorted(in_rings)
            if k in made
        }
        outputs = block.outputs[skip:]
        last = [[self._copy(b, h) for b, h in zip(outputs, homes, strict=False)]]
        for slice_, result in zip(outputs[len(homes) :], results[len(homes) :], strict=True):
            last[0].append(
                self._copy(slice_, Buffer(slice_.shape, slice_.dtype, ("slice", result)))
            )
        needed = _sizes(region, call, [block])
        return RegionWork(
            region, outside, results, homes, [block], first, last, needed, rings, after
        )

    def _copy(self, source: Buffer, target: Buffer) -> Invocation:
        """The kernel that copies all elements of one buffer to another, both row-major."""
        contents = make_map(source.shape, load(source, indices(source.shape)))
        place = Buffer(source.shape, source.dtype, ("copy to", target))
        root = Materialized(contents, place, (contents.body,))
        dense = row_major(source.shape)
        (made,) = self.kernel_cache.form(pointwise(root), {source: dense, place: dense})
        arguments = tuple(target if a is place else a for a in made.arguments)
        return Invocation(made.kernel, arguments, made.reads, (target,), made.group)


def _is_last(work: Work, read: Set[Tensor]) -> bool:
    """Whether the host makes objects that nothing reads: see `runtime.host_epilogue`."""
    return (
        isinstance(work, Invocation)
        and work.kernel.host is not None
        and all(isinstance(b.dtype, ObjectType) and b not in read for b in work.writes)
    )


def _outside(tensor: Tensor) -> tuple[Tensor, ...]:
    """What a region reads, which must lie in memory; nothing for other tensors."""
    return tensor.operands if isinstance(tensor, Call) and tensor.kernel in REGIONS else ()


def _buffer(tensor: Tensor, buffers: Mapping[Tensor, Buffer]) -> Buffer:
    """Where a tensor lies; what is there before is read there, even if it is copied, too."""
    return tensor if isinstance(tensor, Buffer) else buffers[tensor]


def _with_inlined(
    groups: list[Group], origins: Mapping[Tensor, tuple[str, ...]]
) -> dict[Tensor, tuple[str, ...]]:
    """For what groups compute, the nodes behind it and behind all that gets no memory."""
    roots = [root for group in groups for root in group.roots]
    stored = {root.tensor for root in roots}
    found = {}
    for root in roots:
        inlined = topological(operands_of(root.tensor), stored)
        names = (name for t in (*inlined, root.tensor) for name in origins.get(t, ()))
        found[root.tensor] = tuple(dict.fromkeys(names))
    return found


def _sizes(region: Region, call: Call, blocks: list[WorkBlock]) -> tuple[Dim, ...]:
    """Sizes that must be known before a region begins: not those that its end brings."""
    finals = {symbol for final in region.finals for symbol in final.values()}
    found = [d for shape, _ in call.all_outputs for d in shape if d not in finals]
    found += [region.trips] if isinstance(region, Repetition) else []
    found += [d for b in region.outside for d in b.shape]
    for block in blocks:
        for invocation in block.invocations():
            found.extend(invocation.sizes)
        for inner in block.regions():
            found.extend(inner.sizes)
        found.extend(d for pair in block.guards for d in pair)
    return tuple(dict.fromkeys(d for d in found if not isinstance(d, int)))
