"""Arrays for results: new ones, and those of callers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, OutOfMemory, message
from sardonyx.base.handlers import pass_on
from sardonyx.native.layout import NEEDED_FLAGS
from sardonyx.plan.plan import Plan
from sardonyx.runtime.frame import Frame, Result
from sardonyx.runtime.storage import Array


def check_outputs(plan: Plan, frame: Frame, outputs: list[Any]) -> None:
    """Refuse arrays that the results of a resolved frame cannot be written to.

    Raises:
        InvalidArgument: There are too few or too many, or one does not fit.
    """
    if len(outputs) != len(frame.results):
        what = "The number of outputs is wrong"
        raise InvalidArgument(
            message("run", what, expected=str(len(frame.results)), got=str(len(outputs)))
        )
    for number, result in enumerate(frame.results):
        if result is not None:
            check_output(plan, number, result, outputs[number])


def check_output(plan: Plan, number: int, result: Result, array: object) -> None:
    """The same for one output, by its number."""
    shape, dtype = result
    where = f"output {plan.outputs[number].name}"
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        found = f"{array.dtype}{array.shape}" if isinstance(array, np.ndarray) else "none"
        what = "The array to write to does not fit"
        raise InvalidArgument(message(where, what, expected=f"{dtype}{shape}", got=found))
    if not array.flags.writeable or array.flags.num & NEEDED_FLAGS != NEEDED_FLAGS:
        what = "The array to write to is read-only, not contiguous or not aligned"
        raise InvalidArgument(message(where, what))


def new_results(frame: Frame) -> list[Array | None]:
    """Arrays for the results of a resolved frame; None for those whose shapes are not known yet.

    Raises:
        OutOfMemory: There is no memory for them.
    """
    try:
        return frame.recycled.arrays()
    except (MemoryError, ValueError) as error:
        pass_on(error)
        raise _no_memory(frame) from None


def new_result(frame: Frame, result: Result) -> Array:
    """A new array for a result.

    Raises:
        OutOfMemory: There is no memory for it.
    """
    try:
        return np.empty(*result)
    except (MemoryError, ValueError) as error:
        pass_on(error)
        raise _no_memory(frame, result) from None


def _no_memory(frame: Frame, *more: Result) -> OutOfMemory:
    shapes = [r for r in (*frame.results, *more) if r is not None]
    listed = ", ".join(f"{dtype}{shape}" for shape, dtype in shapes)
    return OutOfMemory(message("run", f"There is no memory for outputs of {listed}"))
