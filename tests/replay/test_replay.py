"""What the compiler makes of small models is what is written down: a change says which and why.

`python -m tests.replay` compares all models; `--write` replaces what is expected.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.compiler import options
from sardonyx.runtime.thread_setup import ThreadSetup
from tests.replay.__main__ import EXPECTED
from tests.replay.digests import TARGETS
from tests.replay.keys import CHANGES, keys
from tests.replay.models import models

_SMALL = [name for name in models(Path()) if name.startswith("tests/")]


@pytest.mark.once
@pytest.mark.parametrize("name", _SMALL)
def test_programs_and_plans_of_every_target_are_those_expected(name):
    command = [sys.executable, "-m", "tests.replay", name, "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(TARGETS) + len(list(keys()))
    assert f"{count} rows, 0 of them changed" in done.stdout


@pytest.mark.parametrize(("name", "key"), list(keys()))
def test_keys_of_the_cache_are_those_expected(name, key):
    assert f"keys {name} {key}" in EXPECTED.read_text().splitlines()


def test_each_option_that_decides_on_code_changes_the_key():
    found = dict(keys())
    assert len(set(found.values())) == len(found)


def test_every_field_of_the_key_has_another_value_here():
    """`setup` decides by one thing alone: see below."""
    assert {name for name, _ in options._KEYED} - {"setup"} == CHANGES.keys()


@pytest.mark.parametrize(
    ("name", "value"), [("threads", 3), ("share", 2), ("use_cache", False), ("logid", "a")]
)
def test_what_decides_on_runs_alone_is_not_in_the_key(name, value):
    assert options.EngineOptions(**{name: value}).key() == options.EngineOptions().key()


@pytest.mark.parametrize(("flushes", "is_same"), [(False, True), (True, False)])
def test_of_threads_only_the_mode_of_denormals_is_in_the_key(flushes, is_same):
    setup = ThreadSetup(awake_ns=5, flushes_denormals=flushes)
    key = options.EngineOptions(setup=setup).key()
    assert (key == options.EngineOptions().key()) == is_same
