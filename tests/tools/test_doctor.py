"""What the doctor sees, says, and does not say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sardonyx.base import knobs
from sardonyx.cli.main import main
from sardonyx.store import cache as caches
from sardonyx.targets.machine import AMX, Caches, Machine
from sardonyx.tools import doctor
from sardonyx.tools.doctor import examination, self_test
from sardonyx.tools.doctor.findings import Findings, without_paths


def test_a_sound_machine(capsys: Any) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for text in ("versions", "processor", "memory", "GPU", "cache", "switches", "self test",
                 "llvmlite", "by affinity", "quota of control groups", "writable", "right, in",
                 "everything that was tested works"):  # fmt: skip
        assert text in printed
    assert str(Path.home()) + "/" not in printed


def test_json(capsys: Any) -> None:
    assert main(["doctor", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_sound"]
    assert "self test" not in found["sections"]
    assert int(found["sections"]["processor"]["usable"]) >= 1


PATHS = [
    ("/home/ada/.cache/sardonyx", "~/.cache/sardonyx"),
    ("in /home/ada/x: no", "in ~/x: no"),
    ("/home/adam/x", "…/x"),
    ("/srv/data/secret/model.onnx (bad)", "…/model.onnx (bad)"),
    ("'/opt/x y'", "'…/x y'"),
    ("46.1 GFLOP/s and 1/2", "46.1 GFLOP/s and 1/2"),
    ("C:\\Users\\ada\\x", "…/x"),
    ("sardonyx-ada is ada's", "sardonyx-USER is USER's"),
    ("two\nlines", "two lines"),
]


@pytest.mark.parametrize(("text", "expected"), PATHS)
def test_without_paths(text: str, expected: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USER", "ada")
    monkeypatch.delenv("LOGNAME", raising=False)
    assert without_paths(text) == expected


def test_a_path_with_blanks(monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    found = Findings()
    found.add("s", "a", Path("/srv/my projects/of ada/cache"))
    found.add("s", "b", Path("/home/ada/my projects"))
    assert found.sections["s"] == {"a": "…/cache", "b": "~/my projects"}


def test_what_is_broken(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "file" / "folder"))
    monkeypatch.setenv("SARDONYX_THREADS", "many")
    assert main(["doctor", "--quick"]) == 1
    printed = capsys.readouterr().out
    assert "broken: no folder to cache in can be written" in printed
    assert "broken: [SARDONYX_THREADS] The variable has a bad value" in printed
    assert "everything that was tested works" not in printed


def test_remarks(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    monkeypatch.setenv("SARDONYX_THREADS", "1000")
    assert main(["doctor", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert "remark: the cache is off" in printed
    assert "threads will wait for each other" in printed


def test_registers_that_the_system_refuses(monkeypatch: Any) -> None:
    """The processor has them, and this process does not."""
    there = "flags\t: avx2 " + " ".join(AMX)
    monkeypatch.setattr(examination, "text_of", lambda _: there)
    for flags, remarks in ((frozenset(("avx2",)), 1), (frozenset(("avx2", *AMX)), 0)):
        machine = Machine("x86_64", flags, Caches())
        monkeypatch.setattr(examination, "read_machine", lambda m=machine: m)
        found = doctor.examine(self_test=False)
        assert sum("registers for matrices" in text for text in found.remarks) == remarks


def test_a_part_that_fails(monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("at /a/b/c")

    monkeypatch.setattr("sardonyx.tools.doctor.examination.look_at_gpu", fail)
    found = doctor.examine(self_test=False)
    assert found.problems == ["GPU: ZeroDivisionError: at …/c"]
    assert {"versions", "cache", "switches"} <= set(found.sections)


def test_a_self_test_that_fails(monkeypatch: Any) -> None:
    monkeypatch.setattr(self_test, "tiny_model", None)
    found = Findings()
    monkeypatch.setattr(self_test.sys, "executable", "/nowhere/python")
    self_test.test_engine(found)
    assert "no process can be started" in found.problems[0]
    assert found.sections["self test"] == {"result": "failed"}


def test_the_cache_is_left_as_it_was() -> None:
    folder = caches.default_cache().folder
    assert folder is not None
    assert doctor.examine(self_test=False).sections["cache"]["writable"] == "yes"
    assert not list(folder.glob("doctor/*"))
    assert knobs.get("SARDONYX_CACHE_LIMIT_BYTES") > 0
