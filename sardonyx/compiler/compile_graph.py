"""A lowered graph to something that runs: kernels, machine code, and the plan that calls them.

Kernels whose inputs never change (packed and folded weights, tables) go into plans of their own
that run once; what they give are constants of the plan that runs every time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import field

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.compiler.assembler import PlanWriter
from sardonyx.compiler.blocks import Blocks, WorkBlock
from sardonyx.compiler.compile_options import CompileOptions
from sardonyx.compiler.preparing import prepare
from sardonyx.kernel.language.program import Program
from sardonyx.plan.facts import CommandFacts
from sardonyx.plan.groups import Group
from sardonyx.plan.inline import COMPUTED
from sardonyx.plan.inplace_append import Slot
from sardonyx.plan.pipeline import PlanSettings
from sardonyx.plan.plan import Plan
from sardonyx.selection.invocation import Invocation
from sardonyx.selection.kernel_cache import KernelCache, SelectionOptions
from sardonyx.store.preparation import Preparation
from sardonyx.targets.target import Target
from sardonyx.tensor.measuring import Measured
from sardonyx.tensor.tensor import Buffer, Tensor


@dataclass(eq=False, slots=True)
class Compiled:
    """What a session is made of, before machine code exists.

    Attributes:
        preparations: What runs once; its outputs become constants.
        main: Runs every time.
        constants: Buffers behind the main plan's constants, in order.
        invocations: All of them, for `explain`.
        block: The work, with groups, layouts and the work of bodies.
        kernel_cache: What built their kernels.
        facts: What profiles say of the main plan's commands, by number.
        seconds: Time by phase.
    """

    preparations: list[Preparation]
    main: Plan
    constants: list[Buffer]
    invocations: list[Invocation]
    block: WorkBlock
    kernel_cache: KernelCache
    facts: dict[int, CommandFacts] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> list[Group]:
        """What was grouped, but for what bodies do."""
        return self.block.groups

    def programs(self, kernels: Container[str] | None = None) -> list[Program]:
        """Every program, each once; only what the named kernels consist of, if they are named."""
        found: dict[str, Program] = {}
        for invocation in self.invocations:
            kernel = invocation.kernel
            if kernel.host is None and (kernels is None or kernel.program.name in kernels):
                for program in (kernel.program, *kernel.functions):
                    found.setdefault(program.name, program)
        return list(found.values())


@dataclass(eq=False, frozen=True, slots=True)
class TensorGraph:
    """What is computed.

    Attributes:
        outputs: Names and tensors, in the caller's order; one tensor may appear twice.
        inputs: Names and buffers of the feeds.
        guards: Pairs of sizes that were assumed equal, and why.
        origins: Names of the ONNX nodes behind each tensor.
        measured: Where the symbols that a run measures come from.
        ends: The region whose end brings a symbol.
        results: What nodes give: it gets memory and a kernel of its own if nothing is fused.
        slots: Those of `outputs` that are written into growable buffers: they are no results.
    """

    outputs: Sequence[tuple[str, Tensor]]
    inputs: Sequence[tuple[str, Buffer]]
    guards: Mapping[tuple[Dim, Dim], str] = field(default_factory=dict)
    origins: Mapping[Tensor, tuple[str, ...]] = field(default_factory=dict)
    measured: Mapping[Dim, Measured] = field(default_factory=dict)
    ends: Mapping[Dim, Tensor] = field(default_factory=dict)
    results: Container[Tensor] = ()
    slots: Mapping[Tensor, Slot] = field(default_factory=dict)


#: What `CompileOptions` says if nobody asks for anything.
DEFAULT = CompileOptions()


def compile_tensors(
    graph: TensorGraph, target: Target, options: CompileOptions = DEFAULT
) -> Compiled:
    """Plan everything that the outputs of a graph need."""
    kernel_cache = KernelCache(
        SelectionOptions(
            target.lanes(32), target.block_sizes, options.winograd, target.has_dots,
            options.accelerator, options.bf16_products, options.keeper, options.choices,
        ),
        options.layers, options.trace,
    )  # fmt: skip
    # A graph with a call of a library has the address in it, and where rows go always changes.
    apart = graph.slots if options.accelerator is not None else ()
    settings = PlanSettings(
        None if options.fuse else graph.results, options.without, kernel_cache.takes_integers,
        kernel_cache.product_lanes, apart, graph.slots, options.reasons,
    )  # fmt: skip
    blocks = Blocks(kernel_cache, settings, options.on_kernel)
    results = [t for _, t in graph.outputs]
    block = blocks.block(results, graph.guards, graph.origins, graph.measured, graph.ends)
    start = time.perf_counter()
    compiled = _assemble(block, graph, kernel_cache, options.branches)
    compiled.seconds = {**blocks.seconds, "plan": time.perf_counter() - start}
    return compiled


def _assemble(
    block: WorkBlock, graph: TensorGraph, kernel_cache: KernelCache, branches: bool
) -> Compiled:
    slots, invocations = graph.slots, list(block.invocations())
    fixed = _fixed(invocations, block)
    early = [i for i in invocations if i in fixed]
    used_late = {b for i in invocations if i not in fixed for b in i.reads}
    used_late.update(b for region in block.regions() for b in region.reads)
    used_late.update(b for inner in block.blocks() for b in inner.sources.values())
    rows = [(name, t, b) for (name, t), b in zip(graph.outputs, block.outputs, strict=True)]
    final = [(name, b) for name, t, b in rows if t not in slots]
    parts = {b: (slots[t].buffer, slots[t].offset) for _, t, b in rows if t in slots}
    writer = PlanWriter(graph.inputs, final, fixed, branches, parts)
    writer.write(block)
    main = writer.plan()
    return Compiled(
        prepare(early, used_late), main, writer.constants, invocations, block, kernel_cache,
        writer.facts,
    )  # fmt: skip


def _is_stored(tensor: Tensor) -> bool:
    """Whether the model has the contents, rather than kernels that compute them."""
    return isinstance(tensor, Buffer) and tensor.constant not in (None, COMPUTED)


def _fixed(invocations: list[Invocation], block: WorkBlock) -> set[Invocation]:
    """Invocations whose results are the same in every run, and that nothing else writes to."""
    mutable = set(block.outputs)
    written = Counter(b for i in invocations for b in i.writes)
    mutable.update(b for b, count in written.items() if count > 1)
    for region in block.regions():
        mutable.update((*region.results, *region.homes))
        mutable.update(
            b for copies in (region.first, *region.last) for i in copies for b in i.writes
        )
        mutable.update(b for inner in region.blocks for b in inner.outputs)
    constant: set[Tensor] = set()
    fixed: set[Invocation] = set()
    for invocation in invocations:
        sources = [b for b in invocation.reads if b not in constant and not _is_stored(b)]
        sized = any(isinstance(a, sizes.Size) for a in invocation.arguments) or isinstance(
            invocation.kernel.blocks, sizes.Size
        )
        # What the host makes lives in the table of one run; thread blocks are a device's alone.
        kernel = invocation.kernel
        native = kernel.host is None and kernel.program.kind != "block"
        if native and not sources and not sized and not mutable & set(invocation.writes):
            fixed.add(invocation)
            constant |= set(invocation.writes)
    return fixed
