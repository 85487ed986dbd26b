"""Gates, streams and rotations of onnxruntime's domain against NumPy by the schemas' text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(66)
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rms(x: Array, epsilon: float = 1e-5) -> Array:
    return x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + epsilon)


X, Y = floats(2, 3, 4), floats(2, 3, 4)
GATE, SCALE = floats(2, 3, 1), floats(4)
KEY, QUERY, VALUE = floats(2, 3, 2, 6), floats(2, 3, 2, 6), floats(2, 3, 6)
KEY_SCALE, QUERY_SCALE, CONV_SCALE = floats(2, 6), floats(2, 6), floats(2, 6)
DOT = (rms(KEY) * KEY_SCALE * rms(QUERY) * QUERY_SCALE).sum(-1, keepdims=True) / np.sqrt(6)
OPEN = sigmoid(np.sign(DOT) * np.sqrt(np.maximum(np.abs(DOT), 1e-6)))
GATED = OPEN * VALUE[:, :, None]
STREAMS, BLOCK = floats(2, 3, 2, 5), floats(2, 3, 5)
FLAT = STREAMS.reshape(2, 3, 10)
MIX, FEATURES, MATRIX = floats(2, 3, 2), floats(2, 3, 2, 5), floats(2, 3, 2, 2)
MIXED = np.einsum("abck,abch->abkh", MATRIX, STREAMS) + MIX[..., None] * BLOCK[:, :, None]
EMB, Q = floats(2, 3, 4), floats(2, 2, 3, 4)
HALF, Q_ROT, K, K_ROT = (floats(2, 2, 3, 4).astype(np.float16) for _ in range(4))


def turned(x: Array, turn: Array) -> Array:
    return x * np.cos(EMB)[:, None] + turn * np.sin(EMB)[:, None]


HIDDEN, HIDDEN_BIAS = floats(2, 5, 6), floats(6)
POSITIONS, WEIGHT, WEIGHT_BIAS, ECO = (
    floats(1, 2, 5, 5),
    floats(3, 4),
    floats(4),
    floats(1, 2, 1, 1),
)
HEADS = (HIDDEN + HIDDEN_BIAS).reshape(2, 5, 2, 3).transpose(0, 2, 1, 3)
BOTH = sigmoid((HEADS @ WEIGHT + WEIGHT_BIAS).reshape(2, 2, 5, 2, 2).sum(-1))
BIASED = (BOTH[..., :1] * (BOTH[..., 1:] * ECO - 1) + 2) * POSITIONS

#: Operator, inputs, attributes, results.
CASES: list[tuple[str, Sequence[Any], Mapping[str, Any], Sequence[Any]]] = [
    ("GatedAdd", [X, Y, GATE], {}, [X + Y * GATE]),
    ("ScaledSiLU", [X], {"alpha": 0.5}, [X / 2 * sigmoid(X / 2)]),
    ("ScaledSiLU", [X, np.float32(2)], {"alpha": 0.5}, [X * 2 * sigmoid(X * 2)]),
    ("LinearAttentionGate", [X, SCALE, -SCALE, Y], {},
     [-SCALE * np.logaddexp(X + SCALE, 0), sigmoid(Y)]),
    ("LinearAttentionGate", [X, SCALE, SCALE], {}, [SCALE * np.logaddexp(X + SCALE, 0)]),
    ("BranchwiseRMSNorm", [STREAMS], {}, [rms(STREAMS)]),
    ("BranchwiseRMSNorm", [FLAT, floats(10)], {"num_branches": 2, "epsilon": 0.1}, []),
    ("BranchwiseRMSNorm", [STREAMS, floats(5)], {}, []),
    ("BranchwiseRMSNorm", [FLAT, floats(2, 5)], {"num_branches": 2}, []),
    ("EngramGate", [KEY, QUERY, VALUE, KEY_SCALE, QUERY_SCALE, CONV_SCALE], {},
     [GATED, rms(GATED) * CONV_SCALE]),
    ("EngramGate", [KEY, QUERY, VALUE, KEY_SCALE, QUERY_SCALE], {}, [GATED]),
    ("HyperConnectionPreMix", [STREAMS, MIX], {"reduction_scale": 0.5},
     [(STREAMS * MIX[..., None]).sum(2) / 2]),
    ("HyperConnectionPreMix", [STREAMS, MIX[..., None]], {}, [(STREAMS * MIX[..., None]).sum(2)]),
    ("HyperConnectionPreMix", [FLAT, FEATURES], {"num_branches": 2},
     [(STREAMS * FEATURES).sum(2)]),
    ("HyperConnectionPreMix", [FLAT, FEATURES.reshape(2, 3, 10)], {"num_branches": 2},
     [(STREAMS * FEATURES).sum(2)]),
    ("HyperConnectionPostMix", [STREAMS, BLOCK, MIX, MATRIX], {}, [MIXED]),
    ("HyperConnectionPostMix", [FLAT, BLOCK, FEATURES], {"num_branches": 2},
     [(STREAMS + FEATURES * BLOCK[:, :, None]).reshape(2, 3, 10)]),
    ("GemmaRotaryEmbedding", [EMB, HALF, Q_ROT, K, K_ROT], {},
     [turned(HALF, Q_ROT), turned(K, K_ROT)]),
    ("GatedRelativePositionBias",
     [HIDDEN, HIDDEN_BIAS, POSITIONS, WEIGHT, WEIGHT_BIAS, ECO], {"num_heads": 2}, [BIASED]),
    ("GatedRelativePositionBias",
     [HIDDEN.reshape(10, 6), HIDDEN_BIAS, POSITIONS, WEIGHT, WEIGHT_BIAS, ECO,
      np.arange(10, dtype=np.int32).reshape(2, 5)], {"num_heads": 2}, [BIASED]),
]  # fmt: skip
for _op, _given, _facts, _result in CASES:
    if _op == "BranchwiseRMSNorm" and not _result:
        _scale = _given[1] if len(_given[1].reshape(-1)) == 5 else _given[1].reshape(2, 5)
        _normal = rms(STREAMS, _facts.get("epsilon", 1e-5)) * _scale  # type: ignore[arg-type]
        _result.append(_normal.reshape(_given[0].shape))  # type: ignore[attr-defined]


@pytest.mark.parametrize("op_type, inputs, attributes, expected", CASES)
def test_against_numpy(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], expected: Sequence[Any]
) -> None:
    check_contrib(op_type, inputs, attributes, expected, engine=False, symbolic=False)


def test_symbolic_sizes() -> None:
    check_contrib("GatedAdd", [X, Y, GATE], {}, [X + Y * GATE], engine=False)


def _m_rotated(x: Array, places: Array, cache: Array, sections: Sequence[int], layout: int,
               interleaved: bool, width: int) -> Array:  # fmt: skip
    """x: (batch, heads, length, size); by loops over what the schema says."""
    half = cache.shape[1] if not width else width // 2
    result = x.astype(float).copy()
    for batch, head, at in np.ndindex(*x.shape[:3]):
        for pair in range(half):
            which = int(pair >= sections[0]) + int(pair >= sections[0] + sections[1])
            if layout:
                which = pair % 3 if pair % 3 and pair < sections[pair % 3] * 3 else 0
            angle = cache[places[which, batch, at], pair]
            c, s = np.cos(angle), np.sin(angle)
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
            left, right = x[batch, head, at, a], x[batch, head, at, b]
            result[batch, head, at, a] = left * c - right * s
            result[batch, head, at, b] = right * c + left * s
    return result


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    "layout, sections, width", [(0, (2, 1, 1), 0), (1, (2, 1, 1), 0), (0, (1, 2, 0), 6)]
)
def test_m_rotary_embedding(
    layout: int, sections: Sequence[int], width: int, interleaved: int, flat: bool
) -> None:
    x, half = floats(2, 2, 5, 8), sum(sections)
    cache, places = floats(7, half), RANDOM.integers(0, 7, (3, 2, 5))
    facts = {"mrope_section": list(sections), "mrope_layout": layout, "interleaved": interleaved}
    if width or flat:
        facts |= {"num_heads": 2, "rotary_embedding_dim": width}
    expected = _m_rotated(x, places, cache, sections, layout, bool(interleaved), width)
    given = x
    if flat:
        given, expected = (t.transpose(0, 2, 1, 3).reshape(2, 5, 16) for t in (x, expected))
    inputs = [given, places, np.cos(cache), np.sin(cache)]
    check_contrib("MRotaryEmbedding", inputs, facts, [expected], engine=False, symbolic=False)


@pytest.mark.parametrize(
    "op_type, inputs, attributes, error, text",
    [
        ("GatedAdd", [X, Y, floats(2, 3, 2)], {}, InvalidGraph, "The gate"),
        ("BranchwiseRMSNorm", [FLAT], {"num_branches": 3}, InvalidGraph, "streams do not fit"),
        ("HyperConnectionPreMix", [STREAMS, floats(2, 3, 7)], {}, InvalidGraph, "gates do not fit"),
        ("MRotaryEmbedding", [Q, np.zeros((3, 2, 3), int), floats(7, 2), floats(7, 2)],
         {"mrope_section": [1, 1]}, InvalidGraph, "no sections"),
        ("MRotaryEmbedding", [Q, np.zeros((3, 2, 3), int), floats(7, 2), floats(7, 2)],
         {"mrope_section": [1, 1, 0], "scale": 2.0}, NotImplemented, "scale"),
    ],
)  # fmt: skip
def test_what_is_refused(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        check_contrib(op_type, inputs, attributes, [None], engine=False, symbolic=False)
