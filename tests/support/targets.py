"""Targets that no machine decides: what tests that count kernels generate code for.

Generating code needs no processor that runs it, so every test sees every instruction set.
"""

from sardonyx.compiler.build import Compiled, compile_lowered
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.targets.machine import read_machine
from sardonyx.targets.target import Target, best_isa, named_targets

#: Name -> target: each instruction set, with and without what its newest processors add.
TARGETS = named_targets()


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
