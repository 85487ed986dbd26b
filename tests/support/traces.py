"""Profiles as files, made of single events in the form that onnxruntime writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def event(category: str, name: str, ts: float, dur: float, tid: int, pid: int = 1) -> Event:
    """One event, in microseconds."""
    return {
        "cat": category, "pid": pid, "tid": tid, "dur": dur, "ts": ts, "ph": "X", "name": name,
        "args": {},
    }  # fmt: skip


def node(
    name: str, ts: float, dur: float, *, op: str = "Op", tid: int = 1, nodes: Any = None,
    memory: int | None = None, arena: int = 0, **more: Any,
) -> Event:  # fmt: skip
    """A call of a node."""
    made = event("Node", f"{name}_kernel_time", ts, dur, tid)
    made["args"] = {"op_name": op, "provider": "CPUExecutionProvider", **more}
    if nodes is not None:
        made["args"]["nodes"] = nodes
    if memory is not None:
        made["args"] |= {"mem_bytes_in_use": str(memory), "mem_arena_held": str(arena)}
    return made


def kernel(
    name: str, ts: float, dur: float, *, tid: int, pid: int = 1, op: str = "Op",
    stream: str | None = None,
) -> Event:  # fmt: skip
    """A kernel of the node before it."""
    made = event("Kernel", name, ts, dur, tid, pid)
    made["args"] = {"op_name": op} | ({"stream": stream} if stream is not None else {})
    return made


def run(ts: float, dur: float, tid: int = 1) -> Event:
    """A run."""
    return event("Session", "model_run", ts, dur, tid)


def trace_file(path: Path, events: Iterable[Event]) -> Path:
    """A file with these events, one a line."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def hostile_name() -> str:
    """What a name may be that wants to be more than a name."""
    return (
        "<b>&amp;</b></script ><img src=y onerror='window.hacked=5'>"
        '</script><img src=x onerror="window.hacked=1"><!--<script>&lt;b>'
        "<a href='javascript:window.hacked=2'>x</a>%{label}${window.hacked=3}"
    )
