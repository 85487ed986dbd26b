"""Operators of which all inputs are constants, at each level; `constants` has all cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.hostile.constants import faults, session
from tests.support.contrib import contrib_model

_X = np.arange(96, dtype=np.float32).reshape(3, 8, 4)


def _model(op_type: str, feeds: dict[str, np.ndarray[Any, Any]], outputs: int) -> onnx.ModelProto:
    kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in feeds.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], x.shape) for n, x in feeds.items()]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op_type, list(feeds), results)
    values = [onnx.ValueInfoProto(name=n) for n in results]
    graph = helper.make_graph([node], "g", inputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("counts", [[2, 5, 8], [8, 8, 8], [0, 3, 0]])
def test_sizes_that_constants_decide(counts: list[int]) -> None:
    """Where padding is, is an index that is read from memory, in rows made for all sizes."""
    feeds = {"x0": _X, "x1": np.array(counts, np.int32)}
    model = contrib_model("RemovePadding", list(feeds.values()), {}, 4)
    rows = np.concatenate([x[:n] for x, n in zip(_X, counts, strict=True)])
    results = session(model, 99).run(None, feeds)
    assert np.array_equal(results[0], rows) and results[3] == [max(counts)]
    assert not list(faults(model, feeds, results))


@pytest.mark.parametrize(
    ("op_type", "feeds", "outputs"),
    [
        ("NonZero", {"x": _X[0] % 3}, 1),
        ("Unique", {"x": _X[0, 0] % 3}, 4),
        ("Compress", {"x": _X[0], "c": np.array([True, False, True])}, 1),
        ("TopK", {"x": _X[0], "k": np.array([2])}, 2),
        ("Range", {"a": np.array(1), "b": np.array(9), "c": np.array(3)}, 1),
        ("OneHot", {"i": np.array([1, 2]), "d": np.array(4), "v": np.array([0.0, 1.0])}, 1),
    ],
)
def test_results_of_sizes_that_data_decides(
    op_type: str, feeds: dict[str, np.ndarray[Any, Any]], outputs: int
) -> None:
    model = _model(op_type, feeds, outputs)
    assert not list(faults(model, feeds, session(model, 99).run(None, feeds)))
