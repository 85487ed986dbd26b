"""Multiplies the tiles of two factors in shared memory: sums stay in the threads' registers."""

from __future__ import annotations

from typing import Protocol

from sardonyx.kernel.builder import Register
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.threads import THREADS, WARP, ThreadBuilder
from sardonyx.kernel.tile_factor import WORD, Factor
from sardonyx.kernel.tile_schedule import TileSchedule
from sardonyx.kernel.types import F32


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

    What a thread holds of a piece is laid down by PTX: of the factors, words of 32 bits in line
    `t / 4` and `t / 4 + 8`, at word `t % 4` and `t % 4 + 4`; of the sums, two columns at
    `2 (t % 4)` of the same lines. (PTX ISA, matrix fragments of mma.m16n8k16 and mma.m16n8k8.)
    """

    def __init__(self, b: ThreadBuilder, schedule: TileSchedule) -> None:
        self.b, self.kind, s = b, schedule.unit.kind, schedule.shape
        self.thread = b.thread()
        warp = b.warp_of_block()
        self.group = b.binary("div", self.thread, 4)
        self.member = b.binary("rem", self.thread, 4)
        self.warp_row = b.binary("div", warp, s.warp_columns)
        warp_column = b.binary("rem", warp, s.warp_columns)
        self.rows, self.columns = s.rows // s.warp_rows, s.columns // s.warp_columns
        self.first_row = b.binary("mul", self.warp_row, self.rows)
        self.first_column = b.binary("mul", warp_column, self.columns)
        self.left = _Fragments(self, schedule.left, self.first_row, self.rows // 16)
        self.right = _Fragments(
            self, schedule.right, self.first_column, self.columns // 16, depth_first=True
        )
        self.steps = 2  # of 32 bytes along the depth each
        zero = Constant(F32.with_lanes(4), 0)
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
        for k in range(self.steps):
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
        inside = b.binary(
            "and", b.compare("ge", self.first_row, first),
            b.compare("lt", self.first_row, first + count),
        )  # fmt: skip
        with b.if_(inside):
            row = b.binary("add", b.binary("sub", self.first_row, first), self.group)
            column = b.binary("add", self.first_column, b.binary("mul", self.member, 2))
            at = b.binary("add", b.binary("mul", row, pitch), column)
            place = b.offset(target, at, F32)
            for i, sums in enumerate(self.sums):
                for j, register in enumerate(sums):
                    total = register.get()
                    for half in range(2):
                        pair = b.shuffle(total, total, (2 * half, 2 * half + 1))
                        index = (16 * i + 8 * half) * pitch + 8 * j
                        b.store(pair, place, index, align_bytes=8)


class _Fragments:
    """Reads what a warp multiplies of one factor: 16 lines by 32 bytes of depth at a time.

    Gives four words for each thread: lines 0 to 7 and 8 to 15 of the first 16 bytes of the depth,
    then of the second. With `depth_first` both halves of the depth of lines 0 to 7 come first: what
    one multiplication takes then lies in neighbouring registers.
    """

    def __init__(
        self,
        owner: MatrixMultiplier,
        factor: Factor,
        first: Operand,
        pieces: int,
        *,
        depth_first: bool = False,
    ) -> None:
        self.b, self.factor = owner.b, factor
        b, f = owner.b, factor
        # For load_matrix: the row in a matrix, and which half of the lines and of the depth.
        row = b.binary("rem", owner.thread, 8)
        matrix = b.binary("div", owner.thread, 8)
        low, high = b.binary("rem", matrix, 2), b.binary("div", matrix, 2)
        if depth_first:
            low, high = high, low
        self.places: dict[tuple[int, int], list[tuple[Operand, int]]] = {}
        if f.along == "depth":
            line = b.binary("add", b.binary("add", first, b.binary("mul", low, 8)), row)
            for k in range(2):
                at = f.word_offset(b, line, b.binary("add", high, 2 * k))
                for piece in range(pieces):
                    self.places[piece, k] = [(at, 16 * piece * f.row_bytes)]
            return
        element = f.element.size_bytes
        if not f.words:
            line = b.binary("add", first, b.binary("mul", low, 8))
            depth = b.binary("add", b.binary("mul", high, 8), row)
            for piece in range(pieces):
                word = b.binary("div", b.binary("add", line, 16 * piece), f.word)
                at = f.word_offset(b, depth, word)
                for k in range(2):
                    self.places[piece, k] = [(at, 16 * k * f.row_bytes)]
            return
        for piece in range(pieces):
            for k in range(2):
                self.places[piece, k] = []
            for slow, fast in ((0, 0), (0, 1), (1, 0), (1, 1)):
                half, part = (slow, fast) if depth_first else (fast, slow)
                line = b.binary("add", b.binary("add", first, owner.group), 16 * piece + 8 * half)
                depth = b.binary("add", owner.member, 4 * part)
                at = f.word_offset(b, depth, b.binary("div", line, f.word))
                rest = b.binary("mul", b.binary("rem", line, f.word), element)
                at = b.binary("add", at, rest)
                for k in range(2):
                    self.places[piece, k].append((at, 8 * k * f.row_bytes))

    def read(self, tile: Operand, piece: int, k: int) -> list[Operand]:
        """The words of a piece of 16 lines, at the k-th 32 bytes of the depth."""
        b, f = self.b, self.factor
        pointers = [b.offset(b.offset(tile, at), skip) for at, skip in self.places[piece, k]]
        if len(pointers) > 1:
            return [b.to_tf32(b.load(F32, p)) for p in pointers]
        quad = b.load_matrix(pointers[0], transposed=f.along == "lines")
        words: list[Operand] = [b.extract(quad, lane) for lane in range(4)]
        return [b.to_tf32(b.bitcast(w, F32)) for w in words] if f.words else words


class SumMultiplier:
    """By ordinary multiplications: each thread sums some lines of one factor by some of the other.

    Threads lie in 8 rows and 16 columns. A thread's lines lie 8 (or 16) apart, or in groups of a
    word if words run along the lines.
    """

    ROWS, COLUMNS = 8, THREADS // 8

    def __init__(self, b: ThreadBuilder, schedule: TileSchedule) -> None:
        self.b, self.type = b, schedule.unit.sum
        self.tile_depth = schedule.depth_tile
        thread = b.binary("add", b.binary("mul", b.warp_of_block(), WARP), b.thread())
        row, column = b.binary("div", thread, self.COLUMNS), b.binary("rem", thread, self.COLUMNS)
        self.left = _Lines(b, schedule.left, row, self.ROWS)
        self.right = _Lines(b, schedule.right, column, self.COLUMNS)
        self.sums: list[list[Register]] = [
            [b.variable(Constant(self.type, 0), name="sum") for _ in self.right.lines]
            for _ in self.left.lines
        ]

    def clear(self) -> None:
        """See `Multiplier`."""
        for row in self.sums:
            for register in row:
                register.set(Constant(self.type, 0))

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
                            register.set(b.binary("add", old, b.binary("mul", x, y)))

    def put(self, target: Operand, pitch: int, first: int, count: int) -> None:
        """See `Multiplier`; `first` is 0 and `count` all."""
        b = self.b
        for row, line in zip(self.sums, self.left.lines, strict=True):
            start = b.offset(target, b.binary("mul", line, pitch), self.type)
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
            self.lines = [b.binary("add", number, threads * i) for i in range(count)]
            return
        for i in range(count // word):
            first = b.binary("mul", b.binary("add", number, threads * i), word)
            self.lines += [b.binary("add", first, e) for e in range(word)]

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
        first = b.binary("mul", chunk, f.word)
        result = []
        for k in range(f.word):
            row = b.binary("add", first, k)
            elements: list[Operand] = []
            for line in self.lines[:: f.word]:
                elements += word(row, b.binary("div", line, f.word))
            result.append(elements)
        return result
