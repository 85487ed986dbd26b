"""Copies tiles of a factor to shared memory: each thread some words, step by step."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.gpu.tile_factor import WORD, Factor
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.plan.axes import extent_of


def unflatten(
    b: ThreadBuilder, level: Expression, flat: Operand, axes: list[Dim]
) -> dict[Atom, Operand]:
    """Values of axes that are walked as one, the last one fastest."""
    found = b.coordinates(flat, [level.dim(extent_of(axis)) for axis in axes])
    return dict(zip(map(sizes.variable, axes), found, strict=True))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of one tile that a thread copies: their numbers, and emitters for them."""

    numbers: list[Operand]
    levels: list[Expression]


@dataclass(frozen=True, slots=True)
class CopyStep:
    """What one step copies: lines, the values of the taps, the first element of the depth."""

    lines: Lines
    taps: Mapping[Atom, Operand]
    first: Operand


class Copier:
    """Copies the tiles of one factor that belong to one tile of the result.

    Args:
        factor: Which factor.
        level: An emitter for one matrix.
        thread: The number of the thread in its thread block.
    """

    def __init__(self, factor: Factor, level: Expression, thread: Operand) -> None:
        self.factor, self.thread = factor, thread
        b = level.builder
        assert isinstance(b, ThreadBuilder)  # noqa: S101 - narrows the type for the checker
        self.b = b
        f = factor
        words = f.smem_rows * f.pitch
        self.count = f.words_each
        #: Which threads copy; None for all.
        threads = b.device.threads
        self.copies = thread < words if words < threads else None
        mine = thread if words >= threads else thread % words
        self.word = mine % f.pitch
        row = mine // f.pitch
        step = max(1, threads // f.pitch)
        self.rows: list[Operand] = [row + step * i for i in range(self.count)]
        # Rows differ by multiples of what the exchange of words repeats after.
        self.offsets: list[Operand]
        offset = f.word_offset(b, row, self.word)
        if step % 8 == 0 or self.count == 1:
            self.offsets = [offset + step * i * f.row_bytes for i in range(self.count)]
        else:
            self.offsets = [f.word_offset(b, r, self.word) for r in self.rows]
        self.within = self.word * f.word
        self.total = level.dim(f.line_count())
        self.limit = level.dim(f.limit)
        self.level = level
        #: Elements of one copy; where words run along the lines each has a line of its own.
        self.unit = f.unit_bytes // f.element.size_bytes if self.is_direct else f.word
        self.starts: list[Operand] = list(self.rows)
        if f.along == "lines":
            self.starts = [self.within + j for j in range(0, f.word, self.unit)]

    def lines(self, first: Operand) -> Lines:
        """The lines of a tile that begins with line `first`."""
        f = self.factor
        moving = frozenset(a for a in map(sizes.as_atom, (*f.taps, f.depth)) if a is not None)
        numbers: list[Operand] = [first + s for s in self.starts]
        return Lines(numbers, [self._line_level(self.level, n, moving) for n in numbers])

    @property
    def is_direct(self) -> bool:
        """Whether copies go from memory to shared memory by themselves."""
        return self.factor.is_direct

    def _line_level(self, level: Expression, line: Operand, moving: frozenset[Atom]) -> Expression:
        b, f = self.b, self.factor
        # Lines beyond the last repeat it: indices stay valid, and their elements become zero.
        held = b.min(line, self.total - 1)
        atoms = unflatten(b, level, held, f.lines)
        if f.along == "lines" and not self.is_direct and f.lines:
            mask = b.tail_mask(self.total - line, f.word)
            found = level.child(atoms, vector=sizes.variable(f.lines[-1]), lanes=f.word, mask=mask)
        else:
            found = level.child(atoms)
        if self.is_direct:
            assert f.load is not None  # noqa: S101 - what is copied directly is a load
            found.hoist([f.load, *([f.window] if f.window is not None else [])], moving)
        else:
            found.hoist([f.body], moving)
        return found

    def begin(self, stage: Operand, step: CopyStep) -> None:
        """Begin to copy a step's tile; for factors that are copied directly."""
        b = self.b
        if self.copies is not None:
            with b.if_(self.copies):
                self._begin(stage, step)
        else:
            self._begin(stage, step)

    def _begin(self, stage: Operand, step: CopyStep) -> None:
        b, f = self.b, self.factor
        along_depth = f.along == "depth"
        depth = sizes.as_atom(f.depth)
        for i in range(self.count):
            k = step.first + (self.within if along_depth else self.rows[i])
            target = b.offset(stage, self.offsets[i])
            for j in range(WORD // f.unit_bytes):
                number = i if along_depth else j
                at = k + j * self.unit if along_depth else k
                inside = (step.lines.numbers[number] < self.total) & (at < self.limit)  # fmt: skip
                atoms = dict(step.taps) if depth is None else {**step.taps, depth: at}
                here = step.lines.levels[number].child(atoms)
                self._copy(here, b.offset(target, j * f.unit_bytes), inside)

    def _copy(self, here: Expression, target: Operand, inside: Operand) -> None:
        b, f = self.b, self.factor
        assert f.load is not None  # noqa: S101 - what is copied directly is a load
        if f.window is not None:
            window = here.scalar(f.window)
            inside = inside & b.lift(window, inside.type)
        place = here.place(f.load.tensor)
        source = b.offset(place.pointer, here.dim(place.offset(f.load.at)), f.element)
        b.copy_async(target, source, inside, f.unit_bytes)

    def compute(self, step: CopyStep, held: list[Register]) -> None:
        """Compute the words of a step's tile into registers; for the other factors."""
        b, f = self.b, self.factor
        for i in range(self.count):
            atoms = dict(step.taps)
            depth = sizes.as_atom(f.depth)
            if f.along == "depth":
                level = step.lines.levels[i]
                k = step.first + self.within
                inside = step.lines.numbers[i] < self.total
                mask = b.tail_mask(self.limit - k, f.word) & b.splat(inside, f.word)
                if depth is not None:
                    atoms[depth] = k
                here = level.child(atoms, vector=depth, lanes=f.word, mask=mask)
            else:
                level = step.lines.levels[0]
                k = step.first + self.rows[i]
                inside = b.tail_mask(self.total - step.lines.numbers[0], f.word)
                mask = inside & b.splat(k < self.limit, f.word)
                if depth is not None:
                    atoms[depth] = b.min(k, self.limit - 1)
                axis = sizes.variable(f.lines[-1]) if f.lines else None
                here = level.child(atoms, vector=axis, lanes=f.word, mask=mask)
            if f.element.scalar in ("f16", "bf16"):
                value = here.stored(f.body)
            else:
                value = here.scalar(f.body)
            if isinstance(value, Literal):
                value = b.constant(f.vector, value.value)
            value = b.splat(value, f.word)
            held[i].set(b.select(mask, value, b.constant(f.vector, 0)))

    def put(self, stage: Operand, held: list[Register]) -> None:
        """Write what `compute` gave to shared memory."""
        b = self.b
        for offset, register in zip(self.offsets, held, strict=True):
            place, word = b.offset(stage, offset), register.get()
            if self.copies is None:
                b.store(word, place, align_bytes=WORD)
            else:
                with b.if_(self.copies):
                    b.store(word, place, align_bytes=WORD)


def registers(b: ThreadBuilder, factor: Factor) -> list[Register]:
    """Registers for `Copier.compute`."""
    zero = b.constant(factor.vector, 0)
    return [b.variable(zero, name="word") for _ in range(factor.words_each)]
