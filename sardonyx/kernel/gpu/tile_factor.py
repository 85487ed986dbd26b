"""One factor of a product in shared memory: how it gets there, and where its elements lie.

A tile is `tile_lines` lines (rows of the left factor, columns of the right one) by `depth_tile`
summed elements. It lies in rows of words of 16 bytes that run along the depth or along the lines,
whichever lies side by side in memory. Within a row the words change places by the row's number, so
that the threads of a warp find theirs in different banks.
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.language.alignment import divisible, runs
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import Type, memory_type
from sardonyx.plan.axes import dims_of, extent_of, offset_of
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

WORD = 16


@dataclass(frozen=True, slots=True)
class FactorAxes:
    """The axes of a factor.

    Attributes:
        lines, taps: Those of its lines, and those that steps go over besides the depth.
        depth: The summed axis that steps go along.
        limit: Elements along it, where that is more than the axis has: zeros at its end.
    """

    lines: list[Dim]
    taps: list[Dim]
    depth: Dim
    limit: Dim | None = None


@dataclass(frozen=True, slots=True)
class SharedTile:
    """How a tile of a factor lies in shared memory.

    Attributes:
        element: How an element lies.
        lines, depth: Its sizes.
        threads: Those of the thread block, which copy it.
        words: Elements are read as words of 32 bits, which no instruction transposes.
        aligned: Whether buffers begin at multiples of 16 bytes.
        along: Along what words run, where that is not free.
    """

    element: Type
    lines: int
    depth: int
    threads: int
    words: bool
    aligned: bool
    along: str | None = None


class Factor:
    """See the module's text.

    Attributes:
        body: One element.
        lines: Axes of its lines, walked as one.
        depth: The summed axis that steps go along.
        limit: Elements along `depth`; what is beyond is zero.
        along: `depth` or `lines`: along what words run.
        word: Elements of a word.
        pitch: Words of a row.
        body_before: As it was given, with several axes for the lines.
        load, window: What is copied, and where it is not zero, if `unit_bytes` is not 0.
        is_rounded: Whether floats have no more bits than matrix units take.
        unit_bytes: How much one asynchronous copy moves; 0 where elements are computed.

    Args:
        body: One element, of a type that lies in memory as that of the tile.
        axes: Its axes.
        strides: Of every buffer.
        tile: What lies in shared memory.
    """

    def __init__(
        self,
        body: Scalar,
        axes: FactorAxes,
        strides: Mapping[Tensor, tuple[Dim, ...]],
        tile: SharedTile,
    ) -> None:
        self.body, self.lines, self.taps = body, list(axes.lines), axes.taps
        self.depth = depth = axes.depth
        self.body_before = body
        self.element, self.words, self.aligned = tile.element, tile.words, tile.aligned
        self.tile_lines, self.depth_tile = tile_lines, depth_tile = tile.lines, tile.depth
        self.strides, limit, along, element = strides, axes.limit, tile.along, tile.element
        self.threads = tile.threads
        self.limit = extent_of(depth) if limit is None else limit
        self.word = WORD // element.size_bytes
        self.size_bytes = tile_lines * depth_tile * element.size_bytes
        self.is_rounded = False
        self.window: Scalar | None = None
        self.load = self._plain_load()
        self.along, self.unit_bytes = (
            self._choose() if along is None else (along, self._unit(along))
        )
        self._flatten_lines()
        self.pitch = (depth_tile if self.along == "depth" else tile_lines) // self.word
        self.smem_rows = tile_lines if self.along == "depth" else depth_tile

    def _plain_load(self) -> Scalar | None:
        """The load that is all of the factor, but for a condition where it is zero."""
        body, window = self.body, None
        if body.op == "select" and body.arguments[2].op == "constant":
            if body.arguments[2].payload:
                return None
            window, body = body.arguments[0], body.arguments[1]
        if body.op != "load" or memory_type(body.dtype) != self.element:
            return None
        found = [*dims_of(body), *(dims_of(window) if window is not None else ())]
        if any(sizes.opaque_in(d) for d in found):
            return None
        if window is not None and list(loads_of(window)):
            return None
        self.window = window
        return body

    def _choose(self) -> tuple[str, int]:
        found = [(self._unit(way), way) for way in ("depth", "lines")]
        unit, way = max(found, key=lambda pair: (pair[0], pair[1] == "depth"))
        if unit > self.element.size_bytes:
            return way, unit
        # Elements are gathered one by one: neighbours in memory by neighbouring threads.
        way = "depth" if self._contiguous(self.depth) else way
        if way != "depth" or not self._contiguous(self.depth):
            way = "lines" if self.lines and self._contiguous(self.lines[-1]) else "depth"
        return way, unit

    def _axis(self, along: str) -> Dim:
        if along == "depth":
            return self.depth
        return self.lines[-1] if self.lines else 0

    def _unit(self, along: str) -> int:
        """Bytes that lie side by side along an axis, wherever a word begins; 0 if under 4."""
        size = self.element.size_bytes
        if self.load is None:
            return 0
        axis = self._axis(along)
        atom = sizes.as_atom(axis)
        offset = offset_of(self.strides[self.load.tensor], self.load.at)
        varies = self.window is not None and any(
            atom in sizes.atoms_of(d, "index") for d in dims_of(self.window)
        )
        if atom is not None and self.aligned and not varies:
            extent = self.limit if along == "depth" else extent_of(axis)
            for unit in (16, 8, 4):
                count = unit // size
                if count > 1 and divisible(extent, count) and runs(offset, atom, count):
                    return unit
        return size if size in (4, 8) else 0

    def _contiguous(self, axis: Dim) -> bool:
        atom = sizes.as_atom(axis)
        if atom is None:
            return False
        for x in loads_of(self.body):
            offset = offset_of(self.strides[x.tensor], x.at)
            if sizes.step_along(offset, atom) == 1:
                return True
        return False

    def _flatten_lines(self) -> None:
        """Words along the lines may go from one axis' end to the next one's beginning."""
        if self.along == "depth" or len(self.lines) < 2:
            return
        if divisible(extent_of(self.lines[-1]), self.word):
            return
        flat = rest = sizes.numbered_index(sizes.product(map(extent_of, self.lines)), 0, "l")
        atoms: dict[Atom, Dim] = {}
        for number, axis in enumerate(reversed(self.lines)):
            last = number == len(self.lines) - 1
            atoms[sizes.variable(axis)] = rest if last else integer.modulo(rest, extent_of(axis))
            rest = integer.floordiv(rest, extent_of(axis))
        self.body = rewrite(self.body, atoms=atoms)
        if self.load is not None:
            self.load = rewrite(self.load, atoms=atoms)
        if self.window is not None:
            self.window = rewrite(self.window, atoms=atoms)
        self.lines = [flat]

    def line_count(self) -> Dim:
        """Lines of one matrix."""
        return sizes.product(map(extent_of, self.lines))

    # -- where elements lie -------------------------------------------------------------------

    @property
    def is_direct(self) -> bool:
        """Whether it is copied from memory to shared memory without passing registers."""
        return self.unit_bytes > 0

    @property
    def vector(self) -> Type:
        """The type of a word."""
        return self.element.with_lanes(self.word)

    @property
    def words_each(self) -> int:
        """How many words a thread copies."""
        return max(1, self.size_bytes // WORD // self.threads)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in shared memory."""
        return self.pitch * WORD

    def swizzle(self, b: Builder, row: Operand) -> Operand:
        """What the number of a word is combined with (exclusive or), by its row."""
        most = min(self.pitch, 8)
        if self.words and self.along == "lines":
            return (row * 2) & (most - 1)
        step = max(1, 8 // self.pitch)
        return (row // step) & (most - 1)

    def word_offset(self, b: Builder, row: Operand, word: Operand) -> Operand:
        """Bytes from the tile's beginning to a word of a row."""
        place = word ^ self.swizzle(b, row)
        return row * self.row_bytes + place * WORD
