"""Digests of what the compiler makes of a model: programs, plans and keys of the cache.

Nothing is compiled to machine code: kernels are digested as their printed programs.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sardonyx.codegen.ptx import ptx_target
from sardonyx.codegen.target import Target
from sardonyx.kernel.grain import Tiling
from sardonyx.kernel.text import to_text
from sardonyx.loader.load import load
from sardonyx.ops.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan import serial
from sardonyx.runtime.build import compile_lowered
from tests.support.targets import TARGETS as PROCESSORS

#: Name -> target: every instruction set, and two generations of GPUs.
TARGETS: dict[str, Target] = PROCESSORS | {
    "sm_80": ptx_target("sm_80", Tiling(108)),
    "sm_90": ptx_target("sm_90", Tiling(132)),
}


@dataclass(frozen=True)
class Row:
    """What one model is for one target.

    Attributes:
        model: Its name.
        target: The target's name.
        programs: Digest of all kernel programs.
        plans: Digest of the plans that run once and of the main one, and of which outputs it gives.
        parts: Name -> digest, of each program and plan.
    """

    model: str
    target: str
    programs: str
    plans: str
    parts: dict[str, str]

    def __str__(self) -> str:
        return f"{self.model} {self.target} programs={self.programs} plans={self.plans}"


def rows(name: str, path: Path, targets: Iterable[str] = TARGETS) -> Iterator[Row]:
    """The rows of the model at `path`."""
    graph = load(path)
    optimise(graph)
    lowered = lower(graph)
    for target in targets:
        compiled, places = compile_lowered(graph, lowered, TARGETS[target])
        programs = {p.name: digest(to_text(p)) for p in compiled.programs()}
        plans = {f"once {k}": p.plan for k, p in enumerate(compiled.preparations)}
        plans["main"] = compiled.main
        written = {key: digest(serial.to_bytes(plan)) for key, plan in plans.items()}
        yield Row(
            name, target, digest(repr(sorted(programs.items()))),
            digest(repr((sorted(written.items()), places))), programs | written,
        )  # fmt: skip


def digest(text: str | bytes) -> str:
    """Twelve digits, enough to tell a change."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:12]
