"""Blocks of work to a plan: commands and steps in a row, buffers with lifetimes, segments."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import INT64
from sardonyx.base.sizes import Dim
from sardonyx.compiler.blocks import RegionWork, WorkBlock
from sardonyx.compiler.branches import Chain, with_branches
from sardonyx.compiler.independence import arranged
from sardonyx.compiler.placing import Places, bytes_of
from sardonyx.plan.facts import CommandFacts, FactSums, TensorFacts
from sardonyx.plan.plan import (
    Argument,
    Command,
    Guard,
    InputSpec,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
)
from sardonyx.plan.rings import Ring
from sardonyx.plan.steps import (
    Enter,
    Grow,
    Jump,
    JumpIfLess,
    JumpUnless,
    Measure,
    PlanPart,
    Segment,
    SetSize,
    Step,
    Together,
)
from sardonyx.selection.invocation import Invocation, Origins, origin_of
from sardonyx.tensor.region import Branches, Repetition
from sardonyx.tensor.tensor import Buffer, Tensor

#: Names of the nodes behind each tensor.

#: Stands in a jump until it is known where to.
_LATER = 0


class PlanWriter:
    """Writes one plan.

    Args:
        inputs: Names and buffers of the feeds.
        outputs: Names and buffers of the results.
        skipped: Invocations that another plan has done.
        branches: Whether independent branches of kernels become parts that threads may walk.
        parts: Buffers that are part of a feed's, and at which byte of it they begin.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[str, Buffer]],
        outputs: Sequence[tuple[str, Buffer]],
        skipped: Container[Invocation] = (),
        branches: bool = False,
        parts: Mapping[Buffer, tuple[Buffer, Dim]] | None = None,
    ) -> None:
        self.inputs, self.outputs, self._skipped = inputs, outputs, skipped
        self._branching = branches
        self._places = Places([b for _, b in inputs], [b for _, b in outputs])
        self._places.aliases.update(parts or {})
        self._commands: list[Command | Step] = []
        self._segments: list[Segment] = [Segment(-1)]
        self._here = 0
        self._guards: list[Guard] = []
        self._result_segments: dict[Buffer, int] = {}
        self._fresh: set[Buffer] = set()
        self._sums: dict[Tensor, FactSums] = {}
        #: The nodes of the branch or loop that is written.
        self._around: tuple[str, ...] = ()
        #: What profiles say of commands, by number.
        self.facts: dict[int, CommandFacts] = {}

    def write_all(self, invocations: list[Invocation]) -> None:
        """Write invocations that need no sizes that a run brings."""
        for invocation in invocations:
            self._call(invocation, {})

    def write(self, block: WorkBlock) -> None:
        """Write everything that a block does, and what of the results is known when."""
        segments = self._block(block)
        for buffer in self._places.results:
            self._result_segments[buffer] = segments[block.levels.of_sizes(buffer.shape)]

    def plan(self) -> Plan:
        """What was written."""
        for _, buffer in self.outputs:
            self._places.number(buffer, self._here)
        owners = {name: k for k, s in enumerate(self._segments) for name in s.counters}
        commands = tuple(
            replace(c, owner=owners[c.symbol]) if isinstance(c, SetSize) else c
            for c in self._commands
        )
        return Plan(
            inputs=tuple(InputSpec(n, b.dtype, b.shape) for n, b in self.inputs),
            outputs=tuple(
                OutputSpec(n, b.dtype, b.shape, self._result_segments.get(b, 0))
                for n, b in self.outputs
            ),
            buffers=tuple(self._places.specs()),
            commands=commands,
            guards=tuple(self._guards),
            segments=tuple(self._segments),
        )

    # -- buffers ------------------------------------------------------------------------------

    @property
    def constants(self) -> list[Buffer]:
        """Buffers behind the plan's constants, in order."""
        return self._places.constants

    def _use(self, buffer: Buffer) -> tuple[int, Dim]:
        """Where a buffer lies that the next command uses: in which one, and at which byte."""
        number, offset = self._places.find(buffer, self._here)
        self._places.touch(number, len(self._commands))
        return number, offset

    def _grow(self, buffer: Buffer) -> None:
        growing = self._places.growing
        growing.setdefault(buffer, len(growing))
        self._places.number(buffer, self._here)

    # -- commands -----------------------------------------------------------------------------

    def _block(self, block: WorkBlock) -> list[int]:
        """Everything that a block does; gives the segment of each of its levels."""
        segments = [self._here]
        self._sums.update(block.sums)
        works = [w for w in block.works if not isinstance(w, Invocation) or w not in self._skipped]
        groups = arranged(works, block)
        each = ([[work] for work in group] for group in groups)
        for chains in with_branches(groups, block) if self._branching else each:
            while len(segments) <= block.levels.of(chains[0][0]):
                segments.append(self._enter_level(block, len(segments)))
            if len(chains) > 1:
                self._together(chains, block)
            else:
                self._chain(chains[0], block)
        while len(segments) < len(block.levels.symbols):
            segments.append(self._enter_level(block, len(segments)))
        for (left, right), reason in block.guards.items():
            segment = segments[block.levels.of_sizes((left, right))]
            self._guards.append(Guard(left, right, reason, segment))
        return segments

    def _enter_level(self, block: WorkBlock, level: int) -> int:
        measures, counters = [], []
        for symbol in block.levels.symbols[level]:
            name, found = sizes.name_of(symbol), block.measured.get(symbol)
            if found is None:
                counters.append(name)
                continue
            number, offset = self._use(block.sources[symbol])
            at = offset + INT64.size_bytes * found.position
            measures.append(Measure(name, number, at, found.low, found.high, found.origin))
        return self._enter(Segment(self._here, tuple(measures), tuple(counters)))

    def _enter(self, segment: Segment) -> int:
        self._segments.append(segment)
        self._here = len(self._segments) - 1
        self._commands.append(Enter(self._here))
        return self._here

    def _call(self, invocation: Invocation, origins: Origins) -> None:
        arguments: list[Argument] = []
        tensors: list[tuple[Buffer, int]] = []
        self._places.written.update(invocation.writes)
        self._places.aliases.update(invocation.places)
        for a in (*invocation.arguments, *invocation.call_arguments):
            if isinstance(a, Buffer):
                number, offset = self._use(a)
                arguments.append(PointerArgument(number, offset))
                tensors.append((a, number))
            else:
                arguments.append(SizeArgument(a))
        kernel = invocation.kernel
        self.facts[len(self._commands)] = self._facts_of(invocation, tensors)
        self._commands.append(
            Command(
                kernel.program.name,
                kernel.blocks,
                kernel.cost_ns,
                tuple(arguments),
                kernel.scratch_bytes,
                origin_of(invocation, origins) or self._around,
                self._here,
                kernel.host,
                invocation.call,
                invocation.note,
            )  # fmt: skip
        )

    def _facts_of(self, invocation: Invocation, tensors: list[tuple[Buffer, int]]) -> CommandFacts:
        group = invocation.group
        roots = [r for r in group.roots if r.tensor in self._sums] if group else []
        sums = [self._sums[r.tensor] for r in roots]
        every = {b: TensorFacts(number, b.dtype.name, b.shape) for b, number in tensors}
        whole = {part: of for part, (of, _) in invocation.places.items()}
        written = {b for b in every if whole.get(b, b) in invocation.writes}
        return CommandFacts(
            tuple(facts for b, facts in every.items() if b not in written),
            tuple(facts for b, facts in every.items() if b in written),
            next((s.main for s in sums if s.main), ""),
            next((s.operator for s in sums if s.operator), ""),
            # What a kernel before it brings into order is no sum.
            sizes.total(
                s.operations
                for r, s in zip(roots, sums, strict=True)
                if r.buffer in invocation.writes
            ),
        )

    # -- regions ------------------------------------------------------------------------------

    def _region(self, work: RegionWork, block: WorkBlock) -> None:
        before, region, around = self._here, work.region, self._around
        self._around = work.origin or around
        for stand_in, actual in work.outside.items():
            if stand_in is not actual:
                self._places.aliases[stand_in] = (actual, 0)
        self._places.written.update((*work.results, *work.homes))
        self._places.written.update(ring.memory for ring in work.rings)
        left = {work.results[k] for ring in work.rings for k in ring.members} - {
            work.results[k] for k in work.after
        }
        for result, finals in zip(work.results, region.finals, strict=True):
            if finals:
                self._grow(result)
            elif result not in left:
                self._use(result)
        if isinstance(region, Branches):
            self._branches(region, work)
        elif isinstance(region, Repetition):
            self._loop(region, work, block)
        self._here, self._around = before, around
        for result in work.results:
            if result not in left:
                self._use(result)

    def _chain(self, chain: Chain, block: WorkBlock) -> None:
        """Works, one after the other."""
        for work in chain:
            if isinstance(work, Invocation):
                self._call(work, block.origins)
            else:
                self._region(work, block)

    def _together(self, chains: list[Chain], block: WorkBlock) -> None:
        """Chains of which none needs another."""
        start = len(self._commands)
        self._commands.append(Jump(_LATER))
        parts = []
        for chain in chains:
            first = len(self._commands)
            self._chain(chain, block)
            region = chain[0].region if isinstance(chain[0], RegionWork) else None
            trips = region.trips if isinstance(region, Repetition) else 1
            parts.append(PlanPart(first, len(self._commands), trips))
        self._commands[start] = Together(tuple(parts), self._here)
        self._places.gather(start, len(self._commands))

    def _lead_to(self, buffer: Buffer, target: Buffer, offset: Dim, copy: Invocation) -> bool:
        """Let a body's output be computed in place; if that cannot be, `copy` is left to do."""
        (placed,) = copy.writes
        if placed is not target:
            self._places.aliases[placed] = (target, offset)
        return self._places.lead(buffer, target, offset, self._fresh)

    def _branches(self, region: Branches, work: RegionWork) -> None:
        before, joins = self._here, []
        condition, offset = self._use(region.condition)
        decision = len(self._commands)
        self._commands.append(Jump(_LATER))
        for number, inner in enumerate(work.blocks):
            self._here = before
            if number:
                here = len(self._commands)
                self._commands[decision] = JumpUnless(condition, here, offset, before)
            self._enter(Segment(before, conditional=True))
            self._fresh = set(inner.outputs)
            left = []
            for k, (buffer, copy) in enumerate(zip(inner.outputs, work.last[number], strict=True)):
                if region.finals[k] or not self._lead_to(buffer, work.results[k], 0, copy):
                    left.append((k, buffer, copy))
            self._block(inner)
            for k, buffer, copy in left:
                if region.finals[k]:
                    self._enlarge(work.results[k], bytes_of(buffer))
                self._call(copy, inner.origins)
                for axis, symbol in region.finals[k].items():
                    self._set(symbol, buffer.shape[axis])
            joins.append(len(self._commands))
            self._commands.append(Jump(_LATER))
        for join in joins:
            self._commands[join] = Jump(len(self._commands))

    def _loop(self, region: Repetition, work: RegionWork, block: WorkBlock) -> None:
        before, inner = self._here, work.blocks[0]
        self._begin_carried(region, work, block)
        self._set(region.counter, 0)
        exits = []
        if region.count is not None:
            self._set(region.count, 0)
        for finals in region.finals[len(region.carried) :]:
            for axis, symbol in finals.items():
                if axis:
                    self._set(symbol, 0)
        earlier = self._begin_slices(region, inner)
        done = self._count_for_rings(region, work)
        turns = _turns(region, work)
        for symbol in (*turns.values(), *(() if done is None else (done,))):
            self._set(symbol, 0)
        if region.condition is not None:
            exits.append((len(self._commands), *self._use(region.condition), before))
            self._commands.append(Jump(_LATER))
        begin = len(self._commands) + 2
        self._commands.append(JumpIfLess(0, region.trips, begin, before))
        leave = len(self._commands)
        self._commands.append(Jump(_LATER))
        changing = [s for c in region.carried for s in c.sizes.values()]
        following: dict[Dim, Dim] = {s: sizes.measured(f"{s!r}'", 0) for s in changing}
        symbols = (region.counter, *changing, *following.values(), *earlier, *turns.values())
        here = self._enter(Segment(before, counters=tuple(map(sizes.name_of, symbols))))
        for sliced in region.sliced:
            offset = sliced.position * bytes_of(sliced.inside)
            self._places.aliases[sliced.inside] = (sliced.whole, offset)
        settled = self._place_rings(region, work, turns)
        copies = self._place_slices(region, work)
        levels = self._block(inner)
        self._compare_slices(region, inner, earlier, levels)
        for growing, place, copy in copies:
            if growing is not None:
                (placed,) = copy.writes
                each = bytes_of(placed)
                # From the end backwards, the first slice needs room for all.
                forward = place == region.counter
                before_it = region.counter if forward else region.trips
                through = region.counter + 1 if forward else region.trips
                keep = each * before_it
                self._enlarge(growing, each * through, keep)
            self._call(copy, inner.origins)
        self._carry_on(region, work, following, settled)
        for symbol, size in earlier.items():
            self._set(symbol, size)
        for ring, turn in turns.items():
            self._set(turn, ring.opposite(turn))
        through = region.counter + 1
        for number in (region.count, done, region.counter):
            if number is not None:
                self._set(number, through)
        if region.goes_on:
            exits.append((len(self._commands), *self._use(inner.outputs[0]), self._here))
            self._commands.append(Jump(_LATER))
        self._commands.append(JumpIfLess(region.counter, region.trips, begin, here))
        end = len(self._commands)
        self._commands[leave] = Jump(end)
        for position, number, offset, segment in exits:
            self._commands[position] = JumpUnless(number, end, offset, segment)
        self._places.prolong(begin, end)  # another iteration may read it
        self._leave_rings(region, work, before, done)

    def _begin_slices(self, region: Repetition, inner: WorkBlock) -> dict[Dim, Dim]:
        """Symbols of sizes of slices in the iteration before, with those of this one."""
        skip = len(region.carried)
        slices = inner.outputs[int(region.goes_on) + skip :]
        found: dict[Dim, Dim] = {}
        for buffer, finals in zip(slices, region.finals[skip:], strict=True):
            for axis, final in finals.items():
                if axis:
                    symbol = sizes.measured(f"{final!r} before", 0)
                    found[symbol] = buffer.shape[axis - 1]
                    self._set(symbol, 0)
        return found

    def _compare_slices(
        self, region: Repetition, inner: WorkBlock, earlier: dict[Dim, Dim], segments: list[int]
    ) -> None:
        """All slices of a result must have one shape: each has that of the one before it."""
        is_later = integer.minimum(region.counter, 1)
        for symbol, size in earlier.items():
            difference = size - symbol
            segment = segments[inner.levels.of_sizes((size,))]
            reason = "A loop gives slices of different sizes for one result"
            self._guards.append(Guard(difference * is_later, 0, reason, segment))

    def _begin_carried(self, region: Repetition, work: RegionWork, block: WorkBlock) -> None:
        places = _in_rings(work, 0)
        for k, (carried, home, copy) in enumerate(
            zip(region.carried, work.homes, work.first, strict=True)
        ):
            if carried.sizes:
                self._grow(home)
                self._enlarge(home, bytes_of(carried.initial))
                self._places.aliases[work.results[k]] = (home, 0)
            for axis, symbol in carried.sizes.items():
                self._set(symbol, carried.initial.shape[axis])
                self._set(region.finals[k][axis], carried.initial.shape[axis])
            ring = places.get(k)
            if ring is not None:
                self._places.aliases[copy.writes[0]] = ring
            self._call(copy, block.origins)
            if ring is None:
                self._places.aliases[carried.inside] = (home, 0)

    def _count_for_rings(self, region: Repetition, work: RegionWork) -> Dim | None:
        """The symbol of the number of iterations, if it is needed and the loop may end early."""
        is_open = region.goes_on or region.condition is not None
        return sizes.measured(f"{region.counter!r} done", 0) if work.after and is_open else None

    def _place_rings(
        self, region: Repetition, work: RegionWork, turns: Mapping[Ring, Dim]
    ) -> set[int]:
        """Let carried values in rings be read, and computed, where their slots are now.

        Gives those that need no copy.
        """
        inner, skip = work.blocks[0], int(region.goes_on)
        opposite = {ring: ring.opposite(turn) for ring, turn in turns.items()}
        now = _in_rings(work, region.counter, turns)
        next_ = _in_rings(work, region.counter + 1, opposite)
        for k, place in now.items():
            self._places.aliases[region.carried[k].inside] = place
        computed = [ring.members[0] for ring in work.rings if not ring.is_closed]
        self._fresh = {inner.outputs[skip + k] for k in computed}
        copied = {
            k
            for k in computed
            if not self._lead_to(inner.outputs[skip + k], *next_[k], work.last[0][k])
        }
        return now.keys() - copied

    def _leave_rings(
        self, region: Repetition, work: RegionWork, before: int, done: Dim | None
    ) -> None:
        """Copy the last values out of rings."""
        if not work.after:
            return
        self._here = before
        if done is not None:
            self._enter(Segment(before, counters=(sizes.name_of(done),)))
        count = region.trips if done is None else done
        ends: dict[Ring, Dim] = {ring: integer.modulo(count, ring.slots) for ring in work.rings}
        if not isinstance(count, int):
            # Of a limit that no loop reaches, bytes would be no size.
            for ring, end in ends.items():
                ends[ring] = sizes.measured(f"{region.counter!r} end {ring.members[0]}", 0)
                self._set(ends[ring], end)
            self._enter(Segment(self._here, counters=tuple(map(sizes.name_of, ends.values()))))
        for ring in work.rings:
            for member, k in enumerate(ring.members):
                copy = work.after.get(k)
                if copy is not None:
                    self._places.aliases[copy.reads[0]] = (
                        ring.memory, ring.place(member, ends[ring])
                    )  # fmt: skip
                    self._call(copy, {})

    def _place_slices(
        self, region: Repetition, work: RegionWork
    ) -> list[tuple[Buffer | None, Dim, Invocation]]:
        """Let the other results be computed where they belong; gives the copies that are left."""
        inner, skip = work.blocks[0], len(region.carried)
        slices = inner.outputs[int(region.goes_on) + skip :]
        results, copies = work.results[skip:], work.last[0][skip:]
        first = inner.outputs[: int(region.goes_on) + skip]
        self._fresh = set(slices) - set(first)
        left: list[tuple[Buffer | None, Dim, Invocation]] = []
        for buffer, result, copy, place in zip(slices, results, copies, region.places, strict=True):
            offset = place * bytes_of(buffer)
            growing = result in self._places.growing
            if growing:
                self._fresh.discard(buffer)
            if not self._lead_to(buffer, result, offset, copy):
                left.append((result if growing else None, place, copy))
        return left

    def _carry_on(
        self,
        region: Repetition,
        work: RegionWork,
        following: dict[Dim, Dim],
        settled: Container[int],
    ) -> None:
        """Copy what is carried to where the next iteration reads it, and set its sizes."""
        inner = work.blocks[0]
        outputs = inner.outputs[int(region.goes_on) :]
        for k, (carried, buffer, home, copy) in enumerate(
            zip(region.carried, outputs, work.homes, work.last[0], strict=False)
        ):
            if carried.sizes:
                self._enlarge(home, bytes_of(buffer))
            if k not in settled:
                self._call(copy, inner.origins)
        for k, (carried, buffer) in enumerate(zip(region.carried, outputs, strict=False)):
            for axis, symbol in carried.sizes.items():
                self._set(following[symbol], buffer.shape[axis])
                self._set(region.finals[k][axis], buffer.shape[axis])
        for symbol, value in following.items():
            self._set(symbol, value)
        skip = len(region.carried)
        for buffer, finals in zip(outputs[skip:], region.finals[skip:], strict=True):
            for axis, symbol in finals.items():
                if axis:
                    self._set(symbol, buffer.shape[axis - 1])

    def _enlarge(self, buffer: Buffer, size_bytes: Dim, keep_bytes: Dim = 0) -> None:
        number = self._places.number(buffer, self._here)
        self._commands.append(Grow(number, size_bytes, keep_bytes, self._here))

    def _set(self, symbol: Dim, value: Dim) -> None:
        """Give a counter its value; the segment that it belongs to is filled in at the end."""
        self._commands.append(SetSize(sizes.name_of(symbol), value, -1, self._here))


def _turns(region: Repetition, work: RegionWork) -> dict[Ring, Dim]:
    """For each ring of two slots, the symbol of where its first member lies."""
    return {
        ring: sizes.measured(f"{region.counter!r} turn {ring.members[0]}", 0)
        for ring in work.rings
        if ring.takes_turns
    }


def _in_rings(
    work: RegionWork, iteration: Dim, turns: Mapping[Ring, Dim] | None = None
) -> dict[int, tuple[Buffer, Dim]]:
    """For each carried value in a ring, the memory that it lies in, and at which byte of it.

    Args:
        work: The loop.
        iteration: When.
        turns: For rings of two slots, where the first member lies then, if that is known apart.
    """
    found: dict[int, tuple[Buffer, Dim]] = {}
    for ring in work.rings:
        turn = None if turns is None else turns.get(ring)
        for member, k in enumerate(ring.members):
            if turn is None:
                place = ring.place(member, iteration)
            else:
                place = ring.opposite(turn) if member else turn
            found[k] = (ring.memory, place)
    return found
