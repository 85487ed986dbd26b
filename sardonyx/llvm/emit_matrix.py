"""LLVM IR of registers that hold matrices: see `kernel.language.matrix_registers`."""

from __future__ import annotations

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.matrix_registers import BYTES, HALVES
from sardonyx.kernel.language.program import Effect
from sardonyx.llvm.emit_base import Emitter

_PRODUCTS = {HALVES: "llvm.x86.tdpbf16ps", BYTES: "llvm.x86.tdpbusd"}


def effect(e: Emitter, statement: Effect) -> None:
    """One statement of `kernel.language.matrix_registers.EFFECTS`."""
    if not e.target.block_sizes.matrices:
        what = f"{e.target.name} has no registers for matrices"
        raise EngineError(message("llvm", what))
    operands = [e.use(x) for x in statement.operands]
    register = ("i8", str(statement.attribute("register")))
    match statement.op:
        case "matrix_shapes":
            e.intrinsic("llvm.x86.ldtilecfg", "void", [("ptr", operands[0])])
        case "matrix_release":
            e.intrinsic("llvm.x86.tilerelease", "void", [])
        case "matrix_zero":
            e.intrinsic("llvm.x86.tilezero", "void", [register])
        case "matrix_load" | "matrix_store":
            name = "tileloadd64" if statement.op == "matrix_load" else "tilestored64"
            place = [("ptr", operands[0]), ("i64", operands[1])]
            e.intrinsic(f"llvm.x86.{name}", "void", [register, *place])
        case _:
            numbers = [("i8", str(statement.attribute(name))) for name in ("sums", "left", "right")]
            e.intrinsic(_PRODUCTS[str(statement.attribute("kind"))], "void", numbers)
