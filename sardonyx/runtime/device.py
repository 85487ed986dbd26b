"""What a device with memory of its own implements, besides `runtime.provider.Provider`.

Each is small: a provider's classes may have more, and parts of one provider may use that. Shared
layers use no more than this. `docs/providers.md` says who calls what, and names implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sardonyx.runtime.plan_tables import PlanCode

if TYPE_CHECKING:
    from sardonyx.kernel.language.program import Program
    from sardonyx.plan.vendor_offers import Accelerator
    from sardonyx.runtime.provider import Provider
    from sardonyx.runtime.storage import MemoryKind
    from sardonyx.targets.target import Target


class DeviceEvent(Protocol):
    """A point in a queue of work."""

    @property
    def is_done(self) -> bool:
        """Whether the work before it has happened."""

    def synchronize(self) -> None:
        """Wait for that."""


class DeviceQueue(Protocol):
    """Work that a device does in order.

    Attributes:
        handle: How native code names it: a word.
    """

    handle: int

    def record(self) -> DeviceEvent:
        """A new event behind all work so far."""

    def wait_for(self, event: Any) -> None:
        """Let work that comes now begin after an event of this device; the host goes on."""

    def synchronize(self) -> None:
        """Wait for all work so far.

        Raises:
            RuntimeException: Some of it failed.
        """


class DeviceDriver(Protocol):
    """One device, by its maker's driver.

    Attributes:
        number: As the driver counts.
        name: As the maker calls it.
        processors: Parts of it that thread blocks run on.
    """

    number: int
    name: str
    processors: int

    def memory_info(self) -> tuple[int, int]:
        """Free bytes and all bytes."""

    def new_stream(self) -> DeviceQueue:
        """A queue of work that waits for no other."""

    def synchronize(self) -> None:
        """Wait for all work of the device."""


class DeviceBlock(Protocol):
    """Memory of a device, given back with its last reference.

    Attributes:
        address: Where it begins for kernels: a multiple of 256.
    """

    address: int


class DeviceAllocator(Protocol):
    """Where a device's memory comes from."""

    def allocate(self, size_bytes: int, purpose: str) -> DeviceBlock:
        """A block; `purpose` says in errors and statistics what it is for.

        Raises:
            OutOfMemory: There is not so much.
        """

    def trim(self) -> None:
        """Give back to the device what nobody uses."""

    def statistics(self) -> dict[str, Any]:
        """What it holds, in numbers by name."""


class KernelModule(PlanCode, Protocol):
    """The kernels of a model on a device. Its addresses are not 0, and nobody calls them."""

    def function(self, symbol: str) -> Any:
        """How a launch names the kernel.

        Raises:
            NotFound: There is none.
        """

    def is_ready(self, symbol: str) -> bool:
        """Whether a kernel can be launched without waiting for the driver's compiler."""


class KernelPrinter(Protocol):
    """Kernel programs in the form that a device's driver loads, as one module."""

    def __call__(self, programs: Sequence[Program], target: Target) -> Any:
        """Print programs, which are spread over subgroups first (`kernel.gpu.warp.to_warp`).

        Raises:
            EngineError: A program has what the device does not.
        """


class KernelLauncher(Protocol):
    """How the kernels of one frame reach the device.

    Attributes:
        address: A table of `LAUNCHED` records for native code, one for each command.
        launcher: A `LAUNCHER` record for native code: functions that launch, fetch and wait.
    """

    address: int
    launcher: int

    def limit(self, subgroups: int, /) -> None:
        """No launch may have more subgroups: there is no more memory for them to work in."""

    def launch(self, number: int) -> bool:
        """Launch the kernel of a command from here; gives whether it has anything to do."""


class RecordedWork(Protocol):
    """The work of a run, recorded once and launched again with other addresses and sizes."""

    def launch(self, stream: Any) -> None:
        """Do it again in a queue, which is given by its handle."""


class CommandTimer(Protocol):
    """Measures the commands of one run on the device."""

    def do(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        """Do commands by their numbers, each by `work`, and measure them."""

    def take(self, times: Any, commands: Sequence[object], by_library: set[int]) -> None:
        """Note in `times` what was measured since this was last called.

        Args:
            times: The provider's record of times.
            commands: Those of the plan.
            by_library: Numbers of those that a library did.
        """

    def close(self) -> None:
        """Give back what it measures with."""


class DeviceInterfaces(NamedTuple):
    """The classes of one provider, by interface: a type checker proves that they fit."""

    provider: type[Provider]
    driver: type[DeviceDriver]
    queue: type[DeviceQueue]
    event: type[DeviceEvent]
    allocator: type[DeviceAllocator]
    block: type[DeviceBlock]
    memory: type[MemoryKind]
    printer: KernelPrinter
    module: type[KernelModule]
    launcher: type[KernelLauncher]
    recorded: type[RecordedWork]
    timer: type[CommandTimer]
    libraries: type[Accelerator]
