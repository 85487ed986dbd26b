"""The mode of a thread's floating-point unit: read, written, told to flush denormal numbers."""

from __future__ import annotations

from sardonyx.base.errors import EngineError, message
from sardonyx.llvm.emit_base import Emitter

#: Bits that make zeros of denormal numbers. x86: FTZ for results, DAZ for operands; AArch64: FZ.
_FLUSHING = {"x86_64": 1 << 15 | 1 << 6, "aarch64": 1 << 24}
_SLOT = "%float_mode"


def read(e: Emitter) -> str:
    """The mode, as a number."""
    _check(e)
    if e.target.arch == "aarch64":
        return e.intrinsic("llvm.aarch64.get.fpcr", "i64", [], pure=False)
    e.intrinsic("llvm.x86.sse.stmxcsr", "void", [("ptr", _slot(e))])
    return e.do(f"zext i32 {e.do(f'load i32, ptr {_SLOT}, align 4')} to i64")


def write(e: Emitter, mode: str, *, flushes: bool) -> None:
    """Set a mode that `read` gave, with zeros in place of denormal numbers if `flushes`."""
    _check(e)
    if flushes:
        mode = e.do(f"or i64 {mode}, {_FLUSHING[e.target.arch]}")
    if e.target.arch == "aarch64":
        e.intrinsic("llvm.aarch64.set.fpcr", "void", [("i64", mode)])
        return
    e.effect(f"store i32 {e.do(f'trunc i64 {mode} to i32')}, ptr {_slot(e)}, align 4")
    e.intrinsic("llvm.x86.sse.ldmxcsr", "void", [("ptr", _SLOT)])


def _check(e: Emitter) -> None:
    if e.target.arch not in _FLUSHING:
        raise EngineError(message("llvm", f"{e.target.arch} has no mode of a thread"))


def _slot(e: Emitter) -> str:
    """Memory that the processor's instructions take the mode from, once for each function."""
    line = f"  {_SLOT} = alloca i32, align 4"
    if line not in e.entry:
        e.entry.append(line)
    return _SLOT
