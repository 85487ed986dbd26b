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
from sardonyx.cuda.interop.torch_tensors import known_torch
from sardonyx.cuda.run.fast_path import UNALIGNED, CudaFastPath, LikeRun, heard
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.launching import library_words


class TensorRuns(CudaFastPath):
    """The part of `executable.CudaExecutable` for such calls."""

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
            given = (alike.replay or alike.replay_in(frame)).given
            if not torch.put_addresses(feeds, alike.feeds, UNALIGNED, given):
                return None
            makers = alike.makers or torch.makers(alike.results)
            if makers is None or torch.is_captured(alike.queue):
                return None
            alike.makers = makers
            results = [make() for make in makers]
            for number, made in enumerate(results, len(feeds)):
                given[number] = made.data_ptr()
            sound = False
            if not self._replay_tensors(frame, alike):
                results = frame.alike = None
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise
        finally:
            self._let_go(frame, sound)
        return results

    def _may_replay_in(self, frame: CudaFrame, alike: LikeRun, handle: int) -> bool:
        """Whether the graph of the frame's last run may come next in a stream."""
        queue, busy = alike.queue, frame.busy
        return (
            queue.handle == handle
            and queue is frame.queue
            and not frame.copied
            # A run that was left comes first, and somebody must hear of its faults.
            and (busy is None or (busy[0] is queue and not frame.needs_look))
            and self._is_current(alike)
        )

    def _replay_tensors(self, frame: CudaFrame, alike: LikeRun) -> bool:
        """Replay the graph with other addresses, and wait for it; False if it cannot be."""
        replay, is_plain = alike.replay, frame.is_patient
        assert replay is not None  # noqa: S101 - it has the addresses
        if alike.is_fixed:
            frame.graphs.count()
        elif not self._prepare(frame, alike, replay):
            return False
        frame.graph = alike.graph
        if is_plain is not alike.waits:
            alike.aim(alike.graph, is_plain)
        is_faulty = replay.go()
        if not is_plain:
            with self.device.entered():
                frame.finish()
        heard(self, frame, is_faulty if is_plain else frame.needs_look)
        return True
