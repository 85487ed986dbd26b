"""How long each kernel of an engine takes in its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.native.layout import SPAN
from sardonyx.plan.plan import Command
from sardonyx.plan.steps import JumpIfLess

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine
    from sardonyx.runtime.recording import RunTrace

#: Columns of what threads noted.
_COMMAND, _STARTED, _ENDED = (SPAN.names.index(n) for n in ("command", "started", "ended"))


class KernelTimes:
    """Measures runs of one engine; see `runtime.recording.Sink`.

    Args:
        engine: All its runs are recorded from now on.

    Attributes:
        most_spans: How much of a run is noted.
    """

    most_spans = 1 << 20

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[str, float] = {}
        engine.record_runs(self)

    def run(self, feeds: Sequence[Any]) -> dict[str, float]:
        """Run once: by the name of a kernel, how long its commands took, in ticks of a clock."""
        self._found = {}
        self._engine.run(feeds)
        return self._found

    def take(self, trace: RunTrace) -> None:
        """A run is over.

        A command takes from when its first block begins to when its last one ends, since threads
        that have no block left wait for the others. In a loop there is no telling which times
        belong together, so it takes its share of what all threads spent on it.
        """
        if not trace.spans:
            return
        spans, plan = np.concatenate([rows for _, rows in trace.spans]), trace.plan
        loops = any(isinstance(step, JumpIfLess) for step in plan.commands)
        for number in np.unique(spans[:, _COMMAND]).tolist():
            command = plan.commands[number]
            if not isinstance(command, Command):
                continue
            own = spans[spans[:, _COMMAND] == number]
            if loops:
                ticks = float((own[:, _ENDED] - own[:, _STARTED]).sum()) / trace.threads
            else:
                ticks = float(own[:, _ENDED].max() - own[:, _STARTED].min())
            self._found[command.kernel] = self._found.get(command.kernel, 0.0) + ticks
