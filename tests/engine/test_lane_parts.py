"""Rows that mirror, clamp or wrap at their ends: borders and what lies inside are written apart."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(23)
_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
_TYPES = {"float": np.float32, "double": np.float64, "uint8": np.uint8, "float16": np.float16}


def _padded(name: str, mode: str, x: np.ndarray, pads: tuple[int, int]) -> np.ndarray:
    before, after = pads
    counts = f"int64[4] p = {{1, {before}, 0, {after}}}"
    shape = ",".join(map(str, x.shape))
    text = f"""graph ({name}[{shape}] x) => ({name}[P,Q] y) <{counts}> {{
        y = Pad<mode = "{mode}">(x, p) }}"""
    session = sardonyx.InferenceSession(model_of(text, None, 19).SerializeToString())
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("width", [4, 16, 17, 33, 64, 100])
@pytest.mark.parametrize("pads", [(3, 3), (0, 1), (1, 0), (3, 2)], ids=str)
def test_pads(mode: str, width: int, pads: tuple[int, int]) -> None:
    x = _random.standard_normal((3, width)).astype(np.float32)
    want = np.pad(x, [(1, 0), pads], mode=_MODES[mode])
    np.testing.assert_array_equal(_padded("float", mode, x, pads), want)


@pytest.mark.parametrize("name", _TYPES)
def test_types(name: str) -> None:
    x = (_random.standard_normal((3, 70)) * 50).astype(_TYPES[name])
    want = np.pad(x, [(1, 0), (5, 7)], mode="reflect")
    np.testing.assert_array_equal(_padded(name, "reflect", x, (5, 7)), want)


@pytest.mark.parametrize("width", [20, 40])
def test_more_turns_than_parts(width: int) -> None:
    x = _random.standard_normal((3, width)).astype(np.float32)
    want = np.pad(x, [(1, 0), (width * 3, width * 2)], mode="wrap")
    np.testing.assert_array_equal(_padded("float", "wrap", x, (width * 3, width * 2)), want)


_APART = [(1, 1), (2, 1), (0, 1)]


@pytest.mark.parametrize(
    ("mode", "width", "pads", "rows"),
    [
        # Each width in each mode; for one of them all pads, with rows of either kind.
        *((mode, width, _APART[(m + w) % 3], ("40", "N")[(m + w) % 2])
          for m, mode in enumerate(_MODES) for w, width in enumerate([9, 16, 90])),
        *(("reflect", 33, pads, rows) for pads in _APART for rows in ("40", "N")),
        *((mode, 33, (2, 1), "N") for mode in _MODES if mode != "reflect"),
    ],
)  # fmt: skip
def test_rows_that_lie_apart(mode: str, width: int, pads: tuple[int, int], rows: str) -> None:
    text = f"""graph (float[4,{rows},{width}] x) => (float[P,Q,R] y)
        <int64[6] p = {{0, 0, {pads[0]}, 0, 0, {pads[1]}}}> {{
        a = Pad<mode = "{mode}">(x, p) y = Softmax<axis = 1>(a) }}"""
    session = sardonyx.InferenceSession(model_of(text, None, 19).SerializeToString())
    x = _random.standard_normal((4, 40, width)).astype(np.float32)
    e = np.exp(np.pad(x, [(0, 0), (0, 0), pads], mode=_MODES[mode]).astype(np.float64))
    want = e / e.sum(1, keepdims=True)
    assert_near(session.run(None, {"x": x})[0], want, "float: normalised")


def test_a_window_over_mirrored_rows() -> None:
    text = """graph (float[1,2,9,40] x) => (float[1,2,P,Q] y)
        <int64[8] p = {0, 0, 2, 3, 0, 0, 1, 2}> {
        a = Pad<mode = "reflect">(x, p) r = Relu(a)
        y = MaxPool<kernel_shape = [2, 3]>(r) }"""
    session = sardonyx.InferenceSession(model_of(text, None, 19).SerializeToString())
    x = _random.standard_normal((1, 2, 9, 40)).astype(np.float32)
    padded = np.maximum(np.pad(x, [(0, 0), (0, 0), (2, 1), (3, 2)], mode="reflect"), 0)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], windows.max((-1, -2)))
