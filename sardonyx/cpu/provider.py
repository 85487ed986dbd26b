"""The processor as a provider: kernels as machine code in one blob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sardonyx.base.forks import compiling
from sardonyx.codegen.target import Target, host_target
from sardonyx.plan.library import Accelerator
from sardonyx.plan.plan import Plan
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.executable import load_blob
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.provider import Generated
from sardonyx.runtime.storage import Array

if TYPE_CHECKING:
    from sardonyx.runtime.compiler import Compiled


class CpuProvider:
    """See `runtime.provider.Provider`."""

    def __init__(self) -> None:
        self.target: Target = host_target()
        self.key = self.target.key
        self.accelerator: Accelerator | None = None

    def generate(
        self, compiled: Compiled, phase: Callable[[str], AbstractContextManager[None]]
    ) -> Generated:
        """Machine code for all kernels."""
        with compiling:
            from sardonyx.codegen.blob import build
            from sardonyx.codegen.module import emit_module

        with phase("emit"):
            text = emit_module(compiled.programs(), self.target)
        with phase("llvm"):
            blob = build(text, self.target)
            code = load_blob(blob)
        return Generated(blob.to_bytes(), code, code)

    def load(self, path: Path) -> Any:
        """A blob from its file."""
        return load_blob(path)

    def executable(
        self, plan: Plan, code: Any, constants: Sequence[Array], threads: int, budget: Budget
    ) -> Executable:
        """What runs a plan."""
        return Executable(plan, code, constants, threads=threads, budget=budget)
