"""Keys and values of an attention, packed into panels in the thread's scratch.

Loop nest of `_pack_keys`; values are packed likewise, not transposed::

    for first, vectors in panels of keys:
        for column in 0..vectors * lanes step lanes:
            for r in 0..lanes: lines[r, depth] = key[first + column + r]      # or 0
            for d in 0..depth step lanes:
                panel[d : d + lanes, column:] = transpose(lines[:, d : d + lanes])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.transpose import transpose_name
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I64, Type
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.groups import Attention
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of


class Panels:
    """How an axis is cut into panels: full ones, and where its length is known a narrower one."""

    def __init__(self, extent: Dim, vectors: int, lanes: int) -> None:
        width = vectors * lanes
        self.vectors, self.lanes, self.width = vectors, lanes, width
        self.rest = -(-(extent % width) // lanes) if isinstance(extent, int) else 0
        whole = extent // width if isinstance(extent, int) else integer.ceildiv(extent, width)
        self.whole = whole * width
        self.padded = self.whole + self.rest * lanes

    def loop(self, b: Builder, whole: Operand) -> Iterator[tuple[Operand, int]]:
        """Each panel's first element and vectors; every item is a loop body to fill."""
        if self.whole != 0:
            with b.for_(0, whole, self.width) as first:
                yield first, self.vectors
        if self.rest:
            yield whole, self.rest

    def sizes(self) -> set[int]:
        """The numbers of vectors of panels."""
        return {*((self.vectors,) if self.whole != 0 else ()), self.rest} - {0}


class AttentionPacking:
    """The part of an attention's kernel that brings its factors where products read them.

    Attributes:
        b: Writes the kernel.
        group: What it computes.
        lanes, vector: Lanes of a vector of floats, and its type.
        transpose_stores: Whether the target transposes squares in registers.
        scratch: Parts of the thread's memory by name.
        strides: Elements per step along each axis, for every buffer.
        depth: How many elements a key has.
        keys, width: How many keys there are, and columns of values.
        over_keys, over_width: How keys and columns of values are cut into panels.
        whole_keys, whole_width: Where their full panels end.
        n_keys, n_depth, n_width: Extents.
        full_depth: Where the full vectors of the depth end.
        n_line: Elements of a line in scratch.
    """

    b: Builder
    group: Attention
    lanes: int
    vector: Type
    transpose_stores: bool
    scratch: dict[str, Operand]
    strides: dict[Tensor, tuple[Dim, ...]]
    depth: Dim
    width: Dim
    keys: Dim
    over_keys: Panels
    over_width: Panels
    whole_keys: Operand
    whole_width: Operand
    n_keys: Operand
    n_depth: Operand
    full_depth: Operand
    n_width: Operand
    n_line: Operand

    def _copy_line(self, level: Expression, body: Scalar, line: Operand) -> None:
        """Copy what `body` is along the depth, all depth variables in order."""
        b, lanes = self.b, self.lanes
        number = b.variable(0, I64, name="d")

        def nest(inner: Expression, variable: Dim, rest: tuple[Dim, ...]) -> None:
            atom, extent = sizes.variable(variable), inner.dim(extent_of(variable))
            inner.hoist([body], frozenset(map(sizes.variable, (variable, *rest))))
            if rest:
                with b.for_(0, extent) as i:
                    nest(inner.child({atom: i}), rest[0], rest[1:])
                return
            known = extent_of(variable)
            with b.for_(0, extent, lanes) as i:
                mask = None
                if not (isinstance(known, int) and known % lanes == 0):
                    mask = b.tail_mask(extent - i, lanes)
                here = inner.child({atom: i}, vector=atom, lanes=lanes, mask=mask)
                value = b.lift(b.convert(here.scalar(body), F32), self.vector)
                b.store(value, line, number.get() + i, mask=mask)
            number.set(number.get() + extent)

        axes = self._depth_axes()
        if axes:
            nest(level, axes[0], axes[1:])
        else:
            b.store(b.convert(level.scalar(body), F32), line, 0)

    def _pack_keys(self, level: Expression) -> None:
        """keys[panel][d][lane] = key(panel * width + lane, d), zero beyond the last key."""
        b, lanes, atom = self.b, self.lanes, sizes.variable(self.group.key)
        lines = self.scratch["lines"]
        for first, vectors in self.over_keys.loop(b, self.whole_keys):
            panel = b.offset(self.scratch["keys"], first * self.n_depth, F32)
            if not self.transpose_stores:
                self._gather_keys(level, first, vectors, panel)
                continue
            with b.for_(0, vectors * lanes, lanes) as column:
                with b.for_(0, lanes) as r:
                    key = first + column + r
                    line = b.offset(lines, r * self.n_line, F32)
                    with b.if_(key < self.n_keys):
                        self._copy_line(level.child({atom: key}), self.group.keys, line)
                    with b.else_(), b.for_(0, self.n_line, lanes) as d:
                        b.store(b.value(self.vector, 0.0), line, d)
                with b.for_(0, self.n_depth, lanes) as d:
                    at = d * (vectors * lanes) + column
                    target = b.offset(panel, at, F32)
                    width = b.constant(I64, vectors * lanes)
                    source = b.offset(lines, d, F32)
                    b.call(transpose_name(F32, lanes), [source, self.n_line, target, width])

    def _keys_lie_along_depth(self) -> bool:
        """Whether vectors along the depth, of one axis, are where keys are."""
        axes = self._depth_axes()
        offsets = [offset_of(self.strides[x.tensor], x.at) for x in loads_of(self.group.keys)]
        if len(axes) != 1:
            return False
        return all(sizes.step_along(offset, sizes.variable(axes[0])) == 1 for offset in offsets)

    def _depth_axes(self) -> tuple[Dim, ...]:
        return tuple(v for v in self.group.depth if sizes.as_atom(v) is not None)

    def _times_keys(
        self, level: Expression, line: Operand, numbers: Sequence[Operand]
    ) -> list[Operand]:
        """For each key vectors of its products with a line of queries, added up."""
        b, lanes, body = self.b, self.lanes, self.group.keys
        (axis,) = self._depth_axes()
        atom, key = sizes.variable(axis), sizes.variable(self.group.key)
        rows = [level.child({key: number}) for number in numbers]
        for row in rows:
            row.hoist([body], frozenset((atom,)))
        sums = [b.variable(0.0, self.vector) for _ in rows]

        def add(d: Operand, mask: Operand | None) -> None:
            queries = b.load(self.vector, line, d, mask=mask)
            for row, total in zip(rows, sums, strict=True):
                here = row.child({atom: d}, vector=atom, lanes=lanes, mask=mask)
                value = b.lift(b.convert(here.scalar(body), F32), self.vector)
                total.set(b.fma(queries, value, total.get()))

        with b.for_(0, self.full_depth, lanes) as d:
            add(d, None)
        if not (isinstance(self.depth, int) and self.depth % lanes == 0):
            with b.if_(self.full_depth < self.n_depth):
                add(
                    self.full_depth,
                    b.tail_mask(self.n_depth - self.full_depth, lanes),
                )
        return [total.get() for total in sums]

    def _times_columns_of_keys(self, level: Expression, line: Operand, scores: Operand) -> None:
        """A line of queries times all keys, a few vectors of keys at a time."""
        b, lanes, body = self.b, self.lanes, self.group.keys
        atom = sizes.variable(self.group.key)
        for first, vectors in self.over_keys.loop(b, self.whole_keys):
            masked = not (isinstance(self.keys, int) and self.keys % lanes == 0)
            columns = []
            for v in range(vectors):
                at = first + v * lanes
                mask = b.tail_mask(self.n_keys - at, lanes) if masked else None
                columns.append(level.child({atom: at}, vector=atom, lanes=lanes, mask=mask))
            sums = [b.variable(0.0, self.vector) for _ in columns]
            for inside, d in self._over_depth(level.child(), [body], atom):
                query = b.splat(b.load(F32, line, d), lanes)
                for column, total in zip(columns, sums, strict=True):
                    here = inside.child(column.atoms, vector=atom, lanes=lanes, mask=column.mask)
                    value = b.lift(b.convert(here.scalar(body), F32), self.vector)
                    total.set(b.fma(query, value, total.get()))
            for v, total in enumerate(sums):
                b.store(total.get(), scores, first + v * lanes)

    def _gather_keys(self, level: Expression, first: Operand, vectors: int, panel: Operand) -> None:
        """One panel of keys, where a target does not transpose squares."""
        b, lanes, atom = self.b, self.lanes, sizes.variable(self.group.key)
        for v in range(vectors):
            start = first + v * lanes
            inside = b.tail_mask(self.n_keys - start, lanes)
            here = level.child({atom: start}, vector=atom, lanes=lanes, mask=inside)
            for element, d in self._over_depth(here, [self.group.keys]):
                value = b.lift(element.scalar(self.group.keys), self.vector)
                at = d * (vectors * lanes) + v * lanes
                b.store(value, panel, at)

    def _over_depth(self, level: Expression, bodies: list[Scalar], *further: Atom):  # type: ignore[no-untyped-def]  # a generator of nested contexts
        """Loops over the depth variables; gives the emitter inside and the flat number.

        `further`: what else gets a value only inside.
        """
        b = self.b
        number = b.variable(0, I64, name="d")

        def nest(inner: Expression, rest: tuple[Dim, ...]):  # type: ignore[no-untyped-def]  # a generator of nested contexts
            if not rest:
                yield inner, number.get()
                number.set(number.get() + 1)
                return
            inner.hoist(bodies, frozenset((*map(sizes.variable, rest), *further)))
            with b.for_(0, inner.dim(extent_of(rest[0]))) as i:
                child = inner.child(
                    {sizes.variable(rest[0]): i},
                    vector=inner.vector, lanes=inner.lanes, mask=inner.mask,
                )  # fmt: skip
                yield from nest(child, rest[1:])

        yield from nest(level, self.group.depth)

    def _columns(
        self, level: Expression, start: Operand, vectors: int, *, masked: bool
    ) -> list[Expression]:
        """Emitters for the vectors of a panel of values."""
        b, lanes, column = self.b, self.lanes, sizes.variable(self.group.column)
        found = []
        for v in range(vectors):
            at = start + v * lanes
            mask = b.tail_mask(self.n_width - at, lanes) if masked else None
            inside = level.child({column: at}, vector=column, lanes=lanes, mask=mask)
            inside.hoist([self.group.values], frozenset((sizes.variable(self.group.key),)))
            found.append(inside)
        return found

    def _line_of_values(self, columns: list[Expression], key: Operand) -> list[Operand]:
        atom, column = sizes.variable(self.group.key), sizes.variable(self.group.column)
        found = []
        for e in columns:
            here = e.child({atom: key}, vector=column, lanes=self.lanes, mask=e.mask)
            found.append(self.b.lift(here.scalar(self.group.values), self.vector))
        return found

    def _whole_width(self, width: int) -> bool:
        return isinstance(self.width, int) and self.width % width == 0

    def _pack_values(self, level: Expression) -> None:
        """values[panel][t][lane] = value(t, panel * width + lane)."""
        b, lanes = self.b, self.lanes
        masked = not self._whole_width(lanes)
        for first, vectors in self.over_width.loop(b, self.whole_width):
            panel = b.offset(self.scratch["values"], first * self.n_keys, F32)
            columns = self._columns(level, first, vectors, masked=masked)
            with b.for_(0, self.n_keys) as t:
                line = b.offset(panel, t * (vectors * lanes), F32)
                for v, value in enumerate(self._line_of_values(columns, t)):
                    b.store(value, line, v * lanes)
