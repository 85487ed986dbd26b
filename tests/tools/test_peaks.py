"""Peaks of the machine: what is measured, not how much it is."""

from __future__ import annotations

import pytest

from sardonyx.targets.target import host_target
from sardonyx.tools import peaks


@pytest.mark.parametrize("threads", [1, 2])
def test_peaks_are_measured(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_BUFFER_BYTES", 1 << 20)
    found = peaks.peaks(threads, seconds=0.01)
    kinds = {"floats", "read", "copy"} | ({"bytes"} if host_target().has_dots else set())
    assert set(found) == kinds
    assert all(value > 0 for value in found.values())
