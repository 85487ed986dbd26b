"""Latency beside a busy process: what `session.dynamic_block_base` and waiting without spinning do.

    python benchmarks/noisy.py MODEL.onnx [THREADS] [RUNS]

A process that computes all the time shares the last processor with the runs' threads. Engines and
settings take turns run by run; printed are the median, p90 and p99 of each, in ms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import onnxruntime

import sardonyx

_BUSY = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"
#: Values of session.dynamic_block_base; 0 is the default.
_BASES = (0, 2, 4, 8, 16)


def _sessions(path: str, threads: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in _BASES:
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        if base:
            options.add_session_config_entry("session.dynamic_block_base", str(base))
        found[f"sardonyx, block base {base}"] = sardonyx.InferenceSession(path, options)
    for base in (0, 4):
        other = onnxruntime.SessionOptions()
        other.intra_op_num_threads = threads
        if base:
            other.add_session_config_entry("session.dynamic_block_base", str(base))
        found[f"onnxruntime, block base {base}"] = onnxruntime.InferenceSession(path, other)
    return found


def main() -> None:
    """Print the table, in peace and beside the busy process."""
    path = sys.argv[1]
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    feeds = dict(np.load(f"{path}.feeds.npz"))
    sessions = _sessions(path, threads)
    for title in ("nothing else", "a busy process on the last processor"):
        busy = None
        if title != "nothing else":
            last = max(os.sched_getaffinity(0))
            busy = subprocess.Popen([sys.executable, "-c", _BUSY % last])
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(runs):
            for name, session in sessions.items():
                start = time.perf_counter()
                session.run(None, feeds)
                times[name].append(1e3 * (time.perf_counter() - start))
        if busy is not None:
            busy.kill()
            busy.wait()
        print(title)
        for name, seen in times.items():
            row = "".join(f"{np.percentile(seen, p):10.2f}" for p in (50, 90, 99))
            print(f"  {name:32}{row}")


if __name__ == "__main__":
    main()
