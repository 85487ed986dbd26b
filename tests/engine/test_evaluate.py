"""The evaluator of tensors against runs, fused and not: branches, loops, sizes from data."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import sardonyx
from tests.engine import test_control, test_data_shapes
from tests.support.oracle import Oracle
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_CASES: dict[str, tuple[onnx.ModelProto, list[dict[str, Any]]]] = {
    **{
        f"control: {name}": (model_of(f"g {text}", test_control._WEIGHTS), feeds)
        for name, (text, feeds) in test_control.CASES.items()
    },
    **{
        f"data: {name}": (model_of(f"g {text}", test_data_shapes._WEIGHTS.get(name)), feeds)
        for name, (text, feeds) in test_data_shapes.CASES.items()
    },
}


def _session(model: onnx.ModelProto, fused: bool) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    if not fused:
        level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return sardonyx.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize("name", _CASES)
def test_evaluator_is_runs(name: str) -> None:
    model, feeds = _CASES[name]
    oracle = Oracle(model)
    sessions = {fused: _session(model, fused) for fused in (True, False)}
    for feed in feeds:
        want = oracle.run(feed)
        for fused, session in sessions.items():
            for mine, theirs in zip(session.run(None, dict(feed)), want, strict=True):
                assert mine.dtype == theirs.dtype
                assert mine.shape == theirs.shape, fused
                assert_near(mine, theirs, "float: products")
