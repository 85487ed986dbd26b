"""What this machine can do at most: loops of nothing but arithmetic in registers, or of memory.

Multiply-adds of floats, sums of products of bytes, and reads and copies of more memory than the
caches hold. A kernel's share of the peak that bounds it says how good it is.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.targets.target import host_target

#: More than the caches hold.
_BUFFER_BYTES = 2**28


def _sums(lanes: int) -> int:
    """Sums that are kept at once: enough for all units, and no more than there are registers."""
    return 24 if lanes == 16 else 12


def _loop(kind: str, lanes: int) -> str:
    """LLVM IR of `void loop(i8* from, i8* to, i64 count)`."""
    vector = f"<{lanes} x float>" if kind != "bytes" else f"<{lanes} x i32>"
    zero, start = "zeroinitializer", _sums(lanes)
    phis = "\n".join(
        f"%a{k} = phi {vector} [ {zero}, %entry ], [ %b{k}, %body ]" for k in range(start)
    )
    if kind == "floats":
        call = f"call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} %a"
    else:
        bits = lanes * 32
        call = (
            f"call {vector} @llvm.x86.avx512.vpdpbusd.{bits}({vector} %a@, <{4 * lanes} x i8> %x, "
            f"<{4 * lanes} x i8> %y"
        )
    names = [
        call.replace("@,", f"{k},") + (f"{k})" if kind == "floats" else ")") for k in range(start)
    ]
    steps = "\n".join(f"%b{k} = {name}" for k, name in enumerate(names))
    total = "\n".join(
        f"%s{k} = {'fadd' if kind == 'floats' else 'add'} {vector} "
        f"{f'%s{k - 1}' if k else '%x0'}, %b{k}"
        for k in range(start)
    )
    operand = vector if kind == "floats" else f"<{4 * lanes} x i8>"
    declared = (
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
        if kind == "floats"
        else f"declare {vector} @llvm.x86.avx512.vpdpbusd.{lanes * 32}"
        f"({vector}, {operand}, {operand})"
    )
    return f"""
{declared}
define void @loop(ptr %from, ptr %to, i64 %count) {{
entry:
  %x = load {operand}, ptr %from
  %y = load {operand}, ptr %to
  %x0 = load {vector}, ptr %from
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  {phis}
  {steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %done
done:
  {total}
  store {vector} %s{start - 1}, ptr %to
  ret void
}}"""


_STREAMS = """
define void @read(ptr %from, ptr %to, i64 %count) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  SUMS
  %next = add i64 %i, 32
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %done
done:
  %t0 = fadd <16 x float> %b0, %b1
  %t1 = fadd <16 x float> %b2, %b3
  %t2 = fadd <16 x float> %t0, %t1
  store <16 x float> %t2, ptr %to
  ret void
}"""


def _streams() -> str:
    phis, rest = [], []
    for k in range(8):
        if k < 4:
            phis.append(f"%a{k} = phi <16 x float> [ zeroinitializer, %entry ], [ %b{k}, %body ]")
        # Two lines of each of four streams, which lie a quarter of the whole apart.
        rest.append(f"%o{k} = mul i64 %count, {k % 4}")
        rest.append(f"%m{k} = add i64 %o{k}, {16 * (k // 4)}")
        rest.append(f"%j{k} = add i64 %i, %m{k}")
        rest.append(f"%p{k} = getelementptr float, ptr %from, i64 %j{k}")
        rest.append(f"%v{k} = load <16 x float>, ptr %p{k}, align 64")
    for k in range(4):
        rest.append(f"%w{k} = fadd <16 x float> %v{k}, %v{k + 4}")
        rest.append(f"%b{k} = fadd <16 x float> %a{k}, %w{k}")
    return _STREAMS.replace("SUMS", "\n  ".join(phis + rest))


def _compiled(text: str) -> tuple[Any, Callable[[str], Any]]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    form = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return engine, lambda name: form(engine.get_function_address(name))


def _together(work: Callable[[int], None], threads: int, seconds: float) -> float:
    """Seconds of processor time that `threads` threads take for a piece of work each, at best.

    Other programs take time from threads, but not from their processor time.
    """
    best, end = float("inf"), time.perf_counter() + seconds
    taken = [0.0] * threads

    def timed(k: int) -> None:
        start = time.thread_time()
        work(k)
        taken[k] = time.thread_time() - start

    while time.perf_counter() < end:
        team = [threading.Thread(target=timed, args=(k,)) for k in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        best = min(best, max(taken))
    return best


def _aligned(size_bytes: int) -> Array:
    whole = np.ones(size_bytes + 64, np.uint8)
    return whole[-whole.ctypes.data % 64 :][:size_bytes]


def peaks(threads: int, *, seconds: float = 0.25) -> dict[str, float]:
    """What this machine can do at most, by what is done.

    Args:
        threads: How many work at once.
        seconds: How long each of the loops is repeated; the least time counts.

    Returns:
        `floats` in GFLOP/s, `bytes` in GOP/s where there are such instructions, `read` and `copy`
        in GB/s.
    """
    target = host_target()
    lanes, count = target.lanes(32), 4_000_000
    found = {}
    for kind in ("floats", "bytes"):
        if kind == "bytes" and not target.has_dots:
            continue
        engine, function = _compiled(_loop(kind, lanes))
        loop, small = function("loop"), [_aligned(256) for _ in range(2 * threads)]

        def run(k: int) -> None:  # it is done with before the loop goes on
            loop(small[2 * k].ctypes.data, small[2 * k + 1].ctypes.data, count)  # noqa: B023

        operations = 2 * _sums(lanes) * lanes * count * (4 if kind == "bytes" else 1)
        found[kind] = operations * threads / _together(run, threads, seconds) / 1e9
        del engine
    engine, function = _compiled(_streams())
    read, share = function("read"), _BUFFER_BYTES // threads // 512 * 512
    whole, other = _aligned(_BUFFER_BYTES), _aligned(_BUFFER_BYTES)
    sinks = [_aligned(64) for _ in range(threads)]

    def reading(k: int) -> None:
        read(whole.ctypes.data + k * share, sinks[k].ctypes.data, share // 16)

    def copying(k: int) -> None:
        ctypes.memmove(other.ctypes.data + k * share, whole.ctypes.data + k * share, share)

    found["read"] = share * threads / _together(reading, threads, seconds) / 1e9
    found["copy"] = 2 * share * threads / _together(copying, threads, seconds) / 1e9
    return found
