"""The subcommands, on a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from sardonyx.cli.main import main
from tests.engine import networks


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("models") / "transformer.onnx"
    onnx.save(networks.transformer(), path)
    return str(path)


CASES = [
    (["run", "--dim", "S=5", "--repeat", "2", "--timings", "--explain"], ["float32[1, 5, 60]"]),
    (["show", "--stage", "graph"], ["LayerNormalization"]),
    (["show", "--stage", "graph", "--after", "load"], ["Softmax"]),
    (["show", "--stage", "plan"], ["every run", "attention_"]),
    (["show", "--stage", "kernels"], ["parallel", "kernel attention_"]),
    (["show", "--stage", "llvm"], ["define"]),
    (["show", "--stage", "asm"], [".text"]),
    (["compare", "--against", "sardonyx", "--dim", "S=4"], ["relative error 0"]),
]


@pytest.mark.parametrize(("arguments", "texts"), CASES, ids=[" ".join(a) for a, _ in CASES])
def test_prints(arguments: list[str], texts: list[str], model: str, capsys: Any) -> None:
    command, *rest = arguments
    assert main([command, model, *rest]) == 0
    printed = capsys.readouterr().out
    for text in texts:
        assert text in printed


def test_knobs(capsys: Any) -> None:
    assert main(["knobs"]) == 0
    assert "SARDONYX_CPU" in capsys.readouterr().out


def test_errors_are_a_line(capsys: Any, tmp_path: Path) -> None:
    assert main(["run", str(tmp_path / "missing.onnx")]) == 1
    assert "NoSuchFile" in capsys.readouterr().err
