"""Rows of a part of a larger array of the host, written by a kernel beside the copies of others.

Where kernels have just written much of its memory, a device copies such rows more slowly than
dense arrays: an H200 rows of 8 KB by 14 %. Its processors, which store to memory of the host, do
not slow down, but a kernel that writes all of them is in the way of others. So a few thread blocks
write most rows, and copies the rest.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.memory.rectangles import row_of
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

#: Each thread moves 16 bytes at a time; `count` rows, of which every `rows` lie in steps.
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry write_rows(
    .param .u64 target, .param .u64 source, .param .u64 width, .param .u64 rows,
    .param .u64 count, .param .u64 target_step, .param .u64 source_step,
    .param .u64 target_skip, .param .u64 source_skip)
{
    .reg .pred %done;
    .reg .u32 %x, %some, %row32, %rows32, %outer32;
    .reg .u32 %a, %b, %c, %d;
    .reg .u64 %target, %source, %width, %count, %row, %stride, %outer, %inner, %rows;
    .reg .u64 %tstep, %sstep, %tskip, %sskip, %to, %from, %at, %first, %next, %wide;
    ld.param.u64 %target, [target];
    ld.param.u64 %source, [source];
    ld.param.u64 %width, [width];
    ld.param.u64 %rows, [rows];
    ld.param.u64 %count, [count];
    ld.param.u64 %tstep, [target_step];
    ld.param.u64 %sstep, [source_step];
    ld.param.u64 %tskip, [target_skip];
    ld.param.u64 %sskip, [source_skip];
    cvt.u32.u64 %rows32, %rows;
    mov.u32 %x, %ctaid.x;
    cvt.u64.u32 %row, %x;
    mov.u32 %x, %nctaid.x;
    cvt.u64.u32 %stride, %x;
    mov.u32 %x, %tid.x;
    mul.wide.u32 %first, %x, 16;
    mov.u32 %x, %ntid.x;
    mul.wide.u32 %next, %x, 16;
row:
    setp.ge.u64 %done, %row, %count;
    @%done bra end;
    cvt.u32.u64 %row32, %row;
    div.u32 %outer32, %row32, %rows32;
    cvt.u64.u32 %outer, %outer32;
    mul.lo.u64 %wide, %outer, %rows;
    sub.u64 %inner, %row, %wide;
    mad.lo.u64 %to, %outer, %tskip, %target;
    mad.lo.u64 %to, %inner, %tstep, %to;
    mad.lo.u64 %from, %outer, %sskip, %source;
    mad.lo.u64 %from, %inner, %sstep, %from;
    mov.u64 %at, %first;
piece:
    setp.ge.u64 %done, %at, %width;
    @%done bra after;
    add.u64 %wide, %from, %at;
    ld.global.v4.u32 {%a, %b, %c, %d}, [%wide];
    add.u64 %wide, %to, %at;
    st.global.v4.u32 [%wide], {%a, %b, %c, %d};
    add.u64 %at, %at, %next;
    bra piece;
after:
    add.u64 %row, %row, %stride;
    bra row;
end:
    ret;
}
"""

#: Found on an H200 with rows of 8 KB: the share of rows that the kernel writes, and how many thread
#: blocks it has; more are in the way of other kernels.
_SHARE, _BLOCKS, _THREADS = 0.6, 8, 512
_PIECE_BYTES = 16
#: For fewer, or shorter rows, copies alone are as fast.
_LEAST_BYTES, _LEAST_ROW_BYTES = 4 << 20, 2 << 10


class HostRows(NamedTuple):
    """Rows that a kernel is to write, the first of each block of them.

    Attributes:
        target: Where the first goes.
        width: Bytes of a row.
        rows: How many of each block.
        blocks: How many blocks.
        target_step, source_step: Bytes from row to row.
        target_skip, source_skip: Bytes from block to block.
        axis: The axis of the array that counts rows.
    """

    target: int
    width: int
    rows: int
    blocks: int
    target_step: int
    source_step: int
    target_skip: int
    source_skip: int
    axis: int


def rows_of(array: Array, dense: list[int]) -> HostRows | None:
    """What a kernel is to write of an array that `staging.lies_in_rows`; None if nothing.

    Args:
        array: The array.
        dense: Bytes from element to element of the memory that it comes from.
    """
    inner, width = row_of(array.shape, array.itemsize, array.strides, dense)
    if not inner or array.nbytes < _LEAST_BYTES or width < _LEAST_ROW_BYTES:
        return None
    outer = [k for k in range(inner - 1) if array.shape[k] > 1]
    rows = int(array.shape[inner - 1] * _SHARE)
    steps = [(s[inner - 1], s[outer[0]] if outer else 0) for s in (array.strides, dense)]
    address = address_of(array)
    if len(outer) > 1 or rows < 1:
        return None
    if any(x % _PIECE_BYTES for x in (address, width, *steps[0], *steps[1])):
        return None
    blocks = array.shape[outer[0]] if outer else 1
    return HostRows(
        address, width, rows, blocks, steps[0][0], steps[1][0], steps[0][1], steps[1][1], inner - 1
    )


def write_rows(device: Device, given: HostRows, source: int, stream: Any) -> None:
    """Put the kernel in a stream.

    Args:
        device: Where.
        given: The rows.
        source: Address of what is written, in memory of the device.
        stream: Handle of the stream.
    """
    numbers = (
        given.target, source, given.width, given.rows, given.rows * given.blocks,
        given.target_step, given.source_step, given.target_skip, given.source_skip,
    )  # fmt: skip
    kernel: Any = _kernels(device).function("write_rows")
    values = (ctypes.c_uint64 * len(numbers))(*numbers)
    start = ctypes.addressof(values)
    places = (ctypes.c_void_p * len(numbers))(*(start + 8 * k for k in range(len(numbers))))
    shape = (_BLOCKS, 1, 1, _THREADS, 1, 1)
    call("cuLaunchKernel", kernel, *shape, 0, stream, ctypes.addressof(places), 0)


@cache
def _kernels(device: Device) -> Module:
    return Module(device, [PTX])
