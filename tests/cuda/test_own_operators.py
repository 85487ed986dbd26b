"""Operators of the program's own beside a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx import operators
from sardonyx.operators import Output, Tensor
from sardonyx.operators import language as t
from tests.support.fake_driver import FakeDriver
from tests.support.tolerances import assert_near

DOMAIN = "com.example"
_RANDOM = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    @operators.function(DOMAIN, "Sorted", [Output(like=0)])
    def ordered(x: Any) -> Any:
        return np.sort(x, axis=-1)

    @operators.function(DOMAIN, "Positive", [Output("int64", (None,))])
    def positive(x: Any) -> Any:
        return np.flatnonzero(x > 0)

    @operators.lowering(DOMAIN, "Swish")
    def swish(x: Tensor) -> Tensor:
        return x * t.sigmoid(x)

    yield
    for name in ("Sorted", "Positive", "Swish"):
        operators.remove(DOMAIN, name)


@pytest.mark.parametrize(
    ("body", "result", "parts"),
    [
        ("a = MatMul(x, w) b = com.example.Sorted(a) y = MatMul(b, v)", "float[A,B] y", True),
        ("a = MatMul(x, w) y = com.example.Positive(a)", "int64[A] y", True),
        ("a = MatMul(x, w) y = com.example.Swish(a)", "float[A,B] y", False),
    ],
)
def test_products_stay_on_the_device(
    gpu: FakeDriver | None, body: str, result: str, parts: bool
) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 1]>
        g (float[N,16] x, float[16,16] w, float[16,16] v) => ({result}) {{ {body} }}"""
    model = parser.parse_model(text).SerializeToString()
    # Few bits, so that products are exact in any precision that a device may choose.
    feeds = {
        name: (_RANDOM.integers(-4, 5, (16 if name != "x" else 5, 16)) / 4).astype(np.float32)
        for name in "xwv"
    }
    (expected,) = sardonyx.InferenceSession(model).run(None, feeds)
    session = sardonyx.InferenceSession(model, providers=["CUDAExecutionProvider"])
    assert session.get_providers()[0] == "CUDAExecutionProvider"
    assert ("calls of Python" in str(session.explain())) == parts
    for _ in range(3):
        assert_near(session.run(None, feeds)[0], expected, "float: functions")
