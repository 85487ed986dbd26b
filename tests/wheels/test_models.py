"""Published models on pictures equal onnxruntime's results, at changing sizes in one session."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import knobs
from sardonyx.codegen import compile
from tests.wheels import prepare, references
from tests.wheels.fetch import Unreachable
from tests.wheels.models import CASES, MODELS


@functools.lru_cache(maxsize=2)
def _create(name: str, isa: str | None) -> Any:
    with knobs.override("SARDONYX_CPU", isa):
        return sardonyx.InferenceSession(MODELS[name].read())


def _session(name: str, isa: str | None = None) -> Any:
    try:
        return _create(name, isa)
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")


def _run(name: str, case: str, isa: str | None = None) -> tuple[Any, Any, list[Any]]:
    session, feed = _session(name, isa), MODELS[name].cases[case]()
    modules = compile.COUNTS["modules"]
    outputs = session.run(None, {session.get_inputs()[0].name: feed})
    assert compile.COUNTS["modules"] == modules, "a size was compiled for"
    return session, feed, outputs


@pytest.mark.parametrize(("name", "case"), CASES)
def test_equals_onnxruntime(name: str, case: str) -> None:
    session, feed, outputs = _run(name, case)
    wanted = references.stored(name, case)
    assert len(outputs) == len(wanted) == len(session.get_outputs())
    for output, want in zip(outputs, wanted, strict=True):
        references.check(output, want)
    found = MODELS[name].decode(session, feed, outputs)
    assert references.same(found, references.decoded(name, case))


@pytest.mark.parametrize("name", MODELS)
def test_equals_onnxruntime_on_avx2(name: str) -> None:
    for case in MODELS[name].cases:
        _, _, outputs = _run(name, case, "avx2")
        for output, want in zip(outputs, references.stored(name, case), strict=True):
            references.check(output, want)


@pytest.mark.parametrize("name", MODELS)
def test_layout_of_a_feed_changes_nothing(name: str) -> None:
    cases = MODELS[name].cases
    case = next(case for case in cases if not cases[case]().flags.c_contiguous)
    session, feed, outputs = _run(name, case)
    packed = {session.get_inputs()[0].name: np.ascontiguousarray(feed)}
    for output, again in zip(outputs, session.run(None, packed), strict=True):
        np.testing.assert_array_equal(output, again)


def test_text_is_what_was_drawn() -> None:
    assert references.decoded("ppocr_rec", "all") == [text for text, _ in prepare.LINES]


def test_every_case_has_a_reference_and_every_reference_a_case() -> None:
    assert references.cases() == sorted(CASES)
