"""No command writes over what it reads, by whatever name; nor where nothing can be written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.base.errors import InvalidArgument
from sardonyx.cli.main import main
from sardonyx.tools.targets import check_targets
from tests.support.session import model_of

TEXT = "g (float[N, 8] x) => (float[N, 4] y) { [first] y = MatMul(x, w) }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """A model whose weights are in files of their own, with links to all; and it again in one."""
    monkeypatch.chdir(tmp_path)
    built = model_of(TEXT, {"w": np.ones((8, 4), np.float32)})
    onnx.save(built, "whole.onnx")
    onnx.save(built, "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=1)
    os.mkdir("saved")
    Path("saved/variables").write_bytes(b"weights")
    os.symlink("m.onnx", "link.onnx")
    os.link("m.bin", "hard.bin")
    os.symlink("m.bin", "soft.bin")
    return tmp_path


#: Each command that writes, but for the target.
COMMANDS = [
    "bundle m.onnx TARGET",
    "quantize m.onnx TARGET --no-report",
    "optimize m.onnx TARGET",
    "convert m.onnx TARGET",
    "perf m.onnx TARGET -r 1",
    "perf m.onnx -u TARGET -r 1",
    "perf m.onnx -u new.onnx --opt_data TARGET -r 1",
    "view m.onnx --output TARGET",
    "tools remove-initializer-from-input m.onnx TARGET",
    "tools fix-shapes m.onnx TARGET --dim N=2",
    "tools update-opset m.onnx TARGET --opset 20",
    "tools split-external m.onnx TARGET",
    "tools split-external m.onnx new.onnx --location TARGET",
    "tools strip-weights m.onnx TARGET",
]
#: A file of the model, by its name, by another path, and by links.
OWN = ["m.onnx", "./m.onnx", "link.onnx", "m.bin", "hard.bin", "soft.bin"]


def _state() -> dict[str, str]:
    found = sorted(p for p in Path().rglob("*") if p.is_file())
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def _run(command: str) -> int:
    try:
        return main(command.split())
    except SystemExit as ended:
        return int(ended.code or 0)


def _is_refused(command: str, target: str, capsys: Any, why: str) -> None:
    """The command says why in one line, and writes nothing."""
    if "location" in command and "/" in target:
        pytest.skip("a location is a name, and no path")
    before = _state()
    assert _run(command.replace("TARGET", target)) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert why in printed
    assert _state() == before


@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_model(command: str, target: str, folder: Path, capsys: Any) -> None:
    _is_refused(command, target, capsys, "would replace the model")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("target", ["nowhere/out", "saved"])
def test_where_nothing_can_be_written(command: str, target: str, folder: Path, capsys: Any) -> None:
    _is_refused(command, target, capsys, "cannot be written")


#: What is written beside the target, too: the external data of the source.
BESIDE = [
    "optimize data.onnx out.onnx --external-data 1",
    "quantize data.onnx out.onnx --external-data --no-report",
    "tools split-external data.onnx out.onnx",
]


@pytest.mark.parametrize("command", BESIDE)
def test_data_beside_the_target(command: str, folder: Path, capsys: Any) -> None:
    built = model_of(TEXT, {"w": np.ones((8, 4), np.float32)})
    onnx.save(
        built, "data.onnx", save_as_external_data=True, location="out.onnx.data", size_threshold=1
    )
    before = _state()
    assert _run(command) == 2
    assert "would replace the model" in capsys.readouterr().err
    assert _state() == before


def test_sources_of_other_kinds(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="would replace"):
        check_targets("saved", "saved/variables")
    with pytest.raises(InvalidArgument, match="have this name"):
        check_targets("whole.onnx", "a.onnx", "./a.onnx")
    Path("model.pkl").write_bytes(b"\x80pickle")
    with pytest.raises(InvalidArgument, match="would replace"):
        check_targets("model.pkl", "model.pkl")
    check_targets("model.pkl", "new.onnx", None)
    check_targets(b"bytes", "whole.onnx")
    check_targets("m.onnx", "whole.onnx")


#: What a file has before, and whether lines of results may follow.
HELD = [
    (b"", True),
    (b"m.onnx,0.001,1000,99,0\n", True),
    (b"m.onnx,0.001,1000,99,0\nm.onnx,1e-05,1000,99,1\n", True),
    (b"name,time\n", False),
    (b"m.onnx,0.001,1000,99,0\nmore\n", False),
    (b"m.onnx,0.001,1000,99,0", False),
    (b"\x00\x01\x02", False),
]


@pytest.mark.parametrize(("held", "is_fine"), HELD)
def test_lines_are_added_to_results_alone(
    held: bytes, is_fine: bool, folder: Path, capsys: Any
) -> None:
    Path("r.csv").write_bytes(held)
    assert _run("perf whole.onnx r.csv -r 2") == (0 if is_fine else 2)
    lines = Path("r.csv").read_bytes()
    assert lines.startswith(held)
    assert lines.count(b"\n") == held.count(b"\n") + (2 if is_fine else 0)
    assert is_fine or "cannot be added" in capsys.readouterr().err
