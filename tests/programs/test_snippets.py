"""Every block of Python in onnxruntime's pages on device tensors and tuning, as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL | re.IGNORECASE)
BLOCKS = _BLOCK.findall((HERE / "snippets.txt").read_text())
CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]

#: What each block leaves, in their order.
LEFT: list[dict[str, Any]] = [
    # TensorRT is not here: a warning, each time it is named, and the processor stands in.
    {"providers": ["CPUExecutionProvider"], "warnings": "TensorrtExecutionProvider"},
    # Nor is DirectML, whose memory only Windows has: the processor stands in for both.
    {"providers": ["CPUExecutionProvider"], "warnings": "Dml"},
    {"profiles": True},
    {"providers": CUDA},
    {"threads": 2},
    {"providers": CUDA, "cuda": {"cudnn_conv_use_max_workspace": "1"}},
    {"providers": CUDA, "cuda": {"cudnn_conv1d_pad_to_nc1d": "1"}},
    {"providers": CUDA, "cuda": {"enable_cuda_graph": "1"}, "y": [[50.0], [110.0], [170.0]]},
    {"block_base": "4"},
    # A formula in words of its own.
    {},
]


@pytest.mark.parametrize(("code", "wanted"), list(zip(BLOCKS, LEFT, strict=True)))
def test_block(code: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "scripts" / "run_snippet.py")], cwd=tmp_path, input=code,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    left = json.loads(done.stdout.splitlines()[-1])
    assert left["error"].startswith(wanted.get("error", "")) and bool(left["error"]) == (
        "error" in wanted
    )
    warned = wanted.get("warnings")
    assert all(warned in text for text in left["warnings"]) if warned else not left["warnings"]
    assert bool(warned) == bool(left["warnings"])
    assert wanted.get("cuda", {}).items() <= left["cuda"].items()
    for name in ("providers", "profiles", "threads", "block_base", "y"):
        if name in wanted:
            assert left[name] == wanted[name]


def test_blocks_are_those_of_the_pages() -> None:
    """Where the pages themselves lie beside the checkout, no block is missing or edited."""
    folders = [parent / "shared" / "seeds" for parent in (ROOT.parent, *ROOT.parents[1:3])]
    folder = next((f for f in folders if f.is_dir()), None)
    if folder is None:
        pytest.skip("the pages are not beside this checkout")
    found = [
        block
        for name in ("device_tensors.md", "tune_performance.md")
        for block in _BLOCK.findall((folder / name).read_text())
    ]
    assert [_stripped(b) for b in found] == [_stripped(b) for b in BLOCKS]


def _stripped(block: str) -> list[str]:
    return [line.rstrip() for line in block.splitlines()]
