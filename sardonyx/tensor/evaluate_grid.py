"""Expressions at all points of a shape at once, for the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.errors import DivisionByZero, EngineError, IndexOutOfRange, message
from sardonyx.base.sizes import Atom, Dim
from sardonyx.tensor import arithmetic
from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.evaluate_region import RegionMachine
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, reduced_indices


class Grid:
    """Evaluates expressions at all points of a shape at once.

    Values have one axis for each index variable, of size 1 where they do not depend on it. A mask
    says for which points a value is needed, so that loads not chosen by a select may be outside.
    """

    def __init__(
        self, machine: RegionMachine, shape: tuple[Dim, ...], extents: tuple[Dim, ...]
    ) -> None:
        self.machine = machine
        every = (*shape, *extents)
        self.sizes = tuple(sizes.evaluate(d, machine.symbols) for d in every)
        self._atoms: dict[Atom, Array] = {}
        for axis, variable in enumerate((*indices(shape), *reduced_indices(extents))):
            atom = sizes.as_atom(variable)
            if atom is not None:
                position = np.arange(self.sizes[axis], dtype=np.int64)
                self._atoms[atom] = position.reshape(
                    [-1 if k == axis else 1 for k in range(len(every))]
                )
        self._memo: dict[tuple[object, int], Array] = {}
        self._masks: list[Array] = []

    def evaluate(self, x: Scalar) -> Array:
        """What an expression gives, with an axis of size 1 where it does not depend on one."""
        return self._scalar(x, self._mask(np.array(0 not in self.sizes)))

    def _mask(self, mask: Array) -> Array:
        self._masks.append(mask)  # the memo goes by identity, so masks must stay alive
        return mask

    def _scalar(self, x: Scalar, mask: Array) -> Array:
        key = (x, id(mask))
        found = self._memo.get(key)
        if found is None:
            found = self._make(x, mask)
            if self.machine.noise is not None and x.arguments and x.dtype.is_float:
                found = self.machine.noise.rounded(found, x.dtype, np.abs(found))
            self._memo[key] = found
        return found

    def _make(self, x: Scalar, mask: Array) -> Array:
        dtype = self.machine.numpy(x.dtype)
        if x.op == "constant":
            return arithmetic.constant(x.payload, x.dtype, dtype)
        if x.op == "size":
            return self._dim(x.dim, mask)
        if x.op == "load":
            return self._load(x, mask)
        if x.op == "select":
            condition = self._scalar(x.arguments[0], mask)
            a = self._scalar(x.arguments[1], self._mask(mask & condition))
            b = self._scalar(x.arguments[2], self._mask(mask & ~condition))
            return np.where(condition, a, b).astype(dtype)
        operands = [self._scalar(a, mask) for a in x.arguments]
        source = x.arguments[0].dtype
        if x.op == "cast":
            return arithmetic.cast(operands[0], source, x.dtype, dtype, x.rounding)
        if x.op == "bitcast":
            bits = np.ascontiguousarray(operands[0].astype(source.numpy))
            return arithmetic.bitcast(bits, x.dtype).astype(dtype)
        if x.op == "check_index":
            return self._check_index(operands[0], self._dim(x.dim, mask), mask)
        if x.op == "check_range":
            return self._check_range(x.payload, operands, mask)
        if x.op == "complex":
            return arithmetic.combine(operands[0], operands[1], dtype)
        if x.op in ("real", "imag"):
            return np.asarray(getattr(operands[0], x.op)).astype(dtype)
        if x.op in COMPARE:
            return arithmetic.compare(x.op, *operands)
        if len(operands) == 1:
            return arithmetic.unary(x.op, operands[0], source)
        if x.op in ("div", "rem") and source.is_integer and np.any((operands[1] == 0) & mask):
            raise DivisionByZero(message("evaluate", "An integer is divided by 0"))
        return arithmetic.binary(x.op, operands[0], operands[1], source)

    def _check_index(self, value: Array, extent: Array, mask: Array) -> Array:
        moved = np.where(value < 0, value + extent, value)
        bad = ((moved < 0) | (moved >= extent)) & mask
        if np.any(bad):
            wrong = np.broadcast_to(value, bad.shape)[bad].flat[0]
            raise IndexOutOfRange(
                message("evaluate", f"The index {wrong} is outside of an axis of {extent}")
            )
        return moved

    def _check_range(self, name: str, numbers: Sequence[Array], mask: Array) -> Array:
        value, low, high = numbers
        bad = ((value < low) | (value > high)) & mask
        if np.any(bad):
            got, *ends = (np.broadcast_to(x, bad.shape)[bad].flat[0] for x in (value, low, high))
            expected = f"{ends[0]} to {ends[1]}"
            what = f"{name} is out of range"
            raise IndexOutOfRange(message("evaluate", what, expected=expected, got=str(got)))
        return value

    def _load(self, x: Scalar, mask: Array) -> Array:
        array = self.machine.arrays[x.tensor]
        at: list[Array] = []
        for i, extent in zip(x.at, array.shape, strict=True):
            position = self._dim(i, mask)
            bad = ((position < 0) | (position >= extent)) & mask
            if np.any(bad):
                raise EngineError(message("evaluate", f"{x!r} is outside of {array.shape}"))
            at.append(np.clip(position, 0, max(extent - 1, 0)))
        if array.size == 0:
            shape = np.broadcast_shapes(*(a.shape for a in at))
            return np.zeros(shape, array.dtype)
        return np.asarray(array[tuple(at)])

    def _dim(self, value: Dim, mask: Array) -> Array:
        if isinstance(value, int):
            return np.asarray(value, dtype=np.int64)
        key = (value, id(mask))
        found = self._memo.get(key)
        if found is None:
            found = np.asarray(0, dtype=np.int64)
            for monomial, coefficient in value.terms:
                term = np.asarray(coefficient, dtype=np.int64)
                for atom in monomial:
                    term = term * self._atom(atom, mask)
                found = found + term
            self._memo[key] = found = np.asarray(found)
        return found

    def _atom(self, atom: Atom, mask: Array) -> Array:
        if atom.kind == "symbol":
            value = sizes.evaluate(sizes.of_atom(atom), self.machine.symbols)
            return np.asarray(value, dtype=np.int64)
        if atom.kind == "index":
            return self._atoms[atom]
        if atom.kind == "opaque":
            return self._scalar(atom.payload, mask)  # type: ignore[arg-type]  # an opaque atom's payload is a Scalar
        left, right = (self._dim(a, mask) for a in atom.arguments)
        if atom.kind == "floordiv":
            return np.asarray(np.floor_divide(left, right))
        return np.maximum(left, right) if atom.kind == "max" else np.minimum(left, right)
