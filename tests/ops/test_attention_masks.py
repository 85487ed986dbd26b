"""Attention with masks shorter than the keys, which end in minus infinity, of free sizes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near

Array = np.ndarray[Any, np.dtype[Any]]

_random = np.random.default_rng(32)
BATCH, HEADS, SIZE, PAST = 2, 3, 8, 4
#: (queries, keys of a run, length of the mask): shorter, of one key, of none, as long.
LENGTHS = [(3, 7, 4), (5, 9, 9), (1, 6, 1), (2, 5, 0), (4, 20, 19), (3, 33, 17)]
#: Sizes of the mask in front of its last: all that broadcast to batch, heads, queries.
FRONTS = ["", "H,S,", "1,H,1,"]


def model(
    opset: int,
    kind: str,
    front: str,
    *,
    extra: str = "",
    keys: str = "T",
    width: str = "E",
    attributes: str = "",
) -> onnx.ModelProto:
    """A model of one Attention, all of whose lengths are free unless it is said.

    Args:
        opset: Of the standard.
        kind: Of the mask's elements.
        front: The sizes of the mask before the last.
        extra: `past`, `lengths` (nonpad_kv_seqlen) or neither.
        keys: How many there are.
        width: The last size of the mask.
        attributes: As text.
    """
    inputs = f"float[B,H,S,D] q, float[B,H,{keys},D] k, float[B,H,{keys},D] v, "
    inputs += f"{kind}[{front}{width}] m"
    more = {"past": ", float[B,H,P,D] pk, float[B,H,P,D] pv", "lengths": ", int64[B] n"}
    operands = {"past": ",pk,pv", "lengths": ",,,n"}
    return model_of(
        f"g ({inputs}{more.get(extra, '')}) => (float[B,H,S,D] y) "
        f"{{ y = Attention{attributes}(q,k,v,m{operands.get(extra, '')}) }}",
        opset=opset,
    )


def feeds(
    kind: str, front: str, lengths: tuple[int, int, int], extra: str = ""
) -> dict[str, Array]:
    """Feeds for a model with so many queries, keys, and elements of a row of the mask."""
    queries, keys, width = lengths
    new = keys - PAST if extra == "past" else keys
    counts = {"B": BATCH, "H": HEADS, "S": queries, "1": 1}
    shape = (*(counts[name] for name in front.split(",") if name), width)
    given = {
        "q": _random.standard_normal((BATCH, HEADS, queries, SIZE)).astype(np.float32),
        "k": _random.standard_normal((BATCH, HEADS, new, SIZE)).astype(np.float32),
        "v": _random.standard_normal((BATCH, HEADS, new, SIZE)).astype(np.float32),
        "m": _random.random(shape) > 0.3
        if kind == "bool"
        else _random.standard_normal(shape).astype(np.float32),
    }
    if extra == "past":
        past = (BATCH, HEADS, PAST, SIZE)
        given["pk"] = _random.standard_normal(past).astype(np.float32)
        given["pv"] = _random.standard_normal(past).astype(np.float32)
    if extra == "lengths":
        given["n"] = np.array([keys, max(0, keys - 2)], np.int64)
    return given


def expected(given: dict[str, Array], causal: bool = False) -> Array:
    """The standard's formula in double: the mask is padded with minus infinity."""
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    before = 0
    if "pk" in given:
        k, v = np.concatenate([given["pk"], k], 2), np.concatenate([given["pv"], v], 2)
        before = PAST
    mask = given["m"]
    bias = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
    missing = k.shape[2] - bias.shape[-1]
    padding = np.full((*bias.shape[:-1], missing), -np.inf)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(SIZE) + np.concatenate([bias, padding], -1)
    places = np.arange(k.shape[2])
    offset = np.full(BATCH, before)
    if "n" in given:
        offset = given["n"] - q.shape[2]
        scores = np.where(places < given["n"][:, None, None, None], scores, -np.inf)
    if causal:
        last = offset[:, None] + np.arange(q.shape[2])
        scores = np.where(places <= last[:, None, :, None], scores, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = weights.sum(-1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ v


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize(
    ("opset", "extra"),
    [(23, ""), (23, "past"), (24, ""), (24, "lengths"), (25, "past"), (25, "lengths")],
)
def test_one_plan_serves_masks_of_all_lengths(
    opset: int, extra: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = model(opset, kind, "B,1,S,", extra=extra)
    session = sardonyx.InferenceSession(made.SerializeToString())
    reference = ReferenceEvaluator(made)
    with caplog.at_level(logging.INFO, "sardonyx"):
        for lengths in LENGTHS:
            given = feeds(kind, "B,1,S,", lengths, extra)
            (got,) = session.run(None, given)
            assert_near(got, expected(given), "float: masked attention")
            (other,) = reference.run(None, given)
            assert_near(got, other, "float: layers near zero")
    assert "plan is compiled" not in caplog.text


@pytest.mark.parametrize("front", FRONTS)
def test_masks_that_broadcast(front: str) -> None:
    session = sardonyx.InferenceSession(model(25, "bool", front).SerializeToString())
    for lengths in LENGTHS[:3]:
        given = feeds("bool", front, lengths)
        assert_near(session.run(None, given)[0], expected(given), "float: masked attention")


#: What is known when the session is made: sizes of keys and mask, the type of its elements.
KNOWN = [
    ("9", "E", "bool"), ("T", "4", "float"), ("9", "4", "bool"), ("9", "1", "float"),
    ("T", "1", "bool"), ("T", "T", "float"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "width", "kind"), KNOWN)
def test_one_length_may_be_known(keys: str, width: str, kind: str) -> None:
    """Also where names say that both are equal, and the fed mask is shorter."""
    made = model(23, kind, "S,", keys=keys, width=width, attributes="<is_causal = 1>")
    session = sardonyx.InferenceSession(made.SerializeToString())
    for length in (4, 9) if width in ("E", "T") else (int(width),):
        given = feeds(kind, "S,", (5, 9, length))
        (got,) = session.run(None, given)
        assert_near(got, expected(given, causal=True), "float: masked attention")


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("extra", ["", "past", "lengths"])
def test_longer_masks_are_refused_by_name(kind: str, extra: str) -> None:
    session = sardonyx.InferenceSession(model(24, kind, "S,", extra=extra).SerializeToString())
    wanted = r"The mask is longer than keys, in node Attention_0 \(Attention\)"
    with pytest.raises(errors.InvalidArgument, match=wanted):
        session.run(None, feeds(kind, "S,", (3, 6, 7), extra))
