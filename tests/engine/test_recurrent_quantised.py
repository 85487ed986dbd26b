"""DynamicQuantizeLSTM against a plain recurrence in NumPy, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.tolerances import assert_near

_random = np.random.default_rng(17)
_HIDDEN, _WIDTH = 5, 7


#: Without VNNI onnxruntime adds two products of unsigned and signed bytes in 16 bits: it is right
#: for signed weights up to here on every processor.
_SMALL = 64


def _weights(
    kind: Any, count: int, depth: int, per_column: bool, small: bool = False
) -> dict[str, Any]:
    info, shape = np.iinfo(kind), (count, 4 * _HIDDEN) if per_column else (count,)
    zero = np.full(shape, 0 if info.min else 131, kind)
    low, high = (-_SMALL, _SMALL) if small and info.min else (info.min, info.max + 1)
    return {
        "codes": _random.integers(low, high, (count, depth, 4 * _HIDDEN)).astype(kind),
        "scale": (_random.random(shape) * 0.004 + 0.002).astype(np.float32),
        "zero": zero,
    }


def _model(own: Any, back: Any, more: dict[str, Any], names: list[str], **attributes: Any) -> Any:
    weights = {"w": own["codes"], "r": back["codes"], "ws": own["scale"], "wz": own["zero"]}
    weights |= {"rs": back["scale"], "rz": back["zero"], **more}
    fed = {"x": ("T", "B", _WIDTH)}
    feeds = [helper.make_tensor_value_info("x", 1, fed["x"])]
    if "n" in names:
        feeds.append(helper.make_tensor_value_info("n", 6, ["B"]))
    inputs = ["x", "w", "r", *names, "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y", "h", "c"], domain="com.microsoft",
        hidden_size=_HIDDEN, **attributes,
    )  # fmt: skip
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("y", "h", "c")]
    constants = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph([node], "lstm", feeds, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _quantised(x: Any) -> Any:
    """The numbers that the codes of `x` stand for."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32(high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.round(np.clip(-low / scale, 0, 255))
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero).astype(np.float64) * scale


def _numbers(given: dict[str, Any], k: int) -> Any:
    return (given["codes"][k].astype(float) - given["zero"][k]) * given["scale"][k]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _direction(x: Any, own: Any, back: Any, bias: Any, lengths: Any, reverse: bool) -> list[Any]:
    steps, batch = x.shape[:2]
    gates = (_quantised(x).reshape(-1, _WIDTH) @ own).reshape(steps, batch, -1) + bias
    h, c = np.zeros((2, batch, _HIDDEN))
    y = np.zeros((steps, batch, _HIDDEN))
    for t in reversed(range(steps)) if reverse else range(steps):
        i, o, f, g = np.split(gates[t] + _quantised(h.astype(np.float32)) @ back, 4, axis=1)
        new_c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        new_h = _sigmoid(o) * np.tanh(new_c)
        active = (t < lengths)[:, None]
        h, c = np.where(active, new_h, h), np.where(active, new_c, c)
        y[t] = np.where(active, new_h, 0)
    return [y, h, c]


_KINDS = [(np.int8, np.int8), (np.uint8, np.uint8)]


#: All pairs of two parameters' values.
_ALL_PAIRS = [
    (kinds, (number + column + short) % 2 == 1, direction, bool(short), bool(column))
    for number, kinds in enumerate(_KINDS)
    for direction in ("forward", "reverse", "bidirectional")
    for short, column in ((0, 0), (0, 1), (1, 0), (1, 1))
]


@pytest.mark.parametrize(("kinds", "per_column", "direction", "limited", "small"), _ALL_PAIRS)
def test_values(kinds: Any, per_column: bool, direction: str, limited: bool, small: bool) -> None:
    count = 2 if direction == "bidirectional" else 1
    own = _weights(kinds[0], count, _WIDTH, per_column, small)
    back = _weights(kinds[1], count, _HIDDEN, per_column, small)
    bias = (_random.standard_normal((count, 8 * _HIDDEN)) / 3).astype(np.float32)
    names = ["b", "n" if limited else "", "", "", ""]
    model = _model(own, back, {"b": bias}, names, direction=direction)
    session = sardonyx.InferenceSession(model.SerializeToString())
    peer = _peer(model) if small else None
    for steps, batch in ((4, 1), (6, 3), (1, 2)):
        feeds = {"x": _random.standard_normal((steps, batch, _WIDTH)).astype(np.float32)}
        lengths = np.full(batch, steps, np.int32)
        if limited:
            lengths[1:] = _random.integers(1, steps + 1, batch - 1)
            feeds["n"] = lengths
        got = session.run(None, feeds)
        parts = [
            _direction(
                feeds["x"], _numbers(own, k), _numbers(back, k),
                bias[k, : 4 * _HIDDEN] + bias[k, 4 * _HIDDEN :], lengths,
                direction == "reverse" or k == 1,
            )
            for k in range(count)
        ]  # fmt: skip
        want = [
            np.stack(tensors, 1 if n == 0 else 0)
            for n, tensors in enumerate(zip(*parts, strict=True))
        ]
        # A rounding on the edge moves a code of the state by one: about 0.003 of a gate.
        for mine, exact in zip(got, want, strict=True):
            assert mine.dtype == np.float32
            assert_near(mine, exact, "float: codes of a state")
            assert np.median(abs(mine - exact)) < 2e-6
        for mine, theirs in zip(got, peer.run(None, feeds), strict=True) if peer else ():
            assert_near(mine, theirs, "float: codes of a state")


def _peer(model: Any) -> Any:
    """onnxruntime's session; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime.InferenceSession(model.SerializeToString())


def test_states_peepholes_and_coupled_gates() -> None:
    own, back = (_weights(np.int8, 1, depth, True, small=True) for depth in (_WIDTH, _HIDDEN))
    shapes = {"b": (1, 40), "h0": (1, 2, 5), "c0": (1, 2, 5), "p": (1, 15)}
    more = {k: _random.standard_normal(s).astype(np.float32) / 2 for k, s in shapes.items()}
    names = ["b", "", "h0", "c0", "p"]
    model = _model(own, back, more, names, clip=1.5, input_forget=1)
    feeds = {"x": _random.standard_normal((5, 2, _WIDTH)).astype(np.float32)}
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    onnxruntime = pytest.importorskip("onnxruntime")
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    for mine, theirs in zip(got, peer.run(None, feeds), strict=True):
        assert_near(mine, theirs, "float: codes of a state")


def test_what_does_not_fit_is_refused() -> None:
    own, back = (_weights(np.int8, 1, depth, False) for depth in (_WIDTH, _HIDDEN))
    model = _model({**own, "scale": np.ones(3, np.float32)}, back, {}, [""] * 5)
    with pytest.raises(InvalidGraph, match="A scale has the wrong shape"):
        sardonyx.InferenceSession(model.SerializeToString())
    model = _model({**own, "zero": np.zeros(1, np.uint8)}, back, {}, [""] * 5)
    with pytest.raises(InvalidGraph, match="W_zero_point .* differs from that of W"):
        sardonyx.InferenceSession(model.SerializeToString())
