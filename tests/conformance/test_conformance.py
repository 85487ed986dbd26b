"""ONNX's own cases pass on every provider that can be had here.

`exclusions_PROVIDER.txt` names those that do not, `processor_PROVIDER.txt` those that run on the
processor instead, each with its reason. A case that is listed and passes, or runs on the provider,
fails the test, so that the lists only shrink.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import pytest

from sardonyx.api.providers import cuda_is_missing
from tests.conformance.cases import Case, all_cases
from tests.conformance.judge import Outcome, Provider, nearer_than_expected, outcome

HERE = pathlib.Path(__file__).parent
#: Short name -> provider. What ONNX expects was computed in float32.
PROVIDERS: dict[str, Provider] = {"cpu": "CPUExecutionProvider"}
if not cuda_is_missing():
    PROVIDERS["cuda"] = ("CUDAExecutionProvider", {"use_tf32": 0})
CASES = all_cases()
#: Cases that one process does at a time.
_TURN = 16


@cache
def exclusions(short: str, kind: str = "exclusions") -> dict[str, str]:
    """Name -> reason of each case that does not pass, or is in a list of another kind."""
    lines = (HERE / f"{kind}_{short}.txt").read_text().splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def _outcome(number: int, short: str) -> Outcome:
    return outcome(CASES[number], PROVIDERS[short])


@pytest.fixture(scope="module", params=PROVIDERS)
def outcomes(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """Every case has been run, on as many processes as there are processors."""
    count, short = len(CASES), request.param
    workers = len(os.sched_getaffinity(0))
    # Children inherit the cases, which take seconds to make; a driver does not survive a fork.
    context = multiprocessing.get_context("fork" if short == "cpu" else "spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = pool.map(_outcome, range(count), [short] * count, chunksize=_TURN)
        yield short, dict(zip((c.name for c in CASES), found, strict=True))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(outcomes: tuple[str, dict[str, Outcome]], case: Case) -> None:
    short, found = outcomes
    problem, provider = found[case.name]
    reason = exclusions(short).get(case.name)
    if reason is None:
        assert not problem
    else:
        assert problem, f"It passes; it was excluded: {reason}"
    if short != "cpu":
        assert (provider == PROVIDERS["cpu"]) == (case.name in exclusions(short, "processor"))


def test_names_are_unique() -> None:
    assert len({c.name for c in CASES}) == len(CASES) > 2000


@pytest.mark.parametrize(("short", "name"), [(s, n) for s in PROVIDERS for n in exclusions(s)])
def test_excluded_cases_are_nearer_to_exact_results_than_expected(short: str, name: str) -> None:
    by_name = {c.name: c for c in CASES}
    model = by_name[name.removesuffix("_expanded")].model
    assert nearer_than_expected(by_name[name], model, PROVIDERS[short])
