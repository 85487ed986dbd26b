"""CDist of com.microsoft against NumPy in double."""

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.ml import assert_same

RNG = np.random.default_rng(1)


def session_of(dtype, metric):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric=metric)
    inputs = [helper.make_tensor_value_info(n, kind, [f"n{n}", "k"]) for n in "ab"]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return sardonyx.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(dtype, metric):
    session = session_of(dtype, metric)
    for rows, others, width in ((1, 1, 1), (3, 17, 5), (20, 33, 30)):
        a = (RNG.standard_normal((rows, width)) + 1000).astype(dtype)
        b = (RNG.standard_normal((others, width)) + 1000).astype(dtype)
        b[0] = a[0]
        want = ((a.astype(np.float64)[:, None] - b) ** 2).sum(2)
        want = np.sqrt(want) if metric == "euclidean" else want
        got = session.run(None, {"a": a, "b": b})[0]
        assert_same(got, want.astype(dtype), "float: sums")
        assert got[0, 0] == 0


def test_errors():
    with pytest.raises(InvalidGraph, match="no such metric"):
        session_of(np.float32, "cosine")
    with pytest.raises(InvalidGraph, match="Expected double, float"):
        session_of(np.int64, "euclidean")
