"""A GPU as a provider: kernels as PTX, which the driver compiles for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.base.forks import compiling
from sardonyx.base.interrupt import checkpoint
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.libraries.libraries import LibrarySettings, find_libraries
from sardonyx.cuda.run.device_state import CudaRunSettings, DevicePlan
from sardonyx.cuda.run.executable import cuda_executable
from sardonyx.cuda.settings import CudaSettings
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.ptx import ptx_target
from sardonyx.llvm.ptx_device import ptx_tiling
from sardonyx.plan.plan import Plan
from sardonyx.plan.vendor_offers import Accelerator
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.provider import Generated
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team
from sardonyx.store.entries import Entry
from sardonyx.targets.target import Target, host_target

if TYPE_CHECKING:
    from sardonyx.compiler.compile_graph import Compiled
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.kernel.language.program import Program
    from sardonyx.ops.core.lower import LoweredGraph
    from sardonyx.store.machine_code import Units

#: Between modules of kernels as the cache has them, and before those that are hardly ever needed.
_NEXT, _SPARE = "\n// next\n", "\n// spare\n"
#: So many modules are compiled side by side, at most.
_MOST_MODULES = 16
_OF_THE_HOST = (
    "The model works on strings, sequences, optionals or maps, or calls functions of Python"
)


class CudaProvider:
    """See `runtime.provider.Provider`.

    Args:
        device_id: Number of the device.
        settings: Where its memory comes from, and in which stream it works.

    Raises:
        EPFail: There is no driver, or its package is missing.
        InvalidArgument: There is no such device.
    """

    #: Where the device controls, what follows a loop takes one more conditional node; calls of
    #: libraries in a graph have the addresses that they were captured with.
    without: frozenset[str] = frozenset({"rings"})  # of `plan.pipeline`, which loads without need

    def __init__(self, device_id: int = 0, settings: CudaSettings | None = None) -> None:
        self.device = device(device_id)
        self._settings = settings or CudaSettings()
        self.arena = self._settings.arena_for(self.device)
        tiling = ptx_tiling(self.device.processors, tf32=self._settings.tf32)
        self.target: Target = ptx_target(self.device.architecture, tiling)
        s = self._settings
        search = s.convolution_search
        asked = LibrarySettings(
            s.tf32, search, s.any_workspace, search == "EXHAUSTIVE", s.attention
        )
        self.libraries = find_libraries(self.device, asked)
        self.accelerator: Accelerator | None = self.libraries
        self.key = f"cuda {self.target.key} {host_target().key} {self.libraries.key}"

    def check(self, lowered: LoweredGraph) -> None:
        """Refuse what only the host does, as far as that is known before there is a plan.

        Raises:
            NotImplemented: The model has strings or objects as inputs, as outputs or in between.
        """
        with compiling:
            from sardonyx.tensor.host import is_host_call
            from sardonyx.tensor.tensor import Call
            from sardonyx.tensor.traverse import topological

        ends = [*lowered.inputs.values(), *lowered.outputs.values()]
        called = topological(list(lowered.outputs.values()))
        if any(t.dtype.is_code for t in ends) or any(
            isinstance(t, Call) and t.operands and is_host_call(t) for t in called
        ):
            raise errors.NotImplemented(message("CUDA", _OF_THE_HOST))

    def on_kernel(self, kernel: Kernel, units: Units) -> None:
        """Nothing: all kernels become one module."""

    def keeper(self, _units: Units, *, winograd: bool, bf16_products: bool) -> None:
        """Nothing: all kernels become one module."""

    def generate(
        self,
        compiled: Compiled,
        phase: Callable[[str], AbstractContextManager[None]],
        units: Units,
    ) -> Generated:
        """PTX for the kernels of the main plan, machine code for those that prepare constants."""
        self.check_plan(compiled)
        # Products that a library takes are hardly ever left to their kernels.
        names, calls = {c.kernel for c in compiled.main.calls}, compiled.main.calls
        used = {c.kernel for c in calls if c.library is None or c.library.function != "matmul"}
        early = {c.kernel for p in compiled.preparations for c in p.plan.calls}
        with phase("emit"):
            units.take(compiled.programs(early))
        with phase("llvm"):
            parts = [compiled.programs(some) if some else [] for some in (used, names - used)]
            parts[0] += _control_programs(compiled.main)
            needed, spare = self._compiled(parts)
            initial = load_blob(units.blob(early))
        with phase("driver"):
            code = Module(self.device, needed, spare)
        text = _SPARE.join(map(_NEXT.join, (needed, spare)))
        return Generated(initial, lambda: (text.encode(), code))

    def _compiled(self, parts: Sequence[Sequence[Program]]) -> list[list[str]]:
        """PTX of programs, as several modules for each part, compiled in child processes."""
        with compiling:
            from sardonyx.llvm.ptx import LEVEL, texts_for_ptx
            from sardonyx.workers.children import Children, most_children

        count = max(1, min(_MOST_MODULES, most_children()))
        with Children(self.target, checkpoint) as children:
            children.start()
            jobs = [
                [children.submit(text, LEVEL) for text in texts_for_ptx(part, self.target, count)]
                for part in parts
            ]
            return [[children.result(job).decode() for job in listed] for listed in jobs]

    @staticmethod
    def check_plan(compiled: Compiled) -> None:
        """The same, once there is a plan.

        Raises:
            NotImplemented: It has calls of the host.
        """
        if compiled.main.has_objects and not compiled.main.only_draws:
            raise errors.NotImplemented(message("CUDA", _OF_THE_HOST))

    def load(self, entry: Entry) -> Any:
        """Modules from their file."""
        needed, spare = (
            [text for text in part.split(_NEXT) if text]
            for part in entry.read().decode().split(_SPARE)
        )
        return Module(self.device, needed, spare)

    def executable(
        self, plan: Plan, code: Any, constants: Sequence[Array], team: Team, budget: Budget
    ) -> Executable:
        """What runs a plan."""
        asked = self._settings
        settings = CudaRunSettings(
            self.device, budget, self.arena, asked.stream, asked.graphs, self.libraries,
            copies_apart=asked.copies_apart,
        )  # fmt: skip
        return cuda_executable(DevicePlan(plan, code, constants, settings))


def _control_programs(plan: Plan) -> list[Program]:
    """Kernels by which the device controls a plan."""
    if len(plan.segments) < 2:
        return []
    from sardonyx.runtime.device_control_flow import control_programs

    return control_programs(plan)
