"""A fixed range of cases in which the system refuses something, or a signal comes; see `faults`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hostile.faults import CALLS, run_case

ROOT = Path(__file__).resolve().parents[2]
#: Enough for an idle machine; a busy one does fewer cases in the time that there is.
_CASES, _SECONDS = 120, 15.0


def test_faults(tmp_path: Path) -> None:
    until, names = time.monotonic() + _SECONDS, set[str]()
    for seed in range(_CASES):
        if time.monotonic() > until and seed >= 20:
            break
        text, defect = run_case(seed, tmp_path)
        assert not defect, f"seed {seed}: {text}\n{defect}"
        names.add(text.split(" ")[0])
    assert names <= set(CALLS)


_PROGRAM = """
import os, resource, sys
import numpy as np
import sardonyx
from sardonyx.base.errors import EngineError, ResourceError
from tests.hostile.faults import MODELS
data, feeds, expected = MODELS["a product"]()
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
outcomes = set()
for free in (0, 1, 2, 3, 4, 6, 8, 12, 16):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(free):
        os.close(held.pop())
    try:
        found = sardonyx.InferenceSession(data).run(None, feeds)[0]
        assert np.array_equal(found, expected)
        outcomes.add("right")
    except ResourceError as error:
        assert "ulimit -n" in str(error), error
        outcomes.add("refused")
    for descriptor in held:
        os.close(descriptor)
assert np.array_equal(sardonyx.InferenceSession(data).run(None, feeds)[0], expected)
print(*sorted(outcomes))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is one of POSIX")
@pytest.mark.parametrize("processes", ["1", "3"])
def test_descriptors_run_out(processes: str) -> None:
    """With none left the first session is refused, since modules cannot be read; then none is."""
    environment = {
        **os.environ, "SARDONYX_CACHE": "off", "SARDONYX_COMPILE_PROCESSES": processes,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True, text=True, timeout=120, cwd=ROOT, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "refused right\n"), done.stderr
