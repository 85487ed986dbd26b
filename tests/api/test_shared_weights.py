"""Sessions of one model have its packed weights in memory once: pages of one file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_SIDE = 1024


def _mapped(folder: Path) -> list[tuple[str, int, int]]:
    """File, bytes, and bytes of its own copy, of each mapping of a file in a folder."""
    found = []
    text = Path("/proc/self/smaps").read_text()
    for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
        path = part.partition("\n")[0].partition("/")[2]
        if f"/{path}".startswith(str(folder)):
            sizes = {k: int(v) << 10 for k, v in re.findall(r"^(\w+): +(\d+) kB$", part, re.M)}
            found.append((path, sizes["Size"], sizes["Private_Dirty"]))
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="the system does not say")
def test_two_sessions_map_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    weight: Any = np.random.default_rng(0).standard_normal((_SIDE, _SIDE)).astype(np.float32)
    text = f"m (float[N, {_SIDE}] x) => (float[N, {_SIDE}] y) {{ y = MatMul(x, w) }}"
    model = model_of(text, {"w": weight}).SerializeToString()
    x = np.eye(3, _SIDE, dtype=np.float32)
    sessions = [sardonyx.InferenceSession(model) for _ in range(3)]
    for session in sessions:
        assert_near(session.run(None, {"x": x})[0], weight[:3], "float: one operation")
    large = [row for row in _mapped(tmp_path) if row[1] >= weight.nbytes]
    assert large and len({path for path, _, _ in large}) == 1
    assert sum(dirty for _, _, dirty in large) == 0
