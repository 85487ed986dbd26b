"""What was measured: numbers, onnxruntime_perf_test's lines, files."""

from __future__ import annotations

import io
import json
import os
import re
import statistics
from dataclasses import dataclass, field
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import read_file
from sardonyx.base.processors import usable_processors
from sardonyx.loader.external_writer import replacing
from sardonyx.tools.perf.settings import PerfSettings

#: What `Measurement.csv` writes.
_LINE = re.compile(rb"[^\n]*,[0-9.e+-]+,[0-9]+,[0-9]+,[0-9]+\n")
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass
class Measurement:
    """Requests of one engine.

    Attributes:
        model: The model's path.
        settings: What was asked for.
        load_s: What making the session took.
        first_s: What the first request took.
        latencies_s: Of each request that counts, in the order in which they ended.
        wall_s: How long these requests took together.
        cpu_s: What the process computed meanwhile, on all processors.
        peak_memory_bytes: The most memory that the process had, since it began.
        inputs: Types and shapes of inputs, by name.
        data_sets: Where inputs came from.
        sizes: A line about the sizes of made-up inputs that nobody gave; "" for none.
        checked: How many outputs were compared with files of expected ones.
        mismatches: How outputs differ from those, in words.
        profile: The profile's path; "" for none.
    """

    model: str
    settings: PerfSettings
    load_s: float = 0.0
    first_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    inputs: dict[str, str] = field(default_factory=dict)
    data_sets: list[str] = field(default_factory=list)
    sizes: str = ""
    checked: int = 0
    mismatches: list[str] = field(default_factory=list)
    profile: str = ""

    @property
    def requests(self) -> int:
        """How many requests count."""
        return len(self.latencies_s)

    @property
    def mean_s(self) -> float:
        """Of the latencies."""
        return statistics.fmean(self.latencies_s) if self.latencies_s else 0.0

    @property
    def per_second(self) -> float:
        """Requests in a second."""
        return self.requests / self.wall_s if self.wall_s else 0.0

    @property
    def cpu_percent(self) -> float:
        """Of all processors that the process may use."""
        return 100 * self.cpu_s / self.wall_s / usable_processors() if self.wall_s else 0.0

    def percentiles(self) -> dict[str, float]:
        """`min`, `p50`, `p90`, `p95`, `p99`, `p99.9`, `max`, in seconds.

        As onnxruntime_perf_test does it: of n sorted latencies the one of number floor(n p).
        """
        ordered = sorted(self.latencies_s) or [0.0]
        at = {name: ordered[int(len(ordered) * p)] for name, p in _PERCENTILES.items()}
        return {"min": ordered[0], **at, "max": ordered[-1]}

    def lines(self) -> list[str]:
        """onnxruntime_perf_test's report."""
        found = [
            f"Session creation time cost: {self.load_s:.6g} s",
            f"First inference time cost: {self.first_s * 1e3:.6g} ms",
        ]
        if not self.latencies_s:
            return found
        return [
            *found,
            f"Total inference time cost: {sum(self.latencies_s):.6g} s",
            f"Total inference requests: {self.requests}",
            f"Average inference time cost total: {self.mean_s * 1e3:.6f} ms",
            f"Total inference run time: {self.wall_s:.6g} s",
            f"Number of inferences per second: {self.per_second:.6g}",
            f"Avg CPU usage: {self.cpu_percent:.0f} %",
            f"Peak working set size: {self.peak_memory_bytes} bytes",
        ]

    def statistics_lines(self) -> list[str]:
        """Its statistics."""
        at = self.percentiles()
        named = {"Min": "min", "Max": "max", "P50": "p50", "P90": "p90", "P95": "p95", "P99": "p99",
                 "P999": "p99.9"}  # fmt: skip
        return [
            f"Avg CPU usage:{self.cpu_percent:.0f}",
            f"Peak working set size:{self.peak_memory_bytes}",
            f"Runs:{self.requests}",
            *(f"{name} Latency: {at[key]:.9g} s" for name, key in named.items()),
        ]

    def csv(self, name: str = "") -> str:
        """A line for each request: `model_name,time_s,peak_ws,cpu_usage,run_index`."""
        name = name or os.path.basename(self.model)
        peak, cpu = self.peak_memory_bytes, f"{self.cpu_percent:.0f}"
        return "".join(
            f"{name},{seconds:.9g},{peak},{cpu},{number}\n"
            for number, seconds in enumerate(self.latencies_s)
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, with what is computed of it."""
        return {
            "model": self.model,
            "settings": self.settings.to_json(),
            "session_creation_s": self.load_s,
            "first_inference_s": self.first_s,
            "requests": self.requests,
            "run_time_s": self.wall_s,
            "mean_s": self.mean_s,
            "requests_per_second": self.per_second,
            "latency_s": self.percentiles(),
            "cpu_s": self.cpu_s,
            "cpu_percent": self.cpu_percent,
            "peak_memory_bytes": self.peak_memory_bytes,
            "inputs": self.inputs,
            "data_sets": self.data_sets,
            "sizes": self.sizes,
            "outputs_checked": self.checked,
            "mismatches": self.mismatches,
            "profile": self.profile,
            "latencies_s": self.latencies_s,
        }


@dataclass
class Comparison:
    """Two engines in turns.

    Attributes:
        ours, theirs: All rounds of each together.
        ratios: For each round, what a request took in the other engine over what it took in ours:
            medians of latencies; with several requests at once, run time by requests.
    """

    ours: Measurement
    theirs: Measurement
    ratios: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: above 1 ours is faster."""
        return statistics.median(self.ratios) if self.ratios else 0.0

    def csv(self) -> str:
        """Lines of both; the model's name has the engine's behind it."""
        base = os.path.basename(self.ours.model)
        both = (self.ours, self.theirs)
        return "".join(m.csv(f"{base}@{m.settings.engine}") for m in both)

    def to_json(self) -> dict[str, Any]:
        """Both, and the ratios."""
        return {
            "ratio": self.ratio,
            "ratios": self.ratios,
            "ours": self.ours.to_json(),
            "theirs": self.theirs.to_json(),
        }


def check_result(path: str) -> None:
    """Refuse a file to add lines to that holds something else.

    Raises:
        InvalidArgument: It does.
        Fail: It cannot be read.
    """
    if path.lower().endswith(".json") or not os.path.exists(path):
        return
    for number, line in enumerate(io.BytesIO(read_file(path)), 1):
        if not _LINE.fullmatch(line):
            what = f"Lines of results cannot be added to it: line {number} is none of them"
            do = "Give another file, or one that ends in .json, which is replaced"
            raise InvalidArgument(message(path, what, do=do))


def write_result(found: Measurement | Comparison, path: str) -> None:
    """Write JSON if the name ends so; else lines of CSV, after those that the file has already.

    Raises:
        InvalidArgument: See `check_result`.
        OSError: The file cannot be written.
    """
    check_result(path)
    if path.lower().endswith(".json"):
        data = json.dumps(found.to_json(), indent=1).encode() + b"\n"
    else:
        before = read_file(path) if os.path.exists(path) else b""
        data = before + found.csv().encode()
    with replacing(path) as file:
        file.write(data)
