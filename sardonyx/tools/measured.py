"""How long the kernels of one node take in runs of a model, and how near that is to the peaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sardonyx.api.enums import GraphOptimizationLevel
from sardonyx.api.inspection import inspect
from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.texts import counted
from sardonyx.profiling.commands import CommandInfo
from sardonyx.tools.feeds import random_feeds
from sardonyx.tools.made_up import explained, input_sizes
from sardonyx.tools.peaks import peaks

#: Runs that are measured, after one that is not: the fastest counts.
_RUNS = 10


@dataclass(frozen=True)
class MeasuredKernel:
    """A kernel of a node in the fastest of some runs.

    Attributes:
        name: Of the kernel.
        duration_ns: From its first block's beginning to its last one's end.
        operations: Multiplications and additions of its sums.
        moved_bytes: What it reads and writes, each tensor once.
        is_of_codes: Whether it multiplies 8-bit codes as they are.
    """

    name: str
    duration_ns: float
    operations: int
    moved_bytes: int
    is_of_codes: bool

    def bound(self, peak: Mapping[str, float]) -> tuple[str, float]:
        """Which peak bounds it, and what share of that it reaches."""
        arithmetic = "bytes" if self.is_of_codes and "bytes" in peak else "floats"
        needed_ns = {
            arithmetic: self.operations / peak[arithmetic], "copy": self.moved_bytes / peak["copy"],
        }  # fmt: skip
        name = max(needed_ns, key=needed_ns.__getitem__)
        return name, needed_ns[name] / self.duration_ns


@dataclass(frozen=True)
class NodeTimes:
    """The kernels of a node, measured.

    Attributes:
        kernels: In the order of a run.
        sizes: A line about the sizes that nobody gave; "" for none.
        threads: Of the session.
        peak: See `tools.peaks.peaks`.
    """

    kernels: list[MeasuredKernel]
    sizes: str
    threads: int
    peak: Mapping[str, float]

    def lines(self) -> Iterator[str]:
        """A line for each kernel; one that says why there is none."""
        if not self.kernels:
            yield "measured: no kernel of it ran: it is part of a branch that was not taken"
        for kernel in self.kernels:
            bound, share = kernel.bound(self.peak)
            unit = "GB/s" if bound == "copy" else "GOP/s" if bound == "bytes" else "GFLOP/s"
            threads = counted(self.threads, "thread")
            yield (
                f"measured: {kernel.duration_ns:.0f} ns by {kernel.name} on {threads},"
                f" {100 * share:.0f} % of the roofline ({bound}, {self.peak[bound]:.0f} {unit})"
            )
        if self.sizes:
            yield f"measured with {self.sizes}"


def measure_node(
    model: Any, node: str, *, known: Mapping[str, int], level: int, threads: int
) -> NodeTimes:
    """Run a model some times, and note what the kernels of a node take.

    Args:
        model: What `InferenceSession` takes.
        node: Name of the node.
        known: Sizes of dimensions; others are chosen, see `tools.made_up`.
        level: onnxruntime's optimisation level.
        threads: Of the session; 0 for as many as there are processors.

    Raises:
        SardonyxError: The model does not run with random inputs.
    """
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    options.intra_op_num_threads = threads
    session = InferenceSession(model, options)
    chosen = input_sizes(session.get_inputs(), known)
    feeds = random_feeds(session.get_inputs(), known)
    with explained(chosen, others=""):
        session.run(None, feeds)
    with session.profile() as profile:
        for _ in range(_RUNS):
            session.run(None, feeds)
    best: dict[int, float] = {}
    infos: dict[int, CommandInfo] = {}
    for run in profile.runs():
        taken: dict[int, float] = {}
        for call in run.calls:
            info = run.info.commands.get(call.command)
            if info is not None and node in info.nodes:
                infos[call.command] = info
                taken[call.command] = taken.get(call.command, 0.0) + call.duration_ns
        for number, duration_ns in taken.items():
            best[number] = min(duration_ns, best.get(number, duration_ns))
    found = [
        MeasuredKernel(
            info.kernel, max(1.0, best[number]), info.operations, info.moved_bytes,
            info.kernel.startswith("integers"),
        )
        for number, info in sorted(infos.items())
    ]  # fmt: skip
    count = inspect(session).threads
    return NodeTimes(found, chosen.told(), count, peaks(count))
