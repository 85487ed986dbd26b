"""Cases of a campaign in processes of their own: what crashes or hangs is said with its seed."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

_CASES_PER_PROCESS = 200
#: A case that takes longer hangs; machines with much else to do may take long.
_HANG_SECONDS = 90.0
#: No case may use more, whatever it asks for.
_DATA_BYTES = 6 << 30

#: Given a seed: the kind of outcome, and what is wrong with it, "" for nothing.
RunCase = Callable[[int], tuple[str, str]]


def run_cases(
    run: RunCase, seeds: range, seconds: float, say: Callable[[str], None]
) -> Counter[str]:
    """Run the cases of many seeds.

    Args:
        run: Runs one.
        seeds: Which.
        seconds: Begin none after so long.
        say: Told of each defect, and its seed.

    Returns:
        How many had which kind of outcome; `defect` those that are wrong.
    """
    until, tally = time.monotonic() + seconds, Counter[str]()
    while seeds and time.monotonic() < until:
        part = seeds[:_CASES_PER_PROCESS]
        seeds = range(_run_part(run, part, until, tally, say), seeds.stop)
    return tally


def _run_part(
    run: RunCase, seeds: range, until: float, tally: Counter[str], say: Callable[[str], None]
) -> int:
    """Cases of one process; gives the next seed."""
    seed, how, text = seeds.start, "", b""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        _serve(run, writing, seeds, until)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        while True:
            if not select.select([pipe], [], [], _HANG_SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
                how = "hang"
                break
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                break
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                number, _, rest = line.decode().partition(" ")
                kind, _, defect = rest.partition("|")
                seed = int(number) + 1
                tally["defect" if defect else kind] += 1
                if defect:
                    say(f"DEFECT {number}: {kind}\n{defect.replace(chr(0), chr(10))}")
    status = os.waitpid(child, 0)[1]
    if how or status:
        how = how or (f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "exit")
        tally["defect"] += 1
        say(f"DEFECT {seed}: {how}")
        return seed + 1
    return seed if time.monotonic() > until else seeds.stop


def _serve(run: RunCase, writing: int, seeds: range, until: float) -> None:
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in seeds:
            if time.monotonic() > until:
                break
            kind, defect = run(number)
            line = f"{number} {kind}|{defect}".replace("\n", chr(0))
            os.write(writing, line.encode(errors="replace") + b"\n")
        status = 0
    finally:
        os._exit(status)
