"""A model computed by the evaluator of tensors, which shares no code with plans and kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from sardonyx.base.errors import ContradictingSizes, InvalidGraph
from sardonyx.loader.load import load
from sardonyx.ops.core.evaluate import evaluate_lowered
from sardonyx.ops.core.lower import LoweredGraph, lower
from sardonyx.passes.dimensions import separate_dimensions
from sardonyx.passes.pipeline import optimise
from sardonyx.tensor.assumptions import undecided_broadcasts
from sardonyx.tensor.noise import Noise


class Oracle:
    """The outputs of a model, whatever sizes its feeds have."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    @cached_property
    def _strict(self) -> LoweredGraph:
        graph = load(self.model)
        optimise(graph, 0)
        return lower(graph)

    @cached_property
    def _general(self) -> LoweredGraph:
        graph = load(self.model)
        separate_dimensions(graph, all_names=True)
        with undecided_broadcasts():
            optimise(graph, 0)
            return lower(graph)

    def run(
        self, feeds: Mapping[str, Any], *, double: bool = False, noise: Noise | None = None
    ) -> list[np.ndarray]:
        """All outputs; see `evaluate_lowered`."""
        try:
            return evaluate_lowered(self._strict, feeds, double=double, noise=noise)
        except (ContradictingSizes, InvalidGraph):
            return evaluate_lowered(self._general, feeds, double=double, noise=noise)
