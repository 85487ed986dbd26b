"""Mutates models and loads and runs what comes out, for as long as it is told.

python -m tests.hostile --first 0 --count 200000 --log /tmp/hostile.jsonl
python -m tests.hostile --seed 1234            # one case again, in this process
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["SARDONYX_CACHE"] = "off"
os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")

from sardonyx.native.functions import library  # noqa: E402 - the environment comes first
from tests.hostile import case  # noqa: E402
from tests.hostile.corpus import Corpus  # noqa: E402
from tests.hostile.driver import Tally, campaign  # noqa: E402


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--folder", action="append", default=[], help="more models, for windows")
    parser.add_argument("--log", help="a file to which every defect and the tally are added")
    parser.add_argument("--seed", type=int, help="do this one case, in this process")
    parser.add_argument("--model", help="with --seed: mutate this model")
    parser.add_argument("--save", help="with --seed: write the file there, and do not load it")
    options = parser.parse_args()
    corpus = Corpus(folders=tuple(options.folder))
    library()  # compiled once, before the processes part
    if options.seed is not None:
        return _one(options, corpus)
    started = time.monotonic()

    def report(tally: Tally, seed: int, outcome: case.Outcome) -> None:
        if outcome.is_defect:
            _say(options.log, tally.defects[-1])
        if tally.cases % 500 == 0:
            elapsed = time.monotonic() - started
            _say(options.log, {"seed": seed, **_summary(options.first, tally, elapsed)})

    tally = campaign(options.first, options.count, corpus, seconds=options.seconds, report=report)
    _say(options.log, _summary(options.first, tally, tally.seconds))
    return 1 if tally.defects else 0


def _summary(first: int, tally: Tally, seconds: float) -> dict[str, object]:
    return {
        "first": first, "cases": tally.cases, "seconds": round(seconds),
        "kinds": dict(tally.kinds.most_common()),
        "most growth": max(tally.growth_bytes, default=0), "defects": len(tally.defects),
    }  # fmt: skip


def _one(options: argparse.Namespace, corpus: Corpus) -> int:
    name, changes, data = case.make(options.seed, corpus, options.model)
    sys.stdout.write(f"{name}: {changes}, {len(data)} bytes\n")
    if options.save:
        Path(options.save).write_bytes(data)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        case.prepare_folder(Path(folder))
        outcome = case.run(options.seed, corpus, Path(folder), options.model)
    sys.stdout.write(f"{outcome.kind} in {outcome.seconds:.2f} s\n{outcome.detail}\n")
    return int(outcome.is_defect)


def _say(log: str | None, what: object) -> None:
    line = json.dumps(what) + "\n"
    if log:
        with open(log, "a") as file:
            file.write(line)
    else:
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
