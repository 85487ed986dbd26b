"""Some cases of each campaign against the cache; `cache_campaign` has the command for more."""

from __future__ import annotations

import pytest

from tests.hostile.cache_campaign import CAMPAIGNS

#: Cases, and seconds after which none is begun.
SHORT = {"damage": (12, 8.0), "kill": (4, 6.0), "starters": (1, 1.0)}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_campaigns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_COMPILE_PROCESSES", "1")
    tally = CAMPAIGNS[name](11, *SHORT[name])
    assert not tally.defects, tally.summary()
    assert tally.kinds["right"] >= 1
