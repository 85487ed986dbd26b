"""A part of ONNX's cases with every input a constant; see `constants`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.cases import Case, all_cases
from tests.hostile.constants import LEVELS, defects, folded
from tests.support.contrib import contrib_model


@pytest.mark.parametrize("case", all_cases()[7::60], ids=lambda c: c.name)
def test_constants(case: Case) -> None:
    assert not list(defects(case, ("ORT_ENABLE_ALL",)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("counts", [[2, 5, 8], [8, 8, 8], [0, 3, 0]])
def test_sizes_that_constants_decide(counts: list[int], level: str) -> None:
    """Where padding is, is an index that is read from memory, in rows made for all sizes."""
    x = np.arange(96, dtype=np.float32).reshape(3, 8, 4)
    feeds = {"x0": x, "x1": np.array(counts, np.int32)}
    model = contrib_model("RemovePadding", list(feeds.values()), {}, 4)
    found = folded(model, feeds, level)
    rows = np.concatenate([part[:n] for part, n in zip(x, counts, strict=True)])
    np.testing.assert_array_equal(found[0], rows)
    assert found[3] == [max(counts)]
