"""Models as text, run in one session at many shapes against ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import sardonyx
from tests.support.tolerances import assert_near

Feeds = Mapping[str, Any]


def model_of(
    text: str, weights: Mapping[str, Any] | None = None, opset: int = 17
) -> onnx.ModelProto:
    """A model in ONNX's text format, without its first line, with weights added."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    for name, value in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def check(
    model: onnx.ModelProto, feeds: Iterable[Feeds], *, tolerance: str = "float: products"
) -> sardonyx.InferenceSession:
    """Compare every run with the reference: types, shapes, values; twice, from the cache too."""
    session = sardonyx.InferenceSession(model.SerializeToString())
    reference = ReferenceEvaluator(model)
    for feed in feeds:
        got = session.run(None, dict(feed))
        want = reference.run(None, dict(feed))
        for mine, theirs in zip(got, want, strict=True):
            theirs = np.asarray(theirs)
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert_near(mine, theirs, tolerance)
    return session
