"""A tiny model, compiled and run in another process with an empty cache.

`python -m sardonyx.tools.doctor.self_test PROVIDER` is that process. Machine code that the
processor cannot run would end it, and not the caller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sardonyx.tools.doctor.findings import Findings

_SECONDS = 120
_ROWS, _COLUMNS = 3, 40


def test_engine(found: Findings) -> None:
    """Run the other process for each provider that is there."""
    from sardonyx.api.providers import CPU, available

    for provider in reversed(available()):
        name = "self test" if provider == CPU else "self test on the GPU"
        begin = time.perf_counter()
        answer = _run(provider)
        seconds = time.perf_counter() - begin
        if "error" in answer:
            found.add(name, "result", "failed")
            found.problem(f"{name}: {answer['error']}")
            continue
        found.add(name, "result", f"right, in a process of {seconds:.1f} s")
        found.add(name, "compiled in", f"{answer['load_s']:.2f} s")
        found.add(name, "first run", f"{answer['run_s'] * 1e3:.2f} ms")


def _run(provider: str) -> dict[str, Any]:
    folder = str(Path(__file__).resolve().parents[3])
    paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="sardonyx-doctor-") as cache:
        command = [sys.executable, "-m", "sardonyx.tools.doctor.self_test", provider]
        environment = {**os.environ, "PYTHONPATH": paths, "SARDONYX_CACHE": cache}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            return {"error": f"it was not over after {_SECONDS} s"}
        except OSError as error:
            return {"error": f"no process can be started: {error}"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return {"error": f"the process ended with {how}: {said[0]}"}


def tiny_model() -> bytes:
    """`softmax(x w)` of x: (rows, 40), w: (40, 40)."""
    import numpy as np

    from sardonyx.base import dtypes
    from sardonyx.base.sizes import symbol
    from sardonyx.ir.constant import Constant
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.node import Node
    from sardonyx.ir.value import Value
    from sardonyx.loader.writer import write

    graph = Graph("doctor", opset={"": 17})
    graph.header.ir_version = 8
    shape = (symbol("rows"), _COLUMNS)
    x = graph.add_input(Value("x", dtypes.FLOAT, shape))
    w = graph.add_constant("w", Constant.from_array(_weights(np)))
    sums, y = Value("sums", dtypes.FLOAT, shape), Value("y", dtypes.FLOAT, shape)
    graph.add_node(Node("MatMul", "", [x, w], [sums], name="sums"))
    graph.add_node(Node("Softmax", "", [sums], [y], {"axis": -1}, "y"))
    graph.outputs.append(y)
    return write(graph)


def _weights(np: Any) -> Any:
    index = np.arange(_COLUMNS * _COLUMNS, dtype=np.float32)
    return np.sin(index).reshape(_COLUMNS, _COLUMNS)


def _test(provider: str) -> dict[str, Any]:
    import numpy as np

    import sardonyx

    begin = time.perf_counter()
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = sardonyx.InferenceSession(tiny_model(), options, providers=[provider])
    loaded = time.perf_counter()
    x = np.cos(np.arange(_ROWS * _COLUMNS, dtype=np.float32)).reshape(_ROWS, _COLUMNS)
    got = session.run(None, {"x": x})[0]
    over = time.perf_counter()
    sums = x.astype(np.float64) @ _weights(np).astype(np.float64)
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    want = powers / powers.sum(axis=1, keepdims=True)
    error = float(np.abs(got - want).max())
    if not error < 1e-3:
        return {"error": f"a result is off by {error:.3g}"}
    return {"load_s": loaded - begin, "run_s": over - loaded, "off_by": error}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_test(sys.argv[1])) + "\n")
