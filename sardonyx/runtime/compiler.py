"""A lowered graph to something that runs: kernels, machine code, and the plan that calls them.

Kernels whose inputs never change (packed and folded weights, tables) go into a plan of their own
that runs once; what it gives are constants of the plan that runs every time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.codegen.form import Former, Invocation, is_constant
from sardonyx.codegen.target import Target
from sardonyx.plan.attention import fuse_attention
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import Group
from sardonyx.plan.inline import Root, find_roots
from sardonyx.plan.layout import choose_layouts, row_major, strides_in
from sardonyx.plan.plan import (
    BitsArgument,
    BufferKind,
    BufferSpec,
    Command,
    Guard,
    InputSpec,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
)
from sardonyx.tensor.tensor import Buffer, Tensor


@dataclass(eq=False, slots=True)
class Compiled:
    """What a session is made of, before machine code exists.

    Attributes:
        initial: Runs once; its outputs become constants. None if nothing is to be prepared.
        main: Runs every time.
        constants: Buffers behind the main plan's constants, in order.
        initial_constants: Buffers behind the initial plan's constants, in order.
        prepared: Which main constants are outputs of the initial plan, by its output number.
        invocations: All of them, for `explain`.
        groups: What was grouped.
        seconds: Time by phase.
    """

    initial: Plan | None
    main: Plan
    constants: list[Buffer]
    initial_constants: list[Buffer]
    prepared: dict[Buffer, int]
    invocations: list[Invocation]
    groups: list[Group]
    former: Former
    seconds: dict[str, float] = field(default_factory=dict)


def compile_tensors(
    outputs: list[tuple[str, Tensor]],
    inputs: list[tuple[str, Buffer]],
    guards: Iterable[tuple[Dim, Dim]],
    target: Target,
    origins: dict[Tensor, tuple[str, ...]] | None = None,
) -> Compiled:
    """Plan everything that `outputs` need.

    Args:
        outputs: Names and tensors, in the caller's order; one tensor may appear twice.
        inputs: Names and buffers of the feeds.
        guards: Pairs of sizes that were assumed equal.
        target: What to generate code for.
        origins: Names of the ONNX nodes behind each tensor.
    """
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    wanted = list(dict.fromkeys(t for _, t in outputs))
    roots = find_roots(wanted)
    groups = fuse_attention(make_groups(roots))
    orders = choose_layouts(groups)
    seconds["group"] = time.perf_counter() - start
    strides: dict[Tensor, tuple[Dim, ...]] = {
        b: strides_in(b.shape, order) for b, order in orders.items()
    }
    for root in roots:
        for source in root.sources:
            strides.setdefault(source, row_major(source.shape))
    start = time.perf_counter()
    former = Former(target.lanes(32))
    invocations = [i for group in groups for i in former.form(group, strides)]
    seconds["form"] = time.perf_counter() - start
    start = time.perf_counter()
    assembler = _Assembler(invocations, roots, wanted, inputs, list(guards), origins or {})
    compiled = assembler.assemble(outputs, groups, former)
    seconds["plan"] = time.perf_counter() - start
    compiled.seconds = seconds
    return compiled


class _Assembler:
    def __init__(
        self,
        invocations: list[Invocation],
        roots: list[Root],
        wanted: list[Tensor],
        inputs: list[tuple[str, Buffer]],
        guards: list[tuple[Dim, Dim]],
        origins: dict[Tensor, tuple[str, ...]],
    ) -> None:
        self.invocations, self.guards, self.origins = invocations, guards, origins
        self.inputs = inputs
        by_tensor = {r.tensor: r.buffer for r in roots}
        self.results = {t: by_tensor[t] for t in wanted}
        self.input_numbers = {b: k for k, (_, b) in enumerate(inputs)}

    def assemble(
        self, outputs: list[tuple[str, Tensor]], groups: list[Group], former: Former
    ) -> Compiled:
        fixed = self._fixed()
        early = [i for i in self.invocations if i in fixed]
        late = [i for i in self.invocations if i not in fixed]
        made = {b for i in early for b in i.writes}
        used_late = {b for i in late for b in i.reads}
        carried = [b for b in dict.fromkeys(x for i in early for x in i.writes) if b in used_late]
        initial: Plan | None = None
        initial_constants: list[Buffer] = []
        if early:
            results = [(f"constant{k}", b) for k, b in enumerate(carried)]
            initial, initial_constants = self._plan(early, [], results, [])
        final = [(name, self.results[t]) for name, t in outputs]
        main, constants = self._plan(late, self.inputs, final, self.guards)
        prepared = {b: k for k, b in enumerate(carried) if b in made}
        return Compiled(
            initial, main, constants, initial_constants, prepared, self.invocations, groups, former
        )

    def _fixed(self) -> set[Invocation]:
        """Invocations whose results are the same in every run."""
        results = set(self.results.values())
        constant: set[Tensor] = set()
        fixed: set[Invocation] = set()
        for invocation in self.invocations:
            sources = [b for b in invocation.reads if b not in constant and not is_constant(b)]
            sized = any(isinstance(a, sizes.Size) for a in invocation.arguments) or isinstance(
                invocation.kernel.blocks, sizes.Size
            )
            if not sources and not sized and not results & set(invocation.writes):
                fixed.add(invocation)
                constant |= set(invocation.writes)
        return fixed

    def _plan(
        self,
        invocations: list[Invocation],
        inputs: list[tuple[str, Buffer]],
        outputs: list[tuple[str, Buffer]],
        guards: list[tuple[Dim, Dim]],
    ) -> tuple[Plan, list[Buffer]]:
        numbers: dict[Tensor, int] = {}
        kinds: list[tuple[BufferKind, int, Buffer]] = []
        constants: list[Buffer] = []
        given = {b: k for k, (_, b) in enumerate(inputs)}
        results: dict[Buffer, int] = {}
        for k, (_, b) in enumerate(outputs):
            results.setdefault(b, k)

        def number(buffer: Buffer) -> int:
            if buffer not in numbers:
                numbers[buffer] = len(kinds)
                if buffer in results:
                    kinds.append(("output", results[buffer], buffer))
                elif buffer in given:
                    kinds.append(("input", given[buffer], buffer))
                elif any(buffer in i.writes for i in writers.get(buffer, ())):
                    kinds.append(("arena", 0, buffer))
                else:
                    kinds.append(("constant", len(constants), buffer))
                    constants.append(buffer)
            return numbers[buffer]

        writers: dict[Buffer, list[Invocation]] = {}
        for invocation in invocations:
            for b in invocation.writes:
                writers.setdefault(b, []).append(invocation)
        spans: dict[int, list[int]] = {}
        commands = []
        for position, invocation in enumerate(invocations):
            arguments: list[PointerArgument | SizeArgument | BitsArgument] = []
            for a in invocation.arguments:
                if isinstance(a, Buffer):
                    which = number(a)
                    spans.setdefault(which, [position, position])[1] = position
                    arguments.append(PointerArgument(which, 0))
                else:
                    arguments.append(SizeArgument(a))
            kernel = invocation.kernel
            commands.append(
                Command(
                    kernel.program.name,
                    kernel.blocks,
                    kernel.cost_ns,
                    tuple(arguments),
                    kernel.scratch_bytes,
                    self._origin(invocation),
                )  # fmt: skip
            )
        specs = tuple(
            BufferSpec(kind, which, _bytes(b), *spans.get(k, [0, 0]))
            for k, (kind, which, b) in enumerate(kinds)
        )
        plan = Plan(
            inputs=tuple(InputSpec(n, b.dtype, b.shape) for n, b in inputs),
            outputs=tuple(OutputSpec(n, b.dtype, b.shape) for n, b in outputs),
            buffers=specs,
            commands=tuple(commands),
            guards=tuple(Guard(a, b) for a, b in guards),
        )
        return plan, constants

    def _origin(self, invocation: Invocation) -> tuple[str, ...]:
        found: dict[str, None] = {}
        group = invocation.group
        for root in group.roots if group is not None else ():
            for name in self.origins.get(root.tensor, ()):
                found[name] = None
        return tuple(found)


def _bytes(buffer: Buffer) -> Dim:
    return sizes.multiply(sizes.product(buffer.shape), buffer.dtype.size_bytes)
