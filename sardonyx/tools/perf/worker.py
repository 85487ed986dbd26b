"""The process that a model is measured in: orders come as lines of JSON, so do results.

`python -m sardonyx.tools.perf.worker`; it ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, TextIO

from sardonyx.base.errors import SardonyxError
from sardonyx.tools.perf.bench import Bench
from sardonyx.tools.perf.settings import PerfSettings


def main() -> int:
    """Serve orders."""
    # Whoever started this decides when it ends; Ctrl-C reaches all processes of a terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print must not come between results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench: Bench | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "open":
                bench = Bench(order["model"], PerfSettings.of(order["settings"]))
                _answer(answers, load_s=bench.load_s)
            elif bench is None:
                break
            else:
                _serve(answers, bench, order)
        except (SardonyxError, OSError, MemoryError) as error:
            _answer(answers, error=type(error).__name__, text=str(error))
    return 0


def _serve(answers: TextIO, bench: Bench, order: dict[str, Any]) -> None:
    if order["do"] == "warm up":
        bench.warm_up()
        _answer(
            answers, first_s=bench.first_s, inputs=bench.inputs, data_sets=bench.sets,
            checked=bench.checked, mismatches=bench.mismatches, sizes=bench.sizes,
        )  # fmt: skip
    elif order["do"] == "round":

        def tell(part: float, done: int) -> None:
            _answer(answers, part=part, done=done)

        found = bench.round(seconds=order["seconds"], times=order["times"], progress=tell)
        _answer(answers, round=[found.latencies_s, found.wall_s, found.cpu_s])
    else:
        _answer(answers, **bench.finish())


def _answer(answers: TextIO, **values: Any) -> None:
    answers.write(json.dumps(values) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
