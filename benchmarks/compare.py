"""Run models side by side in several engines on the CPU; print ratios.

    python benchmarks/compare.py MODEL.onnx [...] --threads 2

Each engine has a process of its own. In every round the engines take turns, with a pause before
each so that threads which still spin cannot slow the next one. The ratio of a model is the median
over the rounds of (fastest peer / ours): it holds while the machine's speed drifts. Outputs are
compared with the first peer's by the norm of the difference over the norm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PAUSE_S = 0.15


def open_runner(engine: str, path: str, threads: int, feeds: dict[str, Any]) -> Any:
    """A function of no arguments that runs the model once."""
    if engine == "openvino":
        import openvino

        core = openvino.Core()
        model = core.read_model(path)
        model.reshape({name: list(value.shape) for name, value in feeds.items()})
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        return lambda: list(request.infer(feeds).values())
    module = __import__(engine)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def serve(engine: str, path: str, threads: int, folder: Path) -> None:
    """The child process: load, then time runs for as many seconds as each line of stdin says."""
    feeds = dict(np.load(folder / "feeds.npz"))
    __import__(engine)
    start = time.perf_counter()
    run = open_runner(engine, path, threads, feeds)
    outputs = run()
    load_s = time.perf_counter() - start
    np.savez(folder / f"{engine}.npz", *[np.asarray(o) for o in outputs])
    print(json.dumps({"load_s": load_s}), flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        while time.perf_counter() < end or len(times) < 3:
            tick = time.perf_counter()
            run()
            times.append(time.perf_counter() - tick)
        print(json.dumps({"median_s": statistics.median(times)}), flush=True)


class Child:
    """An engine in its own process."""

    def __init__(self, engine: str, path: str, threads: int, folder: Path) -> None:
        command = [sys.executable, __file__, "--serve", engine, path, str(threads), str(folder)]
        self.engine, self.rounds = engine, list[float]()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("The child process has no pipes")
        self.requests, self.answers = self.process.stdin, self.process.stdout
        line = self.answers.readline()
        self.alive = line.startswith("{")
        self.load_s = json.loads(line)["load_s"] if self.alive else float("nan")
        self.error = "" if self.alive else self.process.communicate()[1].strip()[-200:]

    def turn(self, budget_s: float) -> None:
        """One round."""
        time.sleep(PAUSE_S)
        self.requests.write(f"{budget_s}\n")
        self.requests.flush()
        answer = json.loads(self.answers.readline())
        self.rounds.append(answer["median_s"])

    def close(self) -> None:
        """End the process."""
        if self.alive:
            self.process.communicate()


def random_feeds(path: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Inputs by the model's own declaration, through sardonyx."""
    import sardonyx
    from sardonyx.base import dtypes

    random = np.random.default_rng(0)
    feeds = {}
    for node in sardonyx.InferenceSession(path).get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(str(d), 1) for d in node.shape]
        kind = dtypes.BY_NAME[node.type[7:-1]].numpy
        if kind.kind in "iu":
            feeds[node.name] = random.integers(0, 2, shape).astype(kind)
        else:
            feeds[node.name] = random.standard_normal(shape).astype(kind)
    return feeds


def feeds_of(path: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Inputs from beside the model (`PATH.feeds.npz`); random ones of given sizes, or without."""
    beside = Path(f"{path}.feeds.npz")
    if sizes or not beside.exists():
        return random_feeds(path, sizes)
    with np.load(beside) as kept:
        return dict(kept)


def relative_error(a: Any, b: Any) -> float:
    """Norm of the difference over the norm of `b`."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30))


def compare(path: str, options: argparse.Namespace, sizes: dict[str, int]) -> dict[str, Any]:
    """One model in all engines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "feeds.npz", **feeds_of(path, sizes))
        children = [Child(e, path, options.threads, folder) for e in options.engines.split(",")]
        running = [c for c in children if c.alive]
        for _ in range(options.rounds):
            for child in running:
                child.turn(options.budget)
        for child in running:
            child.close()
        result: dict[str, Any] = {c.engine: c.rounds or c.error for c in children}
        result["load_s"] = {c.engine: c.load_s for c in children}
        ours, *peers = children[0], *(c for c in running if c is not children[0])
        if peers and ours.alive:
            rows = zip(*(p.rounds for p in peers), strict=True)
            ratios = [min(row) / own for row, own in zip(rows, ours.rounds, strict=True)]
            result["ratio"] = statistics.median(ratios)
            got, want = (np.load(folder / f"{c.engine}.npz") for c in (ours, peers[0]))
            result["error"] = max(relative_error(got[k], want[k]) for k in want.files)
        return result


def main() -> None:
    """Print a line for each model and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--engines", default="sardonyx,onnxruntime,openvino")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of each turn")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = {k: int(v) for k, v in (d.split("=") for d in options.dim)}
    table = {}
    for path in options.models:
        result = table[Path(path).stem] = compare(path, options, sizes)
        times = "  ".join(
            f"{e} {statistics.median(result[e]) * 1e3:.3f} ms"
            for e in options.engines.split(",")
            if isinstance(result[e], list) and result[e]
        )
        print(
            f"{Path(path).stem}: {times}  ratio {result.get('ratio', float('nan')):.2f}"
            f"  error {result.get('error', float('nan')):.1e}",
            flush=True,
        )
        for engine in options.engines.split(","):
            if isinstance(result[engine], str):
                print(f"    {engine}: {(result[engine].splitlines() or ['no answer'])[-1]}")
    ratios = [r["ratio"] for r in table.values() if "ratio" in r]
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f} over {len(ratios)}")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--serve":
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
