"""Steps whose tiles are copied to shared memory ahead of their use.

Loop nest, `S` being the number of stages::

    for _ in 0..S - 1: begin the copies of a step
    for number in first..last:
        wait for the copies of this step, meet at a barrier
        begin the copies of step number + S - 1
        use(tiles of this step)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.kernel.gpu.tile_copy import Copier, CopyStep, registers
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import I64


class TilePipeline:
    """Shared memory in stages, each with the tiles of one step.

    Args:
        b: Where statements go.
        shared: Where the stages begin.
        copiers: Of a step's tiles, in their order.
        stages: How many steps there is room for: at least 2.
    """

    def __init__(
        self, b: ThreadBuilder, shared: Operand, copiers: Sequence[Copier], stages: int
    ) -> None:
        self.b, self.shared, self.copiers, self.stages = b, shared, copiers, stages

    def run(
        self,
        first: Operand,
        last: Operand,
        fetch: Callable[[Operand], Sequence[CopyStep]],
        use: Callable[[list[Operand], Operand], None],
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Do steps `first` to `last`; afterwards shared memory is free.

        Args:
            first: Number of the first step.
            last: Number behind the last step.
            fetch: Gives what the step of a number needs; called once for each.
            use: Given addresses of a step's tiles, and its number.
            begun: What is done while the first copies are under way, each step's in a group.
        """
        b = self.b
        ahead = b.variable(first, name="ahead")
        filled, used = (b.variable(0, I64, name=n) for n in ("filled", "used"))
        held = [[] if c.is_direct else registers(b, c.factor) for c in self.copiers]

        def begin() -> None:
            steps, tiles = fetch(ahead.get()), self._tiles(filled)
            for copier, step, words, tile in zip(self.copiers, steps, held, tiles, strict=True):
                if copier.is_direct:
                    copier.begin(tile, step)
                else:
                    copier.compute(step, words)

        def put() -> None:
            for copier, words, tile in zip(self.copiers, held, self._tiles(filled), strict=True):
                if not copier.is_direct:
                    copier.put(tile, words)

        def advance(stage: Register) -> None:
            following = stage.get() + 1
            stage.set(b.select(b.eq(following, self.stages), 0, following))

        for _ in range(self.stages - 1):
            with b.if_(ahead.get() < last):
                begin()
                put()
            b.commit_copies()
            ahead.set(ahead.get() + 1)
            advance(filled)
        begun()
        with b.for_(first, last) as number:
            b.wait_copies(self.stages - 2)
            b.barrier()
            going = ahead.get() < last
            with b.if_(going):
                begin()
            b.commit_copies()
            use(self._tiles(used), number)
            if not all(c.is_direct for c in self.copiers):
                with b.if_(going):
                    put()
            ahead.set(ahead.get() + 1)
            advance(filled)
            advance(used)
        b.wait_copies(0)
        b.barrier()

    def _tiles(self, stage: Register) -> list[Operand]:
        """Where the tiles of a stage lie."""
        b = self.b
        at: Operand = b.offset(
            self.shared, stage.get(), sum(c.factor.size_bytes for c in self.copiers)
        )
        found = []
        for copier in self.copiers:
            found.append(at)
            at = b.offset(at, copier.factor.size_bytes)
        return found
