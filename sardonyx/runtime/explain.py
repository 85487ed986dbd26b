"""What a session does in each run, in words: kernels, nodes, copies, memory, other plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sardonyx.base import sizes
from sardonyx.base.decisions import is_decision
from sardonyx.base.printable import printable_lines
from sardonyx.base.sizes import Dim
from sardonyx.base.texts import bytes_text, counted
from sardonyx.plan.plan import Command, Guard, Plan, PointerArgument
from sardonyx.runtime.engine import Engine
from sardonyx.selection.loop_nests import COPY
from sardonyx.selection.matmul import HALVES, INTEGERS, MATRICES, WINOGRAD

_WIDTH = 100
#: Phases of making a session that are worth naming, as a part of the whole.
_NOTABLE = 0.1


def explain(engine: Engine, *, verbose: bool = False) -> str:
    """One line for each kernel, after a summary; with `verbose` all that is known of each.

    Times are estimates of the planner. Sizes are those of the last run; before a run, or where
    they differ within one, symbols stand for them.
    """
    plan, known = engine.executable.plan, engine.executable.frames.sizes
    lines = [_summary(engine), _origin_of_code(engine.timings), _memory(engine)]
    lines += engine.executable.report().remarks + _claims(engine)
    copies = [_copy(plan, number) for number in _copies(plan)]
    lines.append(f"copies of layout: {len(copies) or 'none'}")
    lines += [f"  {text}" for text in copies]
    lines += _less_exact(plan) + _integers(plan)
    lines += _kernels(plan, known, verbose)
    if verbose:
        lines += [_condition(g) for g in plan.guards]
        lines += _buffers(plan, known)
        lines += [f"phase {name}: {s * 1e3:.2f} ms" for name, s in engine.timings.items()]
    for number, region in enumerate(engine.regions, 1):
        lines += ["", f"region {number}:"]
        lines += [f"  {line}" for line in explain(region, verbose=verbose).splitlines()]
    for purpose, other in engine.variants.items():
        lines += ["", f"another plan, for {purpose}:"]
        lines += [f"  {line}" for line in explain(other, verbose=verbose).splitlines()]
    return printable_lines(lines)


def memory(engine: Engine) -> dict[str, Any]:
    """What an engine holds, in bytes; `devices` has what arenas of devices hold, and for what."""
    engines = [engine, *engine.variants.values()]
    engines += [inner for e in engines for region in e.regions for inner in _all_plans(region)]
    executables = [e.executable for e in engines]
    devices: dict[str, Any] = {}
    reports = [executable.report() for executable in executables]
    for report in reports:
        devices.update(report.devices)
    budget = engine.executable.budget
    return {
        "weights_bytes": sum(size for e in engines for _, _, _, size in e.record.constants),
        "intermediate_bytes": sum(x.frames.arena_bytes for x in executables),
        "frames": sum(len(x.frames) for x in executables),
        "reserved_for_callers_graphs_bytes": sum(x.reserved_bytes for x in reports),
        "held_bytes": budget.held_bytes,
        "limit_bytes": budget.limit_bytes,
        "devices": devices,
    }


def _all_plans(engine: Engine) -> list[Engine]:
    return [engine, *engine.variants.values()]


def _has_lists(engine: Engine) -> bool:
    """Whether it waits for lengths of lists, fed or computed."""
    without_shape = {info.name for info in engine.inputs if not info.shape}
    return not without_shape.issuperset(engine.record.unranked)


def _summary(engine: Engine) -> str:
    plan = engine.executable.plan
    if engine.record.unranked:
        names = ", ".join(engine.record.unranked)
        if all(map(is_decision, engine.record.unranked)):
            return f"no plan of its own: runs decide on the {names}"
        what = "lengths or ranks" if _has_lists(engine) else "ranks"
        return f"no plan of its own: the {what} of {names} come with runs"
    calls = plan.calls
    nodes = len({name for c in calls for name in c.origin})
    text = f"{counted(len(calls), 'kernel')} for {counted(nodes, 'node')}"
    if len(calls) < len(plan.commands):
        text += f", {counted(len(plan.commands) - len(calls), 'step')} of control flow"
    hosted = sum(c.host is not None for c in calls)
    if hosted:
        text += f", {counted(hosted, 'call')} of Python"
    threads = engine.executable.team.threads
    return f"{text}, {counted(threads, 'thread')}, {engine.executable.facts.runs_on}"


def _claims(engine: Engine) -> list[str]:
    """What providers outside the package have, did, and refused."""
    if engine.claims is None:
        return []
    lines = []
    for c in engine.claims.made:
        text = f"{c.provider}: {counted(len(c.nodes), 'node')} in {counted(c.calls, 'call')}"
        if c.copied_bytes:
            text += f", {bytes_text(c.copied_bytes)} copied"
        if c.refusals:
            text += f", the processor stood in {counted(c.refusals, 'time')}: {c.reason}"
        lines += [text, f"  {' '.join(c.nodes)}"]
        if c.region is not None:
            for way, values in (("to", c.region.engine.inputs), ("from", c.region.engine.outputs)):
                listed = ", ".join(f"{v.name} {v.form}" for v in values)
                lines.append(f"  copied {way} the device in each call: {listed or 'nothing'}")
    refused = engine.claims.refused
    lines += [f"{name} refused what begins with {node}: {why}" for name, node, why in refused]
    for why, nodes in engine.claims.left.items():
        lines += [f"on the processor, since {why}: {counted(len(nodes), 'node')}"]
        lines += [f"  {' '.join(dict.fromkeys(nodes))}"]
    return lines


def _origin_of_code(timings: Mapping[str, float]) -> str:
    total = timings.get("total", sum(timings.values()))
    if "from cache" in timings:
        return f"from the cache in {total * 1e3:.1f} ms"
    parts = sorted(((s, name) for name, s in timings.items() if name != "total"), reverse=True)
    named = ", ".join(f"{name} {s * 1e3:.0f}" for s, name in parts if s >= _NOTABLE * total)
    return f"compiled in {total * 1e3:.0f} ms" + (f" ({named})" if named else "")


def _memory(engine: Engine) -> str:
    weights = sum(size for _, _, _, size in engine.record.constants)
    frames = engine.executable.frames
    held = f"{bytes_text(frames.arena_bytes)} of intermediate values"
    return f"memory: {bytes_text(weights)} of weights, {held} in {counted(len(frames), 'frame')}"


# -- kernels ------------------------------------------------------------------------------------


def _kernels(plan: Plan, known: Mapping[str, int], verbose: bool) -> list[str]:
    commands = [(k, c) for k, c in enumerate(plan.commands) if verbose or isinstance(c, Command)]
    parts = estimated_shares(plan, known)
    shares = len(parts) > 1 and any(part is not None for part in parts.values())
    width = max((len(c.kernel) for _, c in commands if isinstance(c, Command)), default=0)
    heading = "kernels, with shares of a run's time that are estimated, not measured, and nodes:"
    lines = [heading] if shares else []
    for number, command in commands:
        if not isinstance(command, Command):
            lines.append(f"{number:4d} {command}")
            continue
        part = parts[number]
        share = "" if not shares else " " * 6 if part is None else f" {100 * part:3.0f} %"
        name = f"{command.kernel:{width}s}{share}"
        if command.library is not None:
            name += f" or library: {command.library.function}"
        line = f"{number:4d} {name}  "
        lines.append(line + _nodes(command, None if verbose else _WIDTH - len(line)))
        if verbose:
            lines += [f"       {text}" for text in _details(plan, command, known)]
    return lines


def estimated_shares(plan: Plan, known: Mapping[str, int]) -> dict[int, float | None]:
    """What part of a run's time each kernel is estimated to take, by the command's number.

    The parts are between 0 and 1, and those that are known make 1 together. None where sizes are
    not known: before a run, or of a branch that was not taken, whose sizes no run has brought.
    """
    costs: dict[int, int | None] = {}
    for number, command in enumerate(plan.commands):
        if isinstance(command, Command):
            cost = _value(command.cost_ns, known)
            # Where a symbol has no value of this run, what is computed of it may be anything.
            costs[number] = None if cost is None or cost < 0 else cost
    whole = sum(cost for cost in costs.values() if cost is not None)
    return {k: None if c is None or not whole else c / whole for k, c in costs.items()}


def _nodes(command: Command, width: int | None) -> str:
    """Names of nodes, with the last ones first to go where there is no room."""
    names = list(command.origin) or ["(no node: made by the planner)"]
    text = " ".join(names)
    if width is None or len(text) <= width:
        return text
    kept = 1
    while kept < len(names) and len(" ".join(names[: kept + 1])) + 10 <= width:
        kept += 1
    rest = len(names) - kept
    return " ".join(names[:kept]) + (f" and {rest} more" if rest else "")


def _details(plan: Plan, command: Command, known: Mapping[str, int]) -> list[str]:
    buffers = [f"b{a.buffer}" for a in command.arguments if isinstance(a, PointerArgument)]
    found = [
        f"blocks {_shown_value(command.blocks, known)}, uses {' '.join(dict.fromkeys(buffers))}",
        f"estimated {_shown_value(command.cost_ns, known)} ns on one thread",
    ]
    if command.library is not None:
        facts = ", ".join(f"{name} {value}" for name, value in command.library.facts if value)
        found.append(f"a library does it where it can: {command.library.function}, {facts}")
    if command.note:
        found.append(command.note)
    if command.scratch_bytes != 0:
        found.append(f"scratch {_shown_value(command.scratch_bytes, known)} bytes for each thread")
    return found


def _buffers(plan: Plan, known: Mapping[str, int]) -> list[str]:
    return [
        f"  b{number}: {spec.kind} {spec.number if spec.kind != 'arena' else ''}".rstrip()
        + f", {_shown_value(spec.size_bytes, known)} bytes, used by {spec.first} to {spec.last}"
        for number, spec in enumerate(plan.buffers)
    ]


# -- copies and conditions ----------------------------------------------------------------------


def _copies(plan: Plan) -> list[int]:
    return [
        k
        for k, c in enumerate(plan.commands)
        if isinstance(c, Command) and c.kernel.startswith(COPY)
    ]


def _less_exact(plan: Plan) -> list[str]:
    lines = []
    count = sum(c.kernel.startswith(WINOGRAD) for c in plan.calls)
    if count:
        how = "with Winograd's filters, which round more (session.disable_winograd = 1: none)"
        lines.append(f"{counted(count, 'convolution')} {how}")
    count = sum(c.kernel.startswith(HALVES) for c in plan.calls)
    if count:
        how = "with factors rounded to bfloat16 (session.allow_bfloat16_products = 1)"
        matrices = sum(c.kernel.startswith(MATRICES) for c in plan.calls)
        where = f", {matrices} in registers for matrices" if matrices else ""
        lines.append(f"{counted(count, 'product')} {how}{where}")
    return lines


def _integers(plan: Plan) -> list[str]:
    count = sum(c.kernel.startswith(INTEGERS) for c in plan.calls)
    refused = Counter(
        part for c in plan.calls for part in c.note.split("; ") if part.startswith("no integers")
    )
    found = [f"{counted(count, 'contraction')} of 8-bit codes on integers"] if count else []
    return found + [f"{counted(n, 'contraction')} in floats, {text}" for text, n in refused.items()]


def _copy(plan: Plan, number: int) -> str:
    """A copy, and for whom it is made."""
    command = plan.commands[number]
    assert isinstance(command, Command)  # noqa: S101 - narrows the type for the checker
    written = [a.buffer for a in command.arguments if isinstance(a, PointerArgument)][-1]
    spec = plan.buffers[written]
    what = f"{command.kernel} ({_nodes(command, 40)})"
    if spec.kind == "output":
        return f"{what}: the output {plan.outputs[spec.number].name} has this order"
    readers = [
        f"{c.kernel} ({_nodes(c, 40)})"
        for c in plan.commands[number + 1 :]
        if isinstance(c, Command)
        and any(isinstance(a, PointerArgument) and a.buffer == written for a in c.arguments)
    ]
    return f"{what}: for {', '.join(readers[:3]) or 'a loop'}, which reads it in another order"


def _condition(guard: Guard) -> str:
    reason = f" (else: {guard.reason})" if guard.reason else ""
    return f"condition: {guard.left!r} = {guard.right!r}{reason}"


# -- numbers ------------------------------------------------------------------------------------


def _value(dim: Dim, known: Mapping[str, int]) -> int | None:
    if isinstance(dim, int):
        return dim
    try:
        return sizes.evaluate(dim, known)
    except (KeyError, ZeroDivisionError):
        return None


def _shown_value(dim: Dim, known: Mapping[str, int]) -> str:
    value = _value(dim, known)
    return repr(dim) if value is None else str(value)
