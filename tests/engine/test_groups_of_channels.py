"""Convolutions in groups of few channels: lanes lie across groups, wherever channels lie."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.session import check, model_of

_random = np.random.default_rng(41)
#: groups, channels of a group that go in, and that come out
_GROUPS = [
    (8, 4, 4),
    (32, 4, 4),
    (6, 2, 2),
    (20, 2, 2),
    (5, 3, 3),
    (16, 1, 2),
    (9, 1, 4),
    (8, 4, 2),
    (8, 8, 8),
]


def _draw(*shape: int) -> np.ndarray:
    """Multiples of 1/4, so that sums are exact."""
    return (_random.integers(-3, 4, shape) / 4).astype(np.float32)


#: Steps only change where rows begin: a form of each width.
_BY_TWO = [(8, 4, 4), (20, 2, 2), (9, 1, 4), (8, 8, 8)]


@pytest.mark.parametrize(
    ("groups", "before", "after", "attributes"),
    [*((*g, "strides = [2, 2]") for g in _BY_TWO),
     *((*g, "pads = [1, 1, 1, 1]") for g in _GROUPS if g not in _BY_TWO[1:])],
)  # fmt: skip
def test_alone(groups: int, before: int, after: int, attributes: str) -> None:
    text = f"""g (float[2, {groups * before}, H, W] x) => (float[b, c, p, q] y) {{
        y = Conv<group = {groups}, {attributes}>(x, w, b) }}"""
    weights = {"w": _draw(groups * after, before, 3, 3), "b": _draw(groups * after)}
    feeds = [{"x": _draw(2, groups * before, h, w)} for h, w in ((3, 3), (7, 18), (5, 33))]
    check(model_of(text, weights), feeds)


@pytest.mark.parametrize(
    ("groups", "before", "after", "size"),
    [(*g, size) for g, size in zip(_GROUPS, (5, "H", 9, 5, 9, "H", 5, 9, "H"), strict=True)]
    + [(*_GROUPS[0], size) for size in (9, "H")],
)
def test_between_others(groups: int, before: int, after: int, size: int | str) -> None:
    text = f"""g (float[1, 16, {size}, {size}] x) => (float[b, c, p, q] y) {{
        a = Conv(x, u) r = Relu(a)
        c = Conv<group = {groups}, pads = [1, 1, 1, 1]>(r, w, b) s = Relu(c)
        y = Conv(s, v) }}"""
    weights = {
        "u": _draw(groups * before, 16, 1, 1),
        "w": _draw(groups * after, before, 3, 3),
        "b": _draw(groups * after),
        "v": _draw(24, groups * after, 1, 1),
    }
    extent = 6 if size == "H" else int(size)
    check(model_of(text, weights), [{"x": _draw(1, 16, extent, extent)}])


def test_result_in_planes() -> None:
    text = """g (float[1, 16, 9, 9] x) => (float[b, c, p, q] y) {
        a = Conv(x, u) r = Relu(a) y = Conv<group = 8, pads = [1, 1, 1, 1]>(r, w) }"""
    weights = {"u": _draw(32, 16, 1, 1), "w": _draw(32, 4, 3, 3)}
    check(model_of(text, weights), [{"x": _draw(1, 16, 9, 9)}])
