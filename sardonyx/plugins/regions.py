"""Parts of a model that a device runs, called by the plan of the processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.tensor.region import REGIONS
from sardonyx.tensor.tensor import Call, Contract
from sardonyx.tensor.traverse import topological

if TYPE_CHECKING:
    import numpy as np

    from sardonyx.ops.core.lower import LoweredGraph
    from sardonyx.runtime.engine import Engine


def is_worth(lowered: LoweredGraph) -> bool:
    """Whether a graph has more work than what copies to a device and back take: sums, or loops."""
    return any(
        isinstance(t, Contract) or (isinstance(t, Call) and t.kernel in REGIONS)
        for t in topological(list(lowered.outputs.values()))
    )


class RegionRun:
    """Runs a part on arrays of the host: they are copied there, and results back.

    Attributes:
        engine: The part's.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._types = [v.dtype.numpy for v in engine.inputs]

    def __call__(self, given: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The outputs of the part."""
        feeds = [
            array if array.dtype == dtype else array.view(dtype)
            for array, dtype in zip(given, self._types, strict=True)
        ]
        return self.engine.run(feeds)
