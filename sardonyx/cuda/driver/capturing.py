"""Streams that a caller captures: which are, what is allowed meanwhile, how long the graph lives.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-user-objects
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import RuntimeException, message
from sardonyx.cuda.driver.driver import bindings, direct, failure

if TYPE_CHECKING:
    from sardonyx.cuda.driver.device import Device
    from sardonyx.cuda.driver.stream import Stream

#: CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_INVALIDATED
_ACTIVE, _BROKEN = 1, 2
#: CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CU_GRAPH_USER_OBJECT_MOVE
_NO_SYNC, _MOVE = 1, 1
#: Room for a semaphore of the C library.
_SEMAPHORE_BYTES = 64


def is_captured(stream: Stream) -> bool:
    """Whether what comes now in a stream goes to a graph of the caller's.

    Raises:
        RuntimeException: It did, and something has broken the capture.
    """
    status = ctypes.c_int()
    with stream.device.entered():
        code = direct()["cuStreamIsCapturing"](stream.handle, ctypes.addressof(status))
    if code:
        return False  # the default stream, while others are captured
    if status.value == _BROKEN:
        what = "Something has broken the capture of the stream before this run"
        raise RuntimeException(message("run", what, do="End the capture, and begin a new one"))
    return status.value == _ACTIVE


class CallersCapture:
    """While it lasts a run is recorded into a graph of the caller's.

    Args:
        device: Where.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._device.count_capture(1)

    def __exit__(self, *_: object) -> None:
        self._device.count_capture(-1)


class Lifetime:
    """Of the graph that a stream is captured to, of all that is made of it, and of their replays.

    The driver posts a semaphore when the last of them is gone: at any time, in any thread, so
    nothing of Python is called.

    Args:
        stream: A stream that `is_captured`.
    """

    def __init__(self, stream: Stream) -> None:
        functions = _semaphores()
        # Memory of the C library: the driver may come back after the interpreter has ended.
        self._address: int = functions.calloc(1, _SEMAPHORE_BYTES)
        functions.sem_init(self._address, 0, 0)
        status, graph, made = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        _checked(
            "cuStreamGetCaptureInfo", stream.handle, ctypes.addressof(status), None,
            ctypes.addressof(graph), None, None,
        )  # fmt: skip
        post = ctypes.cast(functions.sem_post, ctypes.c_void_p).value
        _checked("cuUserObjectCreate", ctypes.addressof(made), self._address, post, 1, _NO_SYNC)
        _checked("cuGraphRetainUserObject", graph.value, made.value, 1, _MOVE)

    @property
    def is_over(self) -> bool:
        """Whether none of them is there any more."""
        found = ctypes.c_int()
        _semaphores().sem_getvalue(self._address, ctypes.addressof(found))
        return found.value > 0

    def __del__(self) -> None:
        if getattr(self, "_address", 0) and self.is_over:
            _semaphores().free(self._address)


@cache
def _semaphores() -> Any:
    library = ctypes.CDLL(None)
    library.calloc.argtypes, library.calloc.restype = (ctypes.c_size_t,) * 2, ctypes.c_void_p
    library.free.argtypes = (ctypes.c_void_p,)
    library.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    library.sem_getvalue.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return library


def _checked(name: str, *arguments: Any) -> None:
    function = direct().get(name)
    if function is None:
        raise RuntimeException(message("CUDA", f"The driver {bindings()!r} has no {name}"))
    code = function(*arguments)
    if code:
        raise failure(name, code)
