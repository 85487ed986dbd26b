"""How far a quantised model is from the model that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.constant import Array
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.loader.load import load

#: What computes scores of classes, besides what gives a matrix anyway.
_SCORES = ("Softmax", "LogSoftmax")
#: Operators behind which scores are still scores.
_PASSED = ("Identity", "Cast", "DequantizeLinear", "QuantizeLinear")


@dataclass
class OutputError:
    """Differences of one output, over all samples.

    Attributes:
        name: The output.
        max_abs: The largest difference.
        mean_abs: The mean of differences without their signs.
        relative: Norm of the differences over the norm of the float model's output.
        cosine: Mean over samples of the cosine between both.
        top1: Share of rows of scores with the same largest element; None where there are none.
        samples: Number of samples.
    """

    name: str
    max_abs: float
    mean_abs: float
    relative: float
    cosine: float
    top1: float | None
    samples: int

    def __str__(self) -> str:
        text = (
            f"{self.name}: max abs {self.max_abs:.4g}, mean abs {self.mean_abs:.4g}, "
            f"relative {self.relative:.4g}, cosine {self.cosine:.6f}"
        )
        if self.top1 is not None:
            text += f", top-1 agreement {100 * self.top1:.2f} %"
        return text


class _Sums:
    def __init__(self, name: str, is_scores: bool) -> None:
        self._name, self._is_scores = name, is_scores
        self._largest = self._total = self._squares = self._reference = self._cosines = 0.0
        self._count = self._rows = self._agreed = self._samples = 0

    def add(self, got: Array, want: Array) -> None:
        if got.shape != want.shape:
            what = f"The output {self._name!r} has another shape than in the float model"
            raise InvalidArgument(
                message("report", what, expected=str(list(want.shape)), got=str(list(got.shape)))
            )
        if want.dtype.kind not in "fiub":
            return
        a, b = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        a, b = np.where(same, 0.0, a - b), np.where(np.isfinite(b), b, 0.0)
        self._samples += 1
        self._count += a.size
        if a.size:
            self._largest = max(self._largest, float(np.abs(a).max()))
        self._total += float(np.abs(a).sum())
        self._squares += float(a @ a)
        self._reference += float(b @ b)
        self._cosines += _cosine(a + b, b)
        if self._is_scores and want.ndim >= 2 and want.shape[-1] > 1:
            agreed = got.argmax(-1) == want.argmax(-1)
            self._rows += agreed.size
            self._agreed += int(agreed.sum())

    def result(self) -> OutputError:
        return OutputError(
            self._name,
            self._largest,
            self._total / max(self._count, 1),
            float(np.sqrt(self._squares / self._reference)) if self._reference else 0.0,
            self._cosines / max(self._samples, 1),
            self._agreed / self._rows if self._rows else None,
            self._samples,
        )


def _cosine(a: Array, b: Array) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not size:
        return 1.0 if not np.any(a) and not np.any(b) else 0.0
    return float(a @ b) / size


def compare_models(
    model: Any, quantised: Any, feeds: Iterable[Mapping[str, Any]], options: Any = None
) -> list[OutputError]:
    """Run both models here on the same inputs.

    Args:
        model: The float model: a path, bytes or a `ModelProto`.
        quantised: The model that was made of it.
        feeds: Arrays by input name, one entry for each run.
        options: `SessionOptions` for both.

    Returns:
        One entry for each output.

    Raises:
        InvalidArgument: There are no feeds, or outputs have different shapes.
    """
    from sardonyx.api.session import InferenceSession

    first, second = (InferenceSession(m, options) for m in (model, quantised))
    names = [o.name for o in first.get_outputs()]
    scores = scores_of(load(model))
    sums = [_Sums(name, name in scores) for name in names]
    count = 0
    for feed in feeds:
        count += 1
        pairs = zip(second.run(names, dict(feed)), first.run(names, dict(feed)), strict=True)
        for entry, (got, want) in zip(sums, pairs, strict=True):
            if isinstance(got, np.ndarray) and isinstance(want, np.ndarray):
                entry.add(got, want)
    if not count:
        raise InvalidArgument(message("report", "There are no inputs to compare the models on"))
    return [entry.result() for entry in sums]


def scores_of(graph: Graph) -> set[str]:
    """Outputs that look like scores of classes: a matrix of floats, or what Softmax gives."""
    return {value.name for value in graph.outputs if _is_scores(value)}


def _is_scores(value: Value) -> bool:
    shape = value.declared_shape
    dtype = value.dtype or value.declared_dtype
    if shape is not None and len(shape) == 2:
        return shape[-1] != 1 and dtype is not None and dtype.is_float
    node = value.producer
    while node is not None and node.op_type in _PASSED and node.inputs[0] is not None:
        node = node.inputs[0].producer
    return node is not None and node.op_type in _SCORES
