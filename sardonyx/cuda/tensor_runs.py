"""Calls with tensors of torch that are like the last one.

They are put in torch's current stream, which then need not wait for another one, and their results
are in memory of torch's own. No array of ours is made: a call costs little more than its graph.
Where libraries read feeds or write results a graph serves few addresses: such plans stay in our own
stream, and their results in our memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.alike import UNALIGNED, Alike, RunsAlike, heard
from sardonyx.cuda.frame import CudaFrame
from sardonyx.cuda.graphs import GRAPH_ID
from sardonyx.cuda.launching import library_words
from sardonyx.cuda.torch_tensors import known_torch


class TensorRuns(RunsAlike):
    """The part of `executor.CudaExecutable` for such calls."""

    @cached_property
    def follows_tensors(self) -> bool:
        """See `Executable.follows_tensors`."""
        moving = library_words(self.image, self.image.hosted)[2]
        return self._default_queue is None and not moving

    def tensors_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.tensors_alike`."""
        torch = known_torch(self.device, feeds[0])
        if torch is None or not self.follows_tensors:
            return None
        handle = torch.stream()
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        sound, results = True, None
        try:
            alike = frame.alike
            if alike is None or not self._may_replay_in(frame, alike, handle):
                return None
            at = torch.addresses(feeds, alike.feeds, UNALIGNED)
            if at is None or torch.is_captured(alike.queue):
                return None
            results = torch.new([(shape, dtype) for shape, dtype, *_ in alike.results])
            if results is None:
                return None
            at += [x.data_ptr() for x in results]
            sound = False
            if self._replay_tensors(frame, alike, at):
                heard(self, frame)
            else:
                results = frame.alike = None
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise
        finally:
            self._let_go(frame, sound)
        return results

    def _may_replay_in(self, frame: CudaFrame, alike: Alike, handle: int) -> bool:
        """Whether the graph of the frame's last run may come next in a stream."""
        queue, busy = alike.queue, frame.busy
        return (
            queue.handle == handle
            and queue is frame.queue
            and alike.graph is not None
            and not frame.copied
            # A run that was left comes first, and somebody must hear of its faults.
            and (busy is None or (busy[0] is queue and not frame.has_fault))
            and alike.number == GRAPH_ID.get()
            and alike.version == self.libraries.version
        )

    def _replay_tensors(self, frame: CudaFrame, alike: Alike, at: list[int]) -> bool:
        """Replay the graph with other addresses, and wait for it; False if it cannot be."""
        sent = (0, 0, 0)
        if at != alike.addresses:
            if not self._rewrite(frame, alike, at):
                return False
            frame.new_serial()  # who remembers the run before would find its arguments no more
            sent = frame.launches.staged()
        assert alike.graph is not None  # noqa: S101 - asked before
        frame.graph = alike.graph
        frame.graphs.count()
        frame.replays.go(alike.graph.handle, alike.queue.handle, frame.is_patient, sent)
        if not frame.is_patient:
            with self.device.entered():
                frame.finish()
        return True
