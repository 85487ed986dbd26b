"""Short runs that the host ends: run again and again, they give what a first run gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.api.inspection import inspect

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

ML = "ai.onnx.ml"
FLOAT = onnx.TensorProto.FLOAT


def model(nodes: list[Any], outputs: str, width: int) -> bytes:
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", width])]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    numbers = [
        helper.make_node("Constant", [], [name], value_ints=[value])
        for name, value in (("one", 1), ("two", 2), ("six", 6))
    ]
    graph = helper.make_graph([*numbers, *nodes], "g", inputs, results)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return bytes(made.SerializeToString())


def zip_of(name: str, **labels: Any) -> Any:
    return helper.make_node("ZipMap", [name], ["y"], domain=ML, **labels)


#: Nodes, outputs, features, and whether the host's part is done after the native one.
CASES: dict[str, tuple[list[Any], str, int, bool]] = {
    "zipped": (
        [helper.make_node("Neg", ["x"], ["z"]), zip_of("x", classlabels_int64s=[4, 5, 6])],
        "yz", 3, True,
    ),
    "zipped by text, a slice": (
        [
            helper.make_node("Slice", ["x", "one", "six", "one", "two"], ["z"]),
            zip_of("z", classlabels_strings=["a", "b", "c"]),
        ],
        "y", 6, True,
    ),
    "a sequence": (
        [
            helper.make_node("Exp", ["x"], ["z"]),
            helper.make_node("SequenceConstruct", ["z", "x"], ["y"]),
        ],
        "yz", 3, True,
    ),
    "labels": (
        [
            helper.make_node(
                "LinearClassifier", ["x"], ["y", "z"], domain=ML,
                classlabels_strings=["a", "b", "c"], coefficients=np.eye(3).reshape(-1).tolist(),
                intercepts=[0.0, 0.0, 0.0],
            )
        ],
        "yz", 3, True,
    ),
    "text that the host makes": (
        [
            helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.STRING),
            helper.make_node("Neg", ["x"], ["z"]),
        ],
        "yz", 3, False,
    ),
}  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return bool(a == b)
    return bool(a.dtype == b.dtype and np.array_equal(a, b))


@pytest.mark.parametrize("name", CASES)
def test_again(name: str) -> None:
    nodes, outputs, width, ends_on_host = CASES[name]
    source = model(nodes, outputs, width)
    held = sardonyx.InferenceSession(source)
    assert inspect(held).ends_on_host is ends_on_host
    kept: list[tuple[Any, Any]] = []
    for seed, rows in enumerate((1, 1, 1, 2, 2, 1, 0, 0)):
        x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
        fresh = sardonyx.InferenceSession(source).run(None, {"x": x})
        found = held.run(None, {"x": x})
        assert type(found) is list and same(found, fresh)
        kept.append((found, fresh))
    # What runs gave does not change with later ones.
    assert all(same(found, fresh) for found, fresh in kept)
