"""The oracle: what a tensor is, computed slowly with NumPy straight from its definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.conversion import rounded
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Dim
from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.evaluate_grid import Grid
from sardonyx.tensor.evaluate_region import (
    Symbols,
    check_assumptions,
    name_of,
    run_region,
    shape_of,
)
from sardonyx.tensor.measuring import Measured
from sardonyx.tensor.noise import Noise
from sardonyx.tensor.region import REGIONS, Body, Region
from sardonyx.tensor.tensor import (
    Buffer,
    Call,
    Contract,
    Map,
    Reduce,
    Tensor,
)
from sardonyx.tensor.traverse import topological

#: Sizes of an output.
Sizes = tuple[int, ...]
Reference = Callable[[Call, Sequence[Array], Sequence[Sizes]], Sequence[Array]]
#: Given a call and its operands, for each output the size of the numbers that were rounded.
Magnitudes = Callable[[Call, Sequence[Array]], Sequence[Array]]

_REFERENCES: dict[str, Reference] = {}
_MAGNITUDES: dict[str, Magnitudes] = {}


def reference(
    kernel: str, magnitudes: Magnitudes | None = None
) -> Callable[[Reference], Reference]:
    """Register the decorated function as the meaning of a special kernel.

    It takes the call, the arrays of its operands and the sizes of all outputs, and gives the arrays
    of all outputs.

    Args:
        kernel: The kernel's name.
        magnitudes: For `Noise`, where a result is rounded more often than once.
    """

    def register(function: Reference) -> Reference:
        _REFERENCES[kernel] = function
        if magnitudes is not None:
            _MAGNITUDES[kernel] = magnitudes
        return function

    return register


def evaluate(
    x: Tensor,
    buffers: Mapping[Buffer, Any],
    symbols: Mapping[str, int] | None = None,
    *,
    double: bool = False,
) -> Array:
    """The contents of a tensor.

    Args:
        x: The tensor.
        buffers: Arrays of the buffers that it depends on; those with constants may be left out.
        symbols: The sizes, by name.
        double: Compute everything that is a float in double, for a reference.

    Raises:
        RuntimeException: An index is outside, or an integer is divided by 0.
    """
    return evaluate_all([x], buffers, symbols, double=double)[0]


class SizesFound(NamedTuple):
    """What a run finds of sizes while it goes on.

    Attributes:
        measured: Where sizes come from.
        ends: The branch or loop whose end brings a size.
        assumptions: Pairs of sizes that must be equal, and why.
    """

    measured: Mapping[Dim, Measured]
    ends: Mapping[Dim, Tensor]
    assumptions: Mapping[tuple[Dim, Dim], str]


def evaluate_all(
    outputs: Iterable[Tensor],
    buffers: Mapping[Buffer, Any],
    symbols: Mapping[str, int] | None = None,
    *,
    double: bool = False,
    noise: Noise | None = None,
    found: SizesFound | None = None,
) -> list[Array]:
    """The contents of several tensors, which share what they have in common.

    Args:
        outputs: The tensors.
        buffers: See `evaluate`.
        symbols: See `evaluate`.
        double: See `evaluate`.
        noise: Makes rounding errors in what is computed in double; see `Noise`.
        found: Sizes that are not given.

    Raises:
        ContradictingSizes: Two sizes differ that `found` says are equal.
        RuntimeException: See `evaluate`.
    """
    found = found or SizesFound({}, {}, {})
    given = Symbols(symbols or {}, {}, found.measured, found.ends)
    machine = _Machine(buffers, given, double or noise is not None, noise)
    check_assumptions(found.assumptions, machine)
    return [machine.array(tensor) for tensor in list(outputs)]


class _Machine:
    def __init__(
        self,
        buffers: Mapping[Buffer, Any],
        symbols: Symbols,
        double: bool,
        noise: Noise | None,
    ) -> None:
        self.buffers, self.symbols, self.double = buffers, symbols, double
        self.noise = noise
        self.arrays: dict[Tensor, Array] = {}
        self._calls: dict[object, Sequence[Array]] = {}
        symbols.measure_in(self)

    def inside(self, buffers: dict[Buffer, Array], symbols: dict[str, int], body: Body) -> _Machine:
        """The machine for the body of a region."""
        known = Symbols(symbols, self.symbols, body.measured, body.ends)
        return _Machine({**self.buffers, **buffers}, known, self.double, self.noise)

    def array(self, tensor: Tensor) -> Array:
        """The contents of a tensor; what it needs is computed before."""
        for needed in topological([tensor], self.arrays):
            if needed not in self.arrays:  # a size that was measured may have needed it
                self.compute(needed)
        return self.arrays[tensor]

    def numpy(self, dtype: DType) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.double and dtype.is_float else dtype.numpy

    def compute(self, tensor: Tensor) -> None:
        with np.errstate(all="ignore"):
            self.arrays[tensor] = self._compute(tensor)

    def _compute(self, x: Tensor) -> Array:
        if isinstance(x, Buffer):
            return self._buffer(x)
        if isinstance(x, Call):
            return self._call(x)
        shape = shape_of(x.shape, self.symbols)
        if isinstance(x, Map):
            value = Grid(self, x.shape, ()).evaluate(x.body)
            result = np.broadcast_to(value, shape)
        elif isinstance(x, Reduce):
            grid = Grid(self, x.shape, x.extents)
            result = self._reduce(x, np.broadcast_to(grid.evaluate(x.body), grid.sizes))
        elif isinstance(x, Contract):
            result = self._contract(x)
        else:
            raise EngineError(message("evaluate", f"{x!r} is no tensor"))
        return rounded(np.ascontiguousarray(result).reshape(shape), self.numpy(x.dtype))

    def _buffer(self, x: Buffer) -> Array:
        given = self.buffers.get(x)
        if given is None and x.constant is not None:
            given = x.constant.array()  # type: ignore[attr-defined]  # a constant's buffer has one
        if given is None and x.elements is not None:
            given = np.array(
                [
                    sizes.evaluate(e, self.symbols) if isinstance(e, sizes.Size) else e
                    for e in x.elements
                ]
            )
            given = given.reshape(tuple(sizes.evaluate(d, self.symbols) for d in x.shape))
        if given is None:
            raise EngineError(message("evaluate", f"No array is given for {x.label}"))
        array = np.asarray(given)
        shape = tuple(sizes.evaluate(d, self.symbols) for d in x.shape)
        if array.shape != shape:
            raise EngineError(
                message(
                    f"evaluate {x.label}", "Bad shape", expected=str(shape), got=str(array.shape)
                )
            )
        return rounded(array, self.numpy(x.dtype))

    def _call(self, x: Call) -> Array:
        key = x.invocation
        if key not in self._calls:
            operands = [self.arrays[t] for t in x.operands]
            self._calls[key] = (
                self._region(x, operands) if x.kernel in REGIONS else (self._special(x, operands))
            )
        return rounded(np.asarray(self._calls[key][x.output]), self.numpy(x.dtype))

    def _region(self, x: Call, operands: list[Array]) -> Sequence[Array]:
        results = run_region(self, x, operands)
        region: Region = x.attribute("region")  # type: ignore[assignment]  # calls that repeat have one
        for final, array in zip(region.finals, results, strict=True):
            self.symbols.update({name_of(s): array.shape[axis] for axis, s in final.items()})
        return results

    def _special(self, x: Call, operands: list[Array]) -> Sequence[Array]:
        if x.kernel not in _REFERENCES:
            raise EngineError(message("evaluate", f"The kernel {x.kernel} has no reference"))
        shapes = [tuple(sizes.evaluate(d, self.symbols) for d in s) for s, _ in x.all_outputs]
        results = _REFERENCES[x.kernel](x, operands, shapes)
        if self.noise is None:
            return results
        known = _MAGNITUDES.get(x.kernel)
        magnitudes = (
            [np.max(np.abs(array), initial=0.0) for array in results]
            if known is None
            else known(x, operands)
        )
        return [
            self.noise.rounded(array, dtype, magnitude) if dtype.is_float else array
            for array, magnitude, (_, dtype) in zip(results, magnitudes, x.all_outputs, strict=True)
        ]

    def _reduce(self, x: Reduce, values: Array) -> Array:
        first = len(x.shape)
        axes = tuple(range(first, first + len(x.extents)))
        if x.kind in ("sum", "prod"):
            wide = values.astype(np.float64) if values.dtype.kind in "fV" else values
            add_up: Callable[..., Any] = np.sum if x.kind == "sum" else np.prod
            result = np.asarray(add_up(wide, axis=axes, dtype=wide.dtype))
            if self.noise is None or not x.dtype.is_float:
                return result
            # As in a contraction.
            terms = math.prod(values.shape[k] for k in axes)
            size = add_up(np.abs(wide), axis=axes) * math.sqrt(max(1, terms))
            return self.noise.rounded(result, x.dtype, size)
        if x.kind in ("min", "max"):
            return self._extreme(x, values, axes)
        if not values.size:  # lowerings see to it that no position is asked for
            return np.zeros(values.shape[:first], np.int64)
        flat = values.reshape(*values.shape[:first], math.prod(values.shape[first:]))
        wide = flat.astype(np.float32) if flat.dtype.kind == "V" else flat
        function: Callable[..., Any] = np.argmin if x.kind.startswith("argmin") else np.argmax
        if x.kind.endswith("_last"):
            return np.asarray(wide.shape[-1] - 1 - function(wide[..., ::-1], axis=-1))
        return np.asarray(function(wide, axis=-1))

    def _extreme(self, x: Reduce, values: Array, axes: tuple[int, ...]) -> Array:
        is_float = x.dtype.is_float
        wide = values.astype(np.float64) if is_float else values
        sign = 1 if x.kind == "min" else -1
        if is_float:
            initial: float = sign * np.inf
        elif wide.dtype.kind == "b":
            initial = x.kind == "min"
        else:
            limits: Any = np.iinfo(wide.dtype)
            initial = limits.max if x.kind == "min" else limits.min
        function = np.min if x.kind == "min" else np.max
        return np.asarray(function(wide, axis=axes, initial=initial))

    def _contract(self, x: Contract) -> Array:
        grid = Grid(self, x.shape, x.extents)
        rank, first = len(grid.sizes), len(x.shape)
        wide = np.float64 if x.accumulator.is_float else x.accumulator.numpy
        operands: list[Any] = []
        present: set[int] = set()
        for body in (x.left, x.right):
            value = grid.evaluate(body).astype(wide)
            value = value.reshape((1,) * (rank - value.ndim) + value.shape)
            axes = [k for k in range(rank) if value.shape[k] != 1]
            operands += [value.reshape([value.shape[k] for k in axes]), axes]
            present.update(axes)
        kept = [k for k in range(first) if k in present]
        result = np.einsum(*operands, kept, optimize=True)
        if self.noise is not None and x.dtype.is_float:
            terms = [np.abs(o) if isinstance(o, np.ndarray) else o for o in operands]
            # Every term is rounded when it is added: by chance that grows with the root of their
            # number (N. Higham and T. Mary, Probabilistic rounding error analysis, 2019).
            count = math.sqrt(max(1, math.prod(grid.sizes[first:])))
            magnitude = np.einsum(*terms, kept, optimize=True) * count
            result = self.noise.rounded(np.asarray(result), x.dtype, magnitude)
        for axis in range(first, rank):
            if axis not in present:  # both operands are the same all along it
                result = result * grid.sizes[axis]
        result = np.expand_dims(result, [k for k in range(first) if k not in kept])
        return np.broadcast_to(result, grid.sizes[:first])
