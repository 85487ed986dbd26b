"""Sizes in a file whose product is beyond what can be counted: refused, never wrapped."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of

#: Sizes, and the nodes that make `t` of them: the sum of its ones was 0 where the product wraps.
HUGE = [(1 << 62, 4), (1 << 31, 1 << 31, 4), (1 << 40, 1 << 40), (1 << 61,)]
NODES = {
    "Expand": "t = Expand(x, s)",
    "Tile": "u = Reshape(x, o) t = Tile(u, s)",
    "ConstantOfShape": "t = ConstantOfShape<value = float[1] {1}>(s)",
}
READERS = ["ReduceSum<keepdims = 0>(t)", "Softmax(t)", "Neg(t)", "ReduceMax(t)"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("node", NODES)
def test_products_of_sizes(node: str, shape: tuple[int, ...], reader: str) -> None:
    listed = ", ".join(map(str, shape))
    ones = ", ".join("1" for _ in shape)
    count = len(shape)
    text = f"""g (float x) => (float y)
        <int64[{count}] s = {{{listed}}}, int64[{count}] o = {{{ones}}}>
        {{ {NODES[node]} y = {reader} }}"""
    made = model_of(text, opset=17)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(errors.InvalidGraph, match=rf"{node}_\d.*elements.* at most {2**61 - 1}"):
        sardonyx.InferenceSession(made.SerializeToString())


@pytest.mark.parametrize("shape", [(0, 1 << 60), (1 << 60, 0), (0, 10**9), (3, 0, 10**9)])
def test_no_elements_beside_many(shape: tuple[int, ...]) -> None:
    listed = ", ".join(map(str, shape))
    text = f"""g (float x) => (float y, int64 z)
        <int64[{len(shape)}] s = {{{listed}}}, int64 k = {{1}}> {{
        t = Expand(x, s) y = ReduceSum<keepdims = 0>(t) u = Expand(k, s)
        z = ReduceProd<keepdims = 0>(u) }}"""
    session = sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString())
    y, z = session.run(None, {"x": np.float32(1)})
    assert (y, z) == (0, 1)
