"""Scaled dot-product attention that never writes its scores to memory.

    scores[s, t] = scale * sum_d query[s, d] * key[t, d] + mask[s, t]
    output[s, :] = sum_t softmax(scores)[s, t] * value[t, :]

(Vaswani et al. 2017, equation 1.) A block is one head and up to 96 query rows. The head's keys are
transposed once into scratch, in panels of four vectors; a tile of six rows then keeps its scores
in scratch that fits the first-level cache, so the whole softmax is exact and done in place.
"""

from __future__ import annotations

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.builder import Builder, Register
from sardonyx.kernel.compiled import Kernel, Parameters
from sardonyx.kernel.expression import Expression
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.special.task import SpecialTask, View, special
from sardonyx.kernel.types import F32, I64, memory_type

_ROWS = 6
_BLOCK_ROWS = 96


@special("attention")
def build_attention(task: SpecialTask, symbol: str) -> Kernel:
    """query (..., S, D), key (..., T, D), value (..., T, E), mask (..., S, T)? -> (..., S, E)."""
    return _Attention(task, symbol).build()


class _Attention:
    def __init__(self, task: SpecialTask, symbol: str) -> None:
        self.task, self.symbol = task, symbol
        self.query, self.key, self.value = task.operands[:3]
        self.mask = task.operands[3] if len(task.operands) > 3 else None
        output = task.outputs[0]
        assert output is not None  # noqa: S101 - an attention without result is never planned
        self.output = output
        self.lanes = task.lanes
        self.vectors = 4 if task.lanes >= 16 else 2
        self.panel = self.lanes * self.vectors
        self.batch = output.shape[:-2]
        self.rows, self.width = output.shape[-2:]
        self.keys, self.depth = self.key.shape[-2:]
        self.padded = sizes.multiply(sizes.ceildiv(self.keys, self.panel), self.panel)
        self.scale = float(task.attribute("scale", 1.0))  # type: ignore[arg-type]

    def build(self) -> Kernel:
        views = [v for v in (self.query, self.key, self.value, self.mask, self.output) if v]
        dims: list[Dim] = [self.padded]
        for view in views:
            dims += [*view.shape, *view.strides, view.offset]
        parameters = Parameters([v.buffer for v in views], dims)
        self.b = b = Builder(self.symbol, parameters.types(), kind="kernel")
        pointers = {buf: b.parameter(f"p{k}") for k, buf in enumerate(parameters.buffers)}
        self.out = Expression(b, parameters.atoms(b), lambda t: _no_place())
        self.base = {
            v: b.offset(pointers[v.buffer], self.out.dim(v.offset), memory_type(v.dtype))
            for v in views
        }
        per_head = sizes.ceildiv(self.rows, _BLOCK_ROWS)
        self._write(per_head)
        heads = sizes.product(self.batch)
        work = sizes.multiply(sizes.multiply(heads, self.rows), self.keys)
        return Kernel(
            b.program,
            parameters.arguments,
            sizes.multiply(heads, per_head),
            sizes.ceildiv(sizes.multiply(work, sizes.add(self.depth, self.width)), 40),
            self._scratch_bytes(),
        )

    def _scratch_bytes(self) -> Dim:
        floats = sizes.multiply(self.padded, sizes.add(self.depth, _ROWS))
        floats = sizes.add(floats, sizes.multiply(self.depth, _ROWS))
        return sizes.add(sizes.multiply(floats, 4), 256)

    # -- structure ----------------------------------------------------------------------------

    def _write(self, per_head: Dim) -> None:
        b, dim = self.b, self.out.dim
        self.n_keys, self.n_depth = dim(self.keys), dim(self.depth)
        self.n_padded, self.n_rows = dim(self.padded), dim(self.rows)
        scratch = b.context("scratch")
        self.keys_at = scratch
        self.scores_at = b.offset(
            scratch, b.lift(dim(sizes.multiply(self.padded, self.depth)), I64), F32
        )
        self.query_at = b.offset(
            self.scores_at, b.lift(dim(sizes.multiply(self.padded, _ROWS)), I64), F32
        )
        packed = b.variable(Constant(I64, -1), name="packed_head")
        blocks_per_head = dim(per_head)
        extents = [dim(d) for d in self.batch]
        with b.parallel() as block:
            head = b.binary("div", block, blocks_per_head)
            part = b.binary("rem", block, blocks_per_head)
            at = self._head_offsets(head, extents)
            with b.if_(b.compare("ne", packed.get(), head)):
                self._pack_keys(at[self.key])
                packed.set(head)
            low = b.binary("mul", part, _BLOCK_ROWS)
            high = b.min(b.binary("add", low, _BLOCK_ROWS), self.n_rows)
            row = b.variable(low, name="row")
            with b.while_(lambda: b.compare("lt", row.get(), high)):
                first = row.get()
                rest = b.binary("sub", high, first)
                with b.if_(b.compare("eq", rest, 1)):
                    self._tile(at, first, 1)
                    row.set(b.binary("add", first, 1))
                with b.else_():
                    self._tile(at, first, _ROWS)
                    row.set(b.binary("add", first, _ROWS))

    def _head_offsets(self, head: Operand, extents: list[Operand]) -> dict[View, Operand]:
        """Pointers to each operand's matrix for this head."""
        b = self.b
        rest = head
        coordinates: list[Operand] = []
        for k in reversed(range(len(extents))):
            coordinates.insert(0, rest if k == 0 else b.binary("rem", rest, extents[k]))
            if k:
                rest = b.binary("div", rest, extents[k])
        found = {}
        for view, base in self.base.items():
            offset: Operand = Constant(I64, 0)
            lead = view.strides[:-2]
            for stride, coordinate in zip(
                lead, coordinates[len(coordinates) - len(lead) :], strict=True
            ):
                if stride != 0:
                    step = b.binary("mul", coordinate, b.lift(self.out.dim(stride), I64))
                    offset = b.binary("add", step, offset)
            found[view] = b.offset(base, offset, memory_type(view.dtype))
        return found

    def _load(
        self,
        view: View,
        pointer: Operand,
        index: Operand,
        mask: Operand | None = None,
        lanes: int = 1,
    ) -> Operand:
        kind = memory_type(view.dtype).with_lanes(lanes)
        loaded = self.b.load(kind, pointer, index, mask=mask)
        return self.b.convert(loaded, F32)

    # -- keys, transposed ---------------------------------------------------------------------

    def _pack_keys(self, pointer: Operand) -> None:
        """keys_at[panel][d][lane] = key[panel * width + lane, d], zero beyond the last key."""
        b, lanes = self.b, self.lanes
        step_t, step_d = (b.lift(self.out.dim(s), I64) for s in self.key.strides[-2:])
        with b.for_(0, self.n_padded, self.panel) as first:
            panel = b.offset(self.keys_at, b.binary("mul", first, self.n_depth), F32)
            for v in range(self.vectors):
                start = b.binary("add", first, v * lanes)
                inside = b.tail_mask(b.binary("sub", self.n_keys, start), lanes)
                rows = b.lane_indices(b.binary("mul", start, step_t), step_t, lanes)
                with b.for_(0, self.n_depth) as d:
                    at = b.binary("add", rows, b.binary("mul", d, step_d))
                    values = self._load(self.key, pointer, at, inside, lanes)
                    to = b.binary("add", b.binary("mul", d, self.panel), v * lanes)
                    b.store(values, panel, to)

    # -- one tile of rows ---------------------------------------------------------------------

    def _tile(self, at: dict[View, Operand], first: Operand, rows: int) -> None:
        b = self.b
        last = b.binary("sub", self.n_rows, 1)
        numbers = [b.min(b.binary("add", first, r), last) for r in range(rows)]
        self._copy_queries(at[self.query], numbers)
        self._scores(at, numbers)
        sums = [self._softmax(r) for r in range(rows)]
        self._weigh(at, first, numbers, sums)

    def _copy_queries(self, pointer: Operand, numbers: list[Operand]) -> None:
        """query_at[d][row] = scale * query[row, d]."""
        b = self.b
        step_s, step_d = (b.lift(self.out.dim(s), I64) for s in self.query.strides[-2:])
        starts = [
            b.offset(pointer, b.binary("mul", n, step_s), memory_type(self.query.dtype))
            for n in numbers
        ]
        with b.for_(0, self.n_depth) as d:
            at = b.binary("mul", d, step_d)
            for r, start in enumerate(starts):
                value = b.binary("mul", self._load(self.query, start, at), self.scale)
                b.store(value, self.query_at, b.binary("add", b.binary("mul", d, len(starts)), r))

    def _scores(self, at: dict[View, Operand], numbers: list[Operand]) -> None:
        """scores_at[row][t] = query . key + mask, minus infinity beyond the last key."""
        b, lanes, rows = self.b, self.lanes, len(numbers)
        vector = F32.with_lanes(lanes)
        with b.for_(0, self.n_padded, self.panel) as first:
            panel = b.offset(self.keys_at, b.binary("mul", first, self.n_depth), F32)
            tile = [[b.variable(0.0, vector) for _ in range(self.vectors)] for _ in range(rows)]
            with b.for_(0, self.n_depth) as d:
                line = b.offset(panel, b.binary("mul", d, self.panel), F32)
                columns = [b.load(vector, line, v * lanes) for v in range(self.vectors)]
                queries = b.offset(self.query_at, b.binary("mul", d, rows), F32)
                for r in range(rows):
                    _accumulate(b, tile[r], b.load(F32, queries, r), columns)
            for v in range(self.vectors):
                start = b.binary("add", first, v * lanes)
                inside = b.tail_mask(b.binary("sub", self.n_keys, start), lanes)
                for r in range(rows):
                    value: Operand = tile[r][v].get()
                    if self.mask is not None:
                        value = self._masked(value, at[self.mask], numbers[r], start, inside)
                    value = b.select(inside, value, float("-inf"))
                    to = b.binary("add", b.binary("mul", self.n_padded, r), start)
                    b.store(value, self.scores_at, to)

    def _masked(
        self, value: Operand, pointer: Operand, row: Operand, start: Operand, inside: Operand
    ) -> Operand:
        b, view = self.b, self.mask
        assert view is not None  # noqa: S101 - the caller asked
        step_s, step_t = view.strides[-2:]
        line = b.offset(
            pointer,
            b.binary("mul", row, b.lift(self.out.dim(step_s), I64)),
            memory_type(view.dtype),
        )
        kind = memory_type(view.dtype).with_lanes(self.lanes)
        if step_t == 1:
            loaded: Operand = b.load(kind, line, start, mask=inside)
        elif step_t == 0:
            loaded = b.splat(b.load(kind.element, line, 0), self.lanes)
        else:
            step = b.lift(self.out.dim(step_t), I64)
            at = b.lane_indices(b.binary("mul", start, step), step, self.lanes)
            loaded = b.load(kind, line, at, mask=inside)
        if view.dtype is dtypes.BOOL:
            return b.select(b.compare("ne", loaded, 0), value, float("-inf"))
        return b.binary("add", value, b.convert(loaded, F32))

    def _softmax(self, row: int) -> Operand:
        """Turn a row of scores into exp(score - largest); the sum of them is returned."""
        b, lanes = self.b, self.lanes
        vector = F32.with_lanes(lanes)
        line = b.offset(self.scores_at, b.binary("mul", self.n_padded, row), F32)
        best = b.variable(float("-inf"), vector)
        with b.for_(0, self.n_padded, lanes) as t:
            best.set(b.max(best.get(), b.load(vector, line, t)))
        largest = b.splat(b.reduce("reduce_max", best.get()), lanes)
        total = b.variable(0.0, vector)
        with b.for_(0, self.n_padded, lanes) as t:
            value = b.unary("exp", b.binary("sub", b.load(vector, line, t), largest))
            b.store(value, line, t)
            total.set(b.binary("add", total.get(), value))
        return b.reduce("reduce_add", total.get())

    def _weigh(
        self, at: dict[View, Operand], first: Operand, numbers: list[Operand], sums: list[Operand]
    ) -> None:
        """output[row, :] = sum over t of scores_at[row][t] * value[t, :] / sum."""
        b, lanes, rows = self.b, self.lanes, len(numbers)
        vector = F32.with_lanes(lanes)
        width = self.out.dim(self.width)
        step_t, step_e = (b.lift(self.out.dim(s), I64) for s in self.value.strides[-2:])
        with b.for_(0, width, self.panel) as column:
            count = b.binary("sub", width, column)
            whole = isinstance(self.width, int) and self.width % self.panel == 0
            masks = [
                None if whole else b.tail_mask(b.binary("sub", count, v * lanes), lanes)
                for v in range(self.vectors)
            ]
            tile = [[b.variable(0.0, vector) for _ in range(self.vectors)] for _ in range(rows)]
            start = b.offset(
                at[self.value], b.binary("mul", column, step_e), memory_type(self.value.dtype)
            )
            with b.for_(0, self.n_keys) as t:
                line = b.offset(start, b.binary("mul", t, step_t), memory_type(self.value.dtype))
                columns = [self._values(line, v, masks[v]) for v in range(self.vectors)]
                for r in range(rows):
                    to = b.binary("add", b.binary("mul", self.n_padded, r), t)
                    _accumulate(b, tile[r], b.load(F32, self.scores_at, to), columns)
            for r in range(rows):
                with b.if_(b.compare("lt", b.binary("add", first, r), self.n_rows)):
                    self._store_row(at[self.output], numbers[r], column, tile[r], sums[r], masks)

    def _values(self, line: Operand, number: int, mask: Operand | None) -> Operand:
        if self.value.strides[-1] == 1:
            return self._load(
                self.value, line, Constant(I64, number * self.lanes), mask, self.lanes
            )
        step = self.b.lift(self.out.dim(self.value.strides[-1]), I64)
        start = (
            self.b.binary("mul", step, number * self.lanes)
            if not isinstance(step, Constant)
            else (Constant(I64, int(step.value) * number * self.lanes))
        )
        at = self.b.lane_indices(start, step, self.lanes)
        return self._load(self.value, line, at, mask, self.lanes)

    def _store_row(
        self,
        pointer: Operand,
        row: Operand,
        column: Operand,
        tile: list[Register],
        total: Operand,
        masks: list[Operand | None],
    ) -> None:
        b, view = self.b, self.output
        kind = memory_type(view.dtype)
        step_s, step_e = (b.lift(self.out.dim(s), I64) for s in view.strides[-2:])
        line = b.offset(pointer, b.binary("mul", row, step_s), kind)
        for v in range(self.vectors):
            value = b.convert(b.binary("div", tile[v].get(), b.splat(total, self.lanes)), kind)
            start = b.binary("add", column, v * self.lanes)
            if view.strides[-1] == 1:
                b.store(value, line, start, mask=masks[v])
            else:
                at = b.lane_indices(b.binary("mul", start, step_e), step_e, self.lanes)
                b.store(value, line, at, mask=masks[v])


def _accumulate(b: Builder, row: list[Register], factor: Operand, columns: list[Operand]) -> None:
    for register, column in zip(row, columns, strict=True):
        wide = b.splat(factor, column.type.lanes)
        register.set(b.fma(wide, column, register.get()))


def _no_place() -> None:  # pragma: no cover - attention reads views only
    raise NotImplementedError("attention reads views only")
