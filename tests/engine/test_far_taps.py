"""Convolutions with taps far apart: tiles leave out taps at which all of their rows are padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.matmul.left_rows import LeftRows
from tests.ops.onnx.test_convolution import plain
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(8)

#: Channels, filters, taps, dilations, strides, pads, groups, sizes of images.
CASES: dict[str, tuple[Any, ...]] = {
    "far": (40, 24, (3, 3), (12, 12), (1, 1), (12,) * 4, 1, [(33, 30), (14, 13), (13, 25)]),
    "farther along": (40, 24, (3, 3), (1, 20), (1, 1), (1, 20, 1, 20), 1, [(9, 33), (5, 21)]),
    "many elements of a tap": (264, 16, (3, 3), (9, 9), (1, 1), (9,) * 4, 1, [(20, 19)]),
    "parts of several taps": (48, 16, (5, 5), (7, 6), (1, 1), (14, 12, 14, 12), 1, [(23, 31)]),
    "many taps": (36, 16, (7, 7), (5, 5), (1, 1), (15,) * 4, 1, [(23, 22)]),
    "more taps than a word has bits": (32, 16, (9, 9), (4, 4), (1, 1), (16,) * 4, 1, [(15, 16)]),
    "steps": (32, 20, (3, 3), (8, 9), (2, 3), (8, 9, 8, 9), 1, [(25, 40), (9, 10)]),
    "only in front": (33, 20, (3, 3), (8, 8), (1, 1), (16, 16, 0, 0), 1, [(20, 21)]),
    "only behind": (34, 20, (3, 3), (8, 8), (1, 1), (0, 0, 16, 16), 1, [(20, 21)]),
    "beyond all": (32, 20, (2, 2), (8, 8), (1, 1), (30, 30, 30, 30), 1, [(5, 6)]),
    "groups": (80, 32, (3, 3), (6, 7), (1, 1), (6, 7, 6, 7), 2, [(15, 17)]),
    "a signal": (32, 24, (3,), (27,), (1,), (27, 27), 1, [(100,), (28,)]),
    "volume": (32, 12, (3, 2, 3), (3, 1, 5), (1, 1, 1), (3, 0, 5, 3, 1, 5), 1, [(4, 5, 9)]),
}


def _model(case: tuple[Any, ...], size: tuple[Any, ...]) -> tuple[bytes, Any]:
    channels, filters, taps, dilations, strides, pads, groups, _ = case
    given, out = ", ".join(map(str, size)), ", ".join(f"o{k}" for k in range(len(taps)))
    text = f"""
    g (float[n, {channels}, {given}] x) => (float[n, {filters}, {out}] y) {{
        y = Conv<strides = {list(strides)}, dilations = {list(dilations)}, pads = {list(pads)},
                 group = {groups}>(x, w)
    }}"""
    w = _random.standard_normal((filters, channels // groups, *taps)).astype(np.float32)
    return model_of(text, {"w": w}).SerializeToString(), w


def _wanted(x: Any, w: Any, case: tuple[Any, ...]) -> Any:
    _, _, _, dilations, strides, pads, groups, _ = case
    return plain(
        x.astype(np.float64), w, dilations=dilations, strides=strides, pads=pads, group=groups
    )


@pytest.mark.parametrize("is_known", [True, False], ids=["known sizes", "any size"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_the_same_bits_however_rows_are_shared(name: str, is_known: bool) -> None:
    case = CASES[name]
    for size in case[-1]:
        given = size if is_known else tuple(f"s{k}" for k in range(len(size)))
        model, w = _model(case, given)
        x = _random.standard_normal((3, case[0], *size)).astype(np.float32)
        results = []
        for threads, base in ((1, "0"), (2, "0"), (2, "7")):
            options = sardonyx.SessionOptions()
            options.intra_op_num_threads = threads
            options.add_session_config_entry("session.dynamic_block_base", base)
            options.add_session_config_entry("session.disable_winograd", "1")
            session = sardonyx.InferenceSession(model, options)
            results.append(session.run(None, {"x": x})[0])
            # Alone, an image's rows are in other tiles.
            alone = [session.run(None, {"x": x[k : k + 1]})[0] for k in range(3)]
            results.append(np.concatenate(alone))
        assert_near(results[0], _wanted(x, w, case), "float: wide sums")
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(
    ("channels", "dilation", "pad", "is_far"),
    [
        (40, 12, 12, True),
        (32, 4, 4, True),
        (40, 3, 3, False),
        (24, 12, 12, False),
        (40, 12, 0, False),
    ],
)
def test_taps_that_are_near_short_or_without_padding_are_not_asked_about(
    monkeypatch: pytest.MonkeyPatch, channels: int, dilation: int, pad: int, is_far: bool
) -> None:
    asked = []
    leaves_out = LeftRows.leaves_taps_out.fget

    def noted(rows: LeftRows) -> bool:
        asked.append(leaves_out(rows))
        return asked[-1]

    monkeypatch.setattr(LeftRows, "leaves_taps_out", property(noted))
    case = (channels, 24, (3, 2), (dilation,) * 2, (1, 1), (pad,) * 4, 1, ())
    create_engine(_model(case, (40, 40))[0], EngineOptions(use_cache=False))
    assert asked
    assert any(asked) == is_far
