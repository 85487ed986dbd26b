"""Plans whose host functions come last, and give nothing but results: ZipMap, and text as labels.

Short runs of such plans need no table of objects: what the functions give is the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.object_types import ObjectType
from sardonyx.host.items import Items
from sardonyx.plan.host_epilogue import epilogue_commands, targets_of
from sardonyx.plan.plan import Plan, PointerArgument
from sardonyx.runtime.arena import Words
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.host_arrays import array_at
from sardonyx.runtime.host_calls import HostPlan, Strings, given_out
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.storage import Array

#: Makes of what a function gives what callers get.
_Give = Callable[[Any], Any]

#: Of a call: what is called, type, rank and first argument of each operand, for each result the
#: number of the output and what makes it.
_Call = tuple[Callable[..., Any], list[tuple[np.dtype[Any], int, int]], list[tuple[int, _Give]]]

#: The same with the operands, or None where they lie elsewhere in every run.
_Ready = tuple[_Call, list[Array] | None]


class HostEpilogue:
    """The calls at the end of a plan.

    Args:
        plan: One that `epilogue_commands` takes.
        host: Its functions.
        places: Where the arguments of each command begin.
    """

    def __init__(self, plan: Plan, host: HostPlan, places: dict[int, int]) -> None:
        self._strings = Strings(host.strings, host.codes)
        self._texts = [k for k, x in enumerate(plan.outputs) if x.dtype is dtypes.STRING]
        #: For each call whether its operands stay where they are in a frame.
        self._calls: list[tuple[_Call, bool]] = []
        for number, command, signature in epilogue_commands(plan) or ():
            at, operands, stay = places[number], [], True
            for dtype, rank in filter(None, signature.operands):
                operands.append((dtype.stored, rank, at))
                pointer = command.arguments[at - places[number]]
                stay &= isinstance(pointer, PointerArgument) and (
                    plan.buffers[pointer.buffer].kind in ("arena", "constant")
                )
                at += 2 + 2 * rank
            function = host.function(number, signature)
            makers = [_maker(x.dtype) for x in signature.results if x is not None]
            targets = list(zip(targets_of(plan, command, signature), makers, strict=True))
            self._calls.append(((function, operands, targets), stay))

    @classmethod
    def of(cls, host: HostPlan | None, image: PlanTables) -> HostEpilogue | None:
        """Those of an image's plan, if it is one of these."""
        if host is None or not image.ends_on_host:
            return None
        return cls(image.plan, host, image.argument_places)

    def _ready(self, frame: Frame) -> list[_Ready]:
        arguments = frame.table("arguments")
        return [(call, _operands(call, arguments) if stay else None) for call, stay in self._calls]

    def finish(self, frame: Frame, outputs: list[Any]) -> None:
        """Put what the functions give, and texts for codes, in place of some outputs."""
        ready: list[_Ready] | None = frame.epilogue
        if ready is None:
            ready = frame.epilogue = self._ready(frame)
        for call, operands in ready:
            function, _, targets = call
            if operands is None:
                operands = _operands(call, frame.table("arguments"))
            found = function(*operands)
            if len(targets) == 1:
                target, give = targets[0]
                outputs[target] = give(found)
                continue
            for (target, give), value in zip(targets, found, strict=True):
                outputs[target] = give(value)
        for number in self._texts:
            outputs[number] = self._strings.decode(outputs[number])


def _maker(dtype: DType) -> _Give:
    """What makes a result of a function's: it is new, so a flat list may be given out itself."""
    if isinstance(dtype, ObjectType) and dtype.form == "sequence":
        inner = dtype.element
        if not isinstance(inner, ObjectType) or inner.form == "map":
            return Items.given_up
    return given_out


def _operands(call: _Call, arguments: Words) -> list[Array]:
    return [
        array_at((dtype, rank), arguments[at : at + 2 + 2 * rank].tolist())
        for dtype, rank, at in call[1]
    ]
