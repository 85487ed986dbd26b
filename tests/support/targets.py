"""Targets that no machine decides: what tests that count kernels generate code for.

Generating code needs no processor that runs it, so every test sees every instruction set.
"""

from sardonyx.compiler.build import Compiled, compile_lowered
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.targets.machine import AMX, Caches, Machine, read_machine
from sardonyx.targets.target import Target, best_isa, target_for

V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())
V3 = V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
V4 = V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_SERVER = V4 | AMX | {"avx512_vnni", "avx512_bf16", "avx512_fp16", "avx512vbmi", "avx_vnni"}

_MACHINES = {
    "amx": ("avx512", "x86_64", _SERVER),
    "avx512": ("avx512", "x86_64", V4),
    "avx2": ("avx2", "x86_64", V3),
    "sse": ("sse", "x86_64", V2),
    "neon": ("neon", "aarch64", frozenset({"asimdhp", "asimddp"})),
}
#: Name -> target: each instruction set, with and without what its newest processors add.
TARGETS = {
    name: target_for(isa, Machine(arch, flags, Caches(32 * 2**10, 2**20, 2**25)))
    for name, (isa, arch, flags) in _MACHINES.items()
}


def compiled_for(model, target: Target) -> Compiled:
    """The plans and programs of a model for a target; none of them is machine code yet."""
    graph = load(model.SerializeToString())
    optimise(graph)
    return compile_lowered(graph, lower(graph), target)[0]


def lesser_isas() -> list[str]:
    """Instruction sets that this machine runs besides its best, as SARDONYX_CPU takes them."""
    machine = read_machine()
    every = ["neon"] if machine.arch == "aarch64" else ["avx512", "avx2", "sse"]
    return every[every.index(best_isa(machine)) + 1 :]
