"""What decides on kernels and plans: the options of one compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from sardonyx.base.records import dataclass
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.language.compiled import Kernel

if TYPE_CHECKING:
    from sardonyx.plan.reasons import Reasons
    from sardonyx.plan.vendor_offers import Accelerator
    from sardonyx.selection.kernel_record import Keeper
    from sardonyx.selection.layers import LayerKeeper
    from sardonyx.selection.table import SelectionTrace
    from sardonyx.selection.variants import Choices

#: What the key of a model has of the provider: `runtime.provider.Provider.key`.
PROVIDER = "provider"
_KEYED = {f.name for f in dataclasses.fields(EngineOptions) if f.metadata["key"] is not None}


def _decided_by(*names: str, default: Any) -> Any:
    """A field that follows from what is in the key of a model.

    Raises:
        ValueError: One of `names` is not in the key: a session could get code of another one.
    """
    wrong = set(names) - _KEYED - {PROVIDER}
    if wrong:
        raise ValueError(f"the key of a model has no {', '.join(sorted(wrong))}")
    return field(default=default, metadata={"from": names})


def _beside(default: Any = None) -> Any:
    """A field that changes no result, or whose part in keys its owner adds."""
    return field(default=default, metadata={"from": ()})


@dataclass(eq=False, frozen=True, slots=True)
class CompileOptions:
    """How a graph is compiled.

    Each field that decides on code names the parts of a model's key that it follows from
    (`EngineOptions.key`, `Provider.key`). One that names something else fails at import.

    Attributes:
        fuse: Whether kernels may work for several nodes. Without, what a node gives has memory.
        winograd: Whether convolutions may be computed with fewer, but less exact, products.
        bf16_products: Whether factors of products in float32 are rounded to bfloat16.
        branches: Whether threads may walk independent branches.
        without: Optional planning passes that are left out: `plan.pipeline`.
        accelerator: Who has libraries.
        keeper: Has kernels of other models.
        layers: Has what groups of other models became.
        choices: Which kernels are built otherwise than the cost model would.
        on_kernel: Called with each kernel that was built.
        reasons: Takes what planning passes did to each group, and why; None in sessions.
        trace: Takes which candidates selection looked at, and why not; None in sessions.
    """

    fuse: bool = _decided_by("optimization_level", default=True)
    winograd: bool = _decided_by("winograd", "optimization_level", default=True)
    bf16_products: bool = _decided_by("bf16_products", PROVIDER, default=False)
    branches: bool = _decided_by("branches", default=False)
    without: frozenset[str] = _decided_by("without", PROVIDER, default=frozenset())
    accelerator: Accelerator | None = _decided_by(PROVIDER, default=None)
    keeper: Keeper | None = _beside()
    layers: LayerKeeper | None = _beside()
    choices: Choices | None = _beside()
    on_kernel: Callable[[Kernel], None] = _beside(lambda kernel: None)
    reasons: Reasons | None = _beside()
    trace: SelectionTrace | None = _beside()
