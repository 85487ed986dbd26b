"""Worker processes: asked one at a time, ended when they take too long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, Protocol

from sardonyx.base.errors import Fail, message
from sardonyx.tools.ended import how_ended

_TAIL_CHARACTERS = 300


class TrialFailed(Fail):
    """A process could not do what it was asked, or not in time."""


class BaseFailed(TrialFailed):
    """The process with the defaults failed, which others are compared with."""


class Worker(Protocol):
    """Does what requests say."""

    def ask(self, timeout: float, **request: Any) -> dict[str, Any]:
        """The reply to a request.

        Raises:
            TrialFailed: There is none in time, or it says what went wrong.
        """

    def close(self) -> None:
        """End it."""


class WorkerProcess:
    """A fresh process of `sardonyx.tools.tune.worker`.

    Args:
        environment: Variables besides those of this process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        variables = {k: v for k, v in os.environ.items() if k != "SARDONYX_SETTINGS"}
        # In a session of its own, Ctrl-C reaches this process alone, which then ends the other.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sardonyx.tools.tune.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=variables | dict(environment or {}) | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )  # fmt: skip
        self._rest = b""

    def ask(self, timeout: float, **request: Any) -> dict[str, Any]:
        """See `Worker`."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise self._ended() from None
        reply: dict[str, Any] = json.loads(self._line(time.monotonic() + timeout))
        if "error" in reply:
            raise TrialFailed(str(reply["error"]))
        return reply

    def _line(self, end: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TrialFailed(message("trial", "It took longer than there was time"))
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                raise self._ended()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self) -> TrialFailed:
        """That the process ended by itself: how, and what it wrote last, besides its replies."""
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1][:_TAIL_CHARACTERS]}" if lines else ""
        return TrialFailed(message("trial", f"The process ended {how_ended(code)}{last}"))

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # a request that was not read is lost with the process


def read_only_reply(worker: Worker, timeout: float, **request: Any) -> dict[str, Any]:
    """Ask a process once, and end it."""
    try:
        return worker.ask(timeout, **request)
    finally:
        worker.close()
