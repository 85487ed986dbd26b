"""Products on memory of their own: what they are to give, and calls that can be repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries.expected import Numbers, Reference, finished
from sardonyx.cuda.libraries.libraries import SIZES, LibraryWork
from sardonyx.cuda.libraries.measuring import CALLS, Loan
from sardonyx.cuda.libraries.proving import Trial
from sardonyx.plan.vendor_offers import BATCHES, MATMUL
from sardonyx.runtime.storage import Array

#: Right factors together, which are weights, are larger than the device's cache if they are large.
_MOST_FACTORS = 256 << 20


def trial_of(
    work: LibraryWork, device: Device, loan: Loan, stream: Any, *, is_measured: bool
) -> tuple[Trial, Iterator[LibraryWork]]:
    """Memory for a product, and the same work there, again and again.

    Args:
        work: Of a run.
        device, loan, stream: See `Trial`.
        is_measured: Whether there are several right factors, so that the cache does not hold them.
    """
    n = dict(zip(MATMUL, work.numbers, strict=True))
    operands: dict[object, tuple[int, str]] = {
        "left": (_extent(n, "left", "mk"), work.dtype),
        "right": (_extent(n, "right", "kn"), work.dtype),
        "out": (_extent(n, "out", "mn"), work.result),
    }
    factors, copies = operands["right"], 1
    if work.residual:
        operands["residual"] = operands["out"]
    if work.bias:
        operands["bias"] = (n["n"], work.result)
    if is_measured:
        size_bytes = max(1, factors[0] * SIZES[factors[1]])
        copies = min(CALLS, max(1, _MOST_FACTORS // size_bytes))
    operands |= {f"right {k}": factors for k in range(1, copies)}
    batches = range(BATCHES)
    shape = [*(n[f"batch_{k}"] for k in batches), n["m"], n["n"]]
    trial = Trial(
        device, loan, stream, operands, "out", shape, _steps(n, "out", "mn"), _reference(work, n)
    )
    at = trial.places
    each = [
        replace(
            work, left=at["left"], right=at[right], out=at["out"], bias=at.get("bias", 0),
            residual=at.get("residual", 0),
        )
        for right in ("right", *(f"right {k}" for k in range(1, copies)))
    ]  # fmt: skip
    return trial, itertools.cycle(each)


def _steps(n: dict[str, int], name: str, axes: str) -> list[int]:
    """Strides of a matrix: of the batch's axes, then of its own."""
    return [*(n[f"{name}_{k}"] for k in range(BATCHES)), *(n[f"{name}_{axis}"] for axis in axes)]


def _extent(n: dict[str, int], name: str, axes: str) -> int:
    """Elements from the first to the last of a factor, or of the result."""
    counts = [*(n[f"batch_{k}"] for k in range(BATCHES)), *(n[axis] for axis in axes)]
    steps = _steps(n, name, axes)
    return sum((count - 1) * step for count, step in zip(counts, steps, strict=True)) + 1


def _reference(work: LibraryWork, n: dict[str, int]) -> Reference:
    depth = np.arange(n["k"])
    left, right, out = (
        np.array(_steps(n, *x)) for x in (("left", "mk"), ("right", "kn"), ("out", "mn"))
    )

    def values(numbers: Numbers, at: Array) -> Array:
        batch, rows, columns = at[:, :BATCHES], at[:, -2], at[:, -1]
        lefts = (batch @ left[:BATCHES] + rows * left[-2])[:, None] + depth * left[-1]
        rights = (batch @ right[:BATCHES] + columns * right[-1])[:, None] + depth * right[-2]
        total = (numbers("left", lefts) * numbers("right", rights)).sum(1)
        added = [numbers("residual", at @ out)] if work.residual else []
        if work.bias:
            added.append(numbers("bias", columns))
        return finished(total, added, work.activation)

    return Reference(n["k"], values)
