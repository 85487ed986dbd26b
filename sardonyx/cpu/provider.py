"""The processor as a provider: kernels as machine code in one blob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sardonyx.base.forks import compiling
from sardonyx.cpu.executable import executable_of
from sardonyx.link.executable_memory import load_blob, load_part
from sardonyx.plan.plan import Plan
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.provider import Generated
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team
from sardonyx.store.cache import Cache
from sardonyx.store.entries import Entry
from sardonyx.targets.target import Target, host_target

if TYPE_CHECKING:
    from sardonyx.compiler.compile_graph import Compiled
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.ops.core.lower import LoweredGraph
    from sardonyx.plan.vendor_offers import Accelerator
    from sardonyx.store.kernel_store import KernelStore
    from sardonyx.store.machine_code import Units


class CpuProvider:
    """See `runtime.provider.Provider`."""

    def __init__(self) -> None:
        self.target: Target = host_target()
        self.key = self.target.key
        self.accelerator: Accelerator | None = None
        self.without: frozenset[str] = frozenset()

    def check(self, lowered: LoweredGraph) -> None:
        """Nothing: the processor runs all that there is."""

    def on_kernel(self, kernel: Kernel, units: Units) -> None:
        """Have a kernel compiled while others are still built."""
        if kernel.host is None:
            units.take((kernel.program, *kernel.functions))

    def keeper(self, units: Units, *, winograd: bool, bf16_products: bool) -> KernelStore | None:
        """Where kernels are that were built for other models."""
        cache = units.cache or Cache(None, 0)
        if cache.folder is None and units.archive is None:
            return None
        with compiling:
            from sardonyx.store.kernel_store import KernelStore
        return KernelStore(cache, units, (self.key, winograd, bf16_products))

    def generate(
        self,
        compiled: Compiled,
        phase: Callable[[str], AbstractContextManager[None]],
        units: Units,
    ) -> Generated:
        """Machine code for all kernels; those that run once come first."""
        with phase("emit"):
            for invocation in compiled.invocations:
                self.on_kernel(invocation.kernel, units)
        early = dict.fromkeys(c.kernel for p in compiled.preparations for c in p.plan.calls)
        late = dict.fromkeys(c.kernel for c in compiled.main.calls if c.host is None)
        with phase("llvm"):
            first = units.blob(early)
            initial = load_blob(first)

        def complete() -> tuple[bytes, Any]:
            with phase("llvm"):
                blob = units.blob(late)
                return blob.to_bytes(), load_blob(blob)

        return Generated(initial, complete, first.to_bytes)

    def load(self, entry: Entry) -> Any:
        """A blob from its file."""
        return load_part(entry.descriptor, 0, entry.size)

    def executable(
        self, plan: Plan, code: Any, constants: Sequence[Array], team: Team, budget: Budget
    ) -> Executable:
        """What runs a plan."""
        return executable_of(plan, code, constants, threads=team, budget=budget)
