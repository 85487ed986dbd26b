"""Streams: queues of a device's work, our own and those of callers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cuda.driver.driver import bindings, call, direct

if TYPE_CHECKING:
    from sardonyx.cuda.driver.device import Device

#: CUDA_ERROR_NOT_READY
_NOT_READY = 600
#: Handles that mean the current device's own streams: none, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
DEFAULT_STREAMS = frozenset((0, 1, 2))
#: All other handles are addresses of the driver's, and below this there are none.
_LEAST_HANDLE = 4096
#: CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED
_UNKNOWN = frozenset((201, 400, 709))


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
            with device.entered():
                self.handle = int(call("cuEventCreate", flags))

    @property
    def is_done(self) -> bool:
        """Whether the work before it has happened."""
        if not self._is_done:
            self._is_done = self._code() == 0
        return self._is_done

    def _code(self) -> int:
        """What the driver says of it."""
        query = direct().get("cuEventQuery")
        with self._device.entered():
            return int(query(self.handle) if query else bindings().cuEventQuery(self.handle)[0])

    @property
    def is_over(self) -> bool:
        """`is_done`, or something failed, and it never will be."""
        return self.is_done or self._code() != _NOT_READY

    def synchronize(self) -> None:
        """Wait for it on the host."""
        if not self.is_done:
            with self._device.entered():
                call("cuEventSynchronize", self.handle)
            self._is_done = True

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._device.spare_events.append(self.handle)


def handle_of(stream: Any) -> int:
    """The handle of a stream of any library: a number, text, or an object that has one.

    Raises:
        InvalidArgument: It is none of these, or no handle that the driver gives.
    """
    handle = _given_handle(stream)
    if handle is None or (handle not in DEFAULT_STREAMS and not _LEAST_HANDLE <= handle < 1 << 64):
        raise _no_stream(stream)
    return handle


def _given_handle(stream: Any) -> int | None:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if isinstance(stream, str):
        try:
            return int(stream, 0)
        except ValueError:
            return None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        found = protocol() if callable(protocol) else protocol
        return int(found[1])
    if hasattr(stream, "get_handle"):
        return int(stream.get_handle())
    # torch's name for it, then cupy's.
    names = ("cuda_stream", "ptr")
    held = (getattr(stream, name, None) for name in names)
    return next((handle for handle in held if isinstance(handle, int)), None)


def check_stream(handle: int, context: int, number: int) -> None:
    """Refuse a stream that works on another device than the one that was entered.

    The driver looks at what the handle points to: an address where there never was a stream may
    end the process.

    Args:
        handle: None of `DEFAULT_STREAMS`.
        context: Of the device that was entered.
        number: Of the same.

    Raises:
        InvalidArgument: It is another device's, or has ended.
    """
    driver = bindings()
    code, *found = driver.cuStreamGetCtx(handle)
    if int(code) in _UNKNOWN:
        what = f"The driver knows no stream {handle:#x}"
        raise InvalidArgument(message("stream", what, do="Was it ended?"))
    # What the driver cannot say of a stream is not held against it.
    if code != 0 or int(found[0]) == context:
        return
    # Contexts of one device, such as those with a part of it, may be several.
    call("cuCtxSetCurrent", int(found[0]))
    code, *device = driver.cuCtxGetDevice()
    call("cuCtxSetCurrent", context)
    if code == 0 and int(device[0]) != number:
        raise InvalidArgument(
            message(
                "stream", f"The stream {handle:#x} is another device's",
                expected=f"a stream of device {number}", got=f"one of device {int(device[0])}",
            )
        )  # fmt: skip


def _no_stream(stream: Any) -> InvalidArgument:
    return InvalidArgument(
        message(
            "stream", "This is no stream", got=repr(stream),
            expected="0, 1, 2 or a handle of the driver's, a stream of torch or cupy, "
            "or an object with __cuda_stream__",
        )
    )  # fmt: skip
