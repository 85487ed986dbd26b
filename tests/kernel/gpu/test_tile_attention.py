"""Attention in tiles of thread blocks, thread by thread, against NumPy in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.emulated import Emulated
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: Runs what thread blocks do, thread by thread.
pytestmark = pytest.mark.once

_random = np.random.default_rng(11)
_KINDS = {"float": np.float32, "float16": np.float16}


def _softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _attention(feeds: dict[str, Any], scale: float) -> Any:
    q, k, v, m = (feeds[n].astype(np.float64) for n in "qkvm")
    return _softmax(q @ np.swapaxes(k, -1, -2) * scale + m) @ v


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    ("rows", "keys", "depth", "width"),
    [(5, 7, 16, 16), (70, 40, 32, 48), (64, 128, 64, 64), (33, 65, 24, 10), (17, 70, 128, 128)],
)
def test_scores_scaled_and_masked(kind: str, rows: int, keys: int, depth: int, width: int) -> None:
    text = (
        f"g ({kind}[2,S,{depth}] q, {kind}[2,T,{depth}] k, {kind}[2,T,{width}] v, {kind}[1,T] m)"
        f" => ({kind}[2,S,{width}] y) {{ t = Transpose<perm=[0,2,1]>(k) a = MatMul(q, t)"
        " b = Mul(a, c) d = Add(b, m) e = Softmax<axis=-1>(d) y = MatMul(e, v) }"
    )
    scale = 1 / np.sqrt(depth)
    model = model_of(text, {"c": np.array(scale, _KINDS[kind])})
    emulated = Emulated(model)
    assert len(emulated.names) == 1
    shapes = {"q": (2, rows, depth), "k": (2, keys, depth), "v": (2, keys, width), "m": (1, keys)}
    feeds = {n: _random.standard_normal(s).astype(_KINDS[kind]) for n, s in shapes.items()}
    feeds["m"][:, ::5] = -10000
    (got,) = emulated.run(feeds)
    want = _attention(feeds, float(np.array(scale, _KINDS[kind])))
    assert_near(got, want, "half: some roundings")


def test_keys_that_are_all_masked_count_nothing() -> None:
    text = (
        "g (float[S,16] q, float[T,16] k, float[T,16] v, float[S,T] m) => (float[S,16] y)"
        " { t = Transpose<perm=[1,0]>(k) a = MatMul(q, t) d = Add(a, m)"
        " e = Softmax<axis=-1>(d) y = MatMul(e, v) }"
    )
    shapes = {"q": (40, 16), "k": (80, 16), "v": (80, 16), "m": (40, 80)}
    feeds = {n: _random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    feeds["m"][:, :64] = -np.inf
    (got,) = Emulated(model_of(text)).run(feeds)
    assert_near(got, _attention(feeds, 1.0), "half: some roundings")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    ("rows", "keys", "grid"), [(1, 520, 3), (1, 63, 2), (70, 300, 5), (3, 260, 1)]
)
def test_few_queries_share_their_keys_among_thread_blocks(
    kind: str, rows: int, keys: int, grid: int
) -> None:
    text = (
        f"g ({kind}[3,S,32] q, {kind}[3,T,32] k, {kind}[3,T,24] v, {kind}[1,T] m)"
        f" => ({kind}[3,S,24] y) {{ t = Transpose<perm=[0,2,1]>(k) a = MatMul(q, t)"
        " d = Add(a, m) e = Softmax<axis=-1>(d) y = MatMul(e, v) }"
    )
    emulated = Emulated(model_of(text))
    shapes = {"q": (3, rows, 32), "k": (3, keys, 32), "v": (3, keys, 24), "m": (1, keys)}
    feeds = {n: _random.standard_normal(s).astype(_KINDS[kind]) for n, s in shapes.items()}
    feeds["m"][:, : keys // 2] = -np.inf  # a part may have no key that counts
    step = 64 if kind == "float16" else 32
    parts = max(1, -(-keys // step) // (4 if kind == "float16" else 2))
    tiles = -(-rows // 64)
    assert emulated.blocks({"S": rows, "T": keys}) == [3 * tiles * parts * 4]
    (got,) = emulated.run(feeds, grid)
    assert_near(got, _attention(feeds, 1.0), "half: some roundings")


@pytest.mark.parametrize(
    ("rows", "between"),
    [
        (70, "f = Cast<to=1>(a) s = Softmax<axis=-1>(f) e = Cast<to=10>(s)"),
        (1, "e = Softmax<axis=-1>(a)"),
    ],
)
def test_what_is_recognised(rows: int, between: str) -> None:
    text = (
        f"g (float16[2,{rows},64] q, float16[2,64,90] k, float16[2,90,64] v)"
        f" => (float16[2,{rows},64] y) {{ a = MatMul(q, k) {between} y = MatMul(e, v) }}"
    )
    assert Emulated(model_of(text)).names == ["attention_0"]


@pytest.mark.parametrize("keys", [80, 700])
def test_queries_that_see_no_key_get_zeros_where_onnx_says_so(keys: int) -> None:
    text = (
        "g (float16[1,2,S,16] q, float16[1,2,T,16] k, float16[1,2,T,16] v, bool[S,T] m)"
        " => (float16[1,2,S,16] y) { y = Attention(q, k, v, m) }"
    )
    emulated = Emulated(model_of(text, opset=23))
    assert len(emulated.names) == 1
    random = np.random.default_rng(3)
    shapes = {"q": (1, 2, 3, 16), "k": (1, 2, keys, 16), "v": (1, 2, keys, 16)}
    feeds: dict[str, Any] = {
        n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()
    }
    feeds["m"] = random.random((3, keys)) < 0.5
    feeds["m"][1] = False
    (got,) = emulated.run(feeds)
    assert not got[:, :, 1].any()
    rows = [0, 2]
    want = _attention(feeds | {"m": np.where(feeds["m"], 0.0, -1e30)}, 0.25)
    assert_near(got[:, :, rows], want[:, :, rows], "half: some roundings")


@pytest.mark.parametrize("kind", _KINDS)
def test_no_keys_at_all_weigh_nothing(kind: str) -> None:
    text = (
        f"g ({kind}[2,S,16] q, {kind}[2,T,16] k, {kind}[2,T,16] v) => ({kind}[2,S,16] y)"
        " { t = Transpose<perm=[0,2,1]>(k) a = MatMul(q, t) e = Softmax<axis=-1>(a)"
        " w = MatMul(e, v) y = Neg(w) }"
    )
    emulated = Emulated(model_of(text))
    assert len(emulated.names) == 1
    none = np.zeros((2, 0, 16), _KINDS[kind])
    (got,) = emulated.run({"q": np.ones((2, 5, 16), _KINDS[kind]), "k": none, "v": none})
    np.testing.assert_array_equal(got, np.zeros((2, 5, 16)))
