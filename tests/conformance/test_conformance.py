"""ONNX's own cases pass on every provider that can be had here.

`exclusions_PROVIDER.txt` names those that do not, `processor_PROVIDER.txt` those that run on the
processor instead, each with its reason. A case that is listed and passes, or runs on the provider,
fails the test, so that the lists only shrink.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
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


def _outcome(number: int, provider: Provider) -> Outcome:
    return outcome(CASES[number], provider)


@pytest.fixture(scope="module")
def on_gpu() -> dict[str, Outcome]:
    """Every case has been run on a GPU, in processes of their own: what faults there ends them.

    A process gets the provider, and does not look it up: were the driver not to start there, for
    want of memory, cases would say so.
    """
    count, workers = len(CASES), len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")  # a driver does not survive a fork
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = pool.map(_outcome, range(count), [PROVIDERS["cuda"]] * count, chunksize=_TURN)
        return dict(zip((c.name for c in CASES), found, strict=True))


def _check(found: Outcome, case: Case, short: str) -> None:
    reason = exclusions(short).get(case.name)
    if reason is None:
        assert not found.problem
    else:
        assert found.problem, f"It passes; it was excluded: {reason}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    _check(outcome(case, PROVIDERS["cpu"]), case, "cpu")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES if "cuda" in PROVIDERS else [], ids=lambda c: c.name)
def test_case_on_a_gpu(on_gpu: dict[str, Outcome], case: Case) -> None:
    found = on_gpu[case.name]
    _check(found, case, "cuda")
    is_hosted = found.provider == PROVIDERS["cpu"]
    assert is_hosted == (case.name in exclusions("cuda", "processor"))


def test_names_are_unique() -> None:
    assert len({c.name for c in CASES}) == len(CASES) > 2000


@pytest.mark.parametrize(("short", "name"), [(s, n) for s in PROVIDERS for n in exclusions(s)])
def test_excluded_cases_are_nearer_to_exact_results_than_expected(short: str, name: str) -> None:
    by_name = {c.name: c for c in CASES}
    model = by_name[name.removesuffix("_expanded")].model
    assert nearer_than_expected(by_name[name], model, PROVIDERS[short])
