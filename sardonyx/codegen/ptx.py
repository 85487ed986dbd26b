"""Kernel programs -> PTX, the assembly language of NVIDIA's GPUs.

Each kernel is an entry that takes its slots, the number of blocks and the address of the context as
64-bit words, and is launched with `THREADS` threads in as many thread blocks as there is room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.codegen.compile import emit_assembly
from sardonyx.codegen.emit_gpu import WARPS_PER_BLOCK
from sardonyx.codegen.module import emit_module
from sardonyx.codegen.target import Target
from sardonyx.kernel.grain import Grain
from sardonyx.kernel.program import Program
from sardonyx.kernel.warp import WARP, to_warp

#: Threads of a thread block, in x and y.
THREADS = (WARP, WARPS_PER_BLOCK)


#: Thousands of warps must have work, and no cache is a warp's own.
MANY_WARPS = Grain(rows=6, elements=128, vectors=2)

#: Architectures that LLVM is asked for, newest first, and the version of PTX that each needs. Code
#: for one runs on all newer ones.
_ARCHITECTURES = ((100, 86), (90, 80), (89, 80), (86, 80), (80, 80))


def ptx_target(architecture: str = "sm_80") -> Target:
    """What code is generated for, given the GPU that is to run it, such as `sm_80`.

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
        cpu=architecture, features=f"+ptx{found[1]}", vector_bits=32 * WARP, registers=255,
        has_fma=True, has_f16=True, l1d_bytes=128 * 2**10, l2_bytes=32 * 2**20, l3_bytes=32 * 2**20,
        grain=MANY_WARPS,
    )  # fmt: skip


def emit_ptx(programs: Sequence[Program], target: Target) -> str:
    """The text of one PTX module.

    Raises:
        EngineError: A program cannot be spread over warps, or LLVM refuses the text.
    """
    kernels = {p.name for p in programs if p.kind == "kernel"}
    spread = [to_warp(p) for p in programs]
    inlined = [p if p.name in kernels else replace(p, always_inline=True) for p in spread]
    text = emit_module(inlined, target)
    for name in kernels:
        text = text.replace(
            f'define dso_local void @"{name}"(', f'define ptx_kernel void @"{name}"('
        )
    return emit_assembly(text, target, pipeline="full", level=3)
