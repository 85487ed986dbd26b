"""What only kernels for GPUs have: threads, warps, words that move between threads."""

from __future__ import annotations

from typing import cast

from sardonyx.kernel.language.program import Let
from sardonyx.llvm.emit_base import Emitter, llvm_type
from sardonyx.llvm.ptx_device import THREAD_BLOCKS

#: A warp of all 32 threads takes part; the last lane is the highest that a shuffle may name.
_ALL, _LAST_LANE = "-1", str(THREAD_BLOCKS.subgroup_size - 1)


def _register(e: Emitter, name: str) -> str:
    word = e.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [])
    return e.pure(f"zext i32 {word} to i64")


def thread(e: Emitter, let: Let) -> str:
    """The number of a thread in its warp."""
    return _register(e, "tid.x")


def warp(e: Emitter, let: Let) -> str:
    """The number of a warp in the grid."""
    first = e.pure(f"mul i64 {_register(e, 'ctaid.x')}, {THREAD_BLOCKS.subgroups}")
    return e.pure(f"add i64 {first}, {_register(e, 'tid.y')}")


def warps(e: Emitter, let: Let) -> str:
    """How many warps the grid has."""
    return e.pure(f"mul i64 {_register(e, 'nctaid.x')}, {THREAD_BLOCKS.subgroups}")


def shuffle_from(e: Emitter, let: Let) -> str:
    """A 32-bit word of the thread with a number."""
    return _shuffle(e, let, "idx", e.use(let.operands[1]))


def shuffle_across(e: Emitter, let: Let) -> str:
    """A 32-bit word of the thread whose number differs in one bit."""
    return _shuffle(e, let, "bfly", str(let.attribute("number")))


def _shuffle(e: Emitter, let: Let, mode: str, number: str) -> str:
    # Not pure: every thread must be there, so it must not move into a branch.
    kind = llvm_type(let.result.type)
    operands = [
        ("i32", _ALL), (kind, e.use(let.operands[0])), ("i32", number),
        ("i32", _LAST_LANE),
    ]  # fmt: skip
    return e.intrinsic(f"llvm.nvvm.shfl.sync.{mode}.i32", "i32", operands, pure=False)


def sync_warp(e: Emitter) -> None:
    """What threads of the warp wrote, all of them see."""
    e.intrinsic("llvm.nvvm.bar.warp.sync", "void", [("i32", _ALL)])


def shared(e: Emitter, let: Let) -> str:
    """On-chip memory of each warp's own."""
    size = cast(int, let.attribute("size_bytes"))
    content = (
        f"private addrspace(3) global [{THREAD_BLOCKS.subgroups * size} x i8] undef, align 64"
        f" ; {len(e.declarations)}"
    )
    name = e.declarations.setdefault(content, f"shared.{len(e.declarations)}")
    base = e.pure(f'addrspacecast ptr addrspace(3) @"{name}" to ptr')
    offset = e.pure(f"mul i64 {_register(e, 'tid.y')}, {size}")
    return e.pure(f"getelementptr i8, ptr {base}, i64 {offset}")


#: Operation -> its emitter.
GPU = {
    "thread": thread, "warp": warp, "warps": warps, "shared": shared,
    "shuffle_from": shuffle_from, "shuffle_across": shuffle_across,
}  # fmt: skip
