"""The inputs of tiles of Winograd's filters: where they lie, transformed, and which are even.

Loop nest of a chunk of tiles::

    scales[2, depth] = how much each channel counts           # `winograd_scales.build_scales`
    for t in 0..count:
        coordinates[t] = y, x and the other axes of the rows
        for i in 0..m + 2, j in 0..m + 2:
            sources[t, i, j] = address of d[y + i, x + j]     # or of zeros, beyond the edge
        inputs[:, t, depth] = B^T d B                         # `winograd.build_input`
        even[t] = by cells, or else by windows                # `winograd_scales.build_windows`
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand, Program, SsaValue
from sardonyx.kernel.language.types import F32, I64, PTR
from sardonyx.kernel.matmul.kernel_context import KernelContext
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.winograd import TAPS, build_input, cells_of, input_name, is_even
from sardonyx.kernel.matmul.winograd_choice import WinogradTiles
from sardonyx.kernel.matmul.winograd_scales import (
    build_scales,
    build_windows,
    scales_name,
    windows_name,
)
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.tensor import Tensor


class TileInputs(LeftRows):
    """Finds and transforms the inputs of tiles.

    Args:
        context: Of the kernel. Parts of its scratch are those of `layout`, `inputs` and `zero`.
        form: How the contraction is a convolution of tiles.
        largest: The largest magnitudes of all filters, (batch..., tap..., depth).
    """

    def __init__(self, context: KernelContext, form: WinogradTiles, largest: Tensor) -> None:
        super().__init__(context)
        self.form, self.largest = form, largest

    def functions(self) -> tuple[Program, ...]:
        """What the kernel calls for them."""
        s, outputs = self.schedule, self.form.outputs
        return (
            build_scales(s.element, s.lanes),
            build_input(s.element, outputs, s.lanes),
            build_windows(s.element, outputs, s.lanes),
        )

    def layout(self) -> dict[str, Dim]:
        """Parts of scratch, in bytes: where tiles and their inputs lie, which of them are even, and
        what decides on that.
        """
        s, f = self.schedule, self.form
        size = s.element.size_bytes
        return {
            "sources": f.places * f.tiles * PTR.size_bytes,
            "coordinates": f.tiles * len(s.axes.rows) * I64.size_bytes,
            "even": f.tiles * I64.size_bytes,
            "unseen": I64.size_bytes,
            "scales": (2 * int(s.access.depth_extent) + 1) * size,
            "cells": (cells_of(f.outputs) ** 2 + 1) * size,
        }

    def find_scales(self, level: Expression, depth: Operand) -> None:
        """How much the channels of these batches count, by the weights of all panels."""
        s, b = self.schedule, self.b
        operands = [self._largest_pointer(level, depth), depth, self.scratch["scales"]]
        b.store(b.call(scales_name(s.lanes), operands, I64), self.scratch["unseen"])

    def transform(self, level: Expression, first: Operand, t: Operand, depth: Operand) -> None:
        """One tile: find its inputs, or zeros outside the image, and transform them."""
        s, f, b = self.schedule, self.form, self.b
        at = self._tile_at(first + t)
        level = level.child(at)  # what is computed in this loop is no other's
        place = t * len(s.axes.rows)
        for k, variable in enumerate(s.axes.rows):
            value = at[sizes.variable(variable)]
            b.store(value, self.scratch["coordinates"], place + k)
        # Inputs are numbered by the sum of a row axis and its tap, which goes over the axis's end.
        extents = [
            extent_of(v) + (TAPS - 1) * apart for v, apart in zip(f.image, f.apart, strict=True)
        ]
        sums = [sizes.numbered_index(e, k, "w") for k, e in enumerate(extents)]
        atoms: dict[Atom, Dim] = {sizes.variable(v): 0 for v in (*f.taps, s.access.depth)}
        atoms |= {sizes.variable(v): w for v, w in zip(f.image, sums, strict=True)}
        offset = substitute(s.access.offset, atoms)
        window = None if s.factors.window is None else rewrite(s.factors.window, atoms=atoms)
        base = self.places[s.factors.body.tensor].pointer
        y, x = (at[sizes.variable(v)] for v in f.image)
        ends = [b.lift(level.dim(e), I64) for e in extents]
        sources = self.sources(t)
        with b.for_(0, f.side) as i:
            row = y + i * f.apart[0]
            row_inside = row < ends[0]
            with b.for_(0, f.side) as j:
                column = x + j * f.apart[1]
                moved = dict(zip(map(sizes.variable, sums), (row, column), strict=True))
                here = level.child(at | moved)
                inside: Operand = row_inside & (column < ends[1])
                if window is not None:
                    inside = inside & here.scalar(window)
                source = b.offset(base, here.dim(offset), s.element)
                number = i * f.side + j
                b.store(b.select(inside, source, self.scratch["zero"]), sources, number)
        target = b.offset(self.scratch["inputs"], t * depth, s.element)
        step = depth * f.tiles
        scales, cells = self.scratch["scales"], self.scratch["cells"]
        name = input_name(f.outputs, s.lanes)
        even = b.variable(
            b.call(name, [sources, depth, target, step, scales, cells], I64), name="even"
        )
        with b.if_(b.eq(even.get(), 0)):
            left = self._left_of_tile(level.child(), at)
            even.set(b.convert(self._is_even(left), I64))
            with b.if_(b.eq(even.get(), 0) & b.ne(b.load(I64, self.scratch["unseen"]), 0)):
                weights = self._largest_pointer(level.child(), depth)
                operands = [sources, depth, weights, scales, cells, *left]
                even.set(b.call(windows_name(f.outputs, s.lanes), operands, I64))
        b.store(even.get(), self.scratch["even"], t)

    def sources(self, t: Operand) -> SsaValue:
        """Pointers to the inputs of a tile."""
        place = t * self.form.places
        return self.b.offset(self.scratch["sources"], place, PTR)

    def outputs_in(self, elements: Operand, apart: int) -> Operand:
        """How many outputs of a tile so many elements have, from its first one on."""
        if apart == 1:
            return elements
        return (elements + (apart - 1)) // apart

    def _largest_pointer(self, level: Expression, depth: Operand) -> Operand:
        """Where the largest weights of the filters of these batches lie."""
        s, b = self.schedule, self.b
        flat: Dim = 0
        for variable in s.packed_axes():
            flat = flat * extent_of(variable) + variable
        place = depth * level.dim(flat * TAPS**2)
        return b.offset(self.places[self.largest].pointer, place, s.element)

    def _left_of_tile(self, level: Expression, at: dict[Atom, Operand]) -> list[Operand]:
        """How many outputs of the tile at a place are in the image, along each axis."""
        f, b = self.form, self.b
        found = list[Operand]()
        for v, apart in zip(f.image, f.apart, strict=True):
            end = b.lift(level.dim(extent_of(v)), I64)
            left = self.outputs_in(end - at[sizes.variable(v)], apart)
            found.append(b.min(left, f.outputs))
        return found

    def _is_even(self, left: list[Operand]) -> SsaValue:
        """Whether a tile is, without cells of outputs beyond the image's end."""
        b, side = self.b, cells_of(self.form.outputs)
        counts = [outputs // 2 + 1 for outputs in left]
        first = b.load(F32, self.scratch["cells"])
        least = b.variable(first, name="least")
        with b.for_(0, side) as i, b.for_(0, side) as j:
            cell = b.load(F32, self.scratch["cells"], i * side + j)
            inside = (i < counts[0]) & (j < counts[1])
            less = inside & (cell < least.get())
            least.set(b.select(less, cell, least.get()))
        return is_even(least.get(), b.load(F32, self.scratch["cells"], side**2))

    def _tile_at(self, number: Operand) -> dict[Atom, Operand]:
        """The row axes at a tile's first output."""
        f, b = self.form, self.b
        extents = [b.lift(self.context.outside.dim(d), I64) for d in f.tile_axes()]
        found = b.coordinates(number, extents)
        found[-2:] = [
            self._first_output(tile, apart) for tile, apart in zip(found[-2:], f.apart, strict=True)
        ]
        return dict(zip(map(sizes.variable, (*f.others, *f.image)), found, strict=True))

    def _first_output(self, tile: Operand, apart: int) -> Operand:
        """Where along an axis the first output of a tile is."""
        if apart == 1:
            return tile * self.form.outputs
        together, phase = self.b.parted(tile, self.b.constant(I64, apart))
        return together * (self.form.outputs * apart) + phase
