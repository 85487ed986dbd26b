"""A part of ONNX's cases with every input a constant; see `constants`."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case, all_cases
from tests.hostile.constants import defects


@pytest.mark.parametrize("case", all_cases()[7::60], ids=lambda c: c.name)
def test_constants(case: Case) -> None:
    assert not list(defects(case, ("ORT_ENABLE_ALL",)))
