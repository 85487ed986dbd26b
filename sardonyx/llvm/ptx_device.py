"""What thread blocks of NVIDIA's GPUs can do, from `sm_80` on: the record that kernels ask."""

from __future__ import annotations

from sardonyx.kernel.language.thread_blocks import MatrixShape, ProductCosts, ThreadBlocks
from sardonyx.kernel.loops.block_sizes import Tiling

#: Measured on an H200.
_COSTS = ProductCosts(
    busy=(("f16", 580), ("bf16", 580), ("tf32", 815), ("fma", 3640)),
    alone=(("f16", 530), ("bf16", 530), ("tf32", 900), ("fma", 2600)),
    step=250,
    tile=3000,
    meet=1400,
    part=500,
)
#: The same for all architectures that code is generated for. Four warps hide latency where a
#: kernel has few blocks for each multiprocessor.
THREAD_BLOCKS = ThreadBlocks(
    subgroup_size=32,
    threads=128,
    shared_bytes=48 * 2**10,
    costs=_COSTS,
    matrix_shapes=(
        MatrixShape("f16", 16, 8, 16),
        MatrixShape("bf16", 16, 8, 16),
        MatrixShape("tf32", 16, 8, 8),
    ),
    async_copy=True,
)
#: Architecture -> multiprocessors of the device that models are compiled for where there is no
#: GPU: A100, H100.
NAMED_GPUS = {"sm_80": 108, "sm_90": 132}


def ptx_tiling(processors: int = 132, *, tf32: bool = True, aligned: bool = True) -> Tiling:
    """How products are computed on such a GPU; for the arguments see `Tiling`."""
    return Tiling(processors, tf32, aligned, THREAD_BLOCKS)
