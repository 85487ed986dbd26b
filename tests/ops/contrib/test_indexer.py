"""SparseAttentionIndexer against loops. onnxruntime runs it on GPUs alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument, InvalidGraph
from tests.support import indexers
from tests.support.contrib import check_contrib, contrib_model
from tests.support.tolerances import assert_near

NAME = "SparseAttentionIndexer"
HEADS, SIZE = 3, 8
#: Names of the inputs, in order.
NAMES = (
    "query key query_norm key_norm cosine sine mask past_key gate bias head_weights position_ids "
    "past_length buffer"
).split()
Array = Any
QSA = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4}
CSA = {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 4}


def _common(
    random: Any, batch: int, length: int, wide: int, width: int, dtype: Any, shared: bool
) -> dict[str, Array]:
    def floats(*shape: int) -> Array:
        return random.standard_normal(shape).astype(dtype)

    angles = random.standard_normal((40, width) if shared else (batch, 40, width))
    return {
        "query": floats(batch, length, HEADS * SIZE), "key": floats(batch, length, wide),
        "query_norm": floats(SIZE) + dtype(1), "key_norm": floats(SIZE) + dtype(1),
        "cosine": np.cos(angles).astype(dtype), "sine": np.sin(angles).astype(dtype),
    }  # fmt: skip


def _table(x: dict[str, Array], b: int) -> list[Array]:
    return [x[n] if x[n].ndim == 2 else x[n][b] for n in ("cosine", "sine")]


def _listed(given: dict[str, Array]) -> list[Array]:
    inputs = [given.get(n) for n in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


# -- qsa --------------------------------------------------------------------------------------


def _tokens(
    batch: int, length: int, before: int, *, mask: bool = False, room: int = 0, dtype: Any = None,
    shared: bool = True, seed: int = 1,
) -> dict[str, Array]:  # fmt: skip
    random = np.random.default_rng(seed)
    dtype = dtype or np.float32
    x = _common(random, batch, length, SIZE, 6, dtype, shared)
    x["past_key"] = random.standard_normal((batch, room or before, SIZE)).astype(dtype)
    if mask:
        x["mask"] = random.integers(0, 3, (batch, before + length)).astype(np.int64)
    if room:
        x["past_length"] = np.array([before], np.int32)
    return x


def _expected_tokens(x: dict[str, Array], ratio: int, budget: int) -> list[Array]:
    batch, length = x["query"].shape[:2]
    before = int(x["past_length"][0]) if "past_length" in x else x["past_key"].shape[1]
    keys = np.concatenate([x["past_key"][:, :before], x["key"]], 1).astype(float)
    mask = x.get("mask", np.ones((batch, before + length)))
    found = []
    for b, s in np.ndindex(batch, length):
        visible = [t for t in range(before + s + 1) if mask[b, t]]
        table = _table(x, b)
        blocks = []
        for j in range(len(visible) // ratio):
            part = visible[j * ratio : (j + 1) * ratio]
            mean = indexers.normal(keys[b, part].mean(0), x["key_norm"].astype(float))
            blocks.append(indexers.leading(mean, *table, part[0]))
        q = x["query"][b, s].astype(float).reshape(HEADS, SIZE)
        q = indexers.normal(q, x["query_norm"].astype(float))
        q = indexers.leading(q, *table, before + s)
        tokens = indexers.tokens_of(q, np.array(blocks), ratio, budget // ratio, visible)
        found.append(indexers.padded(tokens, budget + ratio - 1))
    present = keys
    if "past_length" in x:
        present = x["past_key"].astype(float)
        present[:, before : before + length] = x["key"]
    return [np.array(found).reshape(batch, length, budget + ratio - 1), present]


@pytest.mark.parametrize(
    "batch, length, before, ratio, budget",
    [(2, 5, 6, 3, 6), (1, 1, 11, 4, 4), (2, 9, 0, 2, 4), (1, 3, 2, 1, 2), (1, 2, 0, 4, 8)],
)
@pytest.mark.parametrize("mask, more", [(False, 0), (True, 4)])
def test_tokens(
    batch: int, length: int, before: int, ratio: int, budget: int, mask: bool, more: int
) -> None:
    room = before + length + more if more else 0
    x = _tokens(batch, length, before, mask=mask, room=room, shared=mask)
    facts = {"policy_mode": "qsa", "compress_ratio": ratio, "token_budget": budget}
    expected = _expected_tokens(x, ratio, budget)
    check_contrib(NAME, _listed(x), facts, expected, engine=False, symbolic=False)


def test_queries_with_their_keys() -> None:
    x = _tokens(2, 5, 6)
    expected = _expected_tokens(x, 2, 4)
    x["query"] = np.concatenate([x["query"], x.pop("key")], 2)
    facts = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4, "scale": 0.5}
    check_contrib(NAME, _listed(x), facts, expected, engine=False, symbolic=False)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_floats(dtype: Any) -> None:
    x = _tokens(1, 4, 9, dtype=dtype)
    facts = {"policy_mode": "qsa", "compress_ratio": 3, "token_budget": 6}
    check_contrib(NAME, _listed(x), facts, _expected_tokens(x, 3, 6), engine=False, symbolic=False)
    y = _entries(1, 9, 2, 3, dtype=dtype)
    expected = _expected_entries(y, 3, 2)
    facts = {"policy_mode": "csa", "compress_ratio": 3, "index_topk": 2}
    check_contrib(
        NAME, _listed(y), facts, expected, engine=False, symbolic=False, tolerance="half: indexers"
    )


@pytest.mark.parametrize("batch, length, before", [(2, 0, 5), (2, 0, 0), (0, 3, 2)])
@pytest.mark.parametrize("mask", [False, True])
def test_no_tokens(batch: int, length: int, before: int, mask: bool) -> None:
    x = _tokens(batch, length, before, mask=mask)
    expected = [np.zeros((batch, length, 5)), np.concatenate([x["past_key"], x["key"]], 1)]
    check_contrib(NAME, _listed(x), QSA, expected, engine=False, symbolic=False)


@pytest.mark.parametrize("batch, length, waiting", [(2, 0, 3), (2, 0, 0), (0, 3, 2)])
def test_no_entries(batch: int, length: int, waiting: int) -> None:
    x = _entries(batch, length, waiting, 2, before=0)
    expected = _expected_entries(x, 2, 4)
    check_contrib(NAME, _listed(x), CSA, expected, engine=False, symbolic=False)


def test_equal_scores_take_the_first() -> None:
    x = _tokens(1, 8, 0)
    x["key"][:] = 0
    facts = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4}
    got = _run(x, facts)[0]
    assert got[0, 7].tolist() == [0, 1, 2, 3, -1]


# -- csa --------------------------------------------------------------------------------------


def _entries(
    batch: int, length: int, waiting: int, ratio: int, *, before: int = 4, room: int = 0,
    dtype: Any = np.float32, seed: int = 2,
) -> dict[str, Array]:  # fmt: skip
    random = np.random.default_rng(seed)
    x = _common(random, batch, length, 2 * SIZE, 2, dtype, True)
    wide = (batch, length, 2 * SIZE)
    first = (before + (waiting >= ratio)) * ratio
    x |= {
        "past_key": random.standard_normal((batch, room or before, SIZE)).astype(dtype),
        "gate": random.standard_normal(wide).astype(dtype),
        "bias": random.standard_normal((ratio, 2 * SIZE)).astype(dtype),
        "head_weights": random.standard_normal((batch, length, HEADS)).astype(dtype),
        "position_ids": np.arange(first, first + length)[None].repeat(batch, 0),
        "buffer": random.standard_normal((2, batch, waiting, 2 * SIZE)).astype(dtype),
    }
    if room:
        x["past_length"] = np.array([before], np.int32)
    return x


def _expected_entries(x: dict[str, Array], ratio: int, top: int) -> list[Array]:
    batch, length = x["query"].shape[:2]
    before = int(x["past_length"][0]) if "past_length" in x else x["past_key"].shape[1]
    waiting = x["buffer"].shape[2]
    first, count, kept = indexers.windows_of(waiting, length, ratio)
    values, gates = (
        np.concatenate([x["buffer"][k], x[n]], 1).astype(float)
        for k, n in ((0, "key"), (1, "gate"))
    )
    found, new = [], np.zeros((batch, count, SIZE))
    for b in range(batch):
        for w in range(count):
            base = first + w * ratio
            mean = indexers.pooled(values[b], gates[b], x["bias"].astype(float), ratio, base, SIZE)
            mean = indexers.normal(mean, x["key_norm"].astype(float))
            new[b, w] = indexers.trailing(mean, *_table(x, b), (before + w) * ratio)
        keys = np.concatenate([x["past_key"][b, :before].astype(float), new[b]])
        for s in range(length):
            place = int(x["position_ids"][b, s])
            q = x["query"][b, s].astype(float).reshape(HEADS, SIZE)
            q = indexers.normal(q, x["query_norm"].astype(float))
            q = indexers.trailing(q, *_table(x, b), place)
            weights = x["head_weights"][b, s].astype(float)
            seen = max(0, min((place + 1) // ratio, len(keys)))
            scores = [np.maximum(q @ k, 0) @ weights for k in keys[:seen]]
            found.append(indexers.padded(indexers.ranked(scores, top), top))
    present = np.concatenate([x["past_key"][:, :before].astype(float), new], 1)
    if "past_length" in x:
        whole = x["past_key"].astype(float)
        whole[:, before : before + count] = new
        present = whole
    buffer = np.stack([values[:, kept:], gates[:, kept:]])
    return [np.array(found).reshape(batch, length, top), present, buffer]


@pytest.mark.parametrize(
    "batch, length, waiting, ratio, top, room",
    [
        (2, 5, 0, 3, 3, 0), (2, 5, 0, 3, 3, 16), (2, 7, 4, 3, 2, 0), (2, 7, 4, 3, 2, 16),
        (1, 1, 5, 3, 9, 0), (1, 2, 2, 4, 4, 16), (2, 9, 1, 1, 5, 0),
    ],
)  # fmt: skip
def test_entries(batch: int, length: int, waiting: int, ratio: int, top: int, room: int) -> None:
    x = _entries(batch, length, waiting, ratio, room=room)
    facts = {"policy_mode": "csa", "compress_ratio": ratio, "index_topk": top}
    expected = _expected_entries(x, ratio, top)
    check_contrib(
        NAME, _listed(x), facts, expected, engine=False, symbolic=False, tolerance="float: layers"
    )


def test_entries_that_a_query_does_not_see() -> None:
    x = _entries(1, 6, 0, 2)
    x["position_ids"] = np.array([[0, 0, 1, 4, 7, 39]])
    facts = {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 4}
    expected = _expected_entries(x, 2, 4)
    assert [(r >= 0).sum() for r in expected[0][0]] == [0, 0, 1, 2, 4, 4]
    check_contrib(
        NAME, _listed(x), facts, expected, engine=False, symbolic=False, tolerance="float: layers"
    )


@pytest.mark.parametrize("bad", [-np.inf, np.inf])
def test_channels_without_a_usable_weight_are_zero(bad: float) -> None:
    x = _entries(1, 4, 0, 2)
    x["gate"][:, :, 3], x["gate"][:, :, SIZE + 3] = bad, bad
    facts = {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 3}
    expected = _expected_entries(x, 2, 3)
    assert np.isfinite(expected[1]).all()
    check_contrib(
        NAME, _listed(x), facts, expected, engine=False, symbolic=False, tolerance="float: layers"
    )


def test_chunks_give_what_the_whole_gives() -> None:
    x = _entries(1, 11, 0, 3, before=0)
    facts = {"policy_mode": "csa", "compress_ratio": 3, "index_topk": 3}
    whole = _run(x, facts, 3)
    past, buffer, rows, first = x["past_key"], x["buffer"], [], 0
    for count in (2, 1, 5, 3):
        part = slice(first, first + count)
        names = ("query", "key", "gate", "head_weights", "position_ids")
        chunk = x | {n: x[n][:, part] for n in names} | {"past_key": past, "buffer": buffer}
        got, past, buffer = _run(chunk, facts, 3)
        rows.append(got)
        first += count
    np.testing.assert_array_equal(np.concatenate(rows, 1), whole[0])
    assert_near(past, whole[1], "float: functions near zero")
    np.testing.assert_array_equal(buffer, whole[2])


def _session(x: dict[str, Array], facts: dict[str, Any], outputs: int) -> Any:
    """A session whose batch, lengths and pasts are symbols: all axes but those of widths."""
    inputs = _listed(x)
    model = contrib_model(NAME, inputs, facts, outputs)
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        name = NAMES[int(value.name[1:])]
        fixed = {"head_weights": (2,), "bias": (0, 1), "query_norm": (0,), "key_norm": (0,)}
        for k, dim in enumerate(dims):
            last = k == len(dims) - 1 and name not in ("mask", "position_ids")
            if not last and k not in fixed.get(name, ()) and not (name == "buffer" and k == 0):
                dim.dim_param = f"{value.name}_{k}"
    return sardonyx.InferenceSession(model.SerializeToString())


def test_one_session_for_many_sizes() -> None:
    session = _session(_tokens(1, 3, 4, mask=True), QSA, 2)
    for batch, length, before in ((1, 3, 4), (2, 1, 9), (1, 6, 0), (3, 2, 1)):
        x = _tokens(batch, length, before, mask=True, seed=batch + before)
        feeds = {f"x{NAMES.index(n)}": a for n, a in x.items()}
        for mine, known in zip(session.run(None, feeds), _expected_tokens(x, 2, 4), strict=True):
            assert_near(mine, known, "float: sums")
    session = _session(_entries(1, 3, 1, 2), CSA, 3)
    for batch, length, waiting in ((1, 3, 1), (2, 1, 0), (1, 6, 3), (2, 4, 2)):
        x = _entries(batch, length, waiting, 2, seed=batch + length)
        feeds = {f"x{NAMES.index(n)}": a for n, a in x.items()}
        for mine, known in zip(session.run(None, feeds), _expected_entries(x, 2, 4), strict=True):
            assert_near(mine, known, "float: layers")


# -- what is refused --------------------------------------------------------------------------


def _run(x: dict[str, Array], facts: dict[str, Any], outputs: int = 2) -> list[Array]:
    inputs = _listed(x)
    model = contrib_model(NAME, inputs, facts, outputs)
    feeds = {f"x{k}": a for k, a in enumerate(inputs) if a is not None}
    found: list[Array] = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    return found


@pytest.mark.parametrize(
    "facts, changed, text",
    [
        (QSA | {"policy_mode": "x"}, {}, "Bad policy_mode. Expected qsa or csa, got x"),
        (QSA | {"token_budget": 5}, {}, "whole blocks"),
        (QSA | {"compress_ratio": 0}, {}, "It needs a compress_ratio"),
        (QSA | {"index_topk": 3}, {}, "go with csa alone"),
        (CSA | {"token_budget": 4}, {}, "go with csa alone"),
        (CSA | {"index_topk": 0}, {}, "index_topk"),
        (QSA, {"gate": np.zeros((1, 3, 16), np.float32)}, "It has the input gate"),
        (CSA, {"gate": None}, "Its input gate is missing"),
        (CSA, {"mask": np.ones((1, 7), np.int64)}, "It has the input mask"),
        (QSA, {"mask": np.ones((1, 5), np.int64)}, "mask"),
        (CSA, {"buffer": np.zeros((2, 1, 4, 16), np.float32)}, "less than twice compress_ratio"),
        (QSA, {"key": np.zeros((1, 3, 7), np.float32)}, "key"),
        (QSA, {"cosine": np.zeros((40, 4), np.float32)}, "sin_cache"),
        (QSA, {"query": np.zeros((1, 3, 25), np.float32)}, "known number of heads"),
    ],
)
def test_bad_graphs(facts: dict[str, Any], changed: dict[str, Array], text: str) -> None:
    x = _tokens(1, 3, 4) if facts["policy_mode"] != "csa" else _entries(1, 3, 1, 2)
    given = {n: a for n, a in (x | changed).items() if a is not None}
    with pytest.raises(InvalidGraph, match=f"node it .{NAME}.*{text}"):
        _run(given, facts, 2)


def test_a_past_without_room_is_refused() -> None:
    x = _tokens(1, 3, 4, room=6)
    with pytest.raises(InvalidArgument, match="no room"):
        _run(x, QSA)
