"""The provider for CUDA with kernels of the host, on the driver whose device is the processor."""

from __future__ import annotations

import gc
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import pytest

from sardonyx.base.forks import compiling
from sardonyx.cuda import provider
from sardonyx.cuda.driver import addresses, device, driver
from sardonyx.cuda.driver.module import SparePart
from sardonyx.cuda.libraries.cublaslt import CublasLt
from sardonyx.cuda.libraries.cudnn import Cudnn
from sardonyx.cuda.memory import arena, arenas, values
from sardonyx.cuda.run import captured, launching
from sardonyx.cuda.run.device_state import CudaRunSettings, DevicePlan
from sardonyx.cuda.run.executable import CudaExecutable, cuda_executable
from sardonyx.link.executable_memory import load_blob
from sardonyx.runtime.device_control_flow import control_programs
from sardonyx.runtime.provider import Generated
from sardonyx.targets.target import host_target
from tests.support.fake_driver import FakeDriver


class _Module:
    pending = 0
    #: Kernels that have to be compiled first.
    late: frozenset[str] = frozenset()

    def __init__(self, code: Any) -> None:
        self._code = code

    def function(self, symbol: str) -> int:
        return int(self._code.address(symbol))

    def is_ready(self, symbol: str) -> bool:
        return symbol not in self.late

    def address(self, symbol: str) -> int:
        return 1


class FakeProvider(provider.CudaProvider):
    """As `CudaProvider`, with kernels of the host."""

    accelerator: Any = None
    fake: FakeDriver

    def __init__(self, fake: FakeDriver, number: int = 0, **options: Any) -> None:
        super().__init__(number, options.pop("settings", None))
        self.fake, self.options = fake, options
        self.accelerator = options.get("libraries")
        self.target = host_target()
        self.key = f"fake {id(fake)}"

    def generate(self, compiled: Any, phase: Any, units: Any) -> Generated:
        self.check_plan(compiled)
        with compiling:
            from sardonyx.link.blob import build
            from sardonyx.llvm.module import emit_module
        turns = control_programs(compiled.main)
        programs = [*compiled.programs(), *turns]
        code = load_blob(build(emit_module(programs, self.target), self.target))
        for program in turns:
            self.fake.slots[code.address(program.name)] = len(program.parameters)
        for invocation in compiled.invocations:
            program = invocation.kernel.program
            if invocation.kernel.host is not None:
                continue
            self.fake.slots[code.address(program.name)] = len(program.parameters)
        return Generated(code, lambda: (b"", _Module(code)))

    def load(self, entry: Any) -> Any:
        raise NotImplementedError("the tests' sessions on it have no cache to load kernels from")

    def executable(
        self, plan: Any, code: Any, constants: Any, threads: int, budget: Any
    ) -> CudaExecutable:
        asked = self._settings
        given = {
            "arena": self.arena,
            "stream": asked.stream,
            "graphs": asked.graphs,
            "copies_apart": asked.copies_apart,
            **self.options,
        }
        settings = CudaRunSettings(self.device, budget, **given)
        return cuda_executable(DevicePlan(plan, code, constants, settings))


def _wait_for_the_background() -> None:
    """With a GPU, what is still done in the background would come to the other driver."""
    deadline = time.monotonic() + 60

    def is_busy(found: CublasLt | Cudnn | SparePart) -> bool:
        if isinstance(found, SparePart):
            return found.is_pending
        return bool(found.pending or found.searching)

    gc.unfreeze()  # what the collector was told to leave alone is not among its objects
    for found in [x for x in gc.get_objects() if isinstance(x, CublasLt | Cudnn | SparePart)]:
        while is_busy(found) and time.monotonic() < deadline:
            time.sleep(0.01)


@contextmanager
def installed(kind: type[FakeDriver] | None = None) -> Iterator[FakeDriver]:
    """The driver in place of NVIDIA's, until the block ends; of a class of its own with `kind`."""
    if driver.bindings.cache_info().currsize:
        _wait_for_the_background()
    fake = (kind or FakeDriver)()
    modules = {name: types.ModuleType(name) for name in ("cuda", "cuda.bindings")}
    modules["cuda.bindings"].driver = fake  # type: ignore[attr-defined]  # it has what the module has
    before = {name: sys.modules.get(name) for name in modules}
    caches = (
        driver.bindings, driver.direct, launching.function_of_driver, launching._launching,
        launching.begins_early, device.device, values.cuda_memory, addresses.check_range_once,
    )  # fmt: skip
    sys.modules.update(modules)
    for cached in caches:
        cached.cache_clear()
    real, others = provider.CudaProvider, set(arena._arenas)
    made, make = WeakSet[device.Device](), device.Device.__init__

    def noted(self: device.Device, number: int) -> None:
        make(self, number)
        made.add(self)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device.Device, "__init__", noted)
            patch.setattr(arenas, "_default", {})
            patch.setattr(arenas, "_registered", {})
            patch.setattr(
                provider, "CudaProvider", lambda n, s: FakeProvider(fake, number=n, settings=s)
            )
            yield fake
            if before["cuda.bindings"] is not None:
                _wait_for_the_background()  # it would come to NVIDIA's driver
            captured._reserved.clear()  # graphs of this driver are gone with it
            gc.collect()  # engines give back what they hold
    finally:
        assert provider.CudaProvider is real
        gc.collect()
        for left in set(arena._arenas) - others:  # what holds it may end after this driver
            left._regions.clear()
            left._returned.clear()
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        for one in made:  # what is left of them, or done in the background, enters nothing
            one.context = 0
        for cached in caches:
            cached.cache_clear()
