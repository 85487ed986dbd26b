"""Feeds of a run on the processor, as native code reads them."""

from __future__ import annotations

from sardonyx.base.errors import EngineError, message
from sardonyx.base.interrupt import counting
from sardonyx.runtime import arrays, refusals
from sardonyx.runtime.arrays import ITEMS_OFFSET, Mirror
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.native_runs import NativeRuns


class Binder:
    """Gives frames of a plan their feeds.

    Args:
        runs: The native functions for the plan.
        budget: What copies of feeds count in.
    """

    def __init__(self, runs: NativeRuns, budget: Budget) -> None:
        self._runs, self._budget, self._inputs = runs, budget, runs.image.plan.inputs

    def bind(self, frame: Frame, feeds: tuple[object, ...]) -> tuple[object, ...]:
        """Give the frame the feeds; what comes back must live as long as the run.

        Raises:
            InvalidArgument: There are too many or too few, or one does not fit.
        """
        if len(feeds) != len(self._inputs):
            raise refusals.wrong_number_of_feeds(len(self._inputs), len(feeds))
        state = self._enter(frame, feeds)
        seen = -1
        while state < 0:
            number = -1 - state
            if number == seen:
                raise EngineError(message("run", f"Feed {number} cannot be made plain"))
            seen = number
            with counting(self._claim, self._budget.give):
                fit = arrays.plain(feeds[number], self._inputs[number])
            feeds = (*feeds[:number], fit, *feeds[number + 1 :])
            state = self._enter(frame, feeds)
        if state:
            self._runs.resolve(frame)
        return feeds

    def _claim(self, size_bytes: int) -> None:
        self._budget.take(size_bytes, "copies of feeds")

    def _enter(self, frame: Frame, feeds: tuple[object, ...]) -> int:
        if arrays.NATIVE:
            return self._runs.bind(frame.address, id(feeds) + ITEMS_OFFSET)
        mirror = Mirror(feeds)  # it must live until native code has read it
        return self._runs.bind(frame.address, mirror.address)
