"""Frames of a plan in native code: entered, and entered again where it stops for Python."""

from __future__ import annotations

from typing import Any, Protocol

from sardonyx.base.interrupt import Interrupted
from sardonyx.native.execute import CANCELLED
from sardonyx.native.functions import library
from sardonyx.native.layout import (
    NEED_GROWTH,
    NEED_HOST,
    NEED_MEMORY,
    NEED_RESULTS,
    NOT_LAUNCHED,
    REFUSED,
)
from sardonyx.runtime import refusals
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.plan_tables import PlanTables


class Stops(Protocol):
    """What a provider does where native code stops."""

    def give_results(self, frame: Any, segment: int, outputs: list[Any]) -> None:
        """Have memory for the outputs whose shapes a segment has brought, and put it in `outputs`.

        Raises:
            OutOfMemory: There is none.
        """

    def call_host(self, frame: Any, number: int) -> None:
        """Do the command at which native code stopped, and say where it goes on.

        Raises:
            Interrupted: The run shall end.
        """

    def not_launched(self, frame: Any, code: int) -> Exception:
        """What to raise when a device refuses work."""


class Crew(Protocol):
    """Threads that a run has beside its own.

    Attributes:
        address: Where native code finds them.
    """

    address: int

    def may_work_in(self, frame: Frame) -> bool:
        """Have memory for each to work in; False if the session may not have so much."""


class NativeRuns:
    """The native functions, for frames of one plan.

    Args:
        image: The plan.
        stops: What happens where native code stops.
        flushes_denormals: Whether the smallest numbers count as 0.

    Attributes:
        bind, execute, fits, again: See the functions of these names in `native`.
        resolves: How often shapes were new to a frame.
    """

    def __init__(self, image: PlanTables, stops: Stops, flushes_denormals: bool = False) -> None:
        self.image, self._stops = image, stops
        native = library()
        self.bind, self.fits, self._resolve = native.bind, native.fits, native.resolve
        self.execute, self.again = native.execute, native.again
        if flushes_denormals:
            self.execute, self.again = native.flushing_execute, native.flushing_again
        self.resolves = 0

    def resolve(self, frame: Frame) -> None:
        """Work out the sizes of a frame whose feeds have new shapes, and have memory for them.

        Raises:
            InvalidArgument: The plan does not take such shapes.
            OutOfMemory: There is not enough memory.
        """
        self.resolves += 1
        code = self._resolve(frame.address, 0)
        if code:
            frame.invalidate()
            raise refusals.refusal(code, frame, self.image)
        frame.prepare()

    def walk(self, frame: Frame, items: int, outputs: list[Any], crew: Crew | None = None) -> int:
        """Do the commands of a bound frame; gives the fault's code, or 0.

        Args:
            frame: The run's.
            items: The address of the addresses of the outputs' arrays.
            outputs: The same; those that are None are made when their shapes are known.
            crew: Threads that take part.
        """
        address, stops = 0 if crew is None else crew.address, self._stops
        # Between two rounds Python's signal handlers run: Ctrl-C ends a long run.
        while (code := self.execute(frame.address, items, address)) < 0:
            if code == NEED_MEMORY:
                frame.supply(frame.get("detail_a"))
                if crew is not None and not crew.may_work_in(frame):
                    address = 0
            elif code == NEED_RESULTS:
                stops.give_results(frame, frame.get("detail_a"), outputs)
            elif code == NEED_GROWTH:
                frame.grow()
            elif code == NEED_HOST:
                try:
                    stops.call_host(frame, frame.get("command"))
                except Interrupted:
                    return CANCELLED
            elif code == REFUSED:
                raise refusals.refusal(frame.get("detail_c"), frame, self.image)
            elif code == NOT_LAUNCHED:
                raise stops.not_launched(frame, frame.get("detail_a"))
        return code
