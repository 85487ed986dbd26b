"""GPUs: their context, what they are, how many there are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import RenewedLock
from sardonyx.cuda.driver.driver import bindings, call, current_context, exchange_capture_mode
from sardonyx.cuda.driver.measurement_gate import MeasurementGate
from sardonyx.cuda.driver.stream import DEFAULT_STREAMS, Event, Stream, check_stream, handle_of

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Thread(threading.local):
    """What a thread has entered here, which others may have left since; 0 for nothing."""

    context = 0


_thread = _Thread()


class Entered:
    """While it lasts, this thread's calls mean a device; then what they meant before.

    Whoever calls us may work on another device, as may what a finaliser interrupts. And another
    thread may capture a graph in the mode that forbids all threads what could spoil it; it cannot
    be spoilt from here, where work goes to streams of our own or of a caller.

    Args:
        context: Of the device.
    """

    __slots__ = ("_before", "_context", "_mode", "_outer")

    def __init__(self, context: int) -> None:
        self._context = context

    def __enter__(self) -> None:
        own = self._context
        self._outer, self._before = _thread.context, current_context()
        if self._outer == self._before == own:
            return
        if self._before != own:
            call("cuCtxSetCurrent", own)
        self._mode = exchange_capture_mode()
        _thread.context = own

    def __exit__(self, *_: object) -> None:
        own = self._context
        if self._outer == self._before == own:
            return
        _thread.context = self._outer
        exchange_capture_mode(self._mode)
        if self._before != own:
            call("cuCtxSetCurrent", self._before)


class Device:
    """One GPU, with the context that all libraries of the process share.

    Attributes:
        number: As the driver counts.
        name: As the maker calls it.
        architecture: Such as `sm_90`.
        processors: Number of its multiprocessors.
        measurement_gate: Of runs and measurements.
        callers_captures: How many runs are being recorded into graphs of callers.
    """

    def __init__(self, number: int) -> None:
        count = call("cuDeviceGetCount")
        if not count:
            raise errors.EPFail(message("CUDA", "The driver has no device"))
        if not 0 <= number < count:
            what = f"There is no device {number}"
            raise InvalidArgument(
                message("CUDA device_id", what, expected=f"0 to {count - 1}", got=str(number))
            )
        self.number = number
        self._device = call("cuDeviceGet", number)
        self.context = int(call("cuDevicePrimaryCtxRetain", self._device))
        self.name = call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        major, minor, self.processors = (
            self._attribute(f"CU_DEVICE_ATTRIBUTE_{name}")
            for name in (
                "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT",
            )
        )  # fmt: skip
        self.architecture = f"sm_{major}{minor}"
        self._streams: dict[int, Stream] = {}
        self._copying: Stream | None = None
        self._urgent: Stream | None = None
        self._spare: list[Stream] = []
        #: Handles of events to which nothing refers.
        self.spare_events: list[int] = []
        self._lock = RenewedLock()
        #: Held while a stream is captured: then the driver refuses to look at all streams.
        self.capturing = RenewedLock()
        self.measurement_gate = MeasurementGate()
        self.callers_captures = 0

    def _attribute(self, name: str) -> int:
        which = getattr(bindings().CUdevice_attribute, name)
        return int(call("cuDeviceGetAttribute", which, self._device))

    def enter(self) -> None:
        """Let this thread's calls mean this device from now on: for threads of our own."""
        call("cuCtxSetCurrent", self.context)
        exchange_capture_mode()
        _thread.context = self.context

    def entered(self) -> Entered:
        """Let the calls of a `with` statement mean this device."""
        return Entered(self.context)

    def memory_info(self) -> tuple[int, int]:
        """Free bytes and all bytes."""
        with self.entered():
            free, total = call("cuMemGetInfo")
        return int(free), int(total)

    def new_stream(self) -> Stream:
        """A queue of work that waits for no other."""
        flags = bindings().CUstream_flags.CU_STREAM_NON_BLOCKING.value
        with self.entered():
            handle = int(call("cuStreamCreate", flags))
        return self.stream_of(handle)

    @property
    def urgent(self) -> Stream:
        """A stream whose kernels come before those of others when there is room."""
        if self._urgent is None:
            flags = bindings().CUstream_flags.CU_STREAM_NON_BLOCKING.value
            with self.entered():
                _, first = call("cuCtxGetStreamPriorityRange")
                made = self.stream_of(int(call("cuStreamCreateWithPriority", flags, first)))
            with self._lock:
                self._urgent = self._urgent or made
        return self._urgent

    def lend_stream(self) -> Stream:
        """A stream for one run at a time; `take_back` it."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.new_stream()

    def take_back(self, stream: Stream) -> None:
        """Another may have it."""
        self._spare.append(stream)

    def stream_of(self, handle: int) -> Stream:
        """The stream with a handle of this device."""
        found = self._streams.get(handle)
        return found or self._streams.setdefault(handle, Stream(self, handle))

    def callers_stream(self, given: Any) -> Stream:
        """A stream of a caller: a handle, or what has one; see `stream.handle_of`.

        The driver is asked about a handle when it is given first. A stream may end, and another
        one get its handle: that is not noticed.

        Raises:
            InvalidArgument: It is no stream, or not one of this device.
        """
        handle = handle_of(given)
        found = self._streams.get(handle)
        if found is not None:
            return found
        if handle not in DEFAULT_STREAMS:
            with self.entered():
                check_stream(handle, self.context, self.number)
        return self.stream_of(handle)

    @property
    def copying(self) -> Stream:
        """The stream of copies that belong to no run."""
        if self._copying is None:
            made = self.new_stream()
            with self._lock:
                self._copying = self._copying or made
        return self._copying

    def count_capture(self, change: int) -> None:
        """One more run is being recorded into a graph of a caller, or one less."""
        with self._lock:
            self.callers_captures += change

    def record(self) -> Event:
        """An event behind all work of the device so far, in any stream."""
        with self.entered():
            event = Event(self)
            record = getattr(bindings(), "cuCtxRecordEvent", None)  # CUDA 12.5
            with self.capturing:
                if record is not None and record(self.context, event.handle)[0] == 0:
                    return event
            self.synchronize()
            return self.copying.record()

    def synchronize(self) -> None:
        """Wait, on the host, for all work of the device."""
        with self.entered(), self.capturing:
            call("cuCtxSynchronize")


def open_device() -> Device:
    """A device that somebody in the process works on; the first one if nobody does.

    To open another one takes memory of it, and may be refused.
    """
    for number in range(call("cuDeviceGetCount")):
        _, is_active = call("cuDevicePrimaryCtxGetState", call("cuDeviceGet", number))
        if is_active:
            return device(number)
    return device(0)


class _OnDevice(Protocol):
    device: Device


_Owner = TypeVar("_Owner", bound=_OnDevice)


def on_device(
    method: Callable[Concatenate[_Owner, _Given], _Result],
) -> Callable[Concatenate[_Owner, _Given], _Result]:
    """A method whose calls of the driver mean the device of its object."""

    @wraps(method)
    def inside(self: _Owner, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        with self.device.entered():
            return method(self, *given, **named)

    return inside


@cache
def device(number: int) -> Device:
    """The device with a number; always the same object.

    Raises:
        EPFail: There is no driver.
        InvalidArgument: There is no such device.
    """
    return Device(number)
