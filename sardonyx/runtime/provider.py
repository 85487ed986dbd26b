"""What runs kernels: each provider is a folder with one class of this kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sardonyx.base.records import dataclass
from sardonyx.plan.plan import Plan
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.plan_tables import PlanCode
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team
from sardonyx.store.entries import Entry
from sardonyx.targets.target import Target

if TYPE_CHECKING:
    from sardonyx.compiler.compile_graph import Compiled
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.ops.core.lower import LoweredGraph
    from sardonyx.plan.vendor_offers import Accelerator
    from sardonyx.store.kernel_store import KernelStore
    from sardonyx.store.machine_code import Units


@dataclass(slots=True)
class Generated:
    """Kernels of a compiled model.

    Attributes:
        initial: Those that run once, which the processor always does.
        complete: Waits for the others, and gives what `Provider.load` reads, for the cache, and
            what `Provider.executable` takes.
        written: Gives a blob with those that run once, as bytes; None if no plan is kept.
    """

    initial: PlanCode
    complete: Callable[[], tuple[bytes, Any]]
    written: Callable[[], bytes] | None = None


class Provider(Protocol):
    """Generates and runs the code of a model.

    Attributes:
        target: What kernels are built for.
        key: Everything about it that decides on the code.
        accelerator: Says what its libraries take, if it has any.
        without: Optional passes of `plan.pipeline` that do not pay on it.
    """

    target: Target
    key: str
    accelerator: Accelerator | None
    without: frozenset[str]

    def check(self, lowered: LoweredGraph) -> None:
        """Refuse a model before it is compiled.

        Raises:
            NotImplemented: The provider cannot run it as a whole.
        """

    def on_kernel(self, kernel: Kernel, units: Units) -> None:
        """Begin to generate a kernel that will most likely be needed, before all are built."""

    def keeper(self, units: Units, *, winograd: bool, bf16_products: bool) -> KernelStore | None:
        """The machine's library of built kernels, if kernels of this provider are in one.

        Args:
            units: Has them compiled.
            winograd: Whether convolutions may be computed with fewer products.
            bf16_products: Whether factors in float32 are rounded to bfloat16.
        """

    def generate(
        self,
        compiled: Compiled,
        phase: Callable[[str], AbstractContextManager[None]],
        units: Units,
    ) -> Generated:
        """The kernels; `phase` times parts of the work by name, `units` compiles for the processor.

        Raises:
            NotImplemented: The provider has no way to run one.
        """

    def load(self, entry: Entry) -> Any:
        """What `generate` wrote, as `executable` takes it."""

    def executable(
        self, plan: Plan, code: Any, constants: Sequence[Array], team: Team, budget: Budget
    ) -> Executable:
        """What runs a plan."""
