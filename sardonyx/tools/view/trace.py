"""A profile as columns of numbers, as small as it can be, for the page to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.view.reading import Event

SESSION, NODE, KERNEL = range(3)
_KINDS = {"Session": SESSION, "Node": NODE, "Kernel": KERNEL, "Api": KERNEL}
_SUFFIX = "_kernel_time"
_FENCES = ("_fence_before", "_fence_after")


class Texts:
    """Texts by number: each is in the page once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: Any) -> int:
        """The number of a text."""
        key = text if isinstance(text, str) else "" if text is None else str(text)
        return self._numbers.setdefault(key, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """Texts in order of their numbers."""
        return list(self._numbers)


@dataclass(slots=True)
class TraceCommand:
    """What is the same for every call of a kernel; texts are numbers of `Trace.texts`.

    Attributes:
        name: The node that it is called after; of a Kernel event the kernel.
        operator, provider, kernel: Texts.
        nodes: All ONNX nodes in it; node_operators: the operator of each.
        reads, writes: Types and shapes.
        read_bytes, weight_bytes, written_bytes: Of these.
        operations: Of its sums.
        plan, number: Which call of which plan it is; -1 if it is not known.
        owner: Of a Kernel event the Node that launched it; else -1.
    """

    name: int
    operator: int
    provider: int
    kernel: int
    nodes: tuple[int, ...]
    node_operators: tuple[int, ...]
    reads: int
    writes: int
    read_bytes: int
    weight_bytes: int
    written_bytes: int
    operations: int
    plan: int
    number: int
    owner: int = -1


@dataclass(slots=True)
class Trace:
    """A profile.

    Attributes:
        title: Where it comes from.
        texts: Of everything else.
        commands: What events are calls of.
        lanes: Threads and streams: a text, and whether it is a device's.
        rows: Events in order of their beginning: kind, beginning and duration in nanoseconds, what
            (a command; of Session events a text), lane, depth (how many are around it), inner (the
            time of Node events within it), memory in use (-1 if it is not known).
        runs: Beginning, duration, plan, text of an error, text of the sizes.
        plans: Of each plan and sizes: number, text of the sizes, buffers as
            `[bytes, first command, last command]`.
        arena_bytes: The most that was held.
    """

    title: str
    texts: Texts = field(default_factory=Texts)
    commands: list[TraceCommand] = field(default_factory=list)
    lanes: list[tuple[int, bool]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    runs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    plans: list[tuple[int, int, list[list[int]]]] = field(default_factory=list)
    arena_bytes: int = 0
    remarks: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Columns; beginnings are differences to the one before."""
        columns: list[list[int]] = [list(c) for c in zip(*self.rows, strict=True)] or [[]] * 8
        kind, start, duration, what, lane, depth, inner, memory = columns
        deltas = [b - a for a, b in zip([0, *start], start, strict=False)]
        names = TraceCommand.__slots__
        return {
            "title": self.title,
            "texts": self.texts.all,
            "commands": {n: [getattr(c, n) for c in self.commands] for n in names},
            "lanes": [[name, int(device)] for name, device in self.lanes],
            "events": {
                "kind": kind, "start": deltas, "duration": duration, "what": what, "lane": lane,
                "depth": depth, "inner": inner, "memory": memory,
            },
            "runs": self.runs,
            "plans": self.plans,
            "arena": self.arena_bytes,
            "remarks": self.remarks,
        }  # fmt: skip


def trace_of(events: Iterable[Event], title: str) -> Trace:
    """A profile's events in columns. Nothing in them is trusted: what is no number is 0.

    Raises:
        InvalidArgument: What should be a shape or a name is nested too deeply to be one.
    """
    trace = Trace(title)
    reader = _Reader(trace)
    try:
        for event in events:
            reader.take(event)
    except RecursionError:
        raise InvalidArgument(message(title, "It is nested too deeply for a profile")) from None
    trace.rows.sort(key=lambda row: (row[1], -row[2], row[0]))
    _nest(trace)
    trace.runs.sort()
    return trace


class _Reader:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._commands: dict[tuple[object, ...], int] = {}
        self._lanes: dict[tuple[int, int, int], int] = {}
        self._last_node = -1

    def take(self, event: Event) -> None:
        trace, text = self._trace, self._trace.texts
        category, name = event.get("cat"), str(event.get("name", ""))
        if name.endswith(_FENCES):
            return
        kind = _KINDS.get(category if isinstance(category, str) else "", SESSION)
        found = event.get("args")
        args: dict[str, Any] = found if isinstance(found, dict) else {}
        start, took = _times(event, args)
        memory = -1
        if kind == SESSION:
            what = text(name)
            if name == "memory_plan":
                self._plan(args)
                return
            if name == "model_run":
                failure = text(args.get("error", ""))
                plan, sizes = _integer(args.get("plan"), -1), text(_sizes(args))
                trace.runs.append((start, took, plan, failure, sizes))
                remark = args.get("remark")
                if isinstance(remark, str) and remark not in trace.remarks:
                    trace.remarks.append(remark)
        elif kind == NODE:
            what = self._last_node = self._node(name, args)
            if "mem_bytes_in_use" in args:
                memory = _integer(args["mem_bytes_in_use"])
                held = _integer(args.get("mem_arena_held"))
                trace.arena_bytes = max(trace.arena_bytes, held)
        else:
            what = self._kernel(name, args)
        trace.rows.append([kind, start, took, what, self._lane(event, args), 0, 0, memory])

    def _node(self, name: str, args: dict[str, Any]) -> int:
        text = self._trace.texts
        name = name.removesuffix(_SUFFIX)
        nodes = args.get("nodes")
        plan, number = _integer(args.get("plan"), -1), _integer(args.get("command"), -1)
        names = [str(n) for n in nodes] if isinstance(nodes, list) else [name]
        operators = args.get("ops")
        if not isinstance(operators, list) or len(operators) != len(names):
            operators = [args.get("op_name", "")] * len(names)
        reads, writes = _shapes(args, "input_type_shape"), _shapes(args, "output_type_shape")
        kernel = str(args.get("kernel", ""))
        key = (name, plan, number, kernel, reads, writes)
        found = self._commands.get(key)
        if found is None:
            found = self._add(
                key,
                TraceCommand(
                    text(name), text(args.get("op_name", "")), text(args.get("provider", "")),
                    text(kernel), tuple(map(text, names)), tuple(text(str(o)) for o in operators),
                    text(reads), text(writes),
                    _integer(args.get("activation_size")), _integer(args.get("parameter_size")),
                    _integer(args.get("output_size")), _integer(args.get("operations")),
                    plan, number,
                ),
            )  # fmt: skip
        return found

    def _kernel(self, name: str, args: dict[str, Any]) -> int:
        text, owner = self._trace.texts, self._last_node
        operator = text(args.get("op_name", ""))
        key = (KERNEL, name, owner, operator)
        found = self._commands.get(key)
        if found is None:
            around = self._trace.commands[owner] if owner >= 0 else None
            nodes = around.nodes if around is not None else ()
            operators = around.node_operators if around is not None else ()
            provider = around.provider if around is not None else text("")
            command = TraceCommand(
                text(name), operator, provider, text(name), nodes, operators, text(""), text(""),
                0, 0, 0, 0, -1, -1, owner,
            )  # fmt: skip
            found = self._add(key, command)
        return found

    def _add(self, key: tuple[object, ...], command: TraceCommand) -> int:
        number = self._commands[key] = len(self._trace.commands)
        self._trace.commands.append(command)
        return number

    def _lane(self, event: Event, args: dict[str, Any]) -> int:
        process, thread = _integer(event.get("pid")), _integer(event.get("tid"))
        stream = _integer(args.get("stream"), -1)
        key = process, thread, stream if thread < 0 else -1
        found = self._lanes.get(key)
        if found is None:
            found = self._lanes[key] = len(self._lanes)
            on_device = thread < 0
            name = f"thread {thread}"
            if on_device:
                name = f"stream {stream}" if stream >= 0 else "device"
            self._trace.lanes.append((self._trace.texts(name), on_device))
        return found

    def _plan(self, args: dict[str, Any]) -> None:
        buffers = args.get("buffers")
        rows = [
            [_integer(value) for value in b]
            for b in (buffers if isinstance(buffers, list) else ())
            if isinstance(b, list) and len(b) == 3
        ]
        number = _integer(args.get("plan"), -1)
        self._trace.plans.append((number, self._trace.texts(_sizes(args)), rows))


def _nest(trace: Trace) -> None:
    """How many events lie around each one, and the time of Node events within Node events."""
    open_rows: dict[int, list[tuple[int, int]]] = {}
    for number, row in enumerate(trace.rows):
        kind, start, took, lane = row[0], row[1], row[2], row[4]
        stack = open_rows.setdefault(lane, [])
        while stack and stack[-1][0] <= start:
            stack.pop()
        row[5] = len(stack)
        if kind == NODE:
            around = next((n for _, n in reversed(stack) if trace.rows[n][0] == NODE), None)
            if around is not None and start + took <= _end(trace.rows[around]):
                trace.rows[around][6] += took
        stack.append((start + took, number))


def _end(row: Sequence[int]) -> int:
    return row[1] + row[2]


def _times(event: Event, args: dict[str, Any]) -> tuple[int, int]:
    """Beginning and duration in nanoseconds."""
    if "start_ns" in args and "duration_ns" in args:
        return _integer(args["start_ns"]), max(0, _integer(args["duration_ns"]))
    return _integer(event.get("ts"), scale=1000), max(0, _integer(event.get("dur"), scale=1000))


def _integer(value: Any, default: int = 0, scale: int = 1) -> int:
    try:
        number = round(float(value) * scale) if not isinstance(value, int) else value * scale
    except (TypeError, ValueError, OverflowError):
        return default
    # What JavaScript's numbers hold exactly.
    return number if abs(number) < 1 << 53 else default


def _sizes(args: dict[str, Any]) -> str:
    """`N = 1, T = 8`."""
    sizes = args.get("sizes")
    return ", ".join(f"{k} = {v}" for k, v in sizes.items()) if isinstance(sizes, dict) else ""


def _shapes(args: dict[str, Any], key: str) -> str:
    """`float[1, 32] int64[]` of `[{"float": [1, 32]}, {"int64": []}]`."""
    found = args.get(key)
    parts = []
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict):
            for name, dims in entry.items():
                parts.append(f"{name}{dims}")
    return " ".join(parts)
