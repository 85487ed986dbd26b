"""What threads noted, put together: one call for each time that a command was done."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sardonyx.base.records import dataclass
from sardonyx.native.layout import SPAN
from sardonyx.profiling.clock import Clock
from sardonyx.runtime.recording import RunTrace

_COMMAND, _BEGIN, _END, _BLOCKS, _STARTED, _ENDED = (SPAN[name] for name in SPAN.names)


@dataclass(slots=True)
class CallShare:
    """What one thread did of a call.

    Attributes:
        thread: 0 is the caller of the run.
        started_ns: When its first blocks began; `ended_ns`: when its last ones ended.
        busy_ns: How long it worked.
        blocks: How many blocks it did.
        claims: The sizes of what it took at once.
    """

    thread: int
    started_ns: float
    ended_ns: float
    busy_ns: float
    blocks: int
    claims: list[int]


@dataclass(slots=True)
class CommandCall:
    """A command that was done.

    Attributes:
        command: Its number in the plan.
        started_ns, ended_ns: When, on the first and on the last thread that had part in it.
        shares: What each thread did; empty for calls of the host, and on a device.
        kernel: What a device did; "" for the command's own kernel.
    """

    command: int
    started_ns: float
    ended_ns: float
    shares: list[CallShare]
    kernel: str = ""

    @property
    def duration_ns(self) -> float:
        """From the first beginning to the last end."""
        return self.ended_ns - self.started_ns

    @property
    def thread(self) -> int:
        """The thread that it belongs to: the caller, or who did it alone."""
        return min((share.thread for share in self.shares), default=0)


def calls_of(trace: RunTrace, clock: Clock) -> list[CommandCall]:
    """The calls of a run, in the order in which they began."""
    found = _of_spans(trace, clock)
    for moment in trace.moments:
        if moment.command >= 0:
            found.append(CommandCall(moment.command, moment.started_ns, moment.ended_ns, []))
    if trace.device:
        # The device's clock has another origin. The host waits for the last command.
        start = trace.ended_ns - max(span.start_ns + span.duration_ns for span in trace.device)
        for span in trace.device:
            begin = start + span.start_ns
            found.append(
                CommandCall(span.command, begin, begin + span.duration_ns, [], span.kernel)
            )
    found.sort(key=lambda call: call.started_ns)
    return found


def _of_spans(trace: RunTrace, clock: Clock) -> list[CommandCall]:
    if not trace.spans:
        return []
    every = np.concatenate([rows for _, rows in trace.spans])
    order = np.lexsort((every[:, _STARTED], every[:, _COMMAND]))
    spans = every[order]
    of_rows = np.repeat([t for t, _ in trace.spans], [len(rows) for _, rows in trace.spans])
    firsts = np.flatnonzero(_begins(spans, bool(trace.dropped)))
    started, ended = clock.ns(spans[:, _STARTED]), clock.ns(spans[:, _ENDED])
    last = np.maximum.reduceat(ended, firsts)
    found = []
    bounds = [*firsts.tolist(), len(spans)]
    threads, sizes = of_rows[order].tolist(), (spans[:, _END] - spans[:, _BEGIN]).tolist()
    began, over = started.tolist(), ended.tolist()
    commands = spans[:, _COMMAND].tolist()
    for k, first in enumerate(bounds[:-1]):
        shares: dict[int, CallShare] = {}
        for row in range(first, bounds[k + 1]):
            share = shares.get(threads[row])
            if share is None:
                share = shares[threads[row]] = CallShare(threads[row], began[row], 0.0, 0.0, 0, [])
            share.ended_ns = over[row]
            share.busy_ns += over[row] - began[row]
            share.blocks += sizes[row]
            share.claims.append(sizes[row])
        found.append(CommandCall(commands[first], began[first], float(last[k]), [*shares.values()]))
    return found


def _begins(spans: NDArray[np.int64], has_gaps: bool) -> NDArray[np.bool_]:
    """Which rows, sorted by command and time, begin a call.

    All blocks of a call are begun before the next call of the same command is: counting blocks says
    where one ends. Where notes are missing, block 0 must do.
    """
    new = np.ones(len(spans), np.bool_)
    new[1:] = spans[1:, _COMMAND] != spans[:-1, _COMMAND]
    if has_gaps:
        marked: NDArray[np.bool_] = new | (spans[:, _BEGIN] == 0)
        return marked
    width = spans[:, _END] - spans[:, _BEGIN]
    before = np.cumsum(width) - width
    firsts = np.flatnonzero(new)
    counts = np.diff([*firsts, len(spans)])
    within = before - np.repeat(before[firsts], counts)
    blocks = np.maximum(spans[:, _BLOCKS], 1)
    is_even = np.minimum.reduceat(blocks, firsts) == np.maximum.reduceat(blocks, firsts)
    begins: NDArray[np.bool_] = new | (within % blocks == 0)
    for first, count in zip(firsts[~is_even].tolist(), counts[~is_even].tolist(), strict=True):
        # The number of blocks changes from call to call.
        done = total = 0
        for row in range(first, first + count):
            begins[row] = done >= total
            if begins[row]:
                done, total = 0, int(blocks[row])
            done += int(width[row])
    return begins
