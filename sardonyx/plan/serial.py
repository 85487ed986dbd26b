"""Plans as bytes, for the disk cache: JSON behind a header with a version.

Symbolic sizes are numbered: see `plan.dims`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sardonyx.base.errors import EngineError, SardonyxError, message
from sardonyx.base.object_types import from_text
from sardonyx.plan.dims import DimReader, DimWriter
from sardonyx.plan.plan import (
    Argument,
    BitsArgument,
    BufferSpec,
    Command,
    Guard,
    HostResult,
    HostSignature,
    InputSpec,
    LibraryCall,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
    SizeSource,
)
from sardonyx.plan.steps import (
    Enter,
    Grow,
    Jump,
    JumpIfLess,
    JumpUnless,
    Measure,
    PlanPart,
    Segment,
    SetSize,
    Step,
    Together,
)

_HEADER = b"sdxplan 6\n"


class _Writer(DimWriter):
    def __init__(self) -> None:
        super().__init__()
        #: Origins of commands. Those of parts of one tensor are one tuple, as long as its parts.
        self.origins: list[tuple[str, ...]] = []
        self._origin_numbers: dict[int, int] = {}

    def origin(self, origin: tuple[str, ...]) -> int:
        """The number of an origin, which the plan keeps alive."""
        number = self._origin_numbers.setdefault(id(origin), len(self.origins))
        if number == len(self.origins):
            self.origins.append(origin)
        return number

    def argument(self, argument: Argument) -> list[Any]:
        match argument:
            case PointerArgument(buffer, offset):
                return [buffer, self.dim(offset)]
            case SizeArgument(value):
                return [self.dim(value)]
            case BitsArgument(bits):
                return [bits, "bits", 0]

    def command(self, x: Command) -> list[Any]:
        return [
            x.kernel, self.dim(x.blocks), self.dim(x.cost_ns),
            list(map(self.argument, x.arguments)), self.dim(x.scratch_bytes),
            self.origin(x.origin), x.segment, _host_out(x.host), _library_out(x.library), x.note,
        ]  # fmt: skip

    def measure(self, x: Measure) -> list[Any]:
        offset, low, high = (self.dim(d) for d in (x.offset_bytes, x.low, x.high))
        return [x.symbol, x.buffer, offset, low, high, x.origin]

    def step(self, step: Step) -> dict[str, Any]:
        match step:
            case Enter(segment):
                return {"enter": [segment]}
            case Jump(target):
                return {"jump": [target]}
            case JumpUnless(buffer, target, offset, segment):
                return {"unless": [buffer, target, self.dim(offset), segment]}
            case JumpIfLess(left, right, target, segment):
                return {"less": [self.dim(left), self.dim(right), target, segment]}
            case SetSize(symbol, value, owner, segment):
                return {"set": [symbol, self.dim(value), owner, segment]}
            case Grow(buffer, size, keep, segment):
                return {"grow": [buffer, self.dim(size), self.dim(keep), segment]}
            case Together(parts, segment):
                return {"together": [[[p.first, p.end, self.dim(p.trips)] for p in parts], segment]}


class _Reader(DimReader):
    def __init__(self, table: Any, origins: Iterable[Iterable[str]]) -> None:
        super().__init__(table)
        self._origins = [*map(tuple, origins)]

    def argument(self, written: list[Any]) -> Argument:
        if len(written) == 1:
            return SizeArgument(self.dim(written[0]))
        if len(written) == 2:
            return PointerArgument(written[0], self.dim(written[1]))
        return BitsArgument(written[0])

    def command(self, written: Any) -> Command | Step:
        if isinstance(written, dict):
            ((kind, values),) = written.items()
            return self._step(kind, values)
        kernel, blocks, cost, arguments, scratch, origin, segment, host, library, note = written
        return Command(
            kernel, self.dim(blocks), self.dim(cost), tuple(map(self.argument, arguments)),
            self.dim(scratch), self._origins[origin], segment, _host_in(host),
            _library_in(library), note,
        )  # fmt: skip

    def _step(self, kind: str, values: list[Any]) -> Step:
        if kind == "less":
            left, right, target, segment = values
            return JumpIfLess(self.dim(left), self.dim(right), target, segment)
        if kind == "set":
            symbol, value, owner, segment = values
            return SetSize(symbol, self.dim(value), owner, segment)
        if kind == "grow":
            buffer, size, keep, segment = values
            return Grow(buffer, self.dim(size), self.dim(keep), segment)
        if kind == "unless":
            buffer, target, offset, segment = values
            return JumpUnless(buffer, target, self.dim(offset), segment)
        if kind == "together":
            parts, segment = values
            listed = (PlanPart(first, end, self.dim(trips)) for first, end, trips in parts)
            return Together(tuple(listed), segment)
        simple: dict[str, type[Enter | Jump]] = {"enter": Enter, "jump": Jump}
        return simple[kind](*values)

    def measure(self, written: list[Any]) -> Measure:
        symbol, buffer, offset, low, high, origin = written
        at, least, most = (self.dim(d) for d in (offset, low, high))
        return Measure(symbol, buffer, at, least, most, tuple(origin))


def _host_out(host: HostSignature | None) -> list[Any] | None:
    if host is None:
        return None
    operands = [x and [x[0].name, x[1]] for x in host.operands]
    results = [x and [x.dtype.name, x.rank, x.held] for x in host.results]
    return [host.function, host.facts, operands, results]


def _host_in(written: list[Any] | None) -> HostSignature | None:
    if written is None:
        return None
    function, facts, operands, results = written
    return HostSignature(
        function,
        tuple((name, _frozen(value)) for name, value in facts),
        tuple(x and (from_text(x[0]), x[1]) for x in operands),
        tuple(x and HostResult(from_text(x[0]), x[1], x[2]) for x in results),
    )


def _library_out(library: LibraryCall | None) -> list[Any] | None:
    return None if library is None else [library.function, library.facts, library.count]


def _library_in(written: list[Any] | None) -> LibraryCall | None:
    if written is None:
        return None
    function, facts, count = written
    return LibraryCall(function, tuple((n, _frozen(v)) for n, v in facts), count)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def to_bytes(plan: Plan) -> bytes:
    """The plan as bytes that `from_bytes` reads, in this version of the engine or an equal one."""
    w = _Writer()
    body: dict[str, Any] = {
        "inputs": [[x.name, x.dtype.name, w.dims(x.dims)] for x in plan.inputs],
        "outputs": [[x.name, x.dtype.name, w.dims(x.dims), x.segment] for x in plan.outputs],
        "buffers": [
            [x.kind, x.number, w.dim(x.size_bytes), x.first, x.last, x.segment]
            for x in plan.buffers
        ],
        "commands": [w.command(x) if isinstance(x, Command) else w.step(x) for x in plan.commands],
        "guards": [[w.dim(x.left), w.dim(x.right), x.reason, x.segment] for x in plan.guards],
        "segments": [
            [x.parent, list(map(w.measure, x.measures)), x.counters, x.conditional]
            for x in plan.segments
        ],
        "strings": plan.strings,
        "makers": [[w.dims(x.dims), x.element_bytes, x.where] for x in plan.makers],
    }
    body["origins"] = w.origins
    return _HEADER + json.dumps([w.table, body], separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Plan:
    """Read what `to_bytes` wrote.

    Raises:
        EngineError: The bytes are of another version, or damaged.
    """
    if not data.startswith(_HEADER):
        raise EngineError(message("plan", "The bytes are not a plan of this version"))
    try:
        table, body = json.loads(data[len(_HEADER) :])
        r = _Reader(table, body["origins"])
        return Plan(
            tuple(InputSpec(n, from_text(d), r.dims(s)) for n, d, s in body["inputs"]),
            tuple(OutputSpec(n, from_text(d), r.dims(s), g) for n, d, s, g in body["outputs"]),
            tuple(BufferSpec(k, n, r.dim(s), f, e, g) for k, n, s, f, e, g in body["buffers"]),
            tuple(map(r.command, body["commands"])),
            tuple(Guard(r.dim(a), r.dim(b), reason, g) for a, b, reason, g in body["guards"]),
            tuple(
                Segment(parent, tuple(map(r.measure, measures)), tuple(counters), conditional)
                for parent, measures, counters, conditional in body["segments"]
            ),
            tuple(body["strings"]),
            tuple(SizeSource(r.dims(s), size, where) for s, size, where in body["makers"]),
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        ZeroDivisionError,
        SardonyxError,
    ):
        raise EngineError(message("plan", "The bytes of the plan are damaged")) from None
