"""What must hold between a plan and the arrays that it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from sardonyx.base import integer
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Dim
from sardonyx.plan.plan import Guard, Plan


def checked(plan: Plan, constants: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The arrays behind a plan's constants.

    Raises:
        EngineError: There are too few, or one is not contiguous.
    """
    if len(constants) < plan.constant_count:
        what = f"There are {len(constants)} constants where {plan.constant_count} are used"
        raise EngineError(message("plan", what))
    for number, array in enumerate(constants):
        if not array.flags.c_contiguous:
            raise EngineError(message("plan", f"Constant {number} is not contiguous"))
    return list(constants)


def size_guards(plan: Plan, constants: Sequence[NDArray[Any]]) -> list[Guard]:
    """Buffers of others must be as large as the plan says."""
    guards = []
    for buffer in plan.buffers:
        if buffer.kind == "input":
            actual: Dim = plan.size_of(plan.inputs[buffer.number])
        elif buffer.kind == "output":
            actual = plan.size_of(plan.outputs[buffer.number])
        elif buffer.kind == "constant":
            actual = constants[buffer.number].nbytes
        else:
            continue
        larger = integer.maximum(buffer.size_bytes, actual)
        if larger != actual:
            reason = f"{buffer.kind} {buffer.number} must hold {buffer.size_bytes!r} bytes"
            guards.append(Guard(larger, actual, reason, buffer.segment))
    return guards
