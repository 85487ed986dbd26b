"""A lowered graph, computed slowly with NumPy: what plans of it are measured against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import sardonyx.ops.core.references  # noqa: F401 - registers what the kernels mean
from sardonyx.base import sizes
from sardonyx.base.errors import ContradictingSizes, InvalidArgument, message
from sardonyx.ops.core.lower import LoweredGraph
from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.evaluate import SizesFound, evaluate_all
from sardonyx.tensor.noise import Noise
from sardonyx.tensor.tensor import Buffer


def evaluate_lowered(
    lowered: LoweredGraph,
    feeds: Mapping[str, Any],
    *,
    double: bool = False,
    noise: Noise | None = None,
) -> list[Array]:
    """All outputs of a graph, control flow and sizes that the data decides included.

    Args:
        lowered: The graph.
        feeds: Arrays, by the names of the inputs.
        double: Compute everything that is a float in double.
        noise: Makes rounding errors in what is computed in double.

    Raises:
        InvalidArgument: A feed has the wrong rank or size.
        ContradictingSizes: Feeds differ in sizes that the graph takes as equal.
        RuntimeException: What the data asks for is not possible, such as an index outside.
    """
    buffers: dict[Buffer, Array] = {}
    symbols: dict[str, int] = {}
    for value, buffer in lowered.inputs.items():
        array = buffers[buffer] = np.asarray(feeds[value.name])
        if array.ndim != buffer.rank:
            what = f"The feed {value.name} has the wrong rank"
            expected, got = str(list(buffer.shape)), str(array.shape)
            raise InvalidArgument(message("evaluate", what, expected=expected, got=got))
        for axis, (d, extent) in enumerate(zip(buffer.shape, array.shape, strict=True)):
            wanted = d if isinstance(d, int) else symbols.setdefault(_name(d), extent)
            if wanted != extent:
                what = f"Axis {axis} of the feed {value.name} has the wrong size"
                refusal = InvalidArgument if isinstance(d, int) else ContradictingSizes
                raise refusal(message("evaluate", what, expected=str(wanted), got=str(extent)))
    found = SizesFound(lowered.measured, lowered.ends, lowered.assumptions)
    return evaluate_all(
        lowered.outputs.values(), buffers, symbols, double=double, noise=noise, found=found
    )


def _name(size: sizes.Dim) -> str:
    return sizes.variable(size).name
