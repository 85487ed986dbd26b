"""What the processor does where native code stops for Python: results, and calls of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.base.errors import RuntimeException, message
from sardonyx.base.interrupt import watching
from sardonyx.plan.plan import Command
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.host_calls import HostPlan, HostTable
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.results import check_output, new_result


class HostStops:
    """See `runtime.native_runs.Stops`.

    Args:
        image: The plan.
        host: Its functions of the host; None if it has no objects.
        budget: What objects count in.
    """

    def __init__(self, image: PlanTables, host: HostPlan | None, budget: Budget) -> None:
        self._image, self._host, self._budget = image, host, budget
        self._plan = image.plan

    def encoded(self, frame: Frame, feeds: Sequence[object]) -> tuple[object, ...]:
        """The feeds, with codes for objects, whose table the frame has from now on."""
        if self._host is None:
            return tuple(feeds)
        frame.host = HostTable(self._host, self._budget)
        return frame.host.encode(self._plan.inputs, feeds)

    def decoded(self, frame: Frame, outputs: list[Any]) -> list[Any]:
        """The outputs, with objects for codes."""
        return outputs if frame.host is None else frame.host.decode(self._plan.outputs, outputs)

    def give_results(self, frame: Frame, segment: int, outputs: list[Any]) -> None:
        """See `Stops.give_results`."""
        frame.reserve_results(segment)
        for number in self._image.later[segment]:
            result = frame.result(number)
            if outputs[number] is None:
                outputs[number] = new_result(frame, result)
            else:
                check_output(self._plan, number, result, outputs[number])
        frame.give(segment, {number: outputs[number] for number in self._image.later[segment]})

    def call_host(self, frame: Frame, number: int) -> None:
        """See `Stops.call_host`."""
        command = self._plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - native code stops at no other
        assert frame.host is not None  # noqa: S101 - a plan with such commands has a table
        start = self._image.argument_places[number]
        words = frame.table("arguments")[start : start + len(command.arguments)]
        with watching(frame.checkpoint):
            frame.host.call(number, command, words.tolist())
        frame.go_on(number + 1)

    def not_launched(self, frame: Frame, code: int) -> Exception:  # noqa: ARG002 - of all providers
        """See `Stops.not_launched`."""
        return RuntimeException(message("run", f"A kernel is refused with code {code}"))
