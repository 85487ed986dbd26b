"""What the driver of the tests has of CUDA's: result codes, records, and types of functions."""

from __future__ import annotations

import ctypes
import enum
import types
from collections.abc import Callable
from functools import wraps
from typing import Any

KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p])
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
FETCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)
WAIT = ENTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
REPLAY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
#: Functions of the driver that are called by their addresses alone, with their arguments.
DIRECT = {
    "cuCtxGetCurrent": (ctypes.c_void_p,),
    "cuStreamIsCapturing": (ctypes.c_void_p, ctypes.c_void_p),
    "cuThreadExchangeStreamCaptureMode": (ctypes.c_void_p,),
    "cuStreamGetCaptureInfo": (ctypes.c_void_p,) * 6,
    "cuUserObjectCreate": (*(ctypes.c_void_p,) * 3, ctypes.c_uint, ctypes.c_uint),
    "cuGraphRetainUserObject": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint),
}
#: CU_STREAM_CAPTURE_MODE_GLOBAL, which callers capture in, and CU_STREAM_CAPTURE_MODE_RELAXED.
GLOBAL, RELAXED = 0, 2


def signed(handle: int) -> int:
    """A handle of ours, which may be below zero, as C's callers have it."""
    return ctypes.c_int64(handle).value


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905
    CUDA_ERROR_CAPTURED_EVENT = 907


def in_a_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that the driver refuses to a thread which has entered no device."""

    @wraps(function)
    def checked(self: Any, *given: Any) -> Any:
        if not self.context:
            return (CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        return function(self, *given)

    return checked


class LaunchRecord(ctypes.Structure):
    """The driver's record of a launch."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


class Names:
    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(value=1, name=name)


class CUmemorytype(enum.IntEnum):
    CU_MEMORYTYPE_HOST = 1
    CU_MEMORYTYPE_DEVICE = 2
    CU_MEMORYTYPE_UNIFIED = 4


class Event:
    """What was under way in a stream when the event was recorded; done once that is."""

    stream: int | None = None
    mark = 0
    is_captured = False
    asked = 0
