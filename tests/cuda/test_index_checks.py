"""Indices outside of their axes on a GPU, where no element depends on them."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.engine.test_index_checks import ALIKE, FEEDS, model_with
from tests.ops.core.test_ranges import CASES, ROWS, changed
from tests.support.fake_driver import FakeDriver


@pytest.mark.parametrize("case", [case for case in ALIKE if case != "strings"])
def test_fed_indices(case: str, gpu: FakeDriver | None) -> None:
    session = sardonyx.InferenceSession(model_with(case), providers=["CUDAExecutionProvider"])
    size = ALIKE[case][0]
    (want,) = session.run(None, FEEDS | {"i": np.array([0])})
    with pytest.raises(errors.RuntimeException, match=f"index {size} is out of range"):
        session.run(None, FEEDS | {"i": np.array([size])})
    assert session.run(None, FEEDS | {"i": np.array([-size])})[0].tolist() == want.tolist()


#: Whole numbers, vectors of them, ranges that differ, and what many kernels read.
OF_A_GPU = [
    "GroupQueryAttention, several new: seqlens_k", "EmbedLayerNormalization: input_ids",
    "VarlenCausalConvWithState: cumulative_sequence_length", "PagedAttention: past_seqlens",
    "Attention: mask_index",
]  # fmt: skip


@pytest.mark.parametrize("row", OF_A_GPU)
def test_ranges(row: str, gpu: FakeDriver | None) -> None:
    name, given, place, wrong, expected, _ = next(r for r in ROWS if f"{r[0]}: {r[1]}" == row)
    case = CASES[name]
    session = sardonyx.InferenceSession(case.model(), providers=["CUDAExecutionProvider"])
    want = session.run(None, case.feeds)
    text = rf"\[node it\] {given} is out of range\. Expected {expected}, got {wrong[0]}\."
    with pytest.raises(errors.IndexOutOfRange, match=text):
        session.run(None, changed(case, given, place, wrong[0]))
    for got, before in zip(session.run(None, case.feeds), want, strict=True):
        assert got.tobytes() == before.tobytes()
