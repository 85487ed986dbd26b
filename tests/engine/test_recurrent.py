"""RNN, GRU and LSTM against the equations of the operator spec, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base.errors import InvalidArgument, InvalidGraph, NotImplemented
from tests.support.tolerances import assert_near

_random = np.random.default_rng(8)
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
#: Functions with the spec's default alpha and beta, where they take them.
_FUNCTIONS: dict[str, Any] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a=1.0, b=0.0: a * x + b,
    "LeakyRelu": lambda x, a=0.01: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a=1.0: np.where(x < a, 0, x),
    "ScaledTanh": lambda x, a=1.0, b=1.0: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a=0.2, b=0.5: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a=1.0: np.where(x < 0, a * (np.exp(x) - 1), x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
}


def _model(op_type: str, feeds: dict[str, Any], fixed: dict[str, Any], attributes: dict[str, Any]):
    order = ["x", "w", "r", "b", "sequence_lens", "initial_h"]
    order += ["initial_c", "p"] if op_type == "LSTM" else []
    given = {**feeds, **fixed}
    names = [name if name in given else "" for name in order]
    outputs = ["y", "y_h"] + (["y_c"] if op_type == "LSTM" else [])
    node = helper.make_node(op_type, names, outputs, **attributes)
    declared = [
        helper.make_tensor_value_info(
            k, helper.np_dtype_to_tensor_dtype(v.dtype), [f"{k}{a}" for a in range(v.ndim)]
        )
        for k, v in feeds.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(feeds["x"].dtype)
    results = [helper.make_tensor_value_info(o, kind, None) for o in outputs]
    weights = [numpy_helper.from_array(v, k) for k, v in fixed.items()]
    graph = helper.make_graph([node], "g", declared, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _expected(op_type: str, given: dict[str, Any], attributes: dict[str, Any]) -> list[Any]:
    """The operator, step by step."""
    given = {k: v if v.dtype.kind == "i" else v.astype(np.float64) for k, v in given.items()}
    layout = attributes.get("layout", 0)
    swap = (lambda a: a.swapaxes(0, 1)) if layout else (lambda a: a)
    x, w, r = swap(given["x"]), given["w"], given["r"]
    length, batch, _ = x.shape
    count, hidden = r.shape[0], r.shape[2]
    gates = _GATES[op_type]
    bias = given.get("b", np.zeros((count, 2 * gates * hidden)))
    lengths = given.get("sequence_lens", np.full(batch, length))
    names = attributes.get("activations", _DEFAULTS[op_type] * count)
    each = len(_DEFAULTS[op_type])
    outputs = np.zeros((length, count, batch, hidden))
    states = []
    for d in range(count):
        functions = [_FUNCTIONS[n] for n in names[d * each : (d + 1) * each]]
        zero = np.zeros((count, batch, hidden))
        h = swap(given["initial_h"])[d] if "initial_h" in given else zero[d]
        c = swap(given["initial_c"])[d] if "initial_c" in given else zero[d]
        backwards = attributes.get("direction") == "reverse" or d == 1
        for t in reversed(range(length)) if backwards else range(length):
            active = (t < lengths)[:, None]
            arguments = (x[t], h, c, w[d], r[d], bias[d], functions, attributes)
            new_h, new_c = _STEPS[op_type](*arguments, given.get("p", np.zeros((2, 3 * hidden)))[d])
            h, c = np.where(active, new_h, h), np.where(active, new_c, c)
            outputs[t, d] = np.where(active, new_h, 0)
        states.append((h, c))
    y = outputs.transpose(2, 0, 1, 3) if layout else outputs
    last = [swap(np.stack(s)) for s in zip(*states, strict=True)]
    return [y, *last[: 2 if op_type == "LSTM" else 1]]


def _clipped(x: Any, attributes: dict[str, Any]) -> Any:
    bound = attributes.get("clip")
    return x if bound is None else np.clip(x, -bound, bound)


def _rnn(x, h, c, w, r, b, functions, attributes, p):
    wb, rb = np.split(b, 2)
    return functions[0](_clipped(x @ w.T + h @ r.T + wb + rb, attributes)), c


def _gru(x, h, c, w, r, b, functions, attributes, p):
    f, g = functions
    (wz, wr, wh), (rz, rr, rh) = np.split(w, 3), np.split(r, 3)
    bz, br, bh, sz, sr, sh = np.split(b, 6)
    z = f(_clipped(x @ wz.T + h @ rz.T + bz + sz, attributes))
    reset = f(_clipped(x @ wr.T + h @ rr.T + br + sr, attributes))
    if attributes.get("linear_before_reset"):
        inner = reset * (h @ rh.T + sh)
    else:
        inner = (reset * h) @ rh.T + sh
    candidate = g(_clipped(x @ wh.T + inner + bh, attributes))
    return (1 - z) * candidate + z * h, c


def _lstm(x, h, c, w, r, b, functions, attributes, p):
    f, g, k = functions
    wb, rb = np.split(b, 2)
    i, o, forget, candidate = np.split(x @ w.T + h @ r.T + wb + rb, 4, axis=1)
    pi, po, pf = np.split(p, 3)
    i = f(_clipped(i + pi * c, attributes))
    forget = 1 - i if attributes.get("input_forget") else f(_clipped(forget + pf * c, attributes))
    new = forget * c + i * g(_clipped(candidate, attributes))
    return f(_clipped(o + po * new, attributes)) * k(new), new


_STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _arrays(op_type: str, count: int, sizes: tuple[int, int, int, int], dtype: Any, layout: int):
    length, batch, width, hidden = sizes
    wide = _GATES[op_type] * hidden

    def floats(*shape: int) -> Any:
        return (_random.standard_normal(shape) / 2).astype(dtype)

    state = (batch, count, hidden) if layout else (count, batch, hidden)
    return {
        "x": floats(*((batch, length, width) if layout else (length, batch, width))),
        "w": floats(count, wide, width),
        # Smaller, so that long sequences do not become chaotic.
        "r": floats(count, wide, hidden) / dtype(hidden**0.5),
        "b": floats(count, 2 * wide),
        "sequence_lens": _random.integers(0, length + 1, batch).astype(np.int32),
        "initial_h": floats(*state),
        "initial_c": floats(*state),
        "p": floats(count, 3 * hidden),
    }


#: Attributes, which optional inputs are given.
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "bias": ({}, "b"),
    "states": ({}, "b initial_h initial_c"),
    "lengths": ({}, "b sequence_lens initial_h initial_c"),
    "reverse": ({"direction": "reverse"}, "b initial_h"),
    "reverse, lengths": ({"direction": "reverse"}, "b initial_h sequence_lens"),
    "both ways": ({"direction": "bidirectional"}, "b initial_h initial_c"),
    "both ways, lengths": ({"direction": "bidirectional"}, "b sequence_lens initial_h initial_c"),
    "batch first": ({"layout": 1}, "b initial_h initial_c"),
    "batch first, both ways": ({"layout": 1, "direction": "bidirectional"}, "b initial_h"),
    "clip": ({"clip": 0.3}, "b initial_h"),
}
OWN: dict[str, list[tuple[dict[str, Any], str]]] = {
    "RNN": [({"activations": [name]}, "b initial_h") for name in _FUNCTIONS],
    "GRU": [
        ({"linear_before_reset": 1}, "b initial_h"),
        ({"linear_before_reset": 1}, ""),
        ({"linear_before_reset": 1, "direction": "bidirectional"}, "b sequence_lens"),
        ({"activations": ["HardSigmoid", "Softsign"]}, "b"),
    ],
    "LSTM": [
        ({}, "b p initial_c"),
        ({"direction": "bidirectional"}, "p initial_h initial_c sequence_lens b"),
        ({"input_forget": 1}, "b p initial_c"),
        ({"activations": ["HardSigmoid", "Relu", "Elu"]}, "b"),
    ],
}
CASES = [
    *((op, *VARIANTS[name]) for op, name in itertools.product(_GATES, VARIANTS)),
    *((op, *own) for op, rows in OWN.items() for own in rows),
]


@pytest.mark.parametrize(("op_type", "attributes", "optional"), CASES)
def test_against_the_equations(op_type, attributes, optional):
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    arrays = _arrays(op_type, count, (5, 3, 7, 6), np.float32, attributes.get("layout", 0))
    chosen = {k: v for k, v in arrays.items() if k in ("x", "w", "r", *optional.split())}
    if op_type != "LSTM":
        chosen = {k: v for k, v in chosen.items() if k not in ("initial_c", "p")}
    feeds = {k: v for k, v in chosen.items() if k in ("x", "sequence_lens") or "initial" in k}
    fixed = {k: v for k, v in chosen.items() if k not in feeds}
    attributes = {"hidden_size": 6, **attributes}
    model = _model(op_type, feeds, fixed, attributes).SerializeToString()
    session = sardonyx.InferenceSession(model)
    for got, want in zip(session.run(None, feeds), _expected(op_type, chosen, attributes),
                         strict=True):  # fmt: skip
        assert got.dtype == np.float32
        assert_near(got, want, "float: functions near zero")


@pytest.mark.parametrize("op_type", _GATES)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(op_type, dtype):
    arrays = _arrays(op_type, 1, (4, 2, 5, 8), dtype, 0)
    chosen = {k: arrays[k] for k in ("x", "w", "r", "b", "initial_h")}
    model = _model(op_type, chosen, {}, {"hidden_size": 8}).SerializeToString()
    got = sardonyx.InferenceSession(model).run(None, chosen)
    like = "half: three roundings" if dtype == np.float16 else "double: sums"
    for mine, want in zip(got, _expected(op_type, chosen, {}), strict=True):
        assert mine.dtype == dtype
        assert_near(mine, want, like)


@pytest.mark.parametrize("op_type", _GATES)
def test_lengths_and_batches_change_in_one_session(op_type):
    arrays = _arrays(op_type, 2, (4, 2, 17, 40), np.float32, 0)
    fixed = {k: arrays[k] for k in ("w", "r", "b")}
    attributes = {"hidden_size": 40, "direction": "bidirectional"}
    model = _model(op_type, {"x": arrays["x"]}, fixed, attributes).SerializeToString()
    session = sardonyx.InferenceSession(model)
    for length, batch in ((4, 2), (1, 1), (33, 1), (0, 2), (7, 19), (3, 0), (4, 2)):
        x = _random.standard_normal((length, batch, 17)).astype(np.float32)
        want = _expected(op_type, {"x": x, **fixed}, attributes)
        for mine, theirs in zip(session.run(None, {"x": x}), want, strict=True):
            assert mine.shape == theirs.shape
            assert_near(mine, theirs, "float: sums")


#: What is wrong, changes of arrays, attributes, the error, words of it.
REFUSED = {
    "recurrent weights": ({"r": (1, 24, 5)}, {}, InvalidGraph, "does not fit"),
    "weights": ({"w": (1, 23, 7)}, {}, InvalidGraph, "W"),
    "axes": ({"b": (48,)}, {}, InvalidGraph, "number of axes"),
    "direction": ({}, {"direction": "sideways"}, InvalidGraph, "sideways"),
    "activation": ({}, {"activations": ["Tanh", "Sin", "Tanh"]}, NotImplemented, "Sin"),
    "activations": ({}, {"activations": ["Tanh"]}, InvalidGraph, "number"),
    "hidden size": ({}, {"hidden_size": 5}, InvalidGraph, "hidden_size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    changes, attributes, kind, words = REFUSED[name]
    arrays = _arrays("LSTM", 1, (5, 3, 7, 6), np.float32, 0)
    chosen = {k: arrays[k] for k in ("x", "w", "r", "b")}
    chosen.update({k: np.zeros(shape, np.float32) for k, shape in changes.items()})
    fixed = {k: v for k, v in chosen.items() if k != "x"}
    model = _model("LSTM", {"x": chosen["x"]}, fixed, {"hidden_size": 6, **attributes})
    with pytest.raises(kind, match=words):
        sardonyx.InferenceSession(model.SerializeToString())


def test_a_feed_of_the_wrong_width_is_refused():
    arrays = _arrays("LSTM", 1, (5, 3, 7, 6), np.float32, 0)
    fixed = {k: arrays[k] for k in ("w", "r", "b")}
    model = _model("LSTM", {"x": arrays["x"]}, fixed, {"hidden_size": 6}).SerializeToString()
    session = sardonyx.InferenceSession(model)
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.zeros((5, 3, 8), np.float32)})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", _GATES)
def test_lengths_beyond_all_steps_are_refused(op_type, direction):
    arrays = _arrays(op_type, 2 if direction == "bidirectional" else 1, (5, 3, 7, 6), np.float32, 0)
    fed = {"x": arrays["x"], "sequence_lens": np.array([5, 0, 2], np.int32)}
    fixed = {k: arrays[k] for k in ("w", "r", "b")}
    attributes = {"hidden_size": 6, "direction": direction}
    model = _model(op_type, fed, fixed, attributes).SerializeToString()
    session = sardonyx.InferenceSession(model)
    want = _expected(op_type, fed | fixed, attributes)
    for wrong in (6, -1, 2**31 - 1, -(2**31)):
        with pytest.raises(InvalidArgument, match=f"{op_type}_0.*out of range"):
            session.run(None, fed | {"sequence_lens": np.array([5, wrong, 2], np.int32)})
        for mine, theirs in zip(session.run(None, fed), want, strict=True):
            assert_near(mine, theirs, "float: sums")
