"""What only programs of kind `block` have: shared memory, barriers, copies, matrix units."""

from __future__ import annotations

from typing import cast

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.program import Effect, Let, Operand
from sardonyx.llvm.emit_base import Emitter, llvm_type

_SHARED, _GLOBAL = "ptr addrspace(3)", "ptr addrspace(1)"
_ELEMENTS = {"f16": "<2 x half>", "bf16": "i32", "tf32": "i32"}
_MULTIPLY = {
    "f16": "m16n8k16.row.col.f32.f32", "bf16": "m16n8k16.row.col.bf16",
    "tf32": "m16n8k8.row.col.tf32",
}  # fmt: skip
_FOUR_WORDS = "{ i32, i32, i32, i32 }"
_FOUR_FLOATS = "{ float, float, float, float }"


def register(e: Emitter, name: str) -> str:
    """A special register of the thread, in 64 bits."""
    word = e.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [])
    return e.pure(f"zext i32 {word} to i64")


def warp_of_block(e: Emitter, let: Let) -> str:
    """The number of a warp in its thread block."""
    return register(e, "tid.y")


def shared_by_block(e: Emitter, let: Let) -> str:
    """On-chip memory of the thread block, once per program."""
    size = cast(int, let.attribute("size_bytes"))
    content = f"private addrspace(3) global [{size} x i8] undef, align 128 ; {len(e.declarations)}"
    name = e.declarations.setdefault(content, f"shared.{len(e.declarations)}")
    return e.pure(f'addrspacecast ptr addrspace(3) @"{name}" to ptr')


def _in(e: Emitter, space: str, pointer: Operand) -> str:
    return e.pure(f"addrspacecast ptr {e.use(pointer)} to {space}")


def _packed(e: Emitter, struct: str, lane: str, found: str) -> str:
    vector = f"<4 x {lane}>"
    result = "poison"
    for number in range(4):
        one = e.do(f"extractvalue {struct} {found}, {number}")
        result = e.do(f"insertelement {vector} {result}, {lane} {one}, i64 {number}")
    return result


def load_matrix(e: Emitter, let: Let) -> str:
    """Four matrices of 8 by 8 elements of 16 bits."""
    infix = ".trans" if let.attribute("transposed") else ""
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{infix}.b16.p3"
    operands = [(_SHARED, _in(e, _SHARED, let.operands[0]))]
    # Not pure: shared memory changes.
    return _packed(e, _FOUR_WORDS, "i32", e.intrinsic(name, _FOUR_WORDS, operands, pure=False))


def multiply_matrices(e: Emitter, let: Let) -> str:
    """A product of small matrices, added to what there is."""
    kind = str(let.attribute("kind"))
    *factors, sums = let.operands
    element = _ELEMENTS[kind]
    words = [e.use(x) for x in factors]
    if element != "i32":
        words = [e.pure(f"bitcast i32 {word} to {element}") for word in words]
    before = e.use(sums)
    parts = [e.do(f"extractelement <4 x float> {before}, i64 {k}") for k in range(4)]
    operands = [*((element, w) for w in words), *(("float", p) for p in parts)]
    name = f"llvm.nvvm.mma.{_MULTIPLY[kind]}"
    return _packed(e, _FOUR_FLOATS, "float", e.intrinsic(name, _FOUR_FLOATS, operands, pure=False))


def to_tf32(e: Emitter, let: Let) -> str:
    """A float rounded to 10 bits of mantissa."""
    return e.intrinsic("llvm.nvvm.f2tf32.rna", "i32", [("float", e.use(let.operands[0]))])


def power_of_two(e: Emitter, let: Let) -> str:
    """Powers of two, as the hardware has them."""
    type, x = let.result.type, e.use(let.operands[0])
    name = "llvm.nvvm.ex2.approx.ftz.f"
    if type.lanes == 1:
        return e.intrinsic(name, "float", [("float", x)])
    kind, result = llvm_type(type), "poison"
    for lane in range(type.lanes):
        one = e.pure(f"extractelement {kind} {x}, i64 {lane}")
        power = e.intrinsic(name, "float", [("float", one)])
        result = e.pure(f"insertelement {kind} {result}, float {power}, i64 {lane}")
    return result


def effect(e: Emitter, statement: Effect) -> None:
    """Statements without a result."""
    match statement.op:
        case "barrier":
            e.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])
        case "copy_async":
            _copy(e, statement)
        case "commit_copies":
            e.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [])
        case "wait_copies":
            count = str(statement.attribute("pending"))
            e.declare("llvm.nvvm.cp.async.wait.group", "void", ["i32 immarg"])
            e.intrinsic("llvm.nvvm.cp.async.wait.group", "void", [("i32", count)])
        case _:
            raise EngineError(message("llvm", f"Unknown statement {statement.op!r}"))


def _copy(e: Emitter, statement: Effect) -> None:
    target, source, inside = statement.operands
    size = cast(int, statement.attribute("size_bytes"))
    # Whole words need not pass through the first-level cache.
    way = "cg" if size == 16 else "ca"
    count = e.pure(f"select i1 {e.use(inside)}, i32 {size}, i32 0")
    operands = [
        (_SHARED, _in(e, _SHARED, target)), (_GLOBAL, _in(e, _GLOBAL, source)), ("i32", count),
    ]  # fmt: skip
    e.intrinsic(f"llvm.nvvm.cp.async.{way}.shared.global.{size}.s", "void", operands)


#: Operation -> its emitter.
BLOCK = {
    "warp_of_block": warp_of_block, "shared_by_block": shared_by_block,
    "load_matrix": load_matrix, "multiply_matrices": multiply_matrices, "to_tf32": to_tf32,
    "power_of_two": power_of_two,
}  # fmt: skip
#: Statements without a result.
EFFECTS = ("barrier", "copy_async", "commit_copies", "wait_copies")
