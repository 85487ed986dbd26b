"""Long repeated fields, read many elements at once, are what the plain reader makes of them."""

import numpy as np
import onnx
import pytest
from onnx import helper

from sardonyx.base.errors import InvalidProtobuf
from sardonyx.loader.load import load

RNG = np.random.default_rng(2)


def read_back(**attributes):
    node = helper.make_node("It", ["x"], ["y"], domain="d", **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [1])], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("d", 1)], ir_version=8)
    (loaded,) = load(model.SerializeToString()).nodes
    return loaded.attributes


INTEGERS = [
    RNG.integers(0, 3, 1000),
    RNG.integers(-(1 << 63), (1 << 63) - 1, 1000),
    RNG.integers(0, 1 << 62, 1000) >> RNG.integers(0, 62, 1000),
    np.where(RNG.random(1000) < 0.05, -1, 300),
    np.full(64, 1 << 40),
    np.arange(100_000),
]


@pytest.mark.parametrize("values", INTEGERS, ids=range(len(INTEGERS)))
def test_integers(values):
    assert read_back(a=values.tolist(), b=1) == {"a": values.tolist(), "b": 1}


@pytest.mark.parametrize("count", [63, 64, 65, 50_000])
def test_floats(count):
    values = RNG.standard_normal(count).astype(np.float32).tolist()
    assert read_back(a=values, b=[1.5]) == {"a": values, "b": [1.5]}


def test_strings():
    values = ["BRANCH_LEQ", "LEAF", "", "x" * 127, "y" * 128, "z" * 5000, "é"] * 3000
    assert read_back(a=values)["a"] == values


def test_damaged_runs_are_noticed():
    values = [1 << 40] * 300
    attribute = helper.make_attribute("a", values).SerializeToString()
    node = helper.make_node("It", ["x"], ["y"], domain="d").SerializeToString()
    # The last number has no last byte: bytes that go on, up to the end of the message.
    broken = attribute[:-1] + b"\xff"
    node += b"\x2a" + _size(len(broken)) + broken
    graph = b"\x0a" + _size(len(node)) + node
    model = b"\x08\x08\x3a" + _size(len(graph)) + graph
    with pytest.raises(InvalidProtobuf):
        load(model)


def _size(n):
    return bytes([n & 127 | 128, n >> 7]) if n >= 128 else bytes([n])
