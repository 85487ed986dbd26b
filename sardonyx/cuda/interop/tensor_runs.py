"""Calls with tensors of torch whose shapes are those of the last one.

They are put in torch's current stream, which then need not wait for another one, and their results
are in memory of torch's own. No array of ours is made: a call costs little more than its graph.
Where libraries read feeds or write results a graph serves few addresses: such plans stay in our own
stream, and their results in our memory.
"""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.interop.torch_tensors import known_torch
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.last_run import UNALIGNED, LastRun, Replays
from sardonyx.cuda.run.launching import library_words


def follows_tensors(state: DeviceState) -> bool:
    """See `DeviceFacts.follows_tensors`."""
    return state.stream is None and not library_words(state.image, state.image.hosted)[2]


class TensorRuns:
    """Does such calls.

    Args:
        frames: Those of the executable.
        replays: Replays graphs of last runs.
    """

    def __init__(self, frames: CudaFrames, replays: Replays) -> None:
        self._device, self._frames, self._free = frames.state.device, frames, frames.free
        self._replays = replays

    def try_run(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `runtime.try_run.TryRun`, for `TENSORS`."""
        torch = known_torch(self._device, feeds[0])
        if torch is None:
            return None
        handle = torch.stream()
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        sound, results, replays = True, None, self._replays
        try:
            last = frame.last_run
            if last is None or not self._may_replay_in(frame, last, handle):
                return None
            replay = last.replay or last.replay_in(frame)
            given = replay.given
            if not torch.put_addresses(feeds, last.feeds, UNALIGNED, given):
                return None
            makers = last.makers or torch.makers(last.results)
            if makers is None or torch.is_captured(last.queue):
                return None
            last.makers = makers
            results = [make() for make in makers]
            for number, made in enumerate(results, len(feeds)):
                given[number] = made.data_ptr()
            sound = False
            if last.is_fixed:
                frame.graphs.count()
            elif not replays.prepare(frame, last, replay):
                results = frame.last_run = None
                sound = True
                return None
            is_plain, frame.graph = frame.is_patient, last.graph
            if is_plain is not last.waits:
                last.aim(last.graph, is_plain)
            is_faulty = replay.go()
            if not is_plain:
                with self._device.entered():
                    frame.finish()
            replays.heard(frame, is_faulty if is_plain else frame.contexts.needs_look)
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            replays.give_up(frame)
            raise
        finally:
            self._frames.let_go(frame, sound)
        return results

    def _may_replay_in(self, frame: CudaFrame, last: LastRun, handle: int) -> bool:
        """Whether the graph of the frame's last run may come next in a stream."""
        queue, busy = last.queue, frame.busy
        return (
            queue.handle == handle
            and queue is frame.queue
            and not frame.libraries.copied
            # A run that was left comes first, and somebody must hear of its faults.
            and (busy is None or (busy[0] is queue and not frame.contexts.needs_look))
            and self._replays.is_current(last)
        )
