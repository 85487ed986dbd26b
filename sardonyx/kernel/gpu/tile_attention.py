"""An `Attention` group in tiles of thread blocks, by matrix units; scores stay in registers.

A thread block has 64 queries, each of its warps 16. Keys and values come in tiles; for each the
largest score so far and the sum of powers are kept per query, and what was summed before is scaled
when the largest changes (Dao et al. 2022, FlashAttention; Milakov and Gimelshein 2018).

Loop nest of a thread block::

    parallel block in 0..cells * parts:                   # cell: a batch and _QUERIES queries
        largest = -inf; total = 0; sums[_QUERIES, width] = 0
        for number in low..high:                          # tiles of keys, copied ahead
            scores[_QUERIES, key_tile] = queries * keys^T
            best = max(largest, scores); scale = 2^(largest - best); powers = 2^(scores - best)
            total = total * scale + sum of powers
            sums = sums * scale + powers * values
        for r in start..high step step: output[first + r, column:] = epilogue(sums[r] / total)
"""

from __future__ import annotations

import math

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.gpu.attention_shape import number_of, power, shared_keys
from sardonyx.kernel.gpu.split_k_attention import RowParts, SplitKAttention
from sardonyx.kernel.gpu.split_k_reduction import KPart
from sardonyx.kernel.gpu.tile_copy import Copier, CopyStep, registers, unflatten
from sardonyx.kernel.gpu.tile_factor import Factor, FactorAxes, SharedTile
from sardonyx.kernel.gpu.tile_fragments import FragmentLane, Fragments
from sardonyx.kernel.gpu.tile_pipeline import TilePipeline
from sardonyx.kernel.gpu.tile_schedule import flattened
from sardonyx.kernel.language.alignment import runs
from sardonyx.kernel.language.compiled import Kernel, KernelParameters
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import F32, I1, I32, I64, Type
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.groups import Attention
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor, buffer
from sardonyx.tensor.traverse import loads_of

_QUERIES, _GAP = 64, 8
#: Tiles of keys that a thread block has at least, where several share the keys of a query: by the
#: bytes of an element. Fewer cost more than they save (197 keys on an H200).
_LEAST_STEPS = {2: 4, 4: 2}


class AttentionTileKernel:
    """Builds the kernel of one attention.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        tiling: What is known of the device.
        element: How factors lie in shared memory.
        name: Symbol name.
    """

    def __init__(
        self,
        group: Attention,
        strides: dict[Tensor, tuple[Dim, ...]],
        tiling: Tiling,
        element: Type,
        name: str,
    ) -> None:
        self.group, self.strides, self.tiling, self.name = group, strides, tiling, name
        self.element, self.device = element, tiling.thread_blocks
        self.kind = "tf32" if element == F32 else element.scalar
        depth: Dim = group.depth[0] if group.depth else 0
        bodies: tuple[Scalar, ...] = (group.query, group.keys)
        if len(group.depth) > 1:
            depth, bodies = flattened(list(group.depth), bodies, "k")
        values = group.values
        if element == F32:
            bodies = tuple(scalar.cast(x, dtypes.FLOAT) for x in bodies)
            values = scalar.cast(values, dtypes.FLOAT)
        self.depth_tile = power(int(number_of(extent_of(depth))), 64 // element.size_bytes)
        self.width_tile = power(int(number_of(extent_of(group.column))), 32)
        size = element.size_bytes
        self.key_tile = 64
        shared_bytes = self.device.shared_bytes
        while 2 * self.key_tile * (self.depth_tile + self.width_tile) * size > shared_bytes:
            self.key_tile //= 2
        if size == 4:
            self.key_tile = min(32, self.key_tile)
        stage = self.key_tile * (self.depth_tile + self.width_tile) * size
        self.query = self._factor(bodies[0], group.row, depth, _QUERIES, self.depth_tile)
        free_bytes = shared_bytes - self.query.size_bytes
        #: Whether queries have memory of their own, and come together with the first keys.
        self.is_apart = free_bytes >= 2 * stage
        self.stages = min(3, (free_bytes if self.is_apart else shared_bytes) // stage)
        self.keys = self._factor(bodies[1], group.key, depth, self.key_tile, self.depth_tile)
        self.values = self._factor(
            values, group.column, group.key, self.width_tile, self.key_tile, "lines"
        )
        self.steps = integer.ceildiv(extent_of(group.key), self.key_tile)
        self.cells, self.parts = shared_keys(group, self.steps, element, _QUERIES, tiling)
        self.partial: Buffer | None = None
        if self.parts != 1:
            # One part meets no other: it needs no memory.
            held = self.parts * integer.minimum(1, self.parts - 1)
            shape = (held, self.cells, _QUERIES, self.width_tile + 2)
            self.partial = buffer("parts of an attention", shape, dtypes.FLOAT)
            self.strides = {**strides, self.partial: (0,) * len(shape)}

    def _factor(
        self,
        body: Scalar,
        line: Dim,
        depth: Dim,
        tile_lines: int,
        depth_tile: int,
        along: str | None = None,
    ) -> Factor:
        # Scores of tf32 become a factor in pairs of words: their rows are read two by two.
        words = self.element == F32 and along is None
        # Scores of tf32 become a factor in pairs of words: their rows are read two by two.
        words = self.element == F32 and along is None
        axes = FactorAxes([line] if line != 0 else [], [], depth)
        threads, aligned = self.device.threads, self.tiling.aligned
        tile = SharedTile(self.element, tile_lines, depth_tile, threads, words, aligned, along)
        return Factor(body, axes, self.strides, tile)

    def build(self) -> Kernel:
        """The kernel; its blocks are counted in warps."""
        g = self.group
        bodies = [self.query.body, self.keys.body, self.values.body, g.scores, g.epilogue]
        touched = [g.root.buffer]
        dims: list[Dim] = [*g.at, g.row, g.column, g.key, *g.batch]
        for body in bodies:
            touched += [x.buffer for x in loads_of(body) if x not in (g.score, g.result)]
            dims += list(dims_of(body))
        for tensor in touched:
            dims += self.strides[tensor]
        dims.append(self.parts)
        if self.partial is not None:
            touched.append(self.partial)
        parameters = KernelParameters(touched, dims)
        self.b = b = ThreadBuilder(self.name, parameters.types(), self.device)
        self.places = places = parameters.places(b, self.strides)
        self.outside = Expression(b, parameters.atoms(b), places.__getitem__)
        self._write(integer.ceildiv(extent_of(g.row), _QUERIES))
        batches = sizes.product(map(extent_of, g.batch))
        blocks = sizes.product((self.cells, self.parts, self.device.subgroups))
        pairs = sizes.product((batches, extent_of(g.row), extent_of(g.key)))
        tile = (("queries", _QUERIES), ("keys at once", self.key_tile))
        return Kernel(b.program, parameters.arguments, blocks, pairs, per_block=tile)

    # -- structure ----------------------------------------------------------------------------

    def _write(self, tiles: Dim) -> None:
        g, b, dim = self.group, self.b, self.outside.dim
        warp = b.warp_of_block()
        self.lane = FragmentLane(b)
        self.thread = warp * self.device.subgroup_size + self.lane.thread
        self.pitch = self.width_tile + _GAP
        staged = self.stages * (self.keys.size_bytes + self.values.size_bytes)
        queries = self.query.size_bytes
        needed = staged + queries if self.is_apart else max(staged, queries)
        self.shared = b.shared_by_block(max(needed, _QUERIES * self.pitch * 4))
        self.place = b.offset(self.shared, staged if self.is_apart else 0)
        self.first_of_warp = warp * 16
        self.n_rows, self.n_keys = dim(extent_of(g.row)), dim(extent_of(g.key))
        count, cells, parts = dim(tiles), dim(self.cells), dim(self.parts)
        all_steps = dim(self.steps)
        each = all_steps
        if self.partial is not None:
            each = (all_steps + (parts - 1)) // parts
        for axis in (*g.batch, g.column):
            dim(extent_of(axis))
        zero = b.constant(F32, 0)
        quad = b.constant(F32.with_lanes(4), 0)
        self.largest = [b.variable(zero, name="largest") for _ in range(2)]
        self.total = [b.variable(zero, name="total") for _ in range(2)]
        self.sums = [b.variable(quad, name="sum") for _ in range(self.width_tile // 8)]
        words = self.element == F32
        key_pieces, width_pieces = self.key_tile // 16, self.width_tile // 16
        start = b.constant(I64, 0)
        self.query_words = Fragments(self.lane, self.query, self.first_of_warp, 1, words=words)
        self.key_words = Fragments(
            self.lane, self.keys, start, key_pieces, words=words, depth_first=True
        )
        self.value_words = Fragments(
            self.lane, self.values, start, width_pieces, words=words, depth_first=True, paired=words
        )
        with b.parallel() as block:
            cell: Operand = block
            part: Operand = b.constant(I64, 0)
            if self.partial is not None:
                cell, part = block % cells, block // cells
            tile, batch = cell % count, cell // count
            low: Operand = part * each
            high = b.min(low + each, all_steps)
            level = self.outside.child(unflatten(b, self.outside, batch, list(g.batch)))
            first = tile * _QUERIES
            for register in self.largest:
                register.set(float("-inf"))
            for register in (*self.total, *self.sums):
                register.set(0.0)
            self._attend(level, first, low, high)
            self._finish(level, first, KPart(cell, part, cells, parts))
            b.barrier()

    def _attend(self, level: Expression, first: Operand, low: Operand, high: Operand) -> None:
        """Take in the tiles of keys from `low` to `high`."""
        b = self.b
        query = Copier(self.query, level, self.thread)
        step = CopyStep(query.lines(first), {}, b.constant(I64, 0))
        if query.is_direct:
            query.begin(self.place, step)
        else:
            held = registers(b, self.query)
            query.compute(step, held)
            query.put(self.place, held)
        b.commit_copies()

        def take(pending: int) -> None:
            b.wait_copies(pending)
            b.barrier()
            places = range(self.keys_steps)
            self.queries = [self.query_words.read(self.place, 0, k) for k in places]

        if not self.is_apart:
            take(0)
            b.barrier()
        copiers = [Copier(f, level, self.thread) for f in (self.keys, self.values)]
        columns = copiers[1].lines(b.constant(I64, 0))
        rows = [self._row_level(level, first, half) for half in range(2)]

        def fetch(number: Operand) -> list[CopyStep]:
            key = number * self.key_tile
            return [
                CopyStep(copiers[0].lines(key), {}, b.constant(I64, 0)), CopyStep(columns, {}, key),
            ]  # fmt: skip

        def use(tiles: list[Operand], number: Operand) -> None:
            self._step(rows, tiles[0], tiles[1], number * self.key_tile)

        def begun() -> None:
            if self.is_apart:
                take(self.stages - 1)

        pipeline = TilePipeline(b, self.shared, copiers, self.stages)
        pipeline.run(low, high, fetch, use, begun)

    @property
    def keys_steps(self) -> int:
        """Multiplications along the depth."""
        return self.key_words.steps

    def _row_level(self, level: Expression, first: Operand, half: int) -> Expression:
        b, g = self.b, self.group
        row = first + self.first_of_warp + self.lane.group
        row = b.min(row + 8 * half, self.n_rows - 1)
        atom = sizes.as_atom(g.row)
        found = level.child({} if atom is None else {atom: row})
        key = sizes.as_atom(g.key)
        found.hoist([g.scores], frozenset(() if key is None else (key,)), frozenset((g.score,)))
        return found

    # -- one tile of keys ---------------------------------------------------------------------

    def _step(self, rows: list[Expression], keys: Operand, values: Operand, first: Operand) -> None:
        b = self.b
        quad = b.constant(F32.with_lanes(4), 0)
        scores: list[Operand] = [quad] * (self.key_tile // 8)
        for k in range(self.keys_steps):
            for piece in range(self.key_tile // 16):
                words = self.key_words.read(keys, piece, k)
                for part in range(2):
                    n = 2 * piece + part
                    pair = words[2 * part : 2 * part + 2]
                    scores[n] = b.multiply_matrices(self.kind, self.queries[k], pair, scores[n])
        powers = self._powers(rows, scores, first)
        for k in range(self.value_words.steps):
            factor = self._as_factor(powers, k)
            for piece in range(self.width_tile // 16):
                words = self.value_words.read(values, piece, k)
                for part in range(2):
                    register = self.sums[2 * piece + part]
                    pair = words[2 * part : 2 * part + 2]
                    register.set(b.multiply_matrices(self.kind, factor, pair, register.get()))

    def _powers(
        self, rows: list[Expression], scores: list[Operand], first: Operand
    ) -> list[list[Operand]]:
        """Powers of the scores of 8 keys each: four as a thread has them; sums are scaled."""
        b = self.b
        found: list[list[Operand]] = []
        for n, quad in enumerate(scores):
            column = self.lane.member * 2 + first
            found.append(
                [
                    self._score(rows[e // 2], b.extract(quad, e), column + (8 * n + e % 2))
                    for e in range(4)
                ]
            )
        scale: list[Operand] = []
        base: list[Operand] = []
        for half in range(2):
            before = self.largest[half].get()
            best: Operand = before
            for four in found:
                best = b.max(best, b.max(four[2 * half], four[2 * half + 1]))
            for distance in (1, 2):
                best = b.max(best, b.across(best, distance))
            self.largest[half].set(best)
            # Where all are minus infinity, so is the difference of one of them and 0.
            held = b.select(b.eq(best, float("-inf")), 0.0, best)
            base.append(held * math.log2(math.e))
            scale.append(self._power_of(before, base[half]))
        powers = [[self._power_of(four[e], base[e // 2]) for e in range(4)] for four in found]
        for half in range(2):
            total = self.total[half].get() * scale[half]
            for four in powers:
                total = total + b.binary("add", *four[2 * half : 2 * half + 2])
            self.total[half].set(total)
        for register in self.sums:
            quad = register.get()
            for e in range(4):
                quad = b.insert(quad, e, b.extract(quad, e) * scale[e // 2])
            register.set(quad)
        return powers

    def _power_of(self, score: Operand, base: Operand) -> Operand:
        b = self.b
        return b.power_of_two(b.fma(score, math.log2(math.e), -base))

    def _score(self, row: Expression, total: Operand, key: Operand) -> Operand:
        """What goes into the softmax; minus infinity beyond the last key."""
        b, g = self.b, self.group
        atom = sizes.as_atom(g.key)
        held = b.min(key, self.n_keys - 1)
        value = b.convert(total, value_type(g.score.dtype))
        here = row.child({} if atom is None else {atom: held}, values={g.score: value})
        score = b.convert(here.scalar(g.scores), F32)
        return b.select(key < self.n_keys, b.lift(score, F32), float("-inf"))

    def _as_factor(self, powers: list[list[Operand]], k: int) -> list[Operand]:
        """Powers as the left factor of step `k`: sums lie as factors of 16 bits do."""
        b = self.b
        if self.element == F32:
            four = powers[k]
            # Keys 2 m and 2 m + 1 stand at m and m + 4.
            return [b.to_tf32(four[e]) for e in (0, 2, 1, 3)]
        words: list[Operand] = []
        for four in powers[2 * k : 2 * k + 2]:
            for half in range(2):
                pair: Operand = b.constant(F32.with_lanes(2), 0)
                for e in range(2):
                    pair = b.insert(pair, e, four[2 * half + e])
                words.append(b.bitcast(b.convert(pair, self.element), I32))
        return words

    # -- the result ---------------------------------------------------------------------------

    def _finish(self, level: Expression, first: Operand, part: KPart) -> None:
        """Divide by the sum of powers, and run the epilogue over rows of the tile."""
        b, g = self.b, self.group
        row = self.first_of_warp + self.lane.group
        place = row * self.pitch + self.lane.member * 2
        high = b.min(self.n_rows - first, _QUERIES)
        held: list[RowParts] = []
        for half in range(2):
            total: Operand = self.total[half].get()
            for distance in (1, 2):
                total = total + b.across(total, distance)
            quads = [register.get() for register in self.sums]
            pairs: list[Operand] = [b.shuffle(q, q, (2 * half, 2 * half + 1)) for q in quads]
            query = row + 8 * half
            held.append(RowParts(query, query < high, self.largest[half].get(), total, pairs))
        finishes: Operand = b.constant(I1, True)
        if self.partial is not None:
            split_k = SplitKAttention(
                b, self.places[self.partial].pointer, self.shared, self.thread, self.lane.member,
                _QUERIES, self.width_tile,
            )  # fmt: skip
            held, finishes = split_k.meet(part, held)
        for half, parts in enumerate(held):
            total = parts.total
            if g.guarded:
                total = b.select(b.eq(total, 0.0), 1.0, total)
            elif not isinstance(self.n_keys, Literal):
                total = b.select(b.eq(self.n_keys, 0), 1.0, total)  # the sum of nothing is 0
            whole = 1.0 / total
            for n, sums in enumerate(parts.pairs):
                at = place + (8 * half * self.pitch + 8 * n)
                pair = sums * b.splat(whole, 2)
                b.store(pair, self.shared, at, align_bytes=8)
        b.barrier()
        width = int(number_of(extent_of(g.column)))
        lanes = 4 if width % 4 == 0 else 1
        per_row = power(self.width_tile // lanes, 1)
        step = max(1, self.device.threads // per_row)
        column = self.thread % per_row * lanes
        start = self.thread // per_row
        with b.if_((column < width) & finishes):
            axis = sizes.as_atom(g.column)
            atoms: dict[Atom, Operand] = {} if axis is None else {axis: column}
            inner = level.child(atoms, vector=axis, lanes=lanes)
            if lanes > 1 and axis is not None and self.tiling.aligned:
                inner.aligned = lambda offset: runs(offset, axis, lanes)
            with b.for_(start, high, step) as r:
                at = r * self.pitch + column
                value: Operand = b.load(
                    F32.with_lanes(lanes), self.shared, at, align_bytes=4 * lanes
                )
                value = b.convert(value, value_type(g.result.dtype))
                atom = sizes.as_atom(g.row)
                where = {} if atom is None else {atom: first + r}
                here = inner.child(where, values={g.result: value}, vector=axis, lanes=lanes)
                here.store(g.root.buffer, g.at, here.scalar(g.epilogue))
