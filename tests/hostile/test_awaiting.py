"""A fixed range of rounds of awaited runs that end at any moment; see `awaiting`."""

from __future__ import annotations

import time

from tests.hostile.awaiting import run_round

#: Enough for an idle machine; a busy one does fewer rounds in the time that there is.
_ROUNDS, _SECONDS = 60, 6.0


def test_awaited_runs() -> None:
    until = time.monotonic() + _SECONDS
    for seed in range(_ROUNDS):
        if time.monotonic() > until and seed >= 5:
            break
        assert not run_round(seed), seed
