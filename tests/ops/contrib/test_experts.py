"""Mixtures of experts against NumPy in double, and against onnxruntime."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(71)
TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 5, 16, 32, 4, 2


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, ROUTER = floats(TOKENS, HIDDEN), floats(TOKENS, EXPERTS)
STATE = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _numbers_of_a_test():
    """Whichever tests ran before: their bounds are for these numbers."""
    RNG.bit_generator.state = STATE


def swish(x, alpha=1.0):
    return x / (1 + np.exp(-alpha * x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": swish,
    "identity": lambda x: x,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def mixed(layers, facts, shares=None):
    """What the schema's text says; layers are pairs of weights and a bias or None."""
    first, second, *rest = layers
    e = np.exp(ROUTER.astype(float) - ROUTER.max(1, keepdims=True))
    every = e / e.sum(1, keepdims=True) if shares is None else shares
    results = np.zeros((TOKENS, HIDDEN))

    def through(layer, expert, x):
        weights, bias = layer
        return weights[expert].astype(float) @ x + (0 if bias is None else bias[expert])

    for t in range(TOKENS):
        chosen = np.argsort(-ROUTER[t], kind="stable")[:CHOSEN]
        parts = every[t, chosen]
        if facts.get("normalize_routing_weights"):
            parts = parts / parts.sum()
        for expert, part in zip(chosen, parts, strict=True):
            inner = through(first, expert, X[t])
            other = through(rest[0], expert, X[t]) if rest else None
            name = facts.get("activation_type", "relu")
            if name == "swiglu":
                fusion = facts["swiglu_fusion"]
                gate, linear = {
                    0: lambda h, o: (h, o),
                    1: lambda h, o: (h[::2], h[1::2]),
                    2: lambda h, o: np.split(h, 2),
                }[fusion](inner, other)
                limit = facts.get("swiglu_limit", np.inf)
                gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
                active = swish(gate, facts.get("activation_alpha", 1.0))
                active = active * (linear + facts.get("activation_beta", 0.0))
            else:
                active = ACTIVATIONS[name](inner) * (1 if other is None else other)
            results[t] += part * through(second, expert, active)
    return results


def layer(rows, columns, bias=True):
    return floats(EXPERTS, rows, columns), floats(EXPERTS, rows) if bias else None


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize("third", [False, True])
def test_experts(activation, normalised, third):
    layers = [layer(INNER, HIDDEN), layer(HIDDEN, INNER, bias=bool(normalised))]
    layers += [layer(INNER, HIDDEN)] if third else []
    facts = {"k": CHOSEN, "activation_type": activation, "normalize_routing_weights": normalised}
    inputs = [X, ROUTER, *(x for pair in layers for x in pair)]
    expected = [mixed(layers, facts)]
    check_contrib("MoE", inputs, facts, expected, engine=not third, tolerance="float: layers")


@pytest.mark.parametrize("fusion", [0, 1, 2])
@pytest.mark.parametrize("limit", [None, 0.8])
def test_swiglu(fusion, limit):
    width = INNER * 2 if fusion else INNER
    layers = [layer(width, HIDDEN), layer(HIDDEN, INNER)]
    layers += [] if fusion else [layer(INNER, HIDDEN)]
    facts = {"k": CHOSEN, "activation_type": "swiglu", "swiglu_fusion": fusion}
    if limit is not None:
        facts |= {"swiglu_limit": limit, "activation_alpha": 1.7, "activation_beta": 1.0}
    inputs = [X.reshape(1, TOKENS, HIDDEN), ROUTER, *(x for pair in layers for x in pair)]
    expected = [mixed(layers, facts).reshape(1, TOKENS, HIDDEN)]
    check_contrib("MoE", inputs, facts, expected, engine=fusion == 1, tolerance="float: layers")


def packed(codes, bits):
    """Codes along the last axis in bytes, the first in the lowest bits."""
    spread = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(spread.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def quantised(rows, columns, bits, block, zeros):
    """(inputs, what they mean) of a layer."""
    count = columns // block if block else 1
    codes = RNG.integers(0, 1 << bits, (EXPERTS, rows, columns))
    scales = RNG.uniform(0.02, 0.05, (EXPERTS, rows, count)).astype(np.float32)
    shift = np.full(scales.shape, 1 << (bits - 1))
    given = None
    if zeros:
        shift = RNG.integers(0, 1 << bits, scales.shape)
        padded = np.pad(shift, ((0, 0), (0, 0), (0, -count % (8 // bits))))
        given = packed(padded, bits) if block else packed(shift[..., 0], bits)
    blocks = codes.reshape(EXPERTS, rows, count, -1)
    wide = ((blocks - shift[..., None]) * scales[..., None]).reshape(codes.shape)
    bias = floats(EXPERTS, rows)
    return (packed(codes, bits), scales if block else scales[..., 0], bias, given), (wide, bias)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zeros", [False, True])
def test_quantised_experts(bits, block, zeros):
    one, first = quantised(2 * INNER, HIDDEN, bits, block, zeros)
    two, second = quantised(HIDDEN, INNER, bits, block, zeros)
    facts = {"k": CHOSEN, "activation_type": "swiglu", "swiglu_fusion": 1,
             "normalize_routing_weights": 1}  # fmt: skip
    expected = [mixed([first, second], facts)]
    facts |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    inputs = [X, ROUTER, *one[:3], *two[:3], None, None, None, one[3], two[3]]
    # onnxruntime rounds activations to 8 bits on the way, but for 4 bits in blocks.
    engine = bits == 4 and block == 16
    constants = [2, 3, 4, 5, 6, 7, 11, 12]
    check_contrib(
        "QMoE",
        inputs,
        facts,
        expected,
        constants=constants,
        engine=engine,
        tolerance="float: layers",
    )


def test_shares_that_are_given():
    one, first = quantised(INNER, HIDDEN, 4, 0, False)
    two, second = quantised(HIDDEN, INNER, 4, 0, False)
    shares = RNG.uniform(0, 1, (TOKENS, EXPERTS)).astype(np.float32)
    facts = {"k": CHOSEN, "activation_type": "silu"}
    expected = [mixed([first, second], facts, shares)]
    inputs = [X, ROUTER, *one[:3], *two[:3], *[None] * 6, shares]
    check_contrib("QMoE", inputs, facts, expected, engine=False, tolerance="float: layers")


def test_refusals():
    first, second = layer(INNER, HIDDEN), layer(HIDDEN, INNER)
    inputs = [X, ROUTER, *first, *second]
    for facts, error, match in (
        ({"activation_type": "elu"}, InvalidGraph, "Bad activation_type.*elu"),
        ({"activation_type": "swiglu"}, InvalidGraph, "needs a third layer"),
        ({"use_sparse_mixer": 1}, NotImplemented, "use_sparse_mixer"),
    ):
        with pytest.raises(error, match=match):
            check_contrib("MoE", inputs, {"k": 2, **facts}, [None])
