"""Calls, faults, the thread context, and hints to the processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.context import FAULT_LOCK, FIELDS
from sardonyx.kernel.language.matrix_registers import EFFECTS as MATRIX_EFFECTS
from sardonyx.kernel.language.program import Effect, Let, Operand
from sardonyx.kernel.language.types import I64, Type
from sardonyx.llvm import emit_block, emit_gpu, emit_matrix, emit_mode
from sardonyx.llvm.emit_base import Emitter, literal, llvm_type
from sardonyx.llvm.emit_memory import address
from sardonyx.llvm.math import HELPERS

#: The function that records a fault; a module that needs it contains it.
FAULT = "sardonyx.fault"
_WRITE_FAULT = f"""\
write:
  %where = getelementptr i8, ptr %context, i64 {FIELDS["command"]}
  %command = load i64, ptr %where, align 8
  %second = getelementptr i8, ptr %record, i64 8
  store i64 %command, ptr %second, align 8
  %third = getelementptr i8, ptr %record, i64 16
  store i64 %a, ptr %third, align 8
  %fourth = getelementptr i8, ptr %record, i64 24
  store i64 %b, ptr %fourth, align 8
  %fifth = getelementptr i8, ptr %record, i64 32
  store i64 %c, ptr %fifth, align 8
"""
_LEAVE = """\
  br label %done
done:
  ret void
}"""
_HEAD = f"""\
define internal void @"{FAULT}"(ptr %context, i64 %code, i64 %a, i64 %b, i64 %c) noinline cold #0 {{
  %record = load ptr, ptr %context, align 8
"""
#: The first fault stays: the others find its code and leave.
FAULT_TEXT = f"""\
{_HEAD}\
  %pair = cmpxchg ptr %record, i64 0, i64 %code seq_cst seq_cst
  %first = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %first, label %write, label %done
{_WRITE_FAULT}{_LEAVE}"""
#: The record lies in memory of the host, where a device's atomics are none: the threads agree on
#: the first by a word of the device's own. The host looks for the code, so that comes last.
_FAULT_TEXT_OF_DEVICES = f"""\
{_HEAD}\
  %tickets_field = getelementptr i8, ptr %context, i64 {FIELDS["tickets"]}
  %tickets = load ptr, ptr %tickets_field, align 8
  %lock = getelementptr i8, ptr %tickets, i64 {FAULT_LOCK}
  %pair = cmpxchg ptr %lock, i32 0, i32 1 syncscope("device") monotonic monotonic
  %first = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %first, label %write, label %done
{_WRITE_FAULT}\
  fence release
  store volatile i64 %code, ptr %record, align 8
{_LEAVE}"""
#: NVIDIA's function behind `set_condition`.
_SET_CONDITION = "cudaGraphSetConditional"
_PAUSE: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [("i32", "1")]),
}


def parameter_type(type: Type) -> str:
    """How a parameter or result is passed: C says that small integers are extended."""
    if type.lanes == 1 and (type.scalar == "i1" or (type.is_integer and type.bits < 32)):
        unsigned = type.is_unsigned or type.scalar == "i1"
        return f"{llvm_type(type)} {'zeroext' if unsigned else 'signext'}"
    return llvm_type(type)


def result_type(type: Type | None) -> str:
    """`parameter_type` as it stands before a function's name."""
    if type is None:
        return "void"
    return (
        " ".join(reversed(parameter_type(type).split(" "))) if type.lanes == 1 else llvm_type(type)
    )


def symbol(name: str) -> str:
    """A global name."""
    return f'@"{name}"'


def call(e: Emitter, statement: Let | Effect, result: Type | None) -> str:
    """Call by name, by address, or a C variadic function."""
    operands: Sequence[Operand] = statement.operands
    name, fixed = statement.attribute("name"), statement.attribute("fixed")
    if name is None:
        target, operands = e.use(operands[0]), operands[1:]
    else:
        target = symbol(str(name))
        if str(name) in HELPERS:
            e.declarations.setdefault(str(name), "")
    listed = ", ".join(f"{parameter_type(x.type)} {e.use(x)}" for x in operands)
    signature = result_type(result)
    if fixed is not None:
        declared = [llvm_type(x.type) for x in operands[: cast(int, fixed)]]
        signature += f" ({', '.join([*declared, '...'])})"
    text = f"call {signature} {target}({listed})"
    if result is None:
        e.effect(text)
        return ""
    return e.do(text)


def context_field(e: Emitter, context: str, let: Let) -> str:
    """Load a field of the thread context."""
    offset = FIELDS[str(let.attribute("field"))]
    where = e.pure(f"getelementptr i8, ptr {context}, i64 {offset}") if offset else context
    return e.do(f"load {llvm_type(let.result.type)}, ptr {where}, align 8")


def clock(e: Emitter) -> str:
    """The counter that user code may read: of time on AArch64, of cycles elsewhere."""
    if e.target.arch == "aarch64":
        register = [("metadata", '!{!"cntvct_el0"}')]
        return e.intrinsic("llvm.read_volatile_register.i64", "i64", register, pure=False)
    return e.intrinsic("llvm.readcyclecounter", "i64", [], pure=False)


def effect(e: Emitter, statement: Effect, context: str) -> None:
    """Statements without a result."""
    if statement.op == "call":
        call(e, statement, None)
    elif statement.op == "fault":
        on_device = e.target.arch == "nvptx64"
        e.declarations[FAULT] = _FAULT_TEXT_OF_DEVICES if on_device else FAULT_TEXT
        code = literal(I64, cast(int, statement.attribute("code")))
        numbers = ", ".join(f"i64 {e.use(x)}" for x in statement.operands)
        e.effect(f'call void @"{FAULT}"(ptr {context}, i64 {code}, {numbers})')
    elif statement.op == "pause":
        name, given = _PAUSE[e.target.arch]
        e.intrinsic(name, "void", given)
    elif statement.op in ("flush_denormals", "set_float_mode"):
        emit_mode.write(e, e.use(statement.operands[0]), flushes=statement.op == "flush_denormals")
    elif statement.op in emit_block.EFFECTS:
        emit_block.effect(e, statement)
    elif statement.op in MATRIX_EFFECTS:
        emit_matrix.effect(e, statement)
    elif statement.op == "sync_warp":
        emit_gpu.sync_warp(e)
    elif statement.op == "fence":
        # On a GPU it orders what the device sees, which costs less than what the host sees.
        scope = 'syncscope("device") ' if e.target.arch == "nvptx64" else ""
        e.effect(f"fence {scope}{statement.attribute('ordering')}")
    elif statement.op == "set_condition":
        handle, value = (e.use(x) for x in statement.operands)
        if e.target.arch == "nvptx64":  # the driver has the function, as part of each module
            e.intrinsic(_SET_CONDITION, "void", [("i64", handle), ("i32", value)])
        else:
            where = e.pure(f"inttoptr i64 {handle} to ptr")
            e.effect(f"store i32 {value}, ptr {where}, align 4")
    elif statement.op == "prefetch":
        pointer, index = statement.operands
        where = address(e, pointer, index, cast(int, statement.attribute("size_bytes")))
        locality = "3" if statement.attribute("near") else "2"
        operands = [("ptr", where), ("i32", "0"), ("i32", locality), ("i32", "1")]
        e.intrinsic("llvm.prefetch.p0", "void", operands)
    else:
        raise EngineError(message("llvm", f"Unknown statement {statement.op!r}"))
