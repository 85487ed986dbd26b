"""What changing shapes cost a language model with a cache of keys and values.

    python benchmarks/decode.py MODEL [--runs 500] [--steps 200]

MODEL takes token ids `[N, S]` and, for every layer, what attention has seen before `[N, H, P, D]`;
it gives logits, then the longer past in the same order. Printed are the plans that were made, the
time to resolve a new set of sizes, resident memory, modules compiled after the first run, and how
far decoding token by token from an empty past is from one long run.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.api.parts import engine_of
from sardonyx.llvm.compile import COUNTS

Sizes = dict[str, int]
Feeds = dict[str, np.ndarray[Any, Any]]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    session = sardonyx.InferenceSession(arguments.model)
    _random_sizes(session, arguments.runs)
    _step_by_step(session, arguments.steps)


def _random_sizes(session: sardonyx.InferenceSession, runs: int) -> None:
    choose, rng = random.Random(0), np.random.default_rng(0)
    native: Any = engine_of(session).executable.launcher.runs
    resolving: list[float] = []
    resolve = native.resolve

    def timed(frame: Any) -> None:
        start = time.perf_counter()
        resolve(frame)
        resolving.append(time.perf_counter() - start)

    native.resolve = timed
    resident: list[int] = []
    compiled = 0
    for number in range(runs):
        sizes = {"N": choose.randint(1, 4), "S": choose.choice((1, 2, 5, 17, 32)),
                 "P": choose.randint(0, 300)}  # fmt: skip
        session.run(None, _feeds(session, sizes, rng))
        if number == 0:
            compiled = COUNTS["modules"]
        resident.append(_resident_kib())
    native.resolve = resolve
    quarter = max(1, runs // 4)
    print(f"runs: {runs}; sizes resolved: {len(resolving)}")
    middle, most = np.quantile(resolving, (0.5, 0.99)) * 1e6
    print(f"resolving: median {middle:.0f} us, 99 % under {most:.0f} us")
    plans, later = 1 + len(inspect(session).variants), COUNTS["modules"] - compiled
    print(f"plans: {plans}; modules compiled after the first run: {later}")
    early, late = max(resident[quarter : 2 * quarter]), max(resident[-quarter:])
    print(f"resident: at most {early >> 10} MiB in the second quarter, {late >> 10} in the last")


def _step_by_step(session: sardonyx.InferenceSession, steps: int) -> None:
    rng = np.random.default_rng(1)
    first, *pasts = (i.name for i in session.get_inputs())
    empty = _feeds(session, {"N": 1, "S": steps, "P": 0}, rng)
    tokens = empty[first]
    whole = session.run(None, empty)
    past = {name: empty[name] for name in pasts}
    logits = []
    for step in range(steps):
        row, *grown = session.run(None, {first: tokens[:, step : step + 1], **past})
        past = dict(zip(pasts, grown, strict=True))
        logits.append(row)
    pairs = [(np.concatenate(logits, 1), whole[0]), *zip(past.values(), whole[1:], strict=True)]
    worst = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    print(f"{steps} steps against one run: largest relative error {worst:.1e}")


def _feeds(session: sardonyx.InferenceSession, sizes: Sizes, rng: np.random.Generator) -> Feeds:
    feeds: Feeds = {}
    for put in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes[d] for d in put.shape]
        whole = "int" in put.type
        feeds[put.name] = (
            rng.integers(0, 1000, shape)
            if whole
            else rng.standard_normal(shape).astype(np.float32) * np.float32(0.1)
        )
    return feeds


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))


if __name__ == "__main__":
    main()
