"""`python -m tests.operator_fuzz --first N --count M`: a campaign; `--seed N` tries one case.

Batches run in child processes, so that a crash or a hang costs one seed. Every difference is
printed with its seed, and the last line says how many cases were run. `--only NAME` takes the
versions of one operator alone, whose seeds count for themselves.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

_BATCH = 500
_SECONDS = 3000
#: Of computing, for one case.
_SEED_SECONDS = 12


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="", help="operators, separated by commas")
    parser.add_argument("--seed", type=int, help="print this case, and try it")
    parser.add_argument("--bare", action="store_true", help="without neighbours")
    parser.add_argument("--batch", action="store_true", help="in this process")
    options = parser.parse_args()
    if options.seed is not None:
        _one(options)
    elif options.batch:
        _batch(options)
    else:
        _campaign(options)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _records(options: argparse.Namespace) -> tuple:
    from tests.operator_fuzz.case import records

    names = options.only.split(",") if options.only else []
    return tuple(r for r in records() if not names or r.schema.name in names)


def _batch(options: argparse.Namespace) -> None:
    from tests.operator_fuzz.case import make
    from tests.operator_fuzz.compare import difference

    signal.signal(signal.SIGPROF, _too_long)
    chosen = _records(options)
    for seed in range(options.first, options.first + options.count):
        _say(f"seed {seed}")
        title = str(chosen[seed % len(chosen)])
        signal.setitimer(signal.ITIMER_PROF, _SEED_SECONDS)
        try:
            case = make(seed, chosen, bare=options.bare)
            title, found = case.title, difference(case, 1 + seed % 2)
        except Exception as error:
            found = f"oracle: {type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _say(f"DIFFERENCE {seed} {title}: {found}" if found else f"same {seed}")


def _too_long(signum: int, frame: object) -> None:
    raise TimeoutError(f"more than {_SEED_SECONDS} s of computing")


def _one(options: argparse.Namespace) -> None:
    import onnx

    from tests.operator_fuzz.case import make
    from tests.operator_fuzz.compare import difference

    case = make(options.seed, _records(options), bare=options.bare)
    _say(case.title)
    _say(onnx.printer.to_text(case.model)[:3000])
    for feed in case.feeds:
        _say(
            ", ".join(
                f"{k}: {getattr(v, 'dtype', '')}{getattr(v, 'shape', v)}" for k, v in feed.items()
            )
        )
    _say(difference(case, 1 + options.seed % 2) or "same")


def _campaign(options: argparse.Namespace) -> None:
    start, same, at = time.time(), 0, options.first
    end = options.first + options.count
    while at < end:
        size = min(_BATCH, end - at)
        command = [sys.executable, "-m", "tests.operator_fuzz", "--batch", "--first", str(at)]
        command += ["--count", str(size), "--only", options.only]
        command += ["--bare"] if options.bare else []
        environment = {"SARDONYX_CACHE": "off", "SARDONYX_COMPILE_PROCESSES": "1", **os.environ}
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
            stop = threading.Timer(_SECONDS, child.kill)
            stop.start()
            last = at - 1
            for line in child.stdout or ():
                if line.startswith("seed"):
                    last = int(line.split()[1])
                elif line.startswith("DIFFERENCE"):
                    _say(line.rstrip())
                same += line.startswith("same")
            stop.cancel()
            errors.seek(0)
            if child.wait():
                _say(f"CRASH {last} exit {child.returncode}: {errors.read()[-600:]}")
        at = last + 1 if last >= at else at + 1
        done = at - options.first
        _say(f"# to seed {at - 1}: {same} of {done} same, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
