"""Recurrent layers, and the operators of attention and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_FUNCTIONS = {
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
}


@makes("RNN GRU LSTM", factor=24, absolute=8, steady=[4])
def recurrent(draw: Draw) -> Instance:
    name = draw.schema.name
    gates = _GATES[name]
    dtype = draw.type_of("T")
    steps, batch = draw.size(1, 4), draw.size(1, 3)
    width, hidden = draw.integer(1, 4), draw.integer(1, 4)
    direction = draw.pick(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    layout = draw.integer(0, 1) if draw.has_attribute("layout") else 0
    x = draw.reals([batch, steps, width] if layout else [steps, batch, width], dtype)
    state = [batch, count, hidden] if layout else [count, batch, hidden]
    w = draw.reals([count, gates * hidden, width], dtype, 0.5)
    r = draw.reals([count, gates * hidden, hidden], dtype, 0.5)
    b = draw.reals([count, 2 * gates * hidden], dtype, 0.5) if draw.chance(0.6) else None
    lengths = None
    if draw.chance(0.4):
        lengths = draw.contents.integers(1, steps + 1, batch).astype(np.int32)
    inputs: list[Any] = [x, w, r, b, lengths]
    inputs.append(draw.reals(state, dtype) if draw.chance(0.5) else None)
    attributes: dict[str, Any] = {"hidden_size": hidden, "layout": layout or None}
    attributes["direction"] = (
        direction if count > 1 or direction == "reverse" else (draw.maybe(direction))
    )
    if draw.chance(0.3):
        attributes["activations"] = [draw.pick([*_FUNCTIONS]) for _ in _ACTIVATIONS[name] * count]
    attributes["clip"] = draw.maybe(0.75, 0.2)
    if name == "LSTM":
        inputs.append(draw.reals(state, dtype) if draw.chance(0.5) else None)
        peep = draw.chance(0.3)
        inputs.append(draw.reals([count, 3 * hidden], dtype, 0.5) if peep else None)
        attributes["input_forget"] = draw.maybe(1, 0.2)
    if name == "GRU" and draw.version >= 3:
        attributes["linear_before_reset"] = draw.maybe(draw.integer(0, 1))
    outputs: list[Any] = [dtype] * (3 if name == "LSTM" else 2)
    if draw.has_attribute("output_sequence"):
        attributes["output_sequence"] = 1
    return Instance(inputs, attributes, outputs)


@reference("RNN GRU LSTM")
def recurrence(
    use: Use,
    x: Array,
    w: Array,
    r: Array,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    """Sequences that ended keep their state and give zeros."""
    g, name = use.attributes, use.node.op_type
    gates = _GATES[name]
    layout = g.get("layout", 0)
    if layout:
        x = x.swapaxes(0, 1)
        h, c = (None if s is None else s.swapaxes(0, 1) for s in (h, c))
    steps, batch, _ = x.shape
    count, hidden = w.shape[0], r.shape[2]
    chosen = [
        a.decode() if isinstance(a, bytes) else a
        for a in g.get("activations", _ACTIVATIONS[name] * count)
    ]
    each = len(_ACTIVATIONS[name])
    lengths = np.full(batch, steps) if lengths is None else lengths
    y = np.zeros((steps, count, batch, hidden))
    last, cells = np.zeros((count, batch, hidden)), np.zeros((count, batch, hidden))
    clip = g.get("clip")

    def clipped(v: Array) -> Array:
        return v if clip is None else np.clip(v, -clip, clip)

    for d in range(count):
        back = g["direction"] == "reverse" or d == 1
        f = [_FUNCTIONS[a] for a in chosen[d * each : (d + 1) * each]]
        bw, br = np.split(np.zeros(2 * gates * hidden) if b is None else b[d], 2)
        for n in range(batch):
            state = np.zeros(hidden) if h is None else h[d, n]
            cell = np.zeros(hidden) if c is None else c[d, n]
            places = range(int(lengths[n]))
            for t in reversed(places) if back else places:
                xs = np.split(w[d] @ x[t, n] + bw, gates)
                hs = np.split(r[d] @ state + br, gates)
                if name == "RNN":
                    state = f[0](clipped(xs[0] + hs[0]))
                elif name == "GRU":
                    z, reset = f[0](clipped(xs[0] + hs[0])), f[0](clipped(xs[1] + hs[1]))
                    if g.get("linear_before_reset", 0):
                        new = f[1](clipped(xs[2] + reset * hs[2]))
                    else:
                        inner = np.split(r[d], 3)[2] @ (reset * state) + np.split(br, 3)[2]
                        new = f[1](clipped(xs[2] + inner))
                    state = (1 - z) * new + z * state
                else:
                    pi, po, pf = np.zeros((3, hidden)) if p is None else np.split(p[d], 3)
                    i = f[0](clipped(xs[0] + hs[0] + pi * cell))
                    forget = f[0](clipped(xs[2] + hs[2] + pf * cell))
                    forget = 1 - i if g.get("input_forget", 0) else forget
                    cell = forget * cell + i * f[1](clipped(xs[3] + hs[3]))
                    o = f[0](clipped(xs[1] + hs[1] + po * cell))
                    state = o * f[2](cell)
                y[t, d, n] = state
            last[d, n], cells[d, n] = state, cell
    if layout:
        y, last, cells = y.transpose(2, 0, 1, 3), last.swapaxes(0, 1), cells.swapaxes(0, 1)
    return (y, last, cells) if name == "LSTM" else (y, last)


@makes("Attention", factor=24, absolute=8, steady=[3])
def attention(draw: Draw) -> Instance:
    dtype = draw.type_of("T1")
    draw.at_most(T2=dtype)
    batch, queries, keys = draw.size(1, 2), draw.size(1, 4), draw.size(1, 5)
    groups, kv = draw.integer(1, 2), draw.integer(1, 2)
    heads, width, depth = groups * kv, draw.integer(1, 4), draw.integer(1, 4)
    packed = draw.chance(0.4)
    attributes: dict[str, Any] = {}

    def array(count: int, length: int, size: int) -> Array:
        shape = [batch, length, count * size] if packed else [batch, count, length, size]
        return draw.reals(shape, dtype)

    inputs: list[Any] = [
        array(heads, queries, width),
        array(kv, keys, width),
        array(kv, keys, depth),
    ]
    if packed:
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}
    total, past = keys, 0
    with_past = draw.chance(0.3)
    if with_past:
        past = draw.size(1, 3)
        total += past
    mask: Array | None = None
    if draw.chance(0.5):
        shape = draw.pick(
            [[queries, total], [batch, 1, queries, total], [1, heads, queries, total]]
        )
        if draw.chance(0.5):
            mask = np.asarray(draw.contents.random(tuple(shape)) < 0.8)
            mask[..., 0] = True
        else:
            mask = draw.reals(shape, dtype)
    inputs.append(mask)
    outputs: list[Any] = [dtype]
    if with_past:
        inputs += [
            draw.reals([batch, kv, past, width], dtype),
            draw.reals([batch, kv, past, depth], dtype),
        ]
        outputs += [dtype, dtype]
    attributes["is_causal"] = draw.maybe(draw.integer(0, 1))
    attributes["scale"] = draw.maybe(0.25)  # the evaluator takes its root in float32
    attributes["softcap"] = draw.maybe(2.0, 0.25)
    if with_past and draw.chance(0.3):
        mode = attributes["qk_matmul_output_mode"] = draw.integer(0, 3)
        if mode == 0:
            attributes["softcap"] = None  # see `oracle_faults`
        outputs.append(dtype)
    return Instance(inputs, attributes, outputs)


@makes("RotaryEmbedding", factor=16, absolute=4, steady=[3])
def rotary(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    batch, steps, heads, half = (
        draw.size(1, 2),
        draw.size(1, 4),
        draw.integer(1, 3),
        draw.integer(1, 3),
    )
    width = 2 * half + 2 * draw.integer(0, 1)
    partial = width != 2 * half
    packed = draw.chance(0.4)
    x = draw.reals([batch, steps, heads * width] if packed else [batch, heads, steps, width], dtype)
    attributes: dict[str, Any] = {"interleaved": draw.maybe(draw.integer(0, 1))}
    attributes["rotary_embedding_dim"] = 2 * half if partial else draw.maybe(0)
    attributes["num_heads"] = heads if packed else None
    if draw.chance(0.5):
        places = draw.contents.integers(0, 6, (batch, steps)).astype(INT64)
        caches = [draw.reals([6, half], dtype) for _ in range(2)]
        return Instance([x, *caches, places], attributes)
    return Instance([x, *(draw.reals([batch, steps, half], dtype) for _ in range(2))], attributes)


@makes("SwiGLU")
def gated(draw: Draw) -> Instance:
    shape = draw.shape(0, 4)
    arrays = [draw.reals(shape, draw.type_of("T")) for _ in range(2)]
    return Instance(arrays, {"alpha": draw.maybe(1.5)})


@makes("CausalConvWithState", factor=16, absolute=4)
def causal(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    batch, channels, length, taps = (
        draw.size(1, 2),
        draw.size(1, 3),
        draw.size(1, 5),
        draw.integer(1, 4),
    )
    inputs = [draw.reals([batch, channels, length], dtype), draw.reals([channels, 1, taps], dtype)]
    inputs.append(draw.reals([channels], dtype) if draw.chance(0.5) else None)
    inputs.append(draw.reals([batch, channels, taps - 1], dtype) if draw.chance(0.5) else None)
    activation = draw.maybe(draw.pick(["none", "silu", "swish"]))
    return Instance(inputs, {"activation": activation})


@makes("LinearAttention", factor=24, absolute=8)
def linear_attention(draw: Draw) -> Instance:
    dtype, state = draw.type_of("T"), draw.type_of("S")
    batch, steps = draw.size(1, 2), draw.size(1, 4)
    groups, kv, width, depth = (draw.integer(1, k) for k in (2, 2, 3, 3))
    rule = draw.pick(["linear", "gated", "delta", "gated_delta"])
    q = draw.reals([batch, steps, groups * kv * width], dtype)
    k = draw.reals([batch, steps, kv * width], dtype, 0.4)
    v = draw.reals([batch, steps, kv * depth], dtype)
    past = draw.reals([batch, kv, width, depth], state) if draw.chance(0.5) else None
    decay = beta = None
    if "gated" in rule:
        decay = draw.values([batch, steps, kv * (width if draw.chance(0.5) else 1)], dtype, -2, 0)
    if "delta" in rule:
        beta = draw.values([batch, steps, kv if draw.chance(0.6) else 1], dtype, 0, 1)
    attributes = {
        "q_num_heads": groups * kv,
        "kv_num_heads": kv,
        "scale": draw.maybe(0.5),
        "update_rule": draw.maybe(rule) if rule == "gated_delta" else rule,
    }
    kept = dtype if past is None else state
    return Instance([q, k, v, past, decay, beta], attributes, [dtype, kept])
