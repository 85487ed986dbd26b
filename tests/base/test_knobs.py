import logging
import os
import subprocess
import sys

import pytest

from sardonyx.base import knobs, log
from sardonyx.base.errors import InvalidArgument

READ = [
    ("SARDONYX_CPU", "AVX2", "avx2"),
    ("SARDONYX_CPU", "", None),
    ("SARDONYX_CACHE", "/Some/Folder", "/Some/Folder"),
    ("SARDONYX_CACHE_LIMIT_BYTES", "1000", 1000),
    ("SARDONYX_CACHE_LIMIT_BYTES", "500M", 500 * 10**6),
    ("SARDONYX_CACHE_LIMIT_BYTES", "2 GiB", 2**31),
    ("SARDONYX_CACHE_LIMIT_BYTES", "", 8 * 10**9),
    ("SARDONYX_VERIFY", "on", True),
    ("SARDONYX_VERIFY", "0", False),
    ("SARDONYX_LOG", "Debug", "debug"),
    ("SARDONYX_THREADS", "4", 4),
    ("SARDONYX_COMPILE_PROCESSES", "", 0),
]
REFUSED = [
    ("SARDONYX_CPU", "native", "Expected avx512, avx2, sse or neon, got 'native'"),
    ("SARDONYX_CACHE_LIMIT_BYTES", "many", "such as 500M or 8G, got 'many'"),
    ("SARDONYX_VERIFY", "maybe", "Expected 0 or 1, got 'maybe'"),
    ("SARDONYX_LOG", "loud", "Expected debug, info, warning or error, got 'loud'"),
    ("SARDONYX_THREADS", "-1", "got '-1'"),
    ("SARDONYX_THREADS", "two", "got 'two'"),
]


@pytest.mark.parametrize(("name", "text", "value"), READ)
def test_values(monkeypatch, name, text, value):
    monkeypatch.setenv(name, text)
    assert knobs.get(name) == value


@pytest.mark.parametrize(("name", "text", "expected"), REFUSED)
def test_bad_values(monkeypatch, name, text, expected):
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidArgument, match=expected):
        knobs.get(name)
    with pytest.raises(InvalidArgument, match=expected), knobs.override(name, text):
        pass


def test_overrides_nest():
    with knobs.override("SARDONYX_THREADS", 3):
        with knobs.override("SARDONYX_THREADS", "5"):
            assert knobs.get("SARDONYX_THREADS") == 5
        assert knobs.get("SARDONYX_THREADS") == 3
    with knobs.override("SARDONYX_CPU", None):
        assert knobs.get("SARDONYX_CPU") is None


def test_declarations():
    names = [knob.name for knob in knobs.all_knobs()]
    assert len(set(names)) == len(names)
    for knob in knobs.all_knobs():
        assert knob.name.startswith("SARDONYX_")
        assert knob.doc.endswith(".")
    assert [knob.name for knob in knobs.all_knobs() if knob.changes_code] == ["SARDONYX_CPU"]


@pytest.mark.parametrize(("level", "handlers"), [("warning", 0), ("debug", 1)])
def test_log_level(monkeypatch, level, handlers):
    monkeypatch.setattr(log.logger, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = log.logger.level
    with knobs.override("SARDONYX_LOG", level):
        log.set_up()
        log.set_up()
    assert log.logger.level == getattr(logging, level.upper())
    assert len(log.logger.handlers) == handlers
    log.logger.setLevel(before)


@pytest.mark.parametrize(
    ("level", "set_up", "expected"),
    [
        ("info", "", ["INFO sardonyx.session: told", "WARNING sardonyx.session: warned"]),
        ("info", "logging.basicConfig(format='app %(message)s')", ["app told", "app warned"]),
        ("error", "", []),
        ("", "", ["warned"]),
        ("loud", "", ["[SARDONYX_LOG] The variable has a bad value.", "warned"]),
    ],
)
def test_the_variable_acts_on_the_package(level, set_up, expected):
    # The application may set its own handlers before or after it imports the package.
    program = f"""
import logging
import sardonyx
{set_up}
log = logging.getLogger("sardonyx.session")
log.info("told")
log.warning("warned")
"""
    environment = {**os.environ, "SARDONYX_LOG": level}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))
