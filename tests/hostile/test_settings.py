"""A fixed range of settings, options, switches and JSON that nobody expects; see `settings`."""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.hostile.children import run_cases
from tests.hostile.hostile_json import changed, text_of
from tests.hostile.settings import KINDS, run_case

#: Enough for an idle machine; a busy one does fewer cases in the time that there is.
_CASES, _SECONDS = 400, 12.0


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_COMPILE_PROCESSES", "1")
    said: list[str] = []
    tally = run_cases(run_case, range(_CASES), _SECONDS, said.append)
    assert not said
    done = sum(tally.values())
    assert done >= 20
    assert done < _CASES or {kind.split()[0] for kind in tally} == set(KINDS)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("crash", "how"), [(lambda: 1 // 0, "exit"), (_kill, "signal 9")])
def test_who_crashes_is_said_with_the_seed(crash, how) -> None:
    def case(seed: int) -> tuple[str, str]:
        if seed == 3:
            crash()
        return "good", "bad" if seed == 5 else ""

    said: list[str] = []
    tally = run_cases(case, range(8), 60.0, said.append)
    assert tally == {"good": 6, "defect": 2}
    assert said == [f"DEFECT 3: {how}", "DEFECT 5: good\nbad"]


def test_documents_of_a_seed_are_the_same_each_time() -> None:
    document = {"a": [1, 2, {"b": "text"}], "c": None}
    for make in (changed, text_of):
        made = [[repr(make(random.Random(s), document)) for s in range(50)] for _ in range(2)]
        assert made[0] == made[1] and len(set(made[0])) > 20
    assert document == {"a": [1, 2, {"b": "text"}], "c": None}
