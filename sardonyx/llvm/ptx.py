"""Kernel programs -> PTX, the assembly language of NVIDIA's GPUs.

Each kernel is an entry that takes its slots, the number of blocks, the address of the context and
that of a table as 64-bit words, and is launched with `THREADS` threads in as many thread blocks as
there is room for. Where there is a table, the number of blocks and the slots come from it: one
launch then serves all runs that write to the table before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.base.handlers import deferred
from sardonyx.kernel.gpu.warp import to_warp
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.loops.block_sizes import BlockSizes, Tiling
from sardonyx.llvm.emit_base import llvm_type
from sardonyx.llvm.emit_effects import parameter_type
from sardonyx.llvm.module import emit_module
from sardonyx.llvm.ptx_device import THREAD_BLOCKS, ptx_tiling
from sardonyx.targets.target import Target
from sardonyx.workers.child import compile_part

#: How hard LLVM tries.
LEVEL = 3
#: What a kernel is called behind its entry.
_BODY = ".body"
#: Threads of a thread block, in x and y.
THREADS = (THREAD_BLOCKS.subgroup_size, THREAD_BLOCKS.subgroups)


#: Thousands of warps must have work, and no cache is a warp's own.
MANY_WARPS = BlockSizes(rows=6, elements=128, vectors=2, transpose_stores=False, tiles=0)

#: Architectures that LLVM is asked for, newest first, and the version of PTX that each needs. Code
#: for one runs on all newer ones.
_ARCHITECTURES = ((100, 86), (90, 80), (89, 80), (86, 80), (80, 80))


#: The first architecture whose kernels may be there before those in front of them have ended.
_WAITS_SINCE = 90
_EARLY_PER_PROCESSOR = 4
_LET_GO = "llvm.nvvm.griddepcontrol.launch.dependents"
_WAIT = "llvm.nvvm.griddepcontrol.wait"
_BLOCKS = "llvm.nvvm.read.ptx.sreg.nctaid.x"


def ptx_target(architecture: str = "sm_80", tiling: Tiling | None = None) -> Target:
    """What code is generated for.

    Args:
        architecture: The GPU that is to run it, such as `sm_80`.
        tiling: How products are computed there: what `ptx_tiling` gives.

    Raises:
        NotImplemented: The GPU is older than the oldest architecture that code is made for.
    """
    number = int(architecture.removeprefix("sm_"))
    found = next((pair for pair in _ARCHITECTURES if pair[0] <= number), None)
    if found is None:
        what = f"GPUs of architecture {architecture} are not supported"
        raise errors.NotImplemented(message("CUDA", what, expected="sm_80 or later"))
    architecture = f"sm_{found[0]}"
    return Target(
        name=f"nvptx-{architecture}", arch="nvptx64", isa="ptx", triple="nvptx64-nvidia-cuda",
        cpu=architecture, features=f"+ptx{found[1]}", vector_bits=32 * THREADS[0], registers=255,
        has_fma=True, has_f16=True,
        block_sizes=replace(MANY_WARPS, tiling=tiling or ptx_tiling()),
    )  # fmt: skip


def emit_ptx(programs: Sequence[Program], target: Target) -> str:
    """The text of one PTX module, compiled in this process.

    Raises:
        EngineError: A program cannot be spread over warps, or LLVM refuses the text.
    """
    text = text_for_ptx(programs, target)
    with deferred():
        return compile_part(text, target, LEVEL).decode()


def text_for_ptx(programs: Sequence[Program], target: Target) -> str:
    """The LLVM IR text of one PTX module.

    Raises:
        EngineError: A program cannot be spread over warps.
    """
    kernels = {p.name for p in programs if p.kind != "function"}
    spread = [p if p.kind == "block" else to_warp(p, target.subgroup_size) for p in programs]
    inlined = [p if p.name in kernels else replace(p, always_inline=True) for p in spread]
    text = emit_module(inlined, target)
    early = early_blocks(target.multiprocessors) if waits_itself(target.cpu) else 0
    for program in spread:
        if program.name in kernels:
            head = f'define dso_local void @"{program.name}"('
            body = f'define internal void @"{program.name}{_BODY}"('
            before, after = text.split(head)
            text = f"{before}{body}{after.replace(' #0 {', ' alwaysinline #0 {', 1)}"
            text += _entry(program, early)
    if early:
        needed = (
            f"declare void @{_LET_GO}()",
            f"declare void @{_WAIT}()",
            f"declare i32 @{_BLOCKS}()",
        )
        text += "".join(f"{line}\n" for line in needed if line not in text)
    # Registers are dealt out for so many threads.
    launched = f'"nvvm.maxntid"="{THREADS[0] * THREADS[1]}"'
    return text.replace('"no-builtins"', f'"no-builtins" {launched}')


def texts_for_ptx(programs: Sequence[Program], target: Target, most: int) -> list[str]:
    """LLVM IR texts of so many PTX modules, at most, that have the kernels between them.

    Each has all functions: they are put into the kernels that call them.

    Raises:
        EngineError: A program cannot be spread over warps.
    """
    functions = [p for p in programs if p.kind == "function"]
    kernels = [p for p in programs if p.kind != "function"]
    count = min(most, len(kernels))
    # Similar kernels follow each other: a turn for each gives all of them as much to do.
    return [text_for_ptx([*functions, *kernels[k::count]], target) for k in range(count)]


def waits_itself(architecture: str) -> bool:
    """Whether kernels for an architecture wait for those before them: sm_90 and later have that."""
    return int(architecture.removeprefix("sm_")) >= _WAITS_SINCE


def early_blocks(processors: int) -> int:
    """How many thread blocks a launch has at most that is there before its turn.

    Those of larger ones take room from what is under way, which lasts longer than a launch.
    """
    return _EARLY_PER_PROCESSOR * processors


def _entry(program: Program, early: int) -> str:
    """What is launched: calls a kernel with its own parameters, or with what a table holds.

    A kernel of up to `early` thread blocks lets the next one begin. All wait for those before
    them, which write what they read; the table is not among that.
    """
    *slots, blocks, context = [p.value.type for p in program.parameters]
    types = [llvm_type(t) for t in (*slots, blocks)]
    read, joined, passed = [], [], []
    cast, start = [], "getelementptr i64, ptr addrspace(1) %table, i64"
    for k, (type, kind) in enumerate(zip((*slots, blocks), types, strict=True)):
        # The table begins with the number of blocks.
        read.append(f"%a{k} = {start} {(k + 1) % len(types)}")
        if kind == "ptr":  # what lies behind it is known to be memory of the device
            kind = "ptr addrspace(1)"
            cast.append(f"%d{k} = addrspacecast ptr %p{k} to ptr addrspace(1)")
        word = "i8" if kind == "i1" else kind
        read.append(f"%t{k} = load {word}, ptr addrspace(1) %a{k}, align 8")
        table, own = f"%t{k}", f"%d{k}" if kind.startswith("ptr") else f"%p{k}"
        if kind == "i1":
            table = f"%b{k}"
            read.append(f"{table} = trunc i8 %t{k} to i1")
        joined.append(f"%v{k} = phi {kind} [ {own}, %entry ], [ {table}, %read ]")
        name = f"%v{k}"
        if kind.startswith("ptr"):
            name = f"%c{k}"
            passed.append(f"{name} = addrspacecast ptr addrspace(1) %v{k} to ptr")
        types[k] = f"{parameter_type(type)} {name}"
    given = [f"{parameter_type(t)} %p{k}" for k, t in enumerate((*slots, blocks))]
    resident = f' "nvvm.minctasm"="{program.resident}"' if program.resident else ""
    lines = [
        f'\ndefine ptx_kernel void @"{program.name}"({", ".join(given)}, {llvm_type(context)} %c,'
        f" ptr addrspace(1) %table) #0{resident} {{",
        "entry:", *cast, "%none = icmp eq ptr addrspace(1) %table, null",
        "br i1 %none, label %go, label %read",
        "read:", *read, "br label %go",
        "go:", *joined, *passed, *(_waiting(early) if early else ()),
        f'call void @"{program.name}{_BODY}"({", ".join(types)}, {llvm_type(context)} %c)',
        "ret void", "}\n",
    ]  # fmt: skip
    return "\n".join(lines)


def _waiting(early: int) -> list[str]:
    return [
        f"%grid = call i32 @{_BLOCKS}()", f"%small = icmp ule i32 %grid, {early}",
        "br i1 %small, label %let, label %wait",
        "let:", f"call void @{_LET_GO}()", "br label %wait",
        "wait:", f"call void @{_WAIT}()",
    ]  # fmt: skip
