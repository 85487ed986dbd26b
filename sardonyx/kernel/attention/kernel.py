"""An `Attention` group as a kernel that never writes its scores to memory.

A block is one set of batch variables and up to 96 query rows. Keys and values of the batch are
packed once into scratch, in panels of a few vectors, keys transposed. Both products are then done
by the micro-kernels of other products (`micro`), for a tile of up to six rows at a time, whose
scores lie in scratch that fits the first-level cache: the softmax is exact and done in place. Where
there are only a few rows at all, values are read where they are.

Loop nest of a block::

    parallel block in 0..batches * blocks:
        keys[panel, depth, width], values[panel, keys, width] = packed    # once for a batch
        for row in low..high step count:                  # count: 6 rows of a tile, or fewer
            queries[count, depth] = rows of the queries
            for start, vectors in panels of keys:
                scores[count, start:] = micro(queries, keys[start])
            scores[count, keys], totals[count] = softmax(scores)
            for start, vectors in panels of columns:
                tile[count, panel] = micro(scores, values[start])
                for r in 0..count: output[row + r, start:] = epilogue(tile[r] / totals[r])
"""

from __future__ import annotations

import math

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.attention.packing import AttentionPacking, Panels
from sardonyx.kernel.attention.softmax import build_softmax, softmax_name
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.expressions.transpose import build_transpose, sums_of
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.compiled import Kernel, KernelParameters
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F32, F64, I1, I64
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.matmul.long_sums import LONG, LONG_RUN, build_long_sum, long_sum_name
from sardonyx.kernel.matmul.micro import PART, build_micro, micro_name, tile_rows
from sardonyx.kernel.matmul.tile import RowProducts, call_by_rows, rows_of_next_tile, unflattened
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.groups import Attention
from sardonyx.plan.inline import cost_of
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

_ROWS = 6
#: Rows whose softmax is computed together. A tile has memory for all its rows: what comes of those
#: that it lacks is not read.
_SIDE_BY_SIDE = 3
_ALIGN = 64
_LOG2_OF_E = math.log2(math.e)


class AttentionKernel(AttentionPacking):
    """Builds the kernel of one attention.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block does.
        name: Symbol name.
        counts: Row counts of its tiles, where the number of rows does not say so.
    """

    def __init__(
        self,
        group: Attention,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        block_sizes: BlockSizes,
        name: str,
        counts: tuple[int, ...] = (),
    ) -> None:
        self.group, self.name, self.lanes = group, name, lanes
        self.vectors, self.block_rows = block_sizes.vectors, block_sizes.rows
        self.transpose_stores = block_sizes.transpose_stores
        self.strides = strides
        self.vector = F32.with_lanes(lanes)
        self.panel = lanes * block_sizes.vectors
        self.rows, self.keys, self.width = map(extent_of, (group.row, group.key, group.column))
        self.depth = sizes.product(map(extent_of, group.depth))
        self.over_keys = Panels(self.keys, block_sizes.vectors, lanes)
        self.over_width = Panels(self.width, block_sizes.vectors, lanes)
        self.padded = self.over_keys.padded
        #: A row of queries, and of keys before they are transposed.
        self.line = integer.ceildiv(self.depth, lanes) * lanes
        self.counts = counts or tile_rows(self.rows, self.block_rows) or (1,)
        few = isinstance(self.rows, int) and self.rows < _ROWS
        many = integer.is_nonnegative(self.rows - _ROWS)
        #: Whether values may be packed, and whether they may be left where they are.
        self.packs, self.leaves = not few, not many
        #: Whether keys are read where they are if there are a few rows.
        self.walks_keys = self.leaves and block_sizes.transpose_stores

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        g = self.group
        bodies = [g.query, g.keys, g.scores, g.values, g.epilogue]
        touched = [g.root.buffer]
        dims: list[Dim] = [*g.at, g.row, g.column, g.key, *g.batch, *g.depth]
        for body in bodies:
            touched += [x.buffer for x in loads_of(body) if x not in (g.score, g.result)]
            dims += list(dims_of(body))
        for tensor in touched:
            dims += self.strides[tensor]
        parameters = KernelParameters(touched, dims)
        self.b = b = Builder(self.name, parameters.types(), kind="kernel")
        places = parameters.places(b, self.strides)
        self.outside = Expression(b, parameters.atoms(b), places.__getitem__)
        per_batch = integer.ceildiv(self.rows, self.block_rows)
        self._write(per_batch)
        batches = sizes.product(map(extent_of, g.batch))
        pairs = batches * self.rows * self.keys
        steps = self.depth + self.width + (16 + cost_of(g.scores))
        b.program.as_written = not self.leaves  # its time goes by in what it calls
        return Kernel(
            b.program,
            parameters.arguments,
            batches * per_batch,
            integer.ceildiv(pairs * steps, 3 * self.lanes),
            self.scratch_bytes,
            self._functions(),
            per_block=(("queries", self.block_rows), ("keys at once", self.panel)),
        )

    def _functions(self) -> tuple[Program, ...]:
        """What the kernel calls."""
        panels = self.over_keys.sizes() | (self.over_width.sizes() if self.packs else set())
        found = [
            build_micro(F32, rows, vectors, self.lanes, apart=True)
            for rows in self.counts
            for vectors in sorted(panels)
        ]
        found.append(build_softmax(_SIDE_BY_SIDE, self.lanes))
        if self.packs and self._may_be_long():
            found += [
                build_long_sum(F32, vectors, self.lanes, apart=True)
                for vectors in sorted(self.over_width.sizes())
            ]
        return (*found, build_transpose(F32, self.lanes)) if self.transpose_stores else tuple(found)

    def _divide_scratch(self) -> None:
        """What is packed (see `_write`), keys, values, and what a tile of rows needs.

        That is scores, its result, its queries, lines to transpose, two tables.
        """
        b = self.b
        beyond = self.lanes if self.transpose_stores else 0
        parts = {
            "kept": 8 if self.transpose_stores else 0,
            # Squares that are transposed reach beyond the last line of keys.
            "keys": (self.padded * self.depth + self.lanes * self.panel) * 4,
            "values": self.keys * self.over_width.padded * 4
            if self.packs else 0,
            "scores": self.padded * (_ROWS * 4),
            "tile": self.panel * _ROWS * 4,
            "queries": self.line * (_ROWS * 4),
            "lines": self.line * (beyond * 4),
            "table of queries": _ROWS * 8,
            "table of scores": _ROWS * 8,
            "wide": self.panel * _ROWS * 8,
            "part": self.panel * _ROWS * 4,
            "starts": _ROWS * 8,
        }  # fmt: skip
        self.scratch: dict[str, Operand] = {}
        offset: Dim = 0
        for name, wanted in parts.items():
            self.scratch[name] = b.offset(b.context("scratch"), self.outside.dim(offset))
            offset = offset + integer.ceildiv(wanted, _ALIGN) * _ALIGN
        self.scratch_bytes = offset

    # -- structure ----------------------------------------------------------------------------

    def _write(self, per_batch: Dim) -> None:
        b, dim, g = self.b, self.outside.dim, self.group
        self.n_keys, self.n_depth = dim(self.keys), dim(self.depth)
        self.n_padded, self.n_rows, self.n_width = dim(self.padded), dim(self.rows), dim(self.width)
        self.n_line = dim(self.line)
        self.full_depth = dim(integer.floordiv(self.depth, self.lanes) * self.lanes)
        self.whole_keys, self.whole_width = dim(self.over_keys.whole), dim(self.over_width.whole)
        self.full_lanes = dim(integer.floordiv(self.keys, self.lanes) * self.lanes)
        self._divide_scratch()
        with b.for_(0, _ROWS) as r:
            for kind, step in (("queries", self.n_line), ("scores", self.n_padded)):
                line = b.offset(self.scratch[kind], r * step, F32)
                b.store(line, self.scratch[f"table of {kind}"], r)
        # A thread gets the blocks of one batch in several calls: `native.walk.forget_kept`.
        # Threads of a device have no scratch from one call to the next.
        kept = self.scratch["kept"]
        before = b.load(I64, kept) if self.transpose_stores else b.constant(I64, -1)
        packed = b.variable(before, name="packed")
        many = b.lift(True, I1) if not self.leaves else self.n_rows >= _ROWS
        blocks = dim(per_batch)
        extents = {v: dim(extent_of(v)) for v in g.batch}
        with b.parallel() as block:
            batch, part = block // blocks, block % blocks
            level = self.outside.child(unflattened(b, batch, g.batch, extents))
            mark = batch + 1 if self.transpose_stores else batch
            with b.if_(b.ne(packed.get(), mark)):
                if not self.walks_keys:
                    self._pack_keys(level)
                if self.packs:
                    with b.if_(many):
                        if self.walks_keys:
                            self._pack_keys(level)
                        self._pack_values(level)
                packed.set(mark)
                if self.transpose_stores:
                    b.store(mark, kept)
            low = part * self.block_rows
            high = b.min(low + self.block_rows, self.n_rows)
            row = b.variable(low, name="row")
            with b.while_(lambda: row.get() < high):
                first = row.get()
                count = self._rows_of_tile(high - first)
                self._tile(level, first, count, many)
                row.set(first + count)

    def _rows_of_tile(self, rest: Operand) -> Operand:
        """How many of the `rest` rows the next tile has."""
        return rows_of_next_tile(self.b, rest, self.counts)

    def _at_row(self, level: Expression, row: Operand) -> Expression:
        atom = sizes.as_atom(self.group.row)
        return level.child({} if atom is None else {atom: row})

    # -- one tile of rows ---------------------------------------------------------------------

    def _tile(self, level: Expression, first: Operand, count: Operand, many: Operand) -> None:
        b = self.b
        queries = self.scratch["queries"]
        with b.for_(0, count) as r:
            line = b.offset(queries, r * self.n_line, F32)
            self._copy_line(self._at_row(level, first + r), self.group.query, line)
        if not self.walks_keys:
            self._score(count)
        elif self.packs:
            with b.if_(many):
                self._score(count)
            with b.else_():
                self._score_in_place(level, count)
        else:
            self._score_in_place(level, count)
        totals = b.local(F32, _ROWS)
        self._softmax(level, first, count, totals)
        if not self.leaves:
            self._weigh(level, first, count, totals)
            return
        if not self.packs:
            self._weigh_in_place(level, first, count, totals)
            return
        with b.if_(many):
            self._weigh(level, first, count, totals)
        with b.else_():
            self._weigh_in_place(level, first, count, totals)

    def _score(self, count: Operand) -> None:
        """scores[row][t] = sum over d of queries[row][d] * keys[t][d]."""
        b = self.b
        for start, vectors in self.over_keys.loop(b, self.whole_keys):
            panel = b.offset(self.scratch["keys"], start * self.n_depth, F32)
            target = b.offset(self.scratch["scores"], start, F32)
            queries = self.scratch["table of queries"]
            products = RowProducts(queries, count, 1, self.n_depth, panel, target)
            self._multiply(products, vectors, self.n_padded)

    def _score_in_place(self, level: Expression, count: Operand) -> None:
        """The same with keys where they are: as many at a time as there are lanes."""
        b, lanes = self.b, self.lanes
        along = self._keys_lie_along_depth()
        with b.for_(0, count) as r:
            line = b.offset(self.scratch["queries"], r * self.n_line, F32)
            scores = b.offset(self.scratch["scores"], r * self.n_padded, F32)
            if not along:
                self._times_columns_of_keys(level, line, scores)
                return
            with b.for_(0, self.full_lanes, lanes) as t:
                products = self._times_keys(level, line, [t + k for k in range(lanes)])
                b.store(sums_of(b, products), scores, t)
            with b.for_(self.full_lanes, self.n_keys) as t:
                (product,) = self._times_keys(level, line, [t])
                b.store(b.reduce("reduce_add", product), scores, t)

    def _multiply(self, p: RowProducts, vectors: int, step: Operand) -> None:
        """Rows of queries, or of scores, times a panel; rows of sums are `step` elements apart."""
        b = self.b
        run = b.constant(I64, PART)
        operands = [p.table, b.lift(p.taps, I64), p.depth, p.panel, p.target, run, step]
        names = {n: micro_name(F32, n, vectors, self.lanes, apart=True) for n in self.counts}
        call_by_rows(b, p.count, names, operands)

    def _may_be_long(self) -> bool:
        """Whether there may be so many keys that weighed values are added up in float64.

        Not on a device.
        """
        return self.transpose_stores and (not isinstance(self.keys, int) or self.keys > LONG)

    def _weigh_long(
        self, count: Operand, vectors: int, panel: Operand, target: Operand, step: Operand
    ) -> None:
        """Rows of very many scores times a panel of values."""
        b = self.b
        *others, least = (
            (c, micro_name(F32, c, vectors, self.lanes, apart=True)) for c in self.counts
        )
        micro: Operand = b.address_of(least[1])
        for known, name in reversed(others):
            micro = b.select(b.eq(count, known), b.address_of(name), micro)
        one = b.constant(I64, 1)
        operands = [micro, count, self.scratch["table of scores"], one, self.n_keys, panel, target]
        operands += [self.scratch[name] for name in ("wide", "part", "starts")]
        name = long_sum_name(F32, vectors, self.lanes, apart=True)
        b.call(name, [*operands, one, one, step])

    def _softmax(self, level: Expression, first: Operand, count: Operand, totals: Operand) -> None:
        """Turn rows of scores into exp(score - largest), and say what they are divided by.

        Powers are those of two: `exp(x) = 2^(x / ln 2)`. Scores that are products times a number
        stay as they are until then.
        """
        b, g = self.b, self.group
        self._complete_scores(level, first, count)
        factor = _LOG2_OF_E * (_factor(g) or 1.0)

        with b.for_(0, count, _SIDE_BY_SIDE) as r:
            line = b.offset(self.scratch["scores"], self.n_padded * r, F32)
            operands = [
                line, self.n_padded, self.n_padded, b.value(F32, factor),
                b.constant(I64, int(g.guarded)), b.offset(totals, r, F32),
            ]  # fmt: skip
            b.call(softmax_name(_SIDE_BY_SIDE, self.lanes), operands)

    def _complete_scores(self, level: Expression, first: Operand, count: Operand) -> None:
        """What goes into the softmax in place of sums: minus infinity beyond the last key."""
        b, g, lanes = self.b, self.group, self.lanes
        atom, plain = sizes.variable(g.key), _factor(g) is not None
        if plain and isinstance(self.keys, int) and self.keys % lanes == 0:
            return

        def complete(row: Expression, line: Operand, t: Operand, inside: Operand | None) -> None:
            value: Operand = b.load(self.vector, line, t)
            if not plain:
                sums = b.convert(value, value_type(g.score.dtype))
                here = row.child(
                    {atom: t}, values={g.score: sums}, vector=atom, lanes=lanes, mask=inside
                )
                value = b.lift(b.convert(here.scalar(g.scores), F32), self.vector)
            if inside is not None:
                value = b.select(inside, value, float("-inf"))
            b.store(value, line, t)

        with b.for_(0, count) as r:
            row = self._at_row(level, first + r)
            line = b.offset(self.scratch["scores"], self.n_padded * r, F32)
            row.hoist([g.scores], frozenset((atom,)), frozenset((g.score,)))
            if not plain:
                with b.for_(0, self.full_lanes, lanes) as t:
                    complete(row, line, t, None)
            with b.for_(self.full_lanes, self.n_padded, lanes) as t:
                complete(row, line, t, b.tail_mask(self.n_keys - t, lanes))

    def _weigh(self, level: Expression, first: Operand, count: Operand, totals: Operand) -> None:
        """output[row, :] = sum over t of scores[row][t] * values[t, :] / total."""
        b = self.b
        step = b.constant(I64, self.panel)
        for start, vectors in self.over_width.loop(b, self.whole_width):
            panel = b.offset(self.scratch["values"], start * self.n_keys, F32)
            tile = self.scratch["tile"]
            scores = self.scratch["table of scores"]
            products = RowProducts(scores, count, 1, self.n_keys, panel, tile)
            if isinstance(self.keys, int) and self._may_be_long():
                self._weigh_long(count, vectors, panel, tile, step)
            elif self._may_be_long():
                with b.if_(self.n_keys > LONG):
                    self._weigh_long(count, vectors, panel, tile, step)
                with b.else_():
                    self._multiply(products, vectors, step)
            else:
                self._multiply(products, vectors, step)
            self._finish(level, first, count, totals, start)

    def _weigh_in_place(
        self, level: Expression, first: Operand, count: Operand, totals: Operand
    ) -> None:
        """The same with values where they are, in runs whose sums are added up in float64."""
        b, lanes = self.b, self.lanes
        run = b.select(self.n_keys > LONG, b.constant(I64, LONG_RUN), PART)
        sums = count * self.panel
        wide, tile = self.scratch["wide"], self.scratch["tile"]
        double = F64.with_lanes(lanes)
        with b.for_(0, self.n_width, self.panel) as start:
            masked = not self._whole_width(self.panel)
            here = self._columns(level, start, self.vectors, masked=masked)
            with b.for_(0, sums, lanes) as k:
                b.store(b.splat(b.constant(F64, 0.0), lanes), wide, k)
            with b.for_(0, self.n_keys, run) as low:
                self._weigh_run(here, count, low, b.min(low + run, self.n_keys))
                with b.for_(0, sums, lanes) as k:
                    more = b.convert(b.load(self.vector, tile, k), F64)
                    b.store(b.load(double, wide, k) + more, wide, k)
            with b.for_(0, sums, lanes) as k:
                b.store(b.convert(b.load(double, wide, k), F32), tile, k)
            self._finish(level, first, count, totals, start)

    def _weigh_run(
        self, here: list[Expression], count: Operand, low: Operand, high: Operand
    ) -> None:
        """Scores times values of the keys from `low` to `high`, into the tile."""
        b = self.b
        for known in (c for c in self.counts if c < _ROWS):
            with b.if_(b.eq(count, known)):
                tile = [
                    [b.variable(0.0, self.vector) for _ in range(self.vectors)]
                    for _ in range(known)
                ]
                with b.for_(low, high) as t:
                    columns = self._line_of_values(here, t)
                    for r in range(known):
                        at = self.n_padded * r + t
                        factor = b.load(F32, self.scratch["scores"], at)
                        _accumulate(b, tile[r], factor, columns)
                for r in range(known):
                    for v in range(self.vectors):
                        place = (r * self.vectors + v) * self.lanes
                        b.store(tile[r][v].get(), self.scratch["tile"], place)

    def _finish(
        self, level: Expression, first: Operand, count: Operand, totals: Operand, start: Operand
    ) -> None:
        """Divide, do the epilogue and store, vector by vector."""
        b, g, lanes = self.b, self.group, self.lanes
        column = sizes.variable(g.column)
        whole = isinstance(self.width, int) and self.width % self.panel == 0
        with b.for_(0, count) as r:
            row = self._at_row(level, first + r)
            row.hoist([g.epilogue], frozenset((column,)), frozenset((g.result,)), frozenset())
            total = b.splat(b.load(F32, totals, r), lanes)
            line = b.offset(self.scratch["tile"], r * self.panel, F32)
            with b.for_(0, self.panel, lanes) as j:
                at = start + j
                left = self.n_width - at
                with b.if_(left > 0):
                    mask = None if whole else b.tail_mask(left, lanes)
                    quotient = b.load(self.vector, line, j) / total
                    value = b.convert(quotient, value_type(g.result.dtype))
                    here = row.child(
                        {column: at},
                        values={g.result: value},
                        vector=column,
                        lanes=lanes,
                        mask=mask,
                    )
                    here.store(g.root.buffer, g.at, here.scalar(g.epilogue))


def _accumulate(b: Builder, row: list[Register], factor: Operand, columns: list[Operand]) -> None:
    for register, column in zip(row, columns, strict=True):
        register.set(b.fma(b.splat(factor, column.type.lanes), column, register.get()))


def _factor(group: Attention) -> float | None:
    """The positive number that scores are products times; None if they are something else."""
    score, scores = group.score, group.scores
    if score.dtype is not dtypes.FLOAT:
        return None
    if scores is score:
        return 1.0
    if scores.op == "mul" and score in scores.arguments:
        (other,) = [x for x in scores.arguments if x is not score] or [score]
        number = other.payload if other.op == "constant" else None
        if isinstance(number, float) and 0 < number < math.inf:
            return number
    return None
