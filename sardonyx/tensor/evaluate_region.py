"""Branches and loops, run slowly straight from their definition, for the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import ContradictingSizes, EngineError, RuntimeException, message
from sardonyx.base.sizes import Dim
from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.measuring import Measured
from sardonyx.tensor.noise import Noise
from sardonyx.tensor.region import Body, Branches, Region, Repetition
from sardonyx.tensor.tensor import Buffer, Call, Tensor

Arrays = dict[Buffer, Array]


class RegionMachine(Protocol):
    """What evaluates tensors; a body gets one of its own."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """Sizes by name."""

    @property
    def arrays(self) -> Mapping[Tensor, Array]:
        """What has been computed."""

    @property
    def noise(self) -> Noise | None:
        """What makes rounding errors."""

    def array(self, tensor: Tensor) -> Array:
        """The contents of a tensor."""

    def numpy(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy dtype that arrays of a type have."""

    def inside(self, buffers: Arrays, symbols: dict[str, int], body: Body) -> RegionMachine:
        """The machine for a body, which knows these besides what is known outside."""


class Symbols(dict[str, int]):
    """Sizes by name, those that a run measures found when they are first asked for.

    Args:
        given: Those that are known.
        around: What is asked for the others.
        measured: Where symbols are measured.
        ends: The region whose end brings a symbol.
    """

    def __init__(
        self,
        given: Mapping[str, int],
        around: Mapping[str, int],
        measured: Mapping[Dim, Measured],
        ends: Mapping[Dim, Tensor],
    ) -> None:
        super().__init__(given)
        self._around = around
        self._measured = {name_of(symbol): m for symbol, m in measured.items()}
        self._ends = {name_of(symbol): call for symbol, call in ends.items()}
        self._machine: RegionMachine | None = None

    def measure_in(self, machine: RegionMachine) -> None:
        """Say what computes the tensors that sizes are measured in."""
        self._machine = machine

    def __missing__(self, name: str) -> int:
        machine = self._machine
        if machine is not None and name in self._measured:
            self[name] = self._read(self._measured[name], machine)
            return self[name]
        if machine is not None and name in self._ends:
            machine.array(self._ends[name])  # with the region's end its sizes are noted
            return dict.__getitem__(self, name)
        return self._around[name]

    def _read(self, found: Measured, machine: RegionMachine) -> int:
        value = int(machine.array(found.tensor).reshape(-1)[found.position])
        low, high = (sizes.evaluate(d, machine.symbols) for d in (found.low, found.high))
        if not low <= value <= high:
            where = f"evaluate {' '.join(found.origin)}"
            expected = f"from {low} to {high}"
            raise RuntimeException(message(where, "Bad size", expected=expected, got=str(value)))
        return value


def name_of(symbol: Dim) -> str:
    """The name under which a symbol's value is kept."""
    return sizes.variable(symbol).name


def shape_of(dims: Sequence[Dim], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes of a tensor's axes; ContradictingSizes if one would be negative."""
    shape = tuple(sizes.evaluate(d, symbols) for d in dims)
    if any(size < 0 for size in shape):
        raise ContradictingSizes(message("evaluate", f"A tensor would have the shape {shape}"))
    return shape


def check_assumptions(assumptions: Mapping[tuple[Dim, Dim], str], machine: RegionMachine) -> None:
    """Raise ContradictingSizes where sizes differ that were taken as equal."""
    for (a, b), reason in assumptions.items():
        got, wanted = (sizes.evaluate(d, machine.symbols) for d in (a, b))
        if got != wanted:
            raise ContradictingSizes(
                message("evaluate", reason, expected=f"{b!r} = {wanted}", got=f"{a!r} = {got}")
            )


def run_region(machine: RegionMachine, call: Call, operands: Sequence[Array]) -> list[Array]:
    """The results of a branch or loop.

    Args:
        machine: Evaluates what is around it.
        call: The call whose attribute is the region.
        operands: What the region reads from outside.

    Raises:
        ContradictingSizes: An assumption of a body does not hold.
        RuntimeException: What a body computes is not possible.
    """
    region = call.attribute("region")
    if not isinstance(region, Region):
        raise EngineError(message("evaluate", f"{call!r} has no region"))
    outside = dict(zip(region.outside, operands, strict=True))
    if isinstance(region, Branches):
        taken = bool(outside[region.condition].reshape(()))
        return _run_body(machine, region.then if taken else region.otherwise, outside, {})
    if not isinstance(region, Repetition):
        raise EngineError(message("evaluate", f"{region!r} is neither branches nor a loop"))
    return _Loop(machine, call, region, outside).run()


def _run_body(
    machine: RegionMachine, body: Body, buffers: Arrays, symbols: dict[str, int]
) -> list[Array]:
    inner = machine.inside(buffers, symbols, body)
    check_assumptions(body.assumptions, inner)
    return [inner.array(x) for x in body.outputs]


class _Loop:
    def __init__(
        self, machine: RegionMachine, call: Call, region: Repetition, outside: Arrays
    ) -> None:
        self.machine, self.call, self.region, self.outside = machine, call, region, outside
        self.carried = [outside[c.initial] for c in region.carried]
        self.slices: list[dict[int, Array]] = [{} for _ in region.places]

    def run(self) -> list[Array]:
        region = self.region
        trips = sizes.evaluate(region.trips, self.machine.symbols)
        going = region.condition is None or bool(self.outside[region.condition].reshape(()))
        count = 0
        while going and count < trips:
            going = self._iterate(count)
            count += 1
        first = len(self.carried)
        stacked = [self._stack(first + k, rows, count) for k, rows in enumerate(self.slices)]
        return [*self.carried, *stacked]

    def _iterate(self, number: int) -> bool:
        region = self.region
        symbols = {name_of(region.counter): number}
        buffers = dict(self.outside)
        for carried, array in zip(region.carried, self.carried, strict=True):
            buffers[carried.inside] = array
            symbols |= {name_of(s): array.shape[axis] for axis, s in carried.sizes.items()}
        place = Symbols(symbols, self.machine.symbols, {}, {})
        for sliced in region.sliced:
            position = sizes.evaluate(sliced.position, place)
            buffers[sliced.inside] = self.outside[sliced.whole][position]
        outputs = _run_body(self.machine, region.body, buffers, symbols)
        goes_on = bool(outputs.pop(0).reshape(())) if region.goes_on else True
        self.carried = outputs[: len(self.carried)]
        rest = outputs[len(self.carried) :]
        for rows, at, slice_ in zip(self.slices, region.places, rest, strict=True):
            rows[sizes.evaluate(at, place)] = slice_
        return goes_on

    def _stack(self, result: int, rows: dict[int, Array], count: int) -> Array:
        if rows:
            return np.stack([rows[k] for k in sorted(rows)])
        shape, dtype = self.call.all_outputs[result]
        ends = self.region.finals[result]  # what no iteration has settled is empty
        dims = [0 if axis in ends else d for axis, d in enumerate(shape)][1:]
        found = shape_of(dims, self.machine.symbols)
        return np.zeros((count, *found), self.machine.numpy(dtype))
