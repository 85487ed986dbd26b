"""SparsePagedAttention against loops over its schema's text. onnxruntime runs it on GPUs alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.ops.contrib.test_paged import SCALES, _normal, _turned, meant, quantised
from tests.support.contrib import check_contrib, contrib_model

NAME = "SparsePagedAttention"
RANDOM = np.random.default_rng(29)
BLOCK, BLOCKS, SIZE, HEADS, SHARED = 4, 9, 8, 4, 2
STARTS, PASTS = np.array([0, 3, 4], np.int32), np.array([2, 6], np.int32)
TABLE = np.array([[5, 1, -1], [0, 7, 3]], np.int32)
TOKENS, ENTRIES, ROOM = 4, 5, 6
#: Names of the inputs, in order.
NAMES = (
    "query key value key_cache value_cache starts pasts table slot_mapping selected counts "
    "auxiliary_key auxiliary_value auxiliary_lengths cosine sine sink q_norm k_norm k_scale v_scale"
).split()
Array = Any


def _floats(*shape: int, dtype: Any = np.float16) -> Array:
    return (RANDOM.standard_normal(shape) / 2).astype(dtype)


def _inputs(dtype: Any = np.float16, heads: int = SHARED, **more: Array) -> dict[str, Array]:
    found = {
        "query": _floats(TOKENS, HEADS * SIZE, dtype=dtype),
        "key": _floats(TOKENS, SHARED * SIZE, dtype=dtype),
        "value": _floats(TOKENS, SHARED * SIZE, dtype=dtype),
        "key_cache": _floats(BLOCKS, BLOCK, SHARED, SIZE, dtype=dtype),
        "value_cache": _floats(BLOCKS, BLOCK, SHARED, SIZE, dtype=dtype),
        "starts": STARTS, "pasts": PASTS, "table": TABLE,
        "selected": RANDOM.integers(-1, 9, (TOKENS, ENTRIES)).astype(np.int32),
        "counts": np.array([5, 3, 0, ENTRIES], np.int32),
        "auxiliary_key": _floats(2, ROOM, heads, SIZE, dtype=dtype),
        "auxiliary_value": _floats(2, ROOM, heads, SIZE, dtype=dtype),
        "auxiliary_lengths": np.array([4, 6], np.int32),
    }  # fmt: skip
    return found | more


def _seen(x: dict[str, Array], facts: dict[str, Any], t: int, b: int, place: int) -> list[Any]:
    """What a token sees: (True, place of the main caches) or (False, row of the others)."""
    length = x["pasts"][b] + x["starts"][b + 1] - x["starts"][b]

    def is_there(j: int) -> bool:
        if not 0 <= j < length or (facts.get("is_causal", 1) and j > place):
            return False
        return j // BLOCK < x["table"].shape[1] and 0 <= x["table"][b, j // BLOCK] < BLOCKS

    seen: list[Any] = []
    if facts.get("attention_mode") == "local_plus_selected":
        window = facts.get("local_window_size", -1)
        places = [j for j in range(length) if window < 1 or j > place - window]
        seen = [(True, j) for j in places if is_there(j)]
    local = list(seen)
    for j in x["selected"][t, : max(x["counts"][t], 0)]:
        if facts.get("selected_kv_source") == "auxiliary":
            if 0 <= j < min(x["auxiliary_lengths"][b], ROOM):
                seen.append((False, j))
        elif is_there(j) and (True, j) not in local:
            seen.append((True, j))
    return seen


def _expected(x: dict[str, Array], facts: dict[str, Any], angles: Array | None) -> list[Array]:
    q = x["query"].astype(float).reshape(TOKENS, HEADS, SIZE)
    k, v = (x[n].astype(float).reshape(TOKENS, SHARED, SIZE) for n in ("key", "value"))
    caches = [x[n].astype(float) for n in ("key_cache", "value_cache")]
    where = [
        (b, PASTS[b] + t - STARTS[b]) for b in range(2) for t in range(STARTS[b], STARTS[b + 1])
    ]
    for t, (b, place) in enumerate(where):
        if "q_norm" in x:
            q[t], k[t] = (
                _normal(p[t], x[n].astype(float)) for p, n in ((q, "q_norm"), (k, "k_norm"))
            )
        if angles is not None:
            q[t], k[t] = (_turned(p[t], angles[place], 0) for p in (q, k))
        slot = TABLE[b, place // BLOCK] * BLOCK + place % BLOCK
        slot = x["slot_mapping"][t] if "slot_mapping" in x else slot
        if slot >= 0:
            for cache, new in zip(caches, (k, v), strict=True):
                cache[slot // BLOCK, slot % BLOCK] = new[t]
    result = np.zeros((TOKENS, HEADS, SIZE))
    others = [x.get(n, x.get("auxiliary_key")) for n in ("auxiliary_key", "auxiliary_value")]
    for t, (b, place) in enumerate(where):
        seen = _seen(x, facts, t, b, place)
        for h in range(HEADS if seen else 0):
            shared = h // (HEADS // SHARED)
            rows = []
            for cache, other in zip(caches, others, strict=True):
                mine = 0 if other.shape[2] == 1 else shared
                rows.append(np.array([
                    cache[TABLE[b, j // BLOCK], j % BLOCK, shared] if main else other[b, j, mine]
                    for main, j in seen
                ], float))  # fmt: skip
            scores = rows[0] @ q[t, h] * facts.get("scale", SIZE**-0.5)
            cap = facts.get("softcap", 0)
            e = np.exp(np.tanh(scores / cap) * cap if cap else scores)
            total = e.sum() + (np.exp(float(x["sink"][h])) if "sink" in x else 0)
            result[t, h] = (e / total) @ rows[1]
    return [result.reshape(TOKENS, -1), *caches]


def _listed(given: dict[str, Array]) -> list[Array]:
    inputs = [given.get(n) for n in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _check(x: dict[str, Array], facts: dict[str, Any], angles: Array | None = None) -> None:
    expected = _expected(x, facts, angles)
    every = {"num_heads": HEADS, "kv_num_heads": SHARED, **facts}
    is_half = x["query"].dtype == np.float16
    tolerance = "half: some roundings" if is_half else "bfloat16: pages"
    check_contrib(
        NAME, _listed(x), every, expected, engine=False, symbolic=False, tolerance=tolerance
    )


BOTH = {"attention_mode": "local_plus_selected"}
BESIDE = {"selected_kv_source": "auxiliary"}
CODES = dict.fromkeys(("key_cache", "value_cache"), np.zeros((BLOCKS, BLOCK, 2, SIZE), np.int8))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"is_causal": 0, "scale": 0.4},
        {**BOTH, "local_window_size": 2},
        {**BOTH, "local_window_size": 3, "is_causal": 0},
        BOTH,
        BESIDE,
        {**BOTH, **BESIDE, "local_window_size": 2, "softcap": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("heads", [1, SHARED])
def test_modes(facts: dict[str, Any], heads: int) -> None:
    _check(_inputs(heads=heads), facts)


def test_shared_keys_and_bfloat16() -> None:
    x = _inputs(ml_dtypes.bfloat16)
    del x["auxiliary_value"]
    _check(x, {**BOTH, **BESIDE, "auxiliary_kv_shared": 1, "local_window_size": 2})


def test_norms_turns_slots_and_sinks() -> None:
    angles = _floats(12, SIZE // 2).astype(float)
    turns = {"cosine": np.cos(angles), "sine": np.sin(angles)}
    x = _inputs(
        slot_mapping=np.array([22, -1, 7, 30], np.int32), sink=_floats(HEADS),
        q_norm=_floats(SIZE), k_norm=_floats(SIZE),
        **{n: t.astype(np.float16) for n, t in turns.items()},
    )  # fmt: skip
    _check(x, {**BOTH, "local_window_size": 2, "do_rotary": 1}, angles)


@pytest.mark.parametrize("mode", [{}, BOTH, {**BOTH, **BESIDE}], ids=str)
def test_quantised_caches(mode: dict[str, Any]) -> None:
    x = _inputs()
    kinds = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_TENSOR"}
    scales = [SCALES[kind] for kind in kinds.values()]
    given, known = dict(x), dict(x)
    for name, scale in zip(("key", "value"), scales, strict=True):
        codes = RANDOM.integers(-128, 128, x[f"{name}_cache"].shape).astype(np.int8)
        given |= {f"{name}_cache": codes, f"{name[0]}_scale": scale}
        new = quantised(x[name].reshape(TOKENS, SHARED, SIZE), scale)
        known |= {f"{name}_cache": meant(codes.astype(float), scale), name: meant(new, scale)}
    result, *written = _expected(known, mode, None)
    expected = [quantised(c, s) for c, s in zip(written, scales, strict=True)]
    facts = {"num_heads": HEADS, "kv_num_heads": SHARED, **kinds, **mode}
    check_contrib(NAME, _listed(given), facts, [result, *expected], engine=False, symbolic=False,
                  tolerance="half: some roundings")  # fmt: skip


def test_tokens_that_see_nothing_give_zeros() -> None:
    x = _inputs(selected=np.full((TOKENS, ENTRIES), -1, np.int32))
    for sink in ({}, {"sink": _floats(HEADS)}):
        inputs = _listed(x | sink)
        model = contrib_model(NAME, inputs, {"num_heads": HEADS, "kv_num_heads": SHARED}, 1)
        feeds = {f"x{k}": a for k, a in enumerate(inputs) if a is not None}
        (got,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
        assert (got == 0).all()


def test_no_tokens() -> None:
    x = _inputs(starts=np.zeros(3, np.int32))
    x |= {n: x[n][:0] for n in ("query", "key", "value", "selected", "counts")}
    expected = [np.zeros((0, HEADS * SIZE)), x["key_cache"], x["value_cache"]]
    facts = {"num_heads": HEADS, "kv_num_heads": SHARED}
    check_contrib(NAME, _listed(x), facts, expected, engine=False, symbolic=False)


@pytest.mark.parametrize(
    "changed, facts, error, text",
    [
        ({}, {"k_quant_type": "PER_TENSOR"}, InvalidGraph, "has a scale if it is quantised"),
        (
            {"k_scale": SCALES["PER_CHANNEL"]},
            {"k_quant_type": "PER_CHANNEL"},
            NotImplemented,
            "Quantised caches of this type",
        ),
        (
            {"k_scale": SCALES["PER_CHANNEL"], **CODES},
            {"k_quant_type": "PER_TENSOR"},
            InvalidGraph,
            "scale of a cache has another size",
        ),
        (
            CODES,
            {},
            InvalidGraph,
            "another type than the tokens",
        ),
        ({}, {"attention_mode": "all"}, InvalidGraph, "Bad attention_mode. Expected selected_only"),
        ({}, {"selected_kv_source": "x"}, InvalidGraph, "Bad selected_kv_source"),
        ({}, {"auxiliary_cache_layout": "paged"}, InvalidGraph, "Bad auxiliary_cache_layout"),
        ({"auxiliary_key": None}, BESIDE, InvalidGraph, "need auxiliary_key"),
        ({"auxiliary_value": None}, BESIDE, InvalidGraph, "unless auxiliary_kv_shared"),
        ({}, {**BESIDE, "auxiliary_kv_shared": 1}, InvalidGraph, "unless auxiliary_kv_shared"),
        ({"selected": np.zeros((3, 2), np.int32)}, {}, InvalidGraph, "selected_indices"),
        ({"selected": np.zeros(4, np.int32)}, {}, InvalidGraph, "must have two axes"),
        ({"counts": np.zeros(3, np.int32)}, {}, InvalidGraph, "selected_counts"),
        ({"q_norm": _floats(SIZE)}, {}, InvalidGraph, "both q_norm_weight and"),
        ({"auxiliary_key": _floats(2, 6, 3, 8)}, BESIDE, InvalidGraph, "auxiliary_key"),
    ],
)
def test_bad_graphs(
    changed: dict[str, Array], facts: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {n: a for n, a in (_inputs() | changed).items() if a is not None}
    every = {"num_heads": HEADS, "kv_num_heads": SHARED, **facts}
    model = contrib_model(NAME, _listed(given), every, 3)
    with pytest.raises(error, match=f"node it .{NAME}.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString())
