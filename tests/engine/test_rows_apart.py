"""Reductions along an axis whose elements lie apart: several vectors of rows at once."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(17)
_REDUCTIONS = {
    "ReduceMean<axes = [0]>": np.mean,
    "ReduceMax<axes = [0]>": np.max,
    "ReduceL2<axes = [0]>": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    "ReduceProd<axes = [0]>": np.prod,
}
_WIDTHS = (1, 15, 16, 17, 64, 127, 128, 129, 200, 257, 4096 + 130)


@pytest.mark.parametrize("operator", _REDUCTIONS)
def test_reductions(operator: str) -> None:
    text = f"graph (float[N,M] x) => (float[1,M] y) {{ y = {operator}(x) }}"
    session = sardonyx.InferenceSession(model_of(text, None, 13).SerializeToString())
    for width in _WIDTHS:
        for rows in (1, 5, 60):
            x = _random.standard_normal((rows, width)).astype(np.float32)
            want = _REDUCTIONS[operator](x.astype(np.float64), axis=0, keepdims=True)
            assert_near(session.run(None, {"x": x})[0], want, "float: functions near zero")


@pytest.mark.parametrize("width", [15, 16, 129, 257])
@pytest.mark.parametrize("last", [0, 1])
def test_positions(width: int, last: int) -> None:
    text = f"""graph (int32[60,{width}] x) => (int64[1,{width}] y)
        {{ y = ArgMax<axis = 0, select_last_index = {last}>(x) }}"""
    session = sardonyx.InferenceSession(model_of(text, None, 13).SerializeToString())
    x = _random.integers(0, 20, (60, width)).astype(np.int32)
    want = 59 - x[::-1].argmax(0) if last else x.argmax(0)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want[None])


@pytest.mark.parametrize("width", [1, 17, 130, 257, "W"])
def test_several_passes(width: int | str) -> None:
    text = f"""graph (float[2,70,{width}] x, float[70,1] s)
        => (float[2,70,{width}] y, float[2,1,{width}] m) {{
        p = Softmax<axis = 1>(x) y = Mul(p, s) m = ReduceMin<axes = [1]>(x) }}"""
    for known in _WIDTHS[1::3] if width == "W" else (width,):
        x = _random.standard_normal((2, 70, known)).astype(np.float32)
        scale = _random.standard_normal((70, 1)).astype(np.float32)
        check(model_of(text, None, 13), [{"x": x, "s": scale}])
