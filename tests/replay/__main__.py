"""Writes or compares the digests of all models: `python -m tests.replay --help`."""

import argparse
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.replay.digests import TARGETS
from tests.replay.keys import keys
from tests.replay.models import models, rows_of

#: What is kept in the repository.
EXPECTED = Path(__file__).parent / "expected.txt"


def main() -> int:
    """The exit status: 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of models' names; all by default")
    parser.add_argument("--targets", default=",".join(TARGETS), help="some of %(default)s")
    parser.add_argument("--write", action="store_true", help="replace what is expected")
    parser.add_argument("--parts", type=Path, help="write each program's and plan's digest here")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.write and (options.names or options.targets != ",".join(TARGETS)):
        parser.error("--write takes all models and targets")
    with tempfile.TemporaryDirectory() as folder:
        chosen = [n for n in models(Path(folder)) if not options.names or _is_in(n, options.names)]
        work = [(name, folder, options.targets.split(",")) for name in chosen]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, spawn, max_tasks_per_child=1) as pool:
            found = [row for part in pool.map(rows_of, work) for row in part]
    lines = [f"keys {name} {key}" for name, key in keys()] + [str(row) for row in found]
    if options.parts:
        parts = (f"{r.model} {r.target} {k} {v}" for r in found for k, v in r.parts.items())
        options.parts.write_text("\n".join(parts) + "\n")
    if options.write:
        EXPECTED.write_text("\n".join(lines) + "\n")
        return 0
    known = set(EXPECTED.read_text().splitlines())
    changed = [line for line in lines if line not in known]
    for line in changed:
        print("changed:", line)
    print(f"{len(lines)} rows, {len(changed)} of them changed")
    return 1 if changed else 0


def _is_in(name: str, wanted: list[str]) -> bool:
    return any(part in name for part in wanted)


if __name__ == "__main__":
    sys.exit(main())
