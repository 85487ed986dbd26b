"""Feeds and results of a run on a device: where they lie, and how native code learns of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import ContradictingSizes, InvalidArgument, message
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.arena import MemoryBlock
from sardonyx.cuda.memory.values import CudaArray, CudaMemory, PinnedMemory
from sardonyx.plan.plan import InputSpec
from sardonyx.runtime import arrays
from sardonyx.runtime.frame import Result
from sardonyx.runtime.storage import DeviceArray, MemoryKind, Tensor, fitted

if TYPE_CHECKING:
    from sardonyx.cuda.run.frame import CudaFrame

#: Kernels move so many bytes at once: what begins elsewhere is copied.
KERNEL_ALIGNMENT = 16


def check_feed(feed: CudaArray, spec: InputSpec, where: CudaMemory) -> None:
    """Refuse an array of another device, type or rank.

    Raises:
        InvalidArgument: The feed does not fit.
    """
    name = f"input {spec.name}"
    if feed.device is not where.device:
        raise InvalidArgument(
            message(
                name, "The feed lies on another device than the session works on",
                expected=f"device {where.number}", got=f"device {feed.device.number}",
            )
        )  # fmt: skip
    stored = spec.dtype.stored
    if feed.dtype != stored:
        raise InvalidArgument(
            message(
                name, "The feed has the wrong element type",
                expected=f"{spec.dtype.name} ({stored})", got=str(feed.dtype),
            )
        )  # fmt: skip
    if len(feed.shape) != len(spec.dims):
        kind = InvalidArgument if spec.dims else ContradictingSizes
        raise kind(
            message(
                name,
                "The feed has the wrong rank",
                expected=f"{len(spec.dims)} axes, ({', '.join(map(repr, spec.dims))})",
                got=f"{len(feed.shape)}, {feed.shape}",
            )
        )


def give_feed(
    frame: CudaFrame, number: int, feed: Any, spec: InputSpec, stored: Any
) -> tuple[Any, ...]:
    """Have a feed where kernels reach it; gives what must live as long as the run.

    Args:
        frame: The run's.
        number: Which input.
        feed: An array of any kind.
        spec: What the input must be.
        stored: Its element type.
    """
    queue = frame.queue
    if isinstance(feed, CudaArray):
        is_right = feed.device is frame.memory.device and feed.dtype is stored
        if not is_right or len(feed.shape) != len(spec.dims):
            check_feed(feed, spec, frame.memory)
        feed.ready_in(queue, frame.waited)
        if ("input", number) in frame.libraries.copied and type(feed) is CudaArray:
            frame.feeds.put(number, frame.libraries.copy_in(number, feed, queue), feed.shape)
            return ()
        if feed.address % KERNEL_ALIGNMENT == 0:
            frame.feeds.put(number, feed.address, feed.shape)
            return ()
        held = frame.memory.arena.allocate(feed.nbytes, f"input {spec.name}", queue)
        call("cuMemcpyAsync", held.address, feed.address, feed.nbytes, queue.handle)
        frame.feeds.put(number, held.address, feed.shape)
        return (held,)
    array = arrays.plain(feed, spec)
    first = frame.copies.incoming(queue)
    held = frame.memory.arena.allocate(array.nbytes, f"input {spec.name}", first)
    kept = frame.copies.bring(held.address, array, queue)
    frame.feeds.put(number, held.address, array.shape)
    return held, kept


class DeviceResult:
    """One output of a run.

    Args:
        frame: The run's.
        name: The output's name.
        found: Its shape and type.
        target: Where it is wanted.
        taken: Addresses, from and up to, that a result must not be written to directly.

    Attributes:
        array: What kernels write to.
    """

    __slots__ = ("_is_there", "_target", "array")

    def __init__(
        self,
        frame: CudaFrame,
        name: str,
        found: Result,
        target: Tensor | MemoryKind | None,
        taken: list[tuple[int, int]],
    ) -> None:
        if isinstance(target, (np.ndarray, DeviceArray)):
            target = fitted(name, target, *found)
        self._target = target
        if isinstance(target, CudaArray) and target.device is frame.memory.device:
            first, last = target.address, target.address + target.nbytes
            apart = not any(a < last and first < b for a, b in taken)
            self._is_there = apart and first % KERNEL_ALIGNMENT == 0
            taken.append((first, last))
            if self._is_there:
                target.free_in(frame.queue)
                self.array: CudaArray = target
                return
        else:
            here = frame.memory
            self._is_there = isinstance(target, CudaMemory) and target.number == here.number
        self.array = frame.memory.empty(*found, f"output {name}", frame.queue)

    def finish(self, frame: CudaFrame, kept: list[Any]) -> Tensor:
        """The result where it is wanted; copies, if there are any, are under way.

        Args:
            frame: The run's.
            kept: Gets what must live until the run has happened.
        """
        target, source = self._target, self.array
        if self._is_there:
            return source
        kept.append(source)
        if isinstance(target, CudaArray):
            kept += target.copy_in(source, frame.queue)
            return target
        if isinstance(target, np.ndarray):
            staging.download(source.address, target, frame.copies.outgoing(frame.queue))
            return target
        if target is None or getattr(target, "is_host", False):
            is_any, stream = (
                not isinstance(target, PinnedMemory),
                frame.copies.outgoing(frame.queue),
            )
            return staging.fetched(
                source.address, source.shape, source.dtype, stream, or_any=is_any
            )
        frame.queue.synchronize()
        return target.copy_of(source)  # type: ignore[union-attr]  # a kind of memory is left


def leave(frame: CudaFrame, feeds: Sequence[Any], kept: list[Any], given: Sequence[Tensor]) -> None:
    """Note what a run uses for which nobody waits.

    Args:
        frame: The run's.
        feeds: What was fed.
        kept: What else must live until the run has happened.
        given: Its results.
    """
    queue = frame.queue
    event = queue.record()
    frame.left(event)
    for result in given:
        if isinstance(result, CudaArray):
            result.used_until(queue, event, is_written=True)
    # Blocks of arenas may be let go of, and used again after the event. Others may not.
    used = [*kept, *given, *(f for f in feeds if isinstance(f, CudaArray))]
    foreign = [x for x in used if not _note_use(x, queue, event)]
    if foreign:
        queue.keep(event, foreign)


def _note_use(used: Any, queue: Stream, event: Event) -> bool:
    """Note that work which ends with `event` uses something; False if it must be kept till then."""
    if isinstance(used, MemoryBlock):
        used.uses[queue] = event
        return True
    if isinstance(used, CudaArray):
        used.used_until(queue, event)
        return used.block is not None
    return used is None


def meet(targets: Sequence[CudaArray], feeds: Sequence[CudaArray]) -> bool:
    """Whether memory that is written to is that of a feed, or of another target, too."""
    spans = [(x.address, x.address + x.nbytes, False) for x in feeds]
    spans += [(x.address, x.address + x.nbytes, True) for x in targets]
    spans.sort()
    end = written = 0
    for first, last, is_target in spans:
        if first < (end if is_target else written):
            return True
        end = max(end, last)
        if is_target:
            written = max(written, last)
    return False


def spans_of(feeds: Sequence[Any]) -> list[tuple[int, int]]:
    """Where feeds lie on devices, from and up to."""
    return [(f.address, f.address + f.nbytes) for f in feeds if isinstance(f, CudaArray)]
