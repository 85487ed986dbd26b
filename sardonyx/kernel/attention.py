"""An `Attention` group as a kernel that never writes its scores to memory.

A block is one set of batch variables and up to 96 query rows. The keys of the batch are transposed
once into scratch, in panels of a few vectors; a tile of six rows then keeps its scores in scratch
that fits the first-level cache, so the softmax is exact and done in place.
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.builder import Builder, Register
from sardonyx.kernel.compiled import Kernel, Parameters
from sardonyx.kernel.expression import Expression
from sardonyx.kernel.grain import Grain
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.representation import value_type
from sardonyx.kernel.types import F32, I64
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.groups import Attention
from sardonyx.plan.inline import cost_of
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

_ROWS = 6


class AttentionKernel:
    """Builds the kernel of one attention.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        lanes: 32-bit lanes of a vector register.
        grain: How much a block does.
        name: Symbol name.
    """

    def __init__(
        self,
        group: Attention,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        grain: Grain,
        name: str,
    ) -> None:
        self.group, self.name, self.lanes = group, name, lanes
        self.vectors, self.block_rows = grain.vectors, grain.rows
        self.strides = strides
        self.vector = F32.with_lanes(lanes)
        self.panel = lanes * grain.vectors
        self.rows, self.keys, self.width = map(extent_of, (group.row, group.key, group.column))
        self.depth = sizes.product(map(extent_of, group.depth))
        self.padded = sizes.multiply(integer.ceildiv(self.keys, self.panel), self.panel)

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        g = self.group
        bodies = [g.query, g.keys, g.scores, g.values, g.epilogue]
        touched: list[Tensor] = [g.root.buffer]
        dims: list[Dim] = [*g.at, g.row, g.column, g.key, *g.batch, *g.depth]
        for body in bodies:
            touched += [x.tensor for x in loads_of(body) if x not in (g.score, g.result)]
            dims += list(dims_of(body))
        for tensor in touched:
            dims += self.strides[tensor]
        parameters = Parameters(touched, dims)
        self.b = b = Builder(self.name, parameters.types(), kind="kernel")
        places = parameters.places(b, self.strides)
        self.outside = Expression(b, parameters.atoms(b), places.__getitem__)
        per_batch = integer.ceildiv(self.rows, self.block_rows)
        self._write(per_batch)
        batches = sizes.product(map(extent_of, g.batch))
        pairs = sizes.multiply(sizes.multiply(batches, self.rows), self.keys)
        steps = sizes.add(sizes.add(self.depth, self.width), 16 + cost_of(g.scores))
        return Kernel(
            b.program,
            parameters.arguments,
            sizes.multiply(batches, per_batch),
            integer.ceildiv(sizes.multiply(pairs, steps), 3 * self.lanes),
            self._scratch_bytes(),
        )

    def _scratch_bytes(self) -> Dim:
        """Keys, scores of a tile, its result, its queries; floats."""
        floats = sizes.multiply(self.padded, sizes.add(self.depth, _ROWS))
        floats = sizes.add(floats, sizes.multiply(sizes.add(self.depth, self.panel), _ROWS))
        return sizes.add(sizes.multiply(floats, 4), 256)

    # -- structure ----------------------------------------------------------------------------

    def _write(self, per_batch: Dim) -> None:
        b, dim, g = self.b, self.outside.dim, self.group
        self.n_keys, self.n_depth = dim(self.keys), dim(self.depth)
        self.n_padded, self.n_rows, self.n_width = dim(self.padded), dim(self.rows), dim(self.width)
        self.keys_at = b.context("scratch")
        after_keys = dim(sizes.multiply(self.padded, self.depth))
        self.scores_at = b.offset(self.keys_at, after_keys, F32)
        self.tile_at = b.offset(self.scores_at, dim(sizes.multiply(self.padded, _ROWS)), F32)
        self.query_at = b.offset(self.tile_at, self.panel * _ROWS, F32)
        packed = b.variable(Constant(I64, -1), name="packed")
        blocks = dim(per_batch)
        extents = {v: dim(extent_of(v)) for v in g.batch}
        with b.parallel() as block:
            batch, part = b.binary("div", block, blocks), b.binary("rem", block, blocks)
            axes = self.group.batch
            found = b.coordinates(batch, [extents[axis] for axis in axes])
            level = self.outside.child(dict(zip(map(sizes.variable, axes), found, strict=True)))
            with b.if_(b.compare("ne", packed.get(), batch)):
                self._pack_keys(level)
                packed.set(batch)
            low = b.binary("mul", part, self.block_rows)
            high = b.min(b.binary("add", low, self.block_rows), self.n_rows)
            row = b.variable(low, name="row")
            for count in (_ROWS, 2, 1):
                with b.while_(lambda c=count: b.compare("ge", b.binary("sub", high, row.get()), c)):  # type: ignore[misc]  # a default binds the loop's variable
                    self._tile(level, row.get(), count)
                    row.set(b.binary("add", row.get(), count))

    def _over_depth(self, level: Expression, bodies: list[Scalar]):  # type: ignore[no-untyped-def]  # a generator of nested contexts
        """Loops over the depth variables; gives the emitter inside and the flat number."""
        b = self.b
        number = b.variable(0, I64, name="d")

        def nest(inner: Expression, rest: tuple[Dim, ...]):  # type: ignore[no-untyped-def]  # a generator of nested contexts
            if not rest:
                yield inner, number.get()
                number.set(b.binary("add", number.get(), 1))
                return
            inner.hoist(bodies, frozenset(map(sizes.variable, rest)))
            with b.for_(0, inner.dim(extent_of(rest[0]))) as i:
                child = inner.child(
                    {sizes.variable(rest[0]): i},
                    vector=inner.vector, lanes=inner.lanes, mask=inner.mask,
                )  # fmt: skip
                yield from nest(child, rest[1:])

        yield from nest(level, self.group.depth)

    # -- keys, transposed ---------------------------------------------------------------------

    def _pack_keys(self, level: Expression) -> None:
        """keys_at[panel][d][lane] = keys(panel * width + lane, d), zero beyond the last key."""
        b, lanes, atom = self.b, self.lanes, sizes.variable(self.group.key)
        with b.for_(0, self.n_padded, self.panel) as first:
            panel = b.offset(self.keys_at, b.binary("mul", first, self.n_depth), F32)
            for v in range(self.vectors):
                start = b.binary("add", first, v * lanes)
                inside = b.tail_mask(b.binary("sub", self.n_keys, start), lanes)
                here = level.child({atom: start}, vector=atom, lanes=lanes, mask=inside)
                for element, d in self._over_depth(here, [self.group.keys]):
                    value = b.lift(element.scalar(self.group.keys), self.vector)
                    at = b.binary("add", b.binary("mul", d, self.panel), v * lanes)
                    b.store(value, panel, at)

    # -- one tile of rows ---------------------------------------------------------------------

    def _tile(self, level: Expression, first: Operand, count: int) -> None:
        b, atom = self.b, sizes.variable(self.group.row)
        for number in range(count):
            row = level.child({atom: b.binary("add", first, number)})
            for element, d in self._over_depth(row, [self.group.query]):
                at = b.binary("add", b.binary("mul", d, count), number)
                b.store(element.scalar(self.group.query), self.query_at, at)
        self._scores(count)
        totals = b.local(F32, _ROWS)
        with b.for_(0, count) as r:
            row = level.child({atom: b.binary("add", first, r)})
            b.store(self._softmax(row, r), totals, r)
        self._weigh(level, first, count, totals)

    def _scores(self, count: int) -> None:
        """scores_at[row][t] = query . keys, without scale and mask."""
        b, lanes = self.b, self.lanes
        with b.for_(0, self.n_padded, self.panel) as first:
            panel = b.offset(self.keys_at, b.binary("mul", first, self.n_depth), F32)
            tile = self._registers(count)
            with b.for_(0, self.n_depth) as d:
                line = b.offset(panel, b.binary("mul", d, self.panel), F32)
                columns: list[Operand] = [
                    b.load(self.vector, line, v * lanes) for v in range(self.vectors)
                ]
                queries = b.offset(self.query_at, b.binary("mul", d, count), F32)
                for r in range(count):
                    _accumulate(b, tile[r], b.load(F32, queries, r), columns)
            for r in range(count):
                line = b.offset(self.scores_at, b.binary("mul", self.n_padded, r), F32)
                for v in range(self.vectors):
                    b.store(tile[r][v].get(), line, b.binary("add", first, v * lanes))

    def _registers(self, count: int) -> list[list[Register]]:
        return [
            [self.b.variable(0.0, self.vector) for _ in range(self.vectors)] for _ in range(count)
        ]

    def _softmax(self, row: Expression, r: Operand) -> Operand:
        """Turn a row of scores into exp(score - largest); the sum of them is returned."""
        b, g, lanes = self.b, self.group, self.lanes
        atom = sizes.variable(g.key)
        line = b.offset(self.scores_at, b.binary("mul", self.n_padded, r), F32)
        row.hoist([g.scores], frozenset((atom,)), frozenset((g.score,)))
        best = b.variable(float("-inf"), self.vector)
        with b.for_(0, self.n_padded, lanes) as t:
            inside = b.tail_mask(b.binary("sub", self.n_keys, t), lanes)
            sums = b.convert(b.load(self.vector, line, t), value_type(g.score.dtype))
            here = row.child(
                {atom: t}, values={g.score: sums}, vector=atom, lanes=lanes, mask=inside
            )
            value = b.convert(here.scalar(g.scores), F32)
            value = b.select(inside, b.lift(value, self.vector), float("-inf"))
            b.store(value, line, t)
            best.set(b.max(best.get(), value))
        largest = b.splat(b.reduce("reduce_max", best.get()), lanes)
        total = b.variable(0.0, self.vector)
        with b.for_(0, self.n_padded, lanes) as t:
            power = b.unary("exp", b.binary("sub", b.load(self.vector, line, t), largest))
            b.store(power, line, t)
            total.set(b.binary("add", total.get(), power))
        return b.reduce("reduce_add", total.get())

    def _weigh(self, level: Expression, first: Operand, count: int, totals: Operand) -> None:
        """output[row, :] = sum over t of scores_at[row][t] * values(t, :) / total."""
        b, g, lanes = self.b, self.group, self.lanes
        column, key = sizes.variable(g.column), sizes.variable(g.key)
        whole = isinstance(self.width, int) and self.width % self.panel == 0
        with b.for_(0, self.n_width, self.panel) as start:
            tile = self._registers(count)
            here = []
            for v in range(self.vectors):
                at = b.binary("add", start, v * lanes)
                mask = None if whole else b.tail_mask(b.binary("sub", self.n_width, at), lanes)
                inside = level.child({column: at}, vector=column, lanes=lanes, mask=mask)
                inside.hoist([g.values], frozenset((key,)))
                here.append(inside)
            with b.for_(0, self.n_keys) as t:
                columns = [
                    b.lift(
                        e.child({key: t}, vector=column, lanes=lanes, mask=e.mask).scalar(g.values),
                        self.vector,
                    )
                    for e in here
                ]
                for r in range(count):
                    at = b.binary("add", b.binary("mul", self.n_padded, r), t)
                    _accumulate(b, tile[r], b.load(F32, self.scores_at, at), columns)
            for r in range(count):
                for v in range(self.vectors):
                    b.store(tile[r][v].get(), self.tile_at, (r * self.vectors + v) * lanes)
            self._finish(level, first, count, totals, start)

    def _finish(
        self, level: Expression, first: Operand, count: int, totals: Operand, start: Operand
    ) -> None:
        """Divide, do the epilogue and store, vector by vector."""
        b, g, lanes = self.b, self.group, self.lanes
        column, row_atom = sizes.variable(g.column), sizes.variable(g.row)
        whole = isinstance(self.width, int) and self.width % self.panel == 0
        with b.for_(0, count) as r:
            row = level.child({row_atom: b.binary("add", first, r)})
            row.hoist([g.epilogue], frozenset((column,)), frozenset((g.result,)), frozenset())
            total = b.splat(b.load(F32, totals, r), lanes)
            line = b.offset(self.tile_at, b.binary("mul", r, self.panel), F32)
            with b.for_(0, self.panel, lanes) as j:
                at = b.binary("add", start, j)
                left = b.binary("sub", self.n_width, at)
                with b.if_(b.compare("gt", left, 0)):
                    mask = None if whole else b.tail_mask(left, lanes)
                    quotient = b.binary("div", b.load(self.vector, line, j), total)
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
