"""A measurement in a process of its own, seen from the one that asked for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import SardonyxError, message
from sardonyx.tools.ended import how_ended
from sardonyx.tools.perf.bench import Progress, Round
from sardonyx.tools.perf.settings import PerfSettings

_END_SECONDS = 10


class Process:
    """`Bench`, in another process that ends with the `with` block.

    Raises:
        SardonyxError: What `Bench` raises there.
        EngineError: The process ended of itself.
    """

    def __init__(self, model: str, settings: PerfSettings) -> None:
        folder = str(Path(__file__).resolve().parents[3])
        paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        self._engine = settings.engine
        self._child = subprocess.Popen(
            [sys.executable, "-m", "sardonyx.tools.perf.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        try:
            answer = self._ask({"do": "open", "model": model, "settings": settings.to_json()})
        except BaseException:
            self._end()
            raise
        self.load_s: float = answer["load_s"]

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._end()

    def warm_up(self) -> dict[str, Any]:
        """See `Bench.warm_up`; gives what it found, by the names of `Measurement`."""
        return self._ask({"do": "warm up"})

    def round(
        self, *, seconds: float = 0.0, times: int = 0, progress: Progress | None = None
    ) -> Round:
        """See `Bench.round`."""
        answer = self._ask({"do": "round", "seconds": seconds, "times": times}, progress)
        return Round(*answer["round"])

    def finish(self) -> dict[str, Any]:
        """See `Bench.finish`."""
        return self._ask({"do": "finish"})

    def _ask(self, order: dict[str, Any], progress: Progress | None = None) -> dict[str, Any]:
        assert self._child.stdin is not None  # noqa: S101 - narrows the type for the checker
        assert self._child.stdout is not None  # noqa: S101 - narrows the type for the checker
        try:
            self._child.stdin.write(json.dumps(order) + "\n")
            self._child.stdin.flush()
        except OSError:
            raise self._ended() from None
        for line in self._child.stdout:
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                kind = getattr(errors, answer["error"], errors.Fail)
                is_ours = isinstance(kind, type) and issubclass(kind, SardonyxError)
                raise (kind if is_ours else errors.Fail)(answer["text"])
            if "part" not in answer:
                return answer
            if progress is not None:
                progress(answer["part"], answer["done"])
        raise self._ended()

    def _ended(self) -> SardonyxError:
        code = self._child.wait()
        what = f"The measuring process ended {how_ended(code)}"
        return errors.EngineError(message(self._engine, what))

    def _end(self) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was to be written has no reader
                    continue
        try:
            self._child.wait(0 if sys.exc_info()[0] else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
