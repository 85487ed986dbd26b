"""What a warp multiplies with its matrix unit, read from tiles in shared memory."""

from __future__ import annotations

from sardonyx.kernel.gpu.tile_factor import Factor
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import F32, I32

#: Bytes along the depth that one multiplication takes.
_STEP = 32


class FragmentLane:
    """A thread's place in its warp, as matrix fragments count: `group` of 8, `member` of 4.

    Attributes:
        b: Where statements go.
        thread: Its number.
        group: `thread / 4`.
        member: `thread % 4`.
    """

    def __init__(self, b: ThreadBuilder) -> None:
        self.b, self.thread = b, b.thread()
        self.group = self.thread // 4
        self.member = self.thread % 4


class Fragments:
    """Reads what a warp multiplies of one factor: 16 lines by 32 bytes of depth at a time.

    Gives four words for each thread: lines 0 to 7 and 8 to 15 of the first 16 bytes of the depth,
    then of the second. With `depth_first` both halves of the depth of lines 0 to 7 come first: what
    one multiplication takes then lies in neighbouring registers.

    Args:
        lane: The thread's place.
        factor: In shared memory.
        first: The warp's first line.
        pieces: How many times 16 lines it has.
        words: Elements are floats that are rounded to tf32.
        depth_first: See above.
        paired: Words 2 m and 2 m + 1 of the depth take the places of m and m + 4, as in a sum of
            tf32 that becomes a factor. For words along the lines.
    """

    def __init__(
        self,
        lane: FragmentLane,
        factor: Factor,
        first: Operand,
        pieces: int,
        *,
        words: bool,
        depth_first: bool = False,
        paired: bool = False,
    ) -> None:
        self.lane, self.factor, self.words = lane, factor, words
        self.b = lane.b
        self.steps = factor.depth_tile * factor.element.size_bytes // _STEP
        #: Piece, step -> offsets, with what is added to each.
        self.places: dict[tuple[int, int], list[tuple[Operand, int]]] = {}
        if words and factor.along == "lines":
            self._set_words(first, pieces, depth_first, paired)
        else:
            self._set_matrices(first, pieces, depth_first)

    def _set_matrices(self, first: Operand, pieces: int, depth_first: bool) -> None:
        """For load_matrix: each thread names a row of a matrix."""
        b, f = self.b, self.factor
        row = self.lane.thread % 8
        matrix = self.lane.thread // 8
        low, high = matrix % 2, matrix // 2
        if depth_first:
            low, high = high, low
        line = first + low * 8
        if f.along == "depth":
            line = line + row
            for k in range(self.steps):
                at = f.word_offset(b, line, high + 2 * k)
                for piece in range(pieces):
                    self.places[piece, k] = [(at, 16 * piece * f.row_bytes)]
            return
        depth = high * 8 + row
        for piece in range(pieces):
            word = (line + 16 * piece) // f.word
            at = f.word_offset(b, depth, word)
            for k in range(self.steps):
                self.places[piece, k] = [(at, 16 * k * f.row_bytes)]

    def _set_words(self, first: Operand, pieces: int, depth_first: bool, paired: bool) -> None:
        b, f = self.b, self.factor
        for piece in range(pieces):
            for k in range(self.steps):
                self.places[piece, k] = []
            for slow, fast in ((0, 0), (0, 1), (1, 0), (1, 1)):
                half, part = (slow, fast) if depth_first else (fast, slow)
                line = first + self.lane.group + (16 * piece + 8 * half)
                depth = self.lane.member + 4 * part
                if paired:
                    depth = self.lane.member * 2 + part
                at = f.word_offset(b, depth, line // f.word)
                rest = line % f.word * f.element.size_bytes
                at = at + rest
                for k in range(self.steps):
                    self.places[piece, k].append((at, 8 * k * f.row_bytes))

    def read(self, tile: Operand, piece: int, k: int) -> list[Operand]:
        """The words of a piece of 16 lines, at the k-th 32 bytes of the depth."""
        b, f = self.b, self.factor
        pointers = [b.offset(b.offset(tile, at), skip) for at, skip in self.places[piece, k]]
        if len(pointers) > 1:
            return [self._taken(b.load(I32, p)) for p in pointers]
        quad = b.load_matrix(pointers[0], transposed=f.along == "lines")
        words: list[Operand] = [b.extract(quad, lane) for lane in range(4)]
        return [self._taken(w) for w in words]

    def _taken(self, word: Operand) -> Operand:
        """A word as matrix units take it."""
        if not self.words or self.factor.is_rounded:
            return word
        return self.b.to_tf32(self.b.bitcast(word, F32))
