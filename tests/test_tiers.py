"""The fast tier leaves out the listed files alone; the list follows from a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers


def test_listed_files_are_there() -> None:
    assert sorted(p for p in tiers.slow_files() if not (tiers.ROOT / p).is_file()) == []


@pytest.mark.parametrize(
    ("path", "left_out"),
    [("ops/test_slow.py", {"fast"}), ("ops/test_quick.py", {"rest"}), ("ops/helper.py", set())],
)
def test_each_test_belongs_to_one_tier_and_to_all(path: str, left_out: set[str]) -> None:
    slow = frozenset({"ops/test_slow.py"})
    assert {t for t in tiers.TIERS if tiers.is_left_out(tiers.ROOT / path, t, slow)} == left_out


def test_slow_is_what_takes_long_in_all_and_for_each_test(tmp_path) -> None:
    def report(name: str, cases: list[tuple[str, float]]) -> Path:
        rows = [f'<testcase classname="{of}" name="t" time="{seconds}"/>' for of, seconds in cases]
        path = tmp_path / name
        path.write_text(f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>")
        return path

    cases = [("tests.a.test_long", 9.0), ("tests.a.test_short", 2.9)]
    cases += [("tests.b.test_many_quick", 0.04)] * 200 + [("tests.b.test_some", 3.0)] * 2
    first = report("all.xml", cases)
    assert tiers.slowest([first]) == [(9.0, "a/test_long.py"), (6.0, "b/test_some.py")]
    later = report("some.xml", [("tests.a.test_long", 2.0), ("tests.a.test_short", 7.0)])
    assert tiers.slowest([first, later]) == [(7.0, "a/test_short.py"), (6.0, "b/test_some.py")]


@pytest.mark.parametrize(
    ("arguments", "collects"),
    [(["tests/fuzz"], True), (["tests/fuzz", "--tier=fast"], False),
     (["tests/fuzz", "--tier=rest"], True), (["--ignore=tests/ops", "-k", "test_fuzz"], True)],
)  # fmt: skip
def test_a_named_path_runs_all_of_it(arguments: list[str], collects: bool) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tiers.ROOT.parent)
    assert ("test_fuzz.py::" in done.stdout) == collects, done.stdout + done.stderr
