"""Indices outside of their axes on a GPU, where no element depends on them."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.engine.test_index_checks import ALIKE, FEEDS, model_with
from tests.support.fake_driver import FakeDriver


@pytest.mark.parametrize("case", [case for case in ALIKE if case != "strings"])
def test_fed_indices(case: str, gpu: FakeDriver | None) -> None:
    session = sardonyx.InferenceSession(model_with(case), providers=["CUDAExecutionProvider"])
    size = ALIKE[case][0]
    (want,) = session.run(None, FEEDS | {"i": np.array([0])})
    with pytest.raises(errors.RuntimeException, match=f"index {size} is out of range"):
        session.run(None, FEEDS | {"i": np.array([size])})
    assert session.run(None, FEEDS | {"i": np.array([-size])})[0].tolist() == want.tolist()
