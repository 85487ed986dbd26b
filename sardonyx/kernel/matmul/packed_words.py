"""Panels whose words hold several steps of the depth, as instructions of bytes and halves take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import Type
from sardonyx.plan.axes import extent_of

_WORD_BITS = 32


class WordPacker:
    """Writes words of a panel, each with the same column at a few steps.

    Args:
        level: The emitter outside the loop over words.
        column: The axis of the columns.
        depth: The axes of the steps, the last one fastest.
        words: Type of a vector of words.
        steps: Steps of a word.
    """

    def __init__(
        self, level: Expression, column: Dim, depth: Sequence[Dim], words: Type, steps: int
    ) -> None:
        self.b, self.level, self.words, self.steps = level.builder, level, words, steps
        self.column, self.depth = sizes.variable(column), list(map(sizes.variable, depth))
        self.extents = [level.dim(extent_of(axis)) for axis in depth]

    def word(
        self,
        number: Operand,
        start: Operand,
        count: Callable[[Operand], Operand],
        element: Callable[[Expression, Operand], Operand],
    ) -> Register:
        """Words of some columns.

        Args:
            number: Which word along the depth.
            start: The first column.
            count: How many columns there are from there on, given a step: 0 beyond the last step.
            element: The bits of one step, given an emitter and which lanes count.
        """
        b, lanes = self.b, self.words.lanes
        word = b.variable(0, self.words)
        for j in range(self.steps):
            step = number * self.steps + j
            left = count(step)
            mask = b.tail_mask(left, lanes)
            at = b.coordinates(step, self.extents)
            atoms = dict(zip(self.depth, at, strict=True)) | {self.column: start}
            with b.if_(left > 0):
                here = self.level.child(atoms, vector=self.column, lanes=lanes, mask=mask)
                bits = element(here, mask)
                word.set(word.get() | (bits << (_WORD_BITS // self.steps * j)))
        return word
