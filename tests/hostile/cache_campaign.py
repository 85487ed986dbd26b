"""Caches that are damaged, exchanged, written while a process is killed, and by several at once.

python -m tests.hostile.cache_campaign damage --minutes 60 --seed 0
python -m tests.hostile.cache_campaign kill --count 200
python -m tests.hostile.cache_campaign starters --minutes 10

Whatever is done to a cache, a session gives the values that it gave with a clean one, or raises an
error with a name. A process of its own makes the sessions of each case: it has to end.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import numpy as np

import sardonyx
from sardonyx.base import knobs
from sardonyx.base.errors import EngineError, SardonyxError
from tests.hostile.cache_damage import damage
from tests.support.session import model_of

#: A case that takes longer hangs; machines with much else to do may take long.
_HANG_SECONDS = 120.0
_STARTERS = 8
Values = list[np.ndarray[Any, Any]]


def _models() -> list[tuple[bytes, dict[str, Any]]]:
    """Models, and what they are fed: constants below and above what has a CRC."""
    random = np.random.default_rng(3)

    def floats(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape).astype(np.float32)

    wide = "g (float[n, 1200] x) => (float[n, 1000] y) { h = MatMul(x, w) y = Add(h, b) }"
    small = "g (float[n, 24] x) => (float[n, 8] y) { h = MatMul(x, w) s = Tanh(h) y = Softmax(s) }"
    return [
        (
            model_of(wide, {"w": floats(1200, 1000), "b": floats(1000)}).SerializeToString(),
            {"x": floats(3, 1200)},
        ),
        (model_of(small, {"w": floats(24, 8)}).SerializeToString(), {"x": floats(5, 24)}),
    ]


MODELS = _models()


@dataclass(slots=True)
class Tally:
    """What came of a campaign."""

    seed: int
    kinds: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    defects: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, number: int, outcome: object, want: Values | None, done: list[str]) -> None:
        """Count a case.

        Args:
            number: Of the case.
            outcome: Values, or what happened instead.
            want: The right values.
            done: What was done to the cache.
        """
        if isinstance(outcome, list):
            same = want is None or all(map(np.array_equal, outcome, want))
            outcome = "right" if same else "DEFECT other values"
        self.kinds[str(outcome).partition("\n")[0]] += 1
        self.done.update(text.partition(" ")[0] for text in done)
        if "DEFECT" in str(outcome):
            self.defects.append({"case": number, "outcome": str(outcome), "done": done})

    def summary(self) -> dict[str, object]:
        """As JSON."""
        return {
            "seed": self.seed, "seconds": round(self.seconds), "cases": sum(self.kinds.values()),
            "kinds": dict(self.kinds.most_common()), "done": dict(self.done.most_common()),
            "defects": self.defects[:20],
        }  # fmt: skip


def _values() -> Values:
    return [sardonyx.InferenceSession(model).run(None, feeds)[0] for model, feeds in MODELS]


def _serve(pipe: BinaryIO) -> None:
    """Make sessions, and say what they give."""
    found: object
    try:
        found = _values()
    except EngineError as error:
        found = f"DEFECT EngineError\n{error}"
    except SardonyxError as error:
        found = f"refused {type(error).__name__}\n{error}"
    except BaseException as error:  # noqa: BLE001 - it is said
        found = f"DEFECT {type(error).__name__}\n{error}"
    pickle.dump(found, pipe)


class Child:
    """A process that makes sessions of all models, begun at once."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        self.id = os.fork()
        if not self.id:
            os.close(reading)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            try:
                with os.fdopen(writing, "wb") as pipe:
                    _serve(pipe)
            finally:
                os._exit(0)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb")

    def kill(self) -> bool:
        """End it; whether it had not ended by itself."""
        os.kill(self.id, signal.SIGKILL)
        _, status = os.waitpid(self.id, 0)
        self._pipe.close()
        return os.WIFSIGNALED(status)

    def result(self) -> object:
        """What it says, or what became of it."""
        if not select.select([self._pipe], [], [], _HANG_SECONDS)[0]:
            self.kill()
            return "DEFECT hang"
        with self._pipe:
            data = self._pipe.read()
        _, status = os.waitpid(self.id, 0)
        if os.WIFSIGNALED(status):
            return f"DEFECT signal {os.WTERMSIG(status)}"
        return pickle.loads(data) if data else "DEFECT it said nothing"


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this campaign, whose `cache` is the cache of processes that are begun now."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with knobs.override("SARDONYX_CACHE", str(place / "cache")):
            yield place


def _clean(place: Path) -> None:
    """Remove everything, whatever has become of it."""
    for path in place.iterdir():
        if stat.S_ISDIR(path.lstat().st_mode):
            path.chmod(0o700)
            shutil.rmtree(path)
        else:
            path.unlink()


def _goes_on(tally: Tally, start: float, number: int, count: int, seconds: float) -> bool:
    tally.seconds = time.monotonic() - start
    if number and number % 100 == 0:
        sys.stdout.write(json.dumps(tally.summary()) + "\n")
        sys.stdout.flush()
    return number < count and tally.seconds < seconds


def damaged(seed: int, count: int, seconds: float) -> Tally:
    """Sessions with caches to which something was done, at most `count`, for so many seconds."""
    tally, start, number = Tally(seed), time.monotonic(), 0
    with _folder() as place:
        want = Child().result()
        assert isinstance(want, list), want
        with tempfile.TemporaryDirectory() as spare:
            shutil.copytree(place / "cache", Path(spare) / "cache")
            while _goes_on(tally, start, number, count, seconds):
                _clean(place)
                shutil.copytree(Path(spare) / "cache", place / "cache")
                done = damage(place / "cache", Random(f"{seed} {number}"))
                tally.add(number, Child().result(), want, done)
                # Whatever stands there now, a second session has to do with it, too.
                tally.add(number, Child().result(), want, [])
                number += 1
    return tally


def _files(place: Path) -> list[str]:
    """Names of the files in the cache."""
    try:
        kinds = [entry.path for entry in os.scandir(place / "cache")]
        return [entry.name for kind in kinds for entry in os.scandir(kind)]
    except OSError:
        return []


def killed(seed: int, count: int, seconds: float) -> Tally:
    """Sessions after processes that were killed while they wrote the cache."""
    tally, random, number = Tally(seed), Random(seed), 0
    with _folder() as place:
        before = time.monotonic()
        want = Child().result()
        cold_seconds, most = time.monotonic() - before, len(_files(place))
        assert isinstance(want, list), want
        start = time.monotonic()
        while _goes_on(tally, start, number, count, seconds):
            if random.random() < 0.7:
                _clean(place)
            child, total = Child(), random.randrange(most)
            if random.random() < 0.5:
                time.sleep(random.random() * cold_seconds)
            else:  # when so many files are there, the last perhaps not whole
                until = time.monotonic() + 2 * cold_seconds
                while len(_files(place)) < total and time.monotonic() < until:
                    time.sleep(0.0003)
            done = ["killed"] if child.kill() else ["over"]
            left = _files(place)
            is_whole = not any(name.startswith(".tmp-") for name in left)
            done += [f"{len(left) * 10 // most * 10}%-written"]
            done += [] if is_whole else ["left-temporary"]
            tally.add(number, Child().result(), want, done)
            number += 1
    return tally


def started_at_once(seed: int, count: int, seconds: float) -> Tally:
    """Processes that begin at once with one empty cache."""
    tally, number = Tally(seed), 0
    with _folder() as place:
        want = Child().result()
        assert isinstance(want, list), want
        start = time.monotonic()
        while _goes_on(tally, start, number, count, seconds):
            _clean(place)
            children = [Child() for _ in range(_STARTERS)]
            for child in children:
                tally.add(number, child.result(), want, [])
            tally.add(number, Child().result(), want, ["afterwards"])
            number += 1
    return tally


CAMPAIGNS = {"damage": damaged, "kill": killed, "starters": started_at_once}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("campaign", nargs="?", choices=CAMPAIGNS, default="damage")
    parser.add_argument("--seed", type=int, default=0, help="what the cases are made of")
    parser.add_argument("--count", type=int, default=10**9, help="at most so many cases")
    parser.add_argument("--minutes", type=float, default=10**6, help="begin none after so long")
    options = parser.parse_args()
    os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")
    tally = CAMPAIGNS[options.campaign](options.seed, options.count, options.minutes * 60)
    sys.stdout.write(json.dumps({"campaign": options.campaign, **tally.summary()}) + "\n")
    return 1 if tally.defects else 0


if __name__ == "__main__":
    sys.exit(main())
