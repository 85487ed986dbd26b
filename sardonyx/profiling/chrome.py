"""Profiles as Chrome traces, in the form that onnxruntime writes: see docs/profiling.md."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sardonyx.base.files import check_target
from sardonyx.base.log import get_logger
from sardonyx.profiling.calls import CallShare, CommandCall
from sardonyx.profiling.commands import CommandInfo, TensorInfo
from sardonyx.profiling.profile import LIMIT, Profile, Run

_logger = get_logger("profiling")
_PROVIDERS = {False: "CPUExecutionProvider", True: "CUDAExecutionProvider"}


def write(profile: Profile, path: str | os.PathLike[str]) -> str:
    """Write a profile to a file, which appears when it is whole; gives the path.

    Raises:
        OSError: The file cannot be written; nothing is left of it.
        InvalidArgument: Something else than a regular file is there.
    """
    if not os.path.isdir(path):  # renaming says that
        check_target(path)
    target = Path(path)
    temporary = target.with_name(f".tmp-{os.getpid()}-{threading.get_ident():x}-{target.name}")
    try:
        with temporary.open("x") as file:
            file.write("[\n")
            count = missing = 0
            for event in events(profile):
                if count == profile.most_spans:
                    missing += 1
                    continue
                file.write(f",\n{event}" if count else event)
                count += 1
            file.write("\n]\n")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if missing:
        what = "%s: %d events are left out: there may be %d, see the knob %s"
        _logger.warning(what, target, missing, profile.most_spans, LIMIT)
    return os.fspath(target)


def events(profile: Profile) -> Iterator[str]:
    """Every event as text, each a JSON object."""
    writer = _Writer(profile)
    for moment in profile.moments:
        yield writer.event(
            "Session", moment.name, EventSpan(moment.started_ns, moment.duration_ns),
            json.dumps(moment.arguments), os.getpid(),
        )  # fmt: skip
    for run in profile.runs():
        yield from writer.run(run)


@functools.lru_cache(maxsize=1 << 14)
def _quoted(text: str) -> str:
    return json.dumps(text)


class EventSpan(NamedTuple):
    """When an event began, and how long it took."""

    started_ns: float
    duration_ns: float


class _Writer:
    """Writes the events of a profile; what is the same for many calls is made text once."""

    def __init__(self, profile: Profile) -> None:
        self._start_ns, self._process = profile.started_ns, profile.process
        self._fixed: dict[tuple[int, int, bool], str] = {}
        self._infos: list[object] = []
        self._most_bytes = 0

    def event(
        self, category: str, name: str, span: EventSpan, arguments: str, thread: int,
        process: int | None = None,
    ) -> str:  # fmt: skip
        """One complete event.

        Its times are whole microseconds: onnxruntime's tools take no others. Beginning and end are
        rounded down, so that times of events in a row add up. `args` has the nanoseconds.
        """
        process = self._process if process is None else process
        begin_ns = max(0, round(span.started_ns) - self._start_ns)
        took_ns = max(0, round(span.duration_ns))
        begin = begin_ns // 1000
        exact = f'"start_ns" : "{begin_ns}","duration_ns" : "{took_ns}"'
        more = f",{arguments[1:]}" if arguments != "{}" else "}"
        return (
            f'{{"cat" : "{category}","pid" :{process},"tid" :{thread},'
            f'"dur" :{(begin_ns + took_ns) // 1000 - begin},"ts" :{begin},"ph" : "X",'
            f'"name" :{_quoted(name)},"args" : {{{exact}{more}}}'
        )

    def run(self, run: Run) -> Iterator[str]:
        """The events of a run."""
        trace = run.trace
        caller = trace.thread[1]
        if run.is_first:
            yield self.event(
                "Session",
                "memory_plan",
                EventSpan(trace.started_ns, 0),
                json.dumps(_memory(run)),
                caller,
            )
        for moment in trace.moments:
            if moment.name == "resolve":
                took = moment.ended_ns - moment.started_ns
                span = EventSpan(moment.started_ns, took)
                yield self.event("Session", "resolve_shapes", span, "{}", caller)
        for call in run.calls:
            yield from self._call(run, call)
        how = "ParallelExecutor" if trace.branches else "SequentialExecutor"
        for moment in trace.moments:
            if moment.name == "execute":
                took = moment.ended_ns - moment.started_ns
                name = f"{how}::Execute"
                span = EventSpan(moment.started_ns, took)
                yield self.event("Session", name, span, "{}", caller)
        facts: dict[str, Any] = {"plan": str(run.plan_number)}
        if trace.sizes:
            facts["sizes"] = trace.sizes
        if trace.error:
            facts["error"] = trace.error
        if trace.remark:
            facts["remark"] = trace.remark
        if trace.dropped:
            facts["dropped_events"] = str(trace.dropped)
        span = EventSpan(trace.started_ns, trace.ended_ns - trace.started_ns)
        yield self.event("Session", "model_run", span, json.dumps(facts), caller)

    def _call(self, run: Run, call: CommandCall) -> Iterator[str]:
        info = run.info.commands[call.command]
        trace = run.trace
        on_device = trace.device is not None and not call.shares
        fixed = self._arguments(run, call, info, on_device)
        self._most_bytes = max(self._most_bytes, info.in_use_bytes)
        memory = (
            f'"mem_in_use_peak" : "{self._most_bytes}","mem_arena_held" : "{trace.arena_bytes}",'
            '"mem_arena_held_delta" : "0"'
        )
        threads = f'"thread_scheduling_stats" : {_scheduling(run, call)}'
        span = EventSpan(call.started_ns, call.duration_ns)
        yield self.event(
            "Node", f"{info.name}_kernel_time", span,
            f"{{{fixed},{memory},{threads}}}", _thread(run, call.thread)[1],
        )  # fmt: skip
        kernel = call.kernel or info.kernel
        operator = _quoted(info.operator)
        if on_device:
            arguments = f'{{"op_name" : {operator},"kernel" : {_quoted(kernel)}}}'
            yield self.event("Kernel", kernel, span, arguments, -1, -1)
        for share in call.shares:
            arguments = (
                f'{{"op_name" : {operator},"blocks" : "{share.blocks}",'
                f'"claims" : "{len(share.claims)}","busy_ns" : "{round(share.busy_ns)}"}}'
            )
            thread = _thread(run, share.thread)[1]
            took = EventSpan(share.started_ns, share.ended_ns - share.started_ns)
            yield self.event("Kernel", kernel, took, arguments, thread)

    def _arguments(self, run: Run, call: CommandCall, info: CommandInfo, on_device: bool) -> str:
        """What is the same for all calls of a command at the same sizes, without braces."""
        key = id(info), run.plan_number, on_device
        found = self._fixed.get(key)
        if found is None:
            before = _before(run, info.number)
            delta = info.in_use_bytes - (before.in_use_bytes if before else 0)
            asked = info.requested_bytes - (before.requested_bytes if before else 0)
            weights = sum(t.size_bytes for t in info.inputs if t.is_weight)
            read = sum(t.size_bytes for t in info.inputs if not t.is_weight)
            found = json.dumps(
                {
                    "op_name": info.operator,
                    "provider": _PROVIDERS[on_device],
                    "node_index": str(info.node_index),
                    "input_type_shape": _shapes(info.inputs),
                    "output_type_shape": _shapes(info.outputs),
                    "activation_size": str(read),
                    "parameter_size": str(weights),
                    "output_size": str(sum(t.size_bytes for t in info.outputs)),
                    "kernel": call.kernel or info.kernel,
                    "nodes": info.nodes,
                    "ops": info.operators,
                    "plan": str(run.plan_number),
                    "command": str(info.number),
                    "operations": str(info.operations),
                    "mem_bytes_in_use": str(info.in_use_bytes),
                    "mem_bytes_requested_in_use": str(info.requested_bytes),
                    "mem_in_use_delta": str(delta),
                    "mem_requested_in_use_delta": str(asked),
                }
            )[1:-1]
            self._fixed[key] = found
            self._infos.append(info)  # its identity is the key
        return found


def _before(run: Run, number: int) -> CommandInfo | None:
    earlier = [k for k in run.info.commands if k < number]
    return run.info.commands[max(earlier)] if earlier else None


def _shapes(tensors: list[TensorInfo]) -> list[dict[str, list[int]]]:
    return [{t.type: t.shape} for t in tensors if t.shape is not None]


def _memory(run: Run) -> dict[str, Any]:
    """Who holds memory: for each value its bytes, and the commands between which it is held."""
    rows = [[b.size_bytes, b.first, b.last] for b in run.info.buffers]
    return {"plan": str(run.plan_number), "sizes": run.trace.sizes, "buffers": rows}


def _thread(run: Run, number: int) -> tuple[int, int]:
    """Identity and the system's number of a thread of a run."""
    if number == 0:
        return run.trace.thread
    workers = run.trace.workers
    return workers[number - 1] if number <= len(workers) else (number, number)


def _scheduling(run: Run, call: CommandCall) -> str:
    """What threads did of a call, in whole microseconds, as onnxruntime's pool says it."""
    claims: list[int] = []
    before = worked = after = 0
    others: dict[int, CallShare] = {}
    for share in call.shares:
        if share.thread:
            others[share.thread] = share
            continue
        claims = share.claims
        before, worked = _us(share.started_ns - call.started_ns), _us(share.busy_ns)
        after = _us(call.ended_ns - share.ended_ns)
    workers = ",".join(
        f'"{worker[0]}" : {_of_worker(others.get(number))}'
        for number, worker in enumerate(run.trace.workers, 1)
    )
    return (
        f'{{"main_thread" : {{"thread_pool_name" : "session-intra-op",'
        f'"thread_id" : "{run.trace.thread[0]}","block_size" : {claims},"core" : -1,'
        f'"Distribution" : {before},"DistributionEnqueue" : 0,"Run" : {worked},'
        f'"Wait" : {after},"WaitRevoke" : 0}},"sub_threads" : {{{workers}}}}}'
    )


def _of_worker(share: CallShare | None) -> str:
    if share is None:
        return '{"num_run" : 0,"core" : -1,"Run" : 0}'
    return f'{{"num_run" : {len(share.claims)},"core" : -1,"Run" : {_us(share.busy_ns)}}}'


def _us(duration_ns: float) -> int:
    return round(duration_ns / 1e3)
