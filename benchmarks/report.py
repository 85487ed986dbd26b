"""Turn a `compare.py --json` file into the tables of results.md and the README.

python benchmarks/report.py FILE.json > benchmarks/results.md
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any


def rounds_of(result: Any) -> list[float]:
    """Seconds per round of one engine, in either of the two file forms; empty if it failed."""
    if isinstance(result, dict):
        return list(result.get("rounds", []))
    return list(result) if isinstance(result, list) else []


def ratio_of(row: dict[str, Any], ours: str, peers: list[str]) -> float | None:
    """Median over the rounds of fastest peer / ours."""
    own = rounds_of(row.get(ours))
    others = [r for r in (rounds_of(row.get(p)) for p in peers) if r]
    if not own or not others:
        return None
    best = [min(times) for times in zip(*others, strict=True)]
    return statistics.median(b / o for b, o in zip(best, own, strict=True))


def processor() -> str:
    """The name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> None:
    """Print the report."""
    table = json.loads(Path(sys.argv[1]).read_text())
    ours, peers = "sardonyx", ["onnxruntime", "openvino"]
    print(f"# Results\n\nMachine: {processor()}, two threads, float32.\n")
    print("| model | fastest peer / sardonyx | relative error |\n|---|---|---|")
    ratios = []
    for name, row in table.items():
        ratio = ratio_of(row, ours, peers)
        if ratio is not None:
            ratios.append(ratio)
            print(f"| {name} | {ratio:.2f} | {row.get('error', float('nan')):.0e} |")
    mean = statistics.geometric_mean(ratios)
    print(f"| geometric mean | {mean:.2f} | lowest ratio {min(ratios):.2f} |")


if __name__ == "__main__":
    main()
