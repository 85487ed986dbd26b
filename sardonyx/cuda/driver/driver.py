"""NVIDIA's driver, through `cuda-bindings`; nothing is imported before a GPU is asked for."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import OutOfMemory, RuntimeException, installing, message


@cache
def bindings() -> Any:
    """The module with the driver's functions, once initialised.

    Raises:
        EPFail: The package, the driver or a GPU is not there.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        what = f"The package cuda-bindings is missing: {error}"
        raise errors.EPFail(message("CUDA", what, do=installing("cuda"))) from None
    refusal = _start(driver)
    if refusal:
        raise errors.EPFail(message("CUDA", refusal))
    return driver


@cache
def _start(driver: Any) -> str:
    """Start the driver, once in a process; why it does not start, "" if it does.

    A driver that did not start, asked again by a process forked off since, may end that process
    with a memory fault.
    """
    try:
        code, *_ = driver.cuInit(0)
    except RuntimeError as error:  # the package found no driver to load
        return f"There is no driver: {error}"
    if code != driver.CUresult.CUDA_SUCCESS:
        return f"The driver does not start: {code.name}"
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _forked.append(os.getpid()))
    return ""


#: Processes in which the driver does not work: it was started before they were forked off.
_forked: list[int] = []


#: What runs call, with the C types of arguments. Through ctypes such a call costs a fraction.
_HANDLE, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_DIRECT: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_HANDLE,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuMemcpyAsync": (_HANDLE, _HANDLE, _SIZE, _HANDLE),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuStreamSynchronize": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventQuery": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, ctypes.c_uint),
    "cuPointerGetAttribute": (_HANDLE, ctypes.c_int, _HANDLE),
    "cuStreamIsCapturing": (_HANDLE, _HANDLE),
    "cuThreadExchangeStreamCaptureMode": (_HANDLE,),
    "cuStreamGetCaptureInfo": (_HANDLE,) * 6,
    "cuUserObjectCreate": (_HANDLE, _HANDLE, _HANDLE, ctypes.c_uint, ctypes.c_uint),
    "cuGraphRetainUserObject": (_HANDLE, _HANDLE, ctypes.c_uint, ctypes.c_uint),
}
#: Calls that may take long: they let other threads of Python run.
_LONG = frozenset(("cuStreamSynchronize",))
#: CU_STREAM_CAPTURE_MODE_RELAXED
RELAXED = 2
#: The first version of the driver's interface that has what is called here.
INTERFACE = 12000


@cache
def direct() -> dict[str, Callable[..., int]]:
    """Functions of the driver that are called without the package; each gives a code."""
    driver = bindings()
    found: dict[str, Callable[..., int]] = {}
    for name, arguments in _DIRECT.items():
        code, address, *_ = driver.cuGetProcAddress(name.encode(), INTERFACE, 0)
        if code == 0 and address:
            kind = ctypes.CFUNCTYPE if name in _LONG else ctypes.PYFUNCTYPE
            found[name] = kind(ctypes.c_int, *arguments)(int(address))
    return found


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the driver; gives its result, or the tuple of them.

    Raises:
        OutOfMemory: The device has not so much memory.
        RuntimeException: It failed for another reason, which the text names.
    """
    function = direct().get(name)
    if function is not None:
        number = function(*arguments)
        if number:
            raise failure(name, number)
        return None
    code, *results = getattr(bindings(), name)(*arguments)
    if code != 0:
        raise failure(name, int(code))
    return results[0] if len(results) == 1 else tuple(results)


def current_context() -> int:
    """The context that this thread's calls mean; 0 if there is none."""
    held = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.addressof(held))
    return held.value or 0


def exchange_capture_mode(mode: int = RELAXED) -> int:
    """What this thread may do while another one captures; gives what that was before."""
    held = ctypes.c_int(mode)
    call("cuThreadExchangeStreamCaptureMode", ctypes.addressof(held))
    return held.value


def interface_text() -> str:
    """The version of CUDA that the driver has, such as `13.0`."""
    version = int(call("cuDriverGetVersion"))
    return f"{version // 1000}.{version % 1000 // 10}"


def pointer_attribute(name: str, address: int) -> int | None:
    """What the driver knows of an address: a number of 32 bits; None if it does not know it.

    Not through the package, whose version 13.3 gives 0 for the device of any address.
    """
    which = getattr(bindings().CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    function = direct().get("cuPointerGetAttribute")
    if function is None:
        code, found = bindings().cuPointerGetAttribute(which, address)
        return int(found) if code == 0 else None
    held = ctypes.c_int()
    return None if function(ctypes.addressof(held), int(which), address) else held.value


def address_range(address: int) -> tuple[int, int] | None:
    """Where the allocation begins that has an address, and its size; None if it is not known."""
    code, *found = bindings().cuMemGetAddressRange(address)
    return (int(found[0]), int(found[1])) if code == 0 else None


def failure(name: str, number: int) -> Exception:
    """What to raise when a function gives a code."""
    if number == bindings().CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        return OutOfMemory(message("CUDA", f"{name}: the device has no memory left"))
    advice = "Start processes by spawn, not by fork" if os.getpid() in _forked else ""
    return RuntimeException(message("CUDA", f"{name} failed: {error_text(number)}", do=advice))


def release(name: str, *arguments: Any, device: Any = None) -> None:
    """Call a function that gives something back, from a finaliser: it raises nothing.

    Args:
        name: Of the function.
        arguments: Its arguments.
        device: What must be entered for it, if anything must.
    """
    # The driver, or the interpreter, may be going away.
    expected = contextlib.suppress(errors.SardonyxError, ImportError, AttributeError, TypeError)
    with expected, contextlib.nullcontext() if device is None else device.entered():
        getattr(bindings(), name)(*arguments)


def error_text(number: int) -> str:
    """What one of the driver's codes means."""
    try:
        code = bindings().CUresult(number)
    except ValueError:  # of a driver that is newer than the package
        return f"the driver's code {number}"
    _, text = bindings().cuGetErrorString(code)
    return f"{code.name} ({text.decode() if text else ''})"
