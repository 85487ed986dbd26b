"""Streams: queues of a device's work, our own and those of callers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cuda.driver import bindings, call, direct

if TYPE_CHECKING:
    from sardonyx.cuda.device import Device

#: CUDA_ERROR_NOT_READY
_NOT_READY = 600


class Stream:
    """A queue of work; the same object for the same handle, see `Device.stream_of`.

    A caller may end a stream of his: it is touched in his calls alone. What has to wait for a run
    later waits for the event behind it.

    Args:
        device: Where.
        handle: As the driver has it.
    """

    def __init__(self, device: Device, handle: int) -> None:
        self.device, self.handle = device, handle
        self._held: deque[tuple[Event, tuple[Any, ...]]] = deque()

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} of {self.device.name}>"

    def record(self) -> Event:
        """A new event behind all work so far."""
        event = Event(self.device)
        call("cuEventRecord", event.handle, self.handle)
        return event

    def wait_for(self, event: Event) -> None:
        """Let work that comes now begin after an event; the host goes on."""
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def synchronize(self) -> None:
        """Wait, on the host, for all work so far."""
        call("cuStreamSynchronize", self.handle)

    def keep(self, event: Event, *objects: Any) -> None:
        """Let objects live until an event of this stream has happened."""
        self._held.append((event, objects))
        self.forget()

    def forget(self) -> None:
        """Let go of what was kept for events that have happened."""
        while self._held:
            try:
                entry = self._held.popleft()
            except IndexError:  # another thread had it
                return
            if not entry[0].is_done:
                self._held.appendleft(entry)
                return


class Event:
    """A point in a stream, without a time. Handles of the driver are used again.

    Attributes:
        handle: As the driver has it.
    """

    __slots__ = ("_device", "_is_done", "handle")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._is_done = False
        try:
            self.handle: int = device.spare_events.pop()
        except IndexError:
            flags = bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING.value
            self.handle = int(call("cuEventCreate", flags))

    @property
    def is_done(self) -> bool:
        """Whether the work before it has happened."""
        if not self._is_done:
            query = direct().get("cuEventQuery")
            code = query(self.handle) if query else bindings().cuEventQuery(self.handle)[0]
            self._is_done = code == 0
        return self._is_done

    @property
    def is_over(self) -> bool:
        """`is_done`, or something failed, and it never will be."""
        return self.is_done or int(bindings().cuEventQuery(self.handle)[0]) != _NOT_READY

    def synchronize(self) -> None:
        """Wait for it on the host."""
        if not self.is_done:
            call("cuEventSynchronize", self.handle)
            self._is_done = True

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._device.spare_events.append(self.handle)


def handle_of(stream: Any) -> int:
    """The handle of a stream of any library: a number, text, or an object that has one.

    Raises:
        InvalidArgument: It is none of these.
    """
    if isinstance(stream, str):
        try:
            found = int(stream, 0)
        except ValueError:
            raise _no_stream(stream) from None
    elif isinstance(stream, int) and not isinstance(stream, bool):
        found = stream
    else:
        return _handle_in(stream)
    if found < 0:
        raise _no_stream(stream)
    return found


def _handle_in(stream: Any) -> int:
    """The handle that an object has."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        found = protocol() if callable(protocol) else protocol
        return int(found[1])
    if hasattr(stream, "get_handle"):
        return int(stream.get_handle())
    # torch's name for it, then cupy's.
    for name in ("cuda_stream", "ptr"):
        held = getattr(stream, name, None)
        if isinstance(held, int):
            return held
    raise _no_stream(stream)


def _no_stream(stream: Any) -> InvalidArgument:
    return InvalidArgument(
        message(
            "stream", "This is no stream", got=repr(stream),
            expected="a handle, a stream of torch or cupy, or an object with __cuda_stream__",
        )
    )  # fmt: skip
