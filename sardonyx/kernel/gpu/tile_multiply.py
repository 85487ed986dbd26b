"""Multiplies the tiles of two factors in shared memory: sums stay in the threads' registers."""

from __future__ import annotations

from typing import Protocol

from sardonyx.kernel.gpu.tile_factor import WORD, Factor
from sardonyx.kernel.gpu.tile_fragments import FragmentLane, Fragments
from sardonyx.kernel.gpu.tile_schedule import TileSchedule
from sardonyx.kernel.gpu.tile_shape import SUM_ROWS
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import F32


class Multiplier(Protocol):
    """Sums of one tile, held by the threads of a block."""

    def clear(self) -> None:
        """Begin a sum."""

    def step(self, left: Operand, right: Operand) -> None:
        """Add the product of two tiles, whose addresses are given."""

    def put(self, target: Operand, pitch: int, first: int, count: int) -> None:
        """Write rows `first` to `first + count` of the sums, in rows of `pitch` elements."""


class MatrixMultiplier:
    """By matrix units: each warp computes a part of the tile, in pieces of 16 by 8.

    `ThreadBuilder.multiply_matrices` lays down what a thread holds of a piece.
    """

    def __init__(self, b: ThreadBuilder, schedule: TileSchedule) -> None:
        self.b, self.kind, s = b, schedule.unit.kind, schedule.shape
        lane = self.lane = FragmentLane(b)
        warp = b.warp_of_block()
        self.warp_row = warp // s.warp_columns
        warp_column = warp % s.warp_columns
        self.rows, self.columns = s.rows // s.warp_rows, s.columns // s.warp_columns
        self.first_row = self.warp_row * self.rows
        self.first_column = warp_column * self.columns
        words = schedule.unit.kind == "tf32"
        self.left = Fragments(lane, schedule.left, self.first_row, self.rows // 16, words=words)
        self.right = Fragments(
            lane, schedule.right, self.first_column, self.columns // 16, words=words,
            depth_first=True,
        )  # fmt: skip
        zero = b.constant(F32.with_lanes(4), 0)
        self.sums = [
            [b.variable(zero, name="sum") for _ in range(self.columns // 8)]
            for _ in range(self.rows // 16)
        ]

    def clear(self) -> None:
        """See `Multiplier`."""
        for row in self.sums:
            for register in row:
                register.set(0.0)

    def step(self, left: Operand, right: Operand) -> None:
        """See `Multiplier`."""
        b = self.b
        for k in range(self.left.steps):
            rows = [self.left.read(left, piece, k) for piece in range(self.rows // 16)]
            columns = [self.right.read(right, piece, k) for piece in range(self.columns // 16)]
            for row, a in zip(self.sums, rows, strict=True):
                for number, register in enumerate(row):
                    words = columns[number // 2]
                    pair = words[number % 2 * 2 : number % 2 * 2 + 2]
                    register.set(b.multiply_matrices(self.kind, a, pair, register.get()))

    def put(self, target: Operand, pitch: int, first: int, count: int) -> None:
        """See `Multiplier`; `first` and `count` are multiples of what a warp computes."""
        b = self.b
        inside = (self.first_row >= first) & (self.first_row < first + count)  # fmt: skip
        with b.if_(inside):
            row = self.first_row - first + self.lane.group
            column = self.first_column + self.lane.member * 2
            at = row * pitch + column
            place = b.offset(target, at, F32)
            for i, sums in enumerate(self.sums):
                for j, register in enumerate(sums):
                    total = register.get()
                    for half in range(2):
                        pair = b.shuffle(total, total, (2 * half, 2 * half + 1))
                        index = (16 * i + 8 * half) * pitch + 8 * j
                        b.store(pair, place, index, align_bytes=8)


class SumMultiplier:
    """By ordinary multiplications: each thread sums some lines of one factor by some of the other.

    Threads lie in 8 rows, and as many columns as there are others. A thread's lines lie 8 (or so
    many columns) apart, or in groups of a word if words run along the lines.
    """

    def __init__(self, b: ThreadBuilder, schedule: TileSchedule) -> None:
        self.b, self.type = b, schedule.unit.sum
        self.tile_depth = schedule.depth_tile
        columns = b.device.threads // SUM_ROWS
        thread = b.warp_of_block() * b.device.subgroup_size + b.thread()
        row, column = thread // columns, thread % columns
        self.left = _Lines(b, schedule.left, row, SUM_ROWS)
        self.right = _Lines(b, schedule.right, column, columns)
        self.sums: list[list[Register]] = [
            [b.variable(b.constant(self.type, 0), name="sum") for _ in self.right.lines]
            for _ in self.left.lines
        ]

    def clear(self) -> None:
        """See `Multiplier`."""
        for row in self.sums:
            for register in row:
                register.set(self.b.constant(self.type, 0))

    def step(self, left: Operand, right: Operand) -> None:
        """See `Multiplier`."""
        b, word = self.b, self.left.factor.word
        with b.for_(0, self.tile_depth // word) as chunk:
            rows = self.left.read(left, chunk)
            columns = self.right.read(right, chunk)
            for k in range(word):
                for i, line in enumerate(self.sums):
                    for j, register in enumerate(line):
                        x, y, old = rows[k][i], columns[k][j], register.get()
                        if self.type.is_float:
                            register.set(b.fma(x, y, old))
                        else:
                            register.set(old + x * y)

    def put(self, target: Operand, pitch: int, first: int, count: int) -> None:
        """See `Multiplier`; `first` is 0 and `count` all."""
        b = self.b
        for row, line in zip(self.sums, self.left.lines, strict=True):
            start = b.offset(target, line * pitch, self.type)
            for register, column in zip(row, self.right.lines, strict=True):
                b.store(register.get(), start, column)


class _Lines:
    """What a thread reads of one factor: `lines` are the numbers of its lines."""

    def __init__(self, b: ThreadBuilder, factor: Factor, number: Operand, threads: int) -> None:
        self.b, self.factor = b, factor
        count = factor.tile_lines // threads
        word = factor.word
        self.lines: list[Operand] = []
        if factor.along == "depth":
            self.lines = [number + threads * i for i in range(count)]
            return
        for i in range(count // word):
            first = (number + threads * i) * word
            self.lines += [first + e for e in range(word)]

    def read(self, tile: Operand, chunk: Operand) -> list[list[Operand]]:
        """For each element of a word along the depth, the elements of the lines."""
        b, f = self.b, self.factor
        kind = f.element.with_lanes(f.word)

        def word(row: Operand, number: Operand) -> list[Operand]:
            place = b.offset(tile, f.word_offset(b, row, number))
            loaded = b.load(kind, place, align_bytes=WORD)
            return [b.extract(loaded, lane) for lane in range(f.word)]

        if f.along == "depth":
            found = [word(line, chunk) for line in self.lines]
            return [[x[k] for x in found] for k in range(f.word)]
        first = chunk * f.word
        result = []
        for k in range(f.word):
            row = first + k
            elements: list[Operand] = []
            for line in self.lines[:: f.word]:
                elements += word(row, line // f.word)
            result.append(elements)
        return result
