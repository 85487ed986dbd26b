"""Sums of many products are added up in parts: their errors do not grow with their length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import knobs
from sardonyx.workers import child
from tests.support.session import model_of

_RANDOM = np.random.default_rng(11)


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    return float((np.abs(got - want) / np.abs(want)).mean())


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(7, 20_000, 70), (1, 30_000, 33)])
def test_products(rows: int, depth: int, columns: int, constant: bool) -> None:
    """Of positive numbers, where one sum in a row would be wrong by the square root of its length.

    A sum of n numbers in a row has a mean relative error of about sqrt(n / 60) units of 6e-8.
    """
    x = _RANDOM.random((rows, depth), np.float32)
    w = _RANDOM.random((depth, columns), np.float32)
    second = "" if constant else f", float[{depth}, {columns}] w"
    model = model_of(
        f"g (float[{rows}, {depth}] x{second}) => (float[{rows}, {columns}] y) "
        "{ y = MatMul (x, w) }",
        {"w": w} if constant else {},
    )
    feeds = {"x": x} if constant else {"x": x, "w": w}
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    assert _relative_error(got, x.astype(np.float64) @ w.astype(np.float64)) < 2.5e-7


#: Channels, height and width of filters, and padding: few taps and many, short rows and long.
FILTERS = [(600, 5, 5, 0), (70, 1, 9, 0), (3, 15, 15, 7), (80, 9, 9, 4), (300, 5, 6, 2)]


@pytest.mark.parametrize(("channels", "height", "width", "pad"), FILTERS)
def test_convolutions(
    channels: int, height: int, width: int, pad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over taps and channels; kernels with many taps are no longer than others."""
    lengths: list[int] = []
    compiled = child.compile_text

    def noted(text: str, *more: Any, **named: Any) -> Any:
        lengths.append(len(text))
        return compiled(text, *more, **named)

    monkeypatch.setattr(child, "compile_text", noted)
    x = _RANDOM.random((1, channels, 9, 10), np.float32)
    w = _RANDOM.random((20, channels, height, width), np.float32)
    model = model_of(
        f"""g (float[1, {channels}, 9, 10] x) => (float[1, 20, P, Q] y)
        {{ y = Conv <pads = {[pad] * 4}> (x, w) }}""",
        {"w": w},
    )
    with knobs.override("SARDONYX_CACHE", "off"):
        got = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))
    want = np.einsum("ncyxij,kcij->nkyx", windows, w.astype(np.float64))
    assert _relative_error(got, want) < 2.5e-7
    assert lengths
    assert max(lengths) < 200_000


#: Sizes, and which of them are summed.
REDUCED = [
    ((30_000, 40), (0,)),
    ((30_000, 9), (0,)),
    ((2, 150, 200, 24), (1, 2)),
    ((30_000, 20, 3), (0, 2)),
    ((40, 3, 30_000), (1, 2)),
    ((2, 600_000), (1,)),
    ((500, 7, 1_000), (0, 2)),
    ((900, 20, 900), (0, 2)),
    ((40_000, 5, 30), (0, 2)),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("shape", "axes"), REDUCED)
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceSumSquare"])
def test_reductions(
    operator: str, shape: tuple[int, ...], axes: tuple[int, ...], known: bool
) -> None:
    """Over rows, columns and both, whether sizes are known or not.

    Summed one after the other, most of these are 5e-7 to 1e-5 off.
    """
    x = np.random.default_rng(7).random(shape, np.float32)
    sizes = ", ".join(str(d) if known else f"N{i}" for i, d in enumerate(shape))
    rest = ", ".join(f"M{i}" for i in range(len(shape) - len(axes)))
    model = model_of(
        f"g (float[{sizes}] x) => (float[{rest}] y) {{ y = {operator} <keepdims = 0> (x, axes) }}",
        {"axes": np.array(axes, np.int64)},
        opset=18,
    )
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    wide = x.astype(np.float64)
    reduced = {"ReduceSum": wide.sum, "ReduceMean": wide.mean, "ReduceSumSquare": (wide**2).sum}
    assert _relative_error(got, reduced[operator](axes)) < 3.5e-7
