"""PackedSparseAttentionIndexer against loops. onnxruntime runs it on GPUs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support import indexers
from tests.support.contrib import check_contrib, contrib_model
from tests.support.tolerances import assert_near

NAME = "PackedSparseAttentionIndexer"
HEADS, SIZE, ROOM = 3, 8, 6
#: Names of the inputs, in order.
NAMES = (
    "query key query_norm key_norm cosine sine starts pasts gate bias head_weights position_ids "
    "state buffer gates lengths capture active"
).split()
Array = Any


def _inputs(
    mode: str, counts: list[int], pasts: list[int], ratio: int, dtype: Any = np.float32,
    shared: bool = True, **more: Array,
) -> dict[str, Array]:  # fmt: skip
    """Requests of new tokens behind pasts, with states as those tokens would have left them."""
    random = np.random.default_rng(len(counts) + ratio)
    total, batch, is_tokens = sum(counts), len(counts), mode == "qsa"
    wide = SIZE if is_tokens else 2 * SIZE

    def floats(*shape: int) -> Array:
        return random.standard_normal(shape).astype(dtype)

    width = 6 if is_tokens else 2
    angles = random.standard_normal((40, width) if shared else (batch, 40, width))
    waiting = [p % ratio + (0 if is_tokens or p < ratio else ratio) for p in pasts]
    x = {
        "query": floats(total, HEADS * SIZE), "key": floats(total, wide),
        "query_norm": floats(SIZE) + dtype(1), "key_norm": floats(SIZE) + dtype(1),
        "cosine": np.cos(angles).astype(dtype), "sine": np.sin(angles).astype(dtype),
        "starts": np.cumsum([0, *counts]).astype(np.int32), "pasts": np.array(pasts, np.int32),
        "state": floats(batch, ROOM, SIZE), "buffer": floats(batch, 2 * ratio - 1, wide),
        "lengths": np.array([[p // ratio, w] for p, w in zip(pasts, waiting, strict=True)]
                            ).astype(np.int32).reshape(batch, 2),
    }  # fmt: skip
    if not is_tokens:
        places = [p + i for p, n in zip(pasts, counts, strict=True) for i in range(n)]
        x |= {
            "gate": floats(total, wide), "bias": floats(ratio, wide),
            "head_weights": floats(total, HEADS), "position_ids": np.array(places, np.int64),
            "gates": floats(batch, 2 * ratio - 1, wide),
        }  # fmt: skip
    return x | more


def _table(x: dict[str, Array], b: int) -> list[Array]:
    return [x[n] if x[n].ndim == 2 else x[n][b] for n in ("cosine", "sine")]


def _expected(
    x: dict[str, Array], mode: str, ratio: int, count: int, updates: int = 0
) -> list[Array]:
    is_tokens = mode == "qsa"
    turned = indexers.leading if is_tokens else indexers.trailing
    capacity = count * ratio + ratio - 1 if is_tokens else count
    state, buffer, lengths = (
        x["state"].astype(float),
        x["buffer"].astype(float),
        x["lengths"].copy(),
    )
    gates = x["gates"].astype(float) if "gates" in x else None
    changed = np.zeros((len(lengths), updates, SIZE))
    norms = [x[n].astype(float) for n in ("query_norm", "key_norm")]
    rows: list[list[int]] = []
    for b, (begin, end) in enumerate(zip(x["starts"][:-1], x["starts"][1:], strict=True)):
        old, waiting = x["lengths"][b].tolist()
        values = np.concatenate([x["buffer"][b, :waiting], x["key"][begin:end]]).astype(float)
        first, new, kept = indexers.windows_of(waiting, end - begin, ratio)
        if is_tokens:
            first, new = 0, len(values) // ratio
            kept = new * ratio
        sound = not is_tokens or old * ratio + waiting == x["pasts"][b]
        if old + new > ROOM or not sound:
            rows += [[]] * (end - begin)
            continue
        if gates is not None:
            doors = np.concatenate([x["gates"][b, :waiting], x["gate"][begin:end]]).astype(float)
            gates[b, : len(doors) - kept] = doors[kept:]
        for w in range(new):
            base = first + w * ratio
            if is_tokens:
                mean = values[base : base + ratio].mean(0)
            else:
                mean = indexers.pooled(values, doors, x["bias"].astype(float), ratio, base, SIZE)
            state[b, old + w] = turned(
                indexers.normal(mean, norms[1]), *_table(x, b), (old + w) * ratio
            )
        for t in range(min(updates, end - begin, max(0, x["capture"][b])) if updates else 0):
            if "active" in x and not x["active"][0]:
                break
            block, rest = divmod(waiting + t + 1, ratio)
            changed[b, t] = values[waiting + t] if rest else state[b, old + block - 1]
        buffer[b, : len(values) - kept] = values[kept:]
        lengths[b] = old + new, len(values) - kept
        for t in range(begin, end):
            place = int(x["pasts"][b] + t - begin if is_tokens else x["position_ids"][t])
            q = indexers.normal(x["query"][t].astype(float).reshape(HEADS, SIZE), norms[0])
            q = turned(q, *_table(x, b), place)
            keys = state[b, : max(0, min((place + 1) // ratio, old + new))]
            if is_tokens:
                seen = list(range(place + 1))
                rows.append(indexers.tokens_of(q, keys, ratio, count, seen))
            else:
                weights = x["head_weights"][t].astype(float)
                scores = np.array([np.maximum(q @ k, 0) @ weights for k in keys])
                rows.append(indexers.ranked(scores, count))
    places = [indexers.padded(r, capacity) for r in rows]
    found = [np.array(places).reshape(len(rows), capacity), np.array([len(r) for r in rows])]
    return [*found, state, buffer, gates, lengths, *([changed] if updates else [])]


def _listed(given: dict[str, Array]) -> list[Array]:
    inputs = [given.get(n) for n in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _facts(mode: str, ratio: int, count: int, updates: int = 0) -> dict[str, Any]:
    facts = {"policy_mode": mode, "compress_ratio": ratio, "state_capacity": ROOM}
    name, number = ("token_budget", count * ratio) if mode == "qsa" else ("index_topk", count)
    return {**facts, name: number, **({"state_update_capacity": updates} if updates else {})}


def _run(x: dict[str, Array], facts: dict[str, Any], outputs: int) -> list[Array]:
    inputs = _listed(x)
    model = contrib_model(NAME, inputs, facts, outputs)
    if "gates" not in x:
        model.graph.node[0].output[4] = ""
        del model.graph.output[4]
    feeds = {f"x{k}": a for k, a in enumerate(inputs) if a is not None}
    found: list[Array] = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    if "gates" not in x:
        found.insert(4, None)
    return found


def _check(
    x: dict[str, Array], mode: str, ratio: int, count: int, updates: int = 0,
    tolerance: str = "float: layers",
) -> None:  # fmt: skip
    expected = _expected(x, mode, ratio, count, updates)
    got = _run(x, _facts(mode, ratio, count, updates), len(expected))
    for mine, known in zip(got, expected, strict=True):
        if known is not None:
            assert mine.shape == known.shape
            assert_near(mine.astype(float), known, tolerance)


@pytest.mark.parametrize("mode, shared", [("qsa", True), ("csa", True), ("csa", False)])
@pytest.mark.parametrize(
    "counts, pasts, ratio, count",
    [
        ([5, 1, 8], [0, 7, 4], 3, 2),
        ([1, 1], [5, 11], 2, 1),
        ([0, 4, 0], [3, 0, 8], 4, 2),
        ([6], [0], 1, 3),
        ([2], [1], 4, 1),
    ],
)
def test_requests(
    mode: str, counts: list[int], pasts: list[int], ratio: int, count: int, shared: bool
) -> None:
    _check(_inputs(mode, counts, pasts, ratio, shared=shared), mode, ratio, count)


@pytest.mark.parametrize("mode", ["qsa", "csa"])
def test_states_without_room_stay(mode: str) -> None:
    x = _inputs(mode, [4, 3, 2], [10, 2, 12], 2)
    _check(x, mode, 2, 2)
    got = _run(x, _facts(mode, 2, 2), 6)
    assert got[1].tolist()[:4] == [0] * 4 and (got[0][:4] == -1).all()
    np.testing.assert_array_equal(got[2][0], x["state"][0])
    np.testing.assert_array_equal(got[5][0], x["lengths"][0])


def test_lengths_that_contradict_the_past_stay() -> None:
    x = _inputs("qsa", [4, 3], [5, 2], 2)
    x["pasts"][0] = 4
    _check(x, "qsa", 2, 2)


def test_offsets_that_do_not_fit_the_tokens_select_nothing() -> None:
    x = _inputs("qsa", [4, 3], [5, 2], 2)
    x["starts"][2] = 6
    got = _run(x, _facts("qsa", 2, 2), 6)
    assert (got[0] == -1).all() and (got[1] == 0).all()
    for place, name in ((2, "state"), (3, "buffer"), (5, "lengths")):
        np.testing.assert_array_equal(got[place], x[name])


@pytest.mark.parametrize("active", [None, 0, 1])
def test_updates(active: int | None) -> None:
    more = {"capture": np.array([9, 1, -3], np.int32)}
    if active is not None:
        more["active"] = np.array([active], np.int32)
    _check(_inputs("qsa", [5, 3, 2], [3, 0, 6], 2, **more), "qsa", 2, 2, updates=4)


def test_queries_with_their_keys_and_half_floats() -> None:
    x = _inputs("qsa", [5, 2], [3, 6], 2, np.float16)
    expected = _expected(x, "qsa", 2, 2)
    x["query"] = np.concatenate([x["query"], x.pop("key")], 1)
    got = _run(x, _facts("qsa", 2, 2), 6)
    assert got[2].dtype == np.float16
    np.testing.assert_array_equal(got[0], expected[0])
    assert_near(got[2].astype(float), expected[2], "half: some roundings about 1")
    _check(_inputs("csa", [5, 2], [3, 6], 2, np.float16), "csa", 2, 2, tolerance="half: attention")


@pytest.mark.parametrize("mode", ["qsa", "csa"])
@pytest.mark.parametrize("counts", [[0], []])
def test_no_tokens(mode: str, counts: list[int]) -> None:
    _check(_inputs(mode, counts, [3] * len(counts), 2), mode, 2, 2)


@pytest.mark.parametrize("mode", ["qsa", "csa"])
def test_one_token_after_the_other_gives_the_same(mode: str) -> None:
    x = _inputs(mode, [9], [0], 2)
    facts = _facts(mode, 2, 2)
    whole = _run(x, facts, 6)
    rows = []
    for t in range(9):
        names = ("query", "key", "gate", "head_weights", "position_ids")
        step = x | {n: x[n][t : t + 1] for n in names if n in x}
        step |= {"starts": np.array([0, 1], np.int32), "pasts": np.array([t], np.int32)}
        got = _run(step, facts, 6)
        rows.append(got[0])
        x |= {"state": got[2], "buffer": got[3], "lengths": got[5]}
        x |= {"gates": got[4]} if mode == "csa" else {}
    np.testing.assert_array_equal(np.concatenate(rows), whole[0])
    assert_near(x["state"][0, :4], whole[2][0, :4], "float: functions near zero")
    np.testing.assert_array_equal(x["lengths"], whole[5])


def test_what_makes_no_sense_is_refused() -> None:
    x = _inputs("csa", [5, 2], [3, 6], 2)
    expected = _expected(x, "csa", 2, 2)
    check_contrib(NAME, _listed(x), _facts("csa", 2, 2), expected, engine=False, symbolic=False,
                  tolerance="float: layers")  # fmt: skip


@pytest.mark.parametrize(
    "mode, facts, changed, text",
    [
        ("qsa", {"policy_mode": "x"}, {}, "Bad policy_mode. Expected qsa or csa, got x"),
        ("qsa", {"token_budget": 5}, {}, "whole blocks"),
        ("csa", {"token_budget": 4}, {}, "go with csa alone"),
        ("qsa", {"state_capacity": 5}, {}, "past_key_state"),
        ("qsa", {"state_update_capacity": 2}, {}, "state_update_capture_count goes with"),
        ("qsa", {}, {"active": np.array([1], np.int32)}, "needs a state_update_capacity"),
        ("qsa", {}, {"position_ids": np.zeros(7, np.int64)}, "It has the input position_ids"),
        ("csa", {}, {"head_weights": None}, "Its input head_weights is missing"),
        ("csa", {}, {"key": None}, "Its input key is missing"),
        ("qsa", {}, {"buffer": np.zeros((2, 2, 8), np.float32)}, "past_kv_buffer"),
        ("qsa", {}, {"lengths": np.zeros((2, 3), np.int32)}, "past_state_lengths"),
        ("qsa", {}, {"starts": np.zeros((2, 3), np.int32)}, "offsets of one"),
        ("qsa", {}, {"sine": np.zeros((40, 4), np.float32)}, "sin_cache"),
    ],
)
def test_bad_graphs(mode: str, facts: dict[str, Any], changed: dict[str, Array], text: str) -> None:
    x = _inputs(mode, [5, 2], [3, 6], 2) | changed
    given = {n: a for n, a in x.items() if a is not None}
    with pytest.raises(InvalidGraph, match=f"node it .{NAME}.*{text}"):
        _run(given, _facts(mode, 2, 2) | facts, 6)
