"""Which kernel computes each node of a model, what the kernel is, and why it ends where it does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sardonyx.api.inspection import SessionInspection, inspect
from sardonyx.api.session import InferenceSession
from sardonyx.plan.facts import CommandFacts, PlanFacts, TensorFacts
from sardonyx.plan.plan import Command, Plan
from sardonyx.selection.loop_nests import COPY
from sardonyx.tools.explain import explain_model
from sardonyx.tools.view.trace import Trace

#: Of the kernels that read a result so many are named.
_MOST_READERS = 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A node and what computes it.

    Attributes:
        node, operator: Of the file; "" and what the planner makes of its own accord.
        provider: Where it runs; "" where no kernel does.
        kernel: The kernel's symbol, or the host's function.
        command: Which call of the plan it is; -1 if that is not known.
        plan: Which of the session's plans, in words; "" for the first.
        remarks: What the planner says, and why the kernel ends where it does.
    """

    node: str
    operator: str
    provider: str
    kernel: str
    command: int
    plan: str
    remarks: tuple[str, ...]


def placement_of_model(
    session: InferenceSession, source: str | os.PathLike[str]
) -> tuple[list[Placed], list[str]]:
    """All nodes of a session's model, and lines about the whole: `explain`'s."""
    found = explain_model(source, session, run=False)
    rows = list(_of_plan(inspect(session), session.get_providers()[0], ""))
    rows += [
        Placed(n.name, n.operator, "", "", -1, "", (n.reason,)) for n in found.nodes if n.reason
    ]
    return rows, found.text.splitlines()


def placement_of_trace(trace: Trace) -> list[Placed]:
    """The nodes of a profile: what was run, without reasons."""
    texts = trace.texts.all
    rows: dict[Placed, None] = {}
    for command in trace.commands:
        if command.owner >= 0:
            continue
        plan = f"plan {command.plan}" if command.plan > 0 else ""
        nodes, operators = command.nodes, command.node_operators
        if not nodes:
            nodes, operators = (command.name,), (command.operator,)
        for node, operator in zip(nodes, operators, strict=True):
            kernel = texts[command.kernel] or texts[command.name]
            placed = Placed(
                texts[node], texts[operator], texts[command.provider], kernel,
                command.number, plan, (),
            )  # fmt: skip
            rows[placed] = None
    return list(rows)


def to_json(rows: Sequence[Placed]) -> dict[str, Any]:
    """Columns of texts and numbers."""
    names = Placed.__slots__
    found = {name: [getattr(row, name) for row in rows] for name in names}
    found["remarks"] = ["; ".join(row.remarks) for row in rows]
    return found


# -- a plan ---------------------------------------------------------------------------------------


def _of_plan(found: SessionInspection, provider: str, purpose: str) -> Iterator[Placed]:
    plan, facts = found.plan, found.facts
    readers = _readers(plan, facts)
    for number, command in enumerate(plan.commands):
        if not isinstance(command, Command):
            continue
        kernel = command.kernel if command.host is None else command.host.function
        where = provider if command.host is None else "Python, on the host"
        remarks = tuple(_remarks(plan, facts, readers, number, command))
        for node in command.origin or ("",):
            operator = facts.operators.get(node, ("", -1))[0]
            yield Placed(node, operator, where, kernel, number, purpose, remarks)
    for other_purpose, other in found.variants.items():
        yield from _of_plan(other, provider, other_purpose)


def _readers(plan: Plan, facts: PlanFacts) -> dict[int, list[int]]:
    """Which commands read a buffer."""
    found: dict[int, list[int]] = {}
    for number in range(len(plan.commands)):
        for buffer in {t.buffer for t in _facts(facts, number).reads}:
            found.setdefault(buffer, []).append(number)
    return found


def _facts(facts: PlanFacts, number: int) -> CommandFacts:
    return facts.commands.get(number, CommandFacts())


def _remarks(
    plan: Plan, facts: PlanFacts, readers: dict[int, list[int]], number: int, command: Command
) -> list[str]:
    found = []
    if not command.origin:
        found.append("made by the planner")
    if command.host is not None:
        found.append("a function of the host: no kernel computes this operator")
    if command.kernel.startswith(COPY):
        found.append("a copy: what reads it wants another order")
    if command.library is not None:
        found.append(f"a library does it where it can: {command.library.function}")
    if command.note:
        found.append(command.note)
    for tensor in _facts(facts, number).writes:
        reason = _why_it_ends(plan, facts, readers.get(tensor.buffer, []), number, tensor)
        if reason:
            found.append(f"ends here: {reason}")
    return list(dict.fromkeys(found))


def _why_it_ends(
    plan: Plan, facts: PlanFacts, readers: list[int], number: int, result: TensorFacts
) -> str:
    """Why what reads a result is not part of the kernel that makes it."""
    spec = plan.buffers[result.buffer]
    if spec.kind == "output":
        return f"this is the output {plan.outputs[spec.number].name}"
    own, later = plan.commands[number], [r for r in readers if r > number]
    if not later or not isinstance(own, Command):
        return ""
    if len(later) > 1:
        names = ", ".join(_kernel(plan, r) for r in later[:_MOST_READERS])
        return f"{len(later)} kernels read it: {names}{', ...' if len(later) > 3 else ''}"
    other = plan.commands[later[0]]
    if not isinstance(other, Command):
        return ""
    name = _kernel(plan, later[0])
    if other.host is not None or own.host is not None:
        return f"{name} reads it, and one of the two is a function of the host"
    if own.segment != other.segment:
        return f"{name} reads it, whose sizes are known only when the run gets there"
    if other.kernel.startswith(COPY):
        return f"{name} copies it into another order"
    if _facts(facts, number).operations != 0 and _facts(facts, later[0]).operations != 0:
        return f"{name} reads it: both have sums of products"
    written = [t.dims for t in _facts(facts, later[0]).writes]
    if result.dims not in written and written:
        return (
            f"{name} reads it, and loops over {_shown(written[0])} instead of {_shown(result.dims)}"
        )
    return f"{name} reads it: no rule makes one kernel of the two"


def _kernel(plan: Plan, number: int) -> str:
    command = plan.commands[number]
    return f"{command.kernel} ({number})" if isinstance(command, Command) else f"step {number}"


def _shown(dims: Sequence[object]) -> str:
    return f"[{', '.join(map(repr, dims))}]"
