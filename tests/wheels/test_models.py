"""Published models on pictures and sounds equal onnxruntime's results, at changing sizes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import knobs
from sardonyx.llvm import compile
from tests.wheels import prepare, references
from tests.wheels.fetch import Unreachable
from tests.wheels.models import CASES, MODELS, arrays


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
    outputs = MODELS[name].run(session, feed)
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
    case = next(case for case in cases if not _is_packed(cases[case]()))
    session, feed, outputs = _run(name, case)
    for output, again in zip(outputs, MODELS[name].run(session, _packed(feed)), strict=True):
        np.testing.assert_array_equal(output, again)


@pytest.mark.parametrize("name", MODELS)
def test_profiles(name: str, tmp_path: Path) -> None:
    """Recorded runs give the same bits; all that they do has nodes, tensors and a time."""
    session, feed, outputs = _run(name, next(iter(MODELS[name].cases)))
    with session.profile() as p:
        for output, again in zip(outputs, MODELS[name].run(session, feed), strict=True):
            np.testing.assert_array_equal(output, again)
    events = json.loads(Path(p.save(tmp_path / "p.json")).read_text())
    nodes = [e for e in events if e["cat"] == "Node"]
    runs = [e for e in events if e["name"] == "model_run"]
    in_plan = {k for k, c in enumerate(inspect(session).plan.commands) if hasattr(c, "kernel")}
    done = {int(e["args"]["command"]) for e in nodes if e["args"]["plan"] == "0"}
    assert done <= in_plan
    assert len(done) > 0.4 * len(in_plan)  # one model has a branch for each rate
    for event in nodes:
        assert event["args"]["output_type_shape"]
        assert event["args"]["nodes"] or event["args"]["op_name"] in ("copy", "take")
    row = p.table()
    assert row.runs == len(runs) >= 1
    assert sum(r.operations for r in row) == sum(int(e["args"]["operations"]) for e in nodes) > 0


def _is_packed(feed: Any) -> bool:
    return all(array.flags.c_contiguous for array in arrays(feed))


def _packed(feed: Any) -> Any:
    if isinstance(feed, dict):
        return {name: array.copy(order="C") for name, array in feed.items()}
    return np.ascontiguousarray(feed)


def test_text_is_what_was_drawn() -> None:
    assert references.decoded("ppocr_rec", "all") == [text for text, _ in prepare.LINES]


def test_classes_are_the_letters_drawn() -> None:
    classes_of: dict[str, set[int]] = {}
    for case, row in (("word", 0), ("prose", 1)):
        letters = prepare.LINES[row][0].replace(" ", "")
        (classes,) = references.decoded("ddddocr", case)
        for letter, index in zip(letters, classes, strict=True):
            classes_of.setdefault(letter, set()).add(index)
    found = [index for indices in classes_of.values() for index in indices]
    assert len(found) == len(set(found)) == len(classes_of)


def test_every_case_has_a_reference_and_every_reference_a_case() -> None:
    assert references.cases() == sorted(CASES)
