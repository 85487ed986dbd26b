"""Every block of Python in the documentation runs, page by page, in the order of the page.

What readers have by then (files, a session, feeds) is in `_given`. A line `<!-- not run: why -->`
before a block leaves it out; `<!-- needs: package -->` does where that package is missing.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.providers import cuda_is_missing
from sardonyx.api.settings import FORMAT
from tests.support.decoders import decoder
from tests.support.fake_provider import installed
from tests.support.session import model_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:[ ]*<!--[ ](?P<mark>not[ ]run|needs):[ ](?P<why>.+?)[ ]-->\n)?"
    r"(?P<indent>[ ]*)```(?P<kind>py\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
#: Pages whose blocks need a device: NVIDIA's, or one of the tests that is the processor.
_ON_A_DEVICE = {"README.md", "docs/device_tensors.md", "docs/gpu_options.md"}
_WEIGHTS = {"w": np.ones((3, 2), np.float32), "b": np.array([1, -1], np.float32)}


def _given() -> dict[str, Any]:
    """What pages may use without saying where it comes from; files lie in the current folder."""
    text = "net (float[N, 3] x) => (float[N, 2] y) { h = MatMul(x, w) y = Add(h, b) }"
    model = model_of(text, _WEIGHTS)
    for name in ("model.onnx", "resnet50.onnx"):
        Path(name).write_bytes(model.SerializeToString())
    Path("decoder.onnx").write_bytes(decoder())
    Path("model.tune").mkdir()
    settings = {"format": FORMAT, "entries": []}
    Path("model.tune/settings.json").write_text(json.dumps(settings))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    return {
        "ort": sardonyx, "sardonyx": sardonyx, "np": np, "x": x, "array": x, "feeds": {"x": x},
        "arrays": [x, x + 1], "session": sardonyx.InferenceSession("model.onnx"),
        "v": sardonyx.OrtValue.ortvalue_from_numpy(x),
    }  # fmt: skip


def _blocks(page: Path) -> list[tuple[int, str]]:
    """Line and text of each block that runs."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        mark = match["mark"]
        if mark is None or (mark == "needs" and importlib.util.find_spec(match["why"])):
            indent = match["indent"]
            lines = [line.removeprefix(indent) for line in match["code"].splitlines()]
            found.append((text.count("\n", 0, match.start("code")), "\n".join(lines)))
    return found


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    name = str(request.getfixturevalue("page").relative_to(ROOT))
    if name in _ON_A_DEVICE and cuda_is_missing():
        with installed():
            yield
    else:
        yield


@pytest.mark.filterwarnings("ignore:.*CUDAExecutionProvider.*is not available")
@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p)], ids=lambda p: p.name)
def test_page(page: Path, device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = _given()
    for line, code in _blocks(page):
        tree = ast.increment_lineno(ast.parse(code), line)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        found = eval(compile(tree, str(page), "exec", flags=flags), names)
        if inspect.iscoroutine(found):
            asyncio.run(found)


def test_blocks_are_found() -> None:
    """No block hides behind another way to write it, and few are left out."""
    for page in PAGES:
        fences = re.findall(r"^[ ]*(?:```|~~~)[ {.]*py.*$", page.read_text(), re.MULTILINE)
        assert len(fences) == len(list(_BLOCK.finditer(page.read_text()))), page
    assert len(_blocks(ROOT / "docs/tutorial.md")) > 9
