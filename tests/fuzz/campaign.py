"""Runs the fuzzer over a range of seeds: `python -m tests.fuzz.campaign FIRST COUNT`.

Seeds are tried in child processes, a batch in each, so that a crash or a hang costs one seed. Every
difference is printed with its seed, and the campaign goes on; the last line says how many graphs
were run. `python -m tests.fuzz.campaign --seed SEED` tries one, prints it smaller, and where it
differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

_BATCH = 40
_SECONDS = 600


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, help="try this seed, and make what differs smaller")
    parser.add_argument("--batch", action="store_true", help="in this process")
    options = parser.parse_args()
    if options.seed is not None:
        _one(options.seed)
    elif options.batch:
        _batch(options.first, options.count)
    else:
        _campaign(options.first, options.count)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _batch(first: int, count: int) -> None:
    from tests.fuzz.compare import difference
    from tests.fuzz.graphs import make

    for seed in range(first, first + count):
        _say(f"seed {seed}")
        case = make(seed)
        found = difference(case.model, case.feeds, threads=1 + seed % 2)
        _say(f"{'DIFFERENCE' if found else 'same'} {seed} {found}")


def _one(seed: int) -> None:
    from tests.fuzz.graphs import make
    from tests.fuzz.shrink import report, shrink

    case = make(seed)
    _say(report(shrink(case, threads=1 + seed % 2), threads=1 + seed % 2))


def _campaign(first: int, count: int) -> None:
    start, same, at = time.time(), 0, first
    while at < first + count:
        size = min(_BATCH, first + count - at)
        command = [sys.executable, "-m", "tests.fuzz.campaign", "--batch", str(at), str(size)]
        environment = {"SARDONYX_CACHE": "off", "SARDONYX_COMPILE_PROCESSES": "1", **os.environ}
        why = ""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, env=environment
            )
            text = done.stdout
            if done.returncode:
                why = f"exit {done.returncode}: {done.stderr[-600:]}"
        except subprocess.TimeoutExpired as error:
            text = (error.stdout or b"").decode()
            why = f"no answer within {_SECONDS} s"
        lines = text.splitlines()
        for line in lines:
            if line.startswith("DIFFERENCE"):
                _say(line)
        same += sum(line.startswith("same") for line in lines)
        if why:
            last = next((ln for ln in reversed(lines) if ln.startswith("seed")), f"seed {at - 1}")
            at = int(last.split()[1]) + 1
            _say(f"CRASH {at - 1} {why}")
        else:
            at += size
        _say(f"# to seed {at - 1}: {same} of {at - first} same, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
