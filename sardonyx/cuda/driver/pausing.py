"""Kernels of one thread that hold a stream while the host sends work to it.

A stream may be held by `cuStreamWaitValue32`, too. But then a call that waits for the whole device,
such as `cuMemFree` in another thread, keeps the driver to itself meanwhile, the host cannot send
what it would open the stream after, and neither ever ends. These kernels end by themselves.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.module import Module

#: `pause` ends after so many nanoseconds of the device's clock; `gate` then, or as soon as the
#: first of two words of the host is not 0. It sets the second one if it was time that ended it.
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry pause(.param .u64 length)
{
    .reg .pred %again;
    .reg .u64 %length, %began, %now;
    ld.param.u64 %length, [length];
    mov.u64 %began, %globaltimer;
turn:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %again, %now, %length;
    @%again bra turn;
    ret;
}
.visible .entry gate(.param .u64 words, .param .u64 length)
{
    .reg .pred %again, %open;
    .reg .u64 %words, %length, %began, %now, %word;
    ld.param.u64 %words, [words];
    ld.param.u64 %length, [length];
    mov.u64 %began, %globaltimer;
turn:
    ld.relaxed.sys.global.u64 %word, [%words];
    setp.ne.u64 %open, %word, 0;
    @%open bra done;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %began;
    setp.lt.u64 %again, %now, %length;
    @%again bra turn;
    mov.u64 %word, 1;
    st.relaxed.sys.global.u64 [%words+8], %word;
done:
    ret;
}
"""


def pause(device: Device, length_ns: int, stream: int) -> None:
    """Let a stream do nothing for that long."""
    _launch(device, "pause", stream, length_ns)


def gate(device: Device, words: int, length_ns: int, stream: int) -> None:
    """Hold a stream until a word of the host is not 0, but not longer than that.

    Args:
        words: The address of two of 64 bits, the second one 0: it is 1 later if time was over.
    """
    _launch(device, "gate", stream, words, length_ns)


def load(device: Device) -> None:
    """Load the kernels: the first launch does, and may wait for the whole device."""
    for name in ("pause", "gate"):
        _kernels(device).function(name)


@cache
def _kernels(device: Device) -> Module:
    return Module(device, [PTX])


def _launch(device: Device, name: str, stream: int, *numbers: int) -> None:
    kernel: Any = _kernels(device).function(name)
    values = (ctypes.c_uint64 * len(numbers))(*numbers)
    start = ctypes.addressof(values)
    places = (ctypes.c_void_p * len(numbers))(*(start + 8 * k for k in range(len(numbers))))
    call("cuLaunchKernel", kernel, *[1] * 6, 0, stream, ctypes.addressof(places), 0)
