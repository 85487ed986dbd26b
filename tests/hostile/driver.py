"""Runs cases in processes of their own: watches for crashes, hangs and growth, keeps a tally."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.case import (
    LOAD_SECONDS,
    RUN_SECONDS,
    SLACK_SECONDS,
    Outcome,
    prepare_folder,
    run,
)
from tests.hostile.corpus import Corpus

#: A case that has not ended by then, though it had a processor for as long, or did nothing at all
#: meanwhile, is a hang: the process is killed.
_HANG_SECONDS = LOAD_SECONDS + 4 * RUN_SECONDS + 3 * SLACK_SECONDS
#: Who has had less of a processor meanwhile waits for something.
_IDLE_SECONDS = 0.2
_CASES_PER_PROCESS = 400
#: No case may use more, whatever it asks for: what Python builds counts, too.
_DATA_LIMIT_BYTES = 6 << 30
_RESIDENT_BYTES = 1500 << 20
#: What a process may grow by from its hundredth case on.
_GROWTH_BYTES = 150 << 20


@dataclass(slots=True)
class Tally:
    """What came of a range of seeds."""

    cases: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    defects: list[dict[str, object]] = field(default_factory=list)
    growth_bytes: list[int] = field(default_factory=list)

    def add(self, seed: int, outcome: Outcome) -> None:
        """Count a case."""
        self.cases += 1
        self.kinds[outcome.kind] += 1
        if outcome.is_defect:
            self.defects.append(
                {"seed": seed, "kind": outcome.kind, "model": outcome.model,
                 "changes": outcome.changes, "detail": outcome.detail}
            )  # fmt: skip


def campaign(
    first: int,
    count: int,
    corpus: Corpus,
    *,
    seconds: float = float("inf"),
    report: object = None,
) -> Tally:
    """Run the cases of seeds from `first` on, at most `count`, for so many seconds.

    Args:
        first: The first seed.
        count: How many.
        corpus: What is mutated.
        seconds: Begin no case after so long.
        report: Called with the tally, the seed and the outcome after every case.
    """
    tally, start, seed = Tally(), time.monotonic(), first
    with tempfile.TemporaryDirectory() as folder:
        prepare_folder(Path(folder))
        while seed < first + count and time.monotonic() - start < seconds:
            last = min(seed + _CASES_PER_PROCESS, first + count)
            deadline = start + seconds
            seed = _batch(seed, last, corpus, Path(folder), deadline, tally, report)
            tally.seconds = time.monotonic() - start
    return tally


def _batch(
    seed: int,
    last: int,
    corpus: Corpus,
    folder: Path,
    deadline: float,
    tally: Tally,
    report: object,
) -> int:
    """Cases in one process, until it ends; gives the next seed."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            _serve(writing, seed, last, corpus, folder, deadline)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    running: int | None = None
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            if _hangs(child, pipe):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return _lost(seed if running is None else running, "hang", corpus, tally, report)
            line = _line(pipe)
            if not line:
                break
            message = json.loads(line)
            if "growth" in message:
                tally.growth_bytes.append(message["growth"])
                if message["growth"] > _GROWTH_BYTES:
                    outcome = Outcome("DEFECT growth", "", [], 0, str(message))
                    tally.add(message["seed"], outcome)
            elif "kind" not in message:
                running = message["seed"]
            else:
                running, at = None, message.pop("seed")
                outcome = Outcome(**message)
                tally.add(at, outcome)
                seed = at + 1
                if callable(report):
                    report(tally, at, outcome)
    _, status = os.waitpid(child, 0)
    if running is not None or status:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status}"
        return _lost(seed if running is None else running, how, corpus, tally, report)
    return seed if time.monotonic() >= deadline else last


def _hangs(child: int, pipe: object) -> bool:
    """Wait for the next message; on a machine with much else to do a case may take long."""
    start = before = _processor_seconds(child)
    while not select.select([pipe], [], [], _HANG_SECONDS)[0]:
        now = _processor_seconds(child)
        if now - start > _HANG_SECONDS or now - before < _IDLE_SECONDS:
            return True
        before = now
    return False


def _processor_seconds(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _line(pipe: object) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        piece = pipe.readline()  # type: ignore[attr-defined]
        if not piece:
            return b""
        found += piece
    return found


def _lost(seed: int, how: str, corpus: Corpus, tally: Tally, report: object) -> int:
    outcome = Outcome(f"DEFECT {how}", "", [])
    tally.add(seed, outcome)
    if callable(report):
        report(tally, seed, outcome)
    return seed + 1


def _serve(
    writing: int, seed: int, last: int, corpus: Corpus, folder: Path, deadline: float
) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_LIMIT_BYTES, _DATA_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def say(**message: object) -> None:
        os.write(writing, json.dumps(message).encode() + b"\n")

    early = 0
    for number in range(seed, last):
        if time.monotonic() > deadline:
            return
        say(seed=number)
        before = peak_bytes()
        outcome = run(number, corpus, folder)
        if peak_bytes() > max(before, _RESIDENT_BYTES):
            outcome.kind = "DEFECT memory"
            outcome.detail = f"{before} -> {peak_bytes()} bytes at most"
        say(
            seed=number, kind=outcome.kind, model=outcome.model, changes=outcome.changes,
            seconds=outcome.seconds, detail=outcome.detail,
        )  # fmt: skip
        if number == seed + 100:
            early = resident_bytes()
    if early:
        say(growth=resident_bytes() - early, seed=seed)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
