"""Plans whose host functions come last, and give nothing but results: ZipMap, and text as labels.

Short runs of such plans need no table of objects: what the functions give is the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.plan.late import late_commands, targets_of
from sardonyx.plan.plan import Plan
from sardonyx.runtime.arena import Words
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.host_arrays import array_at
from sardonyx.runtime.host_calls import HostPlan, Strings, given_out
from sardonyx.runtime.image import Image
from sardonyx.runtime.storage import Array

#: Of a call: what is called, type, rank and first argument of each operand, numbers of results.
_Call = tuple[Callable[..., Any], list[tuple[np.dtype[Any], int, int]], list[int]]


class LateCalls:
    """The calls at the end of a plan.

    Args:
        plan: One that `late_commands` takes.
        host: Its functions.
        places: Where the arguments of each command begin.
    """

    def __init__(self, plan: Plan, host: HostPlan, places: dict[int, int]) -> None:
        self._strings = Strings(host.strings, host.codes)
        self._texts = [k for k, x in enumerate(plan.outputs) if x.dtype is dtypes.STRING]
        self._calls: list[_Call] = []
        #: For each first argument of an operand the last arguments, and the array.
        self._arrays: dict[int, tuple[bytes, Array]] = {}
        for number, command, signature in late_commands(plan) or ():
            at, operands = places[number], []
            for dtype, rank in filter(None, signature.operands):
                operands.append((dtype.stored, rank, at))
                at += 2 + 2 * rank
            function = host.function(number, signature)
            self._calls.append((function, operands, targets_of(plan, command, signature)))

    @classmethod
    def of(cls, host: HostPlan | None, image: Image) -> LateCalls | None:
        """Those of an image's plan, if it is one of these."""
        if host is None or not image.is_late:
            return None
        return cls(image.plan, host, image.argument_places)

    def _array(self, arguments: Words, dtype: np.dtype[Any], rank: int, at: int) -> Array:
        words = arguments[at : at + 2 + 2 * rank]
        key = words.tobytes()
        found = self._arrays.get(at)
        if found is None or found[0] != key:
            found = self._arrays[at] = key, array_at((dtype, rank), words.tolist())
        return found[1]

    def finish(self, frame: Frame, outputs: list[Any]) -> None:
        """Put what the functions give, and texts for codes, in place of some outputs."""
        arguments = frame.table("arguments")
        for function, operands, targets in self._calls:
            found = function(*[self._array(arguments, *operand) for operand in operands])
            for target, value in zip(
                targets, found if isinstance(found, tuple) else (found,), strict=True
            ):
                outputs[target] = given_out(value)
        for number in self._texts:
            outputs[number] = self._strings.decode(outputs[number])
