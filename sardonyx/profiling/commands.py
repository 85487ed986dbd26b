"""What a profile says of the commands of a plan, at the sizes of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from sardonyx.base import dtypes, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.native.layout import ALIGNMENT
from sardonyx.plan.facts import CommandFacts, PlanFacts, TensorFacts
from sardonyx.plan.plan import Command, Plan

#: So many operators make a name; a kernel may have dozens.
_MOST_OPERATORS = 4


@dataclass(slots=True)
class TensorInfo:
    """A tensor of a command: element type, shape (None if it is not known), bytes."""

    type: str
    shape: list[int] | None
    size_bytes: int
    is_weight: bool


@dataclass(slots=True)
class CommandInfo:
    """A command of a plan, at the sizes of a run.

    Attributes:
        number: In the plan.
        kernel: The kernel's symbol, or the host's function.
        name: The node that it is called after; the kernel if it comes from none.
        operator: What it computes: the operator of its sums, or those of its nodes.
        node_index: Which node of the file `name` is; -1 for none.
        nodes: All nodes that it computes.
        operators: The operator of each of them; "" where it is not known.
        inputs, outputs: Tensors that it reads and writes.
        operations: Multiplications and additions of its sums; 0 if it has none.
        in_use_bytes: Intermediate values that are alive while it runs, in whole cache lines.
        requested_bytes: The same without rounding.
    """

    number: int
    kernel: str
    name: str
    operator: str
    node_index: int
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    inputs: list[TensorInfo] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    operations: int = 0
    in_use_bytes: int = 0
    requested_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        """What it reads and writes, each tensor once.

        Of weights no more than is written, where there are no sums: rows may be picked from them.
        """
        written = sum(t.size_bytes for t in self.outputs)
        most = math.inf if self.operations else written
        read = sum(min(t.size_bytes, most if t.is_weight else math.inf) for t in self.inputs)
        return int(written + read)


@dataclass(slots=True)
class HeldBuffer:
    """Memory of an intermediate value: bytes, and the commands between which it is held."""

    size_bytes: int
    first: int
    last: int


@dataclass(slots=True)
class PlanInfo:
    """The commands of a plan at the sizes of a run, by number; and who holds memory."""

    commands: dict[int, CommandInfo]
    buffers: list[HeldBuffer]


def describe(plan: Plan, facts: PlanFacts, known: Mapping[str, int]) -> PlanInfo:
    """What is known of a plan at the sizes that symbols stand for."""
    buffers = _buffers(plan, known)
    in_use, requested = _alive(buffers, len(plan.commands))
    found = {}
    for number, command in enumerate(plan.commands):
        if isinstance(command, Command):
            info = _command(plan, number, command, facts, known)
            info.in_use_bytes, info.requested_bytes = in_use[number], requested[number]
            found[number] = info
    return PlanInfo(found, buffers)


def _command(
    plan: Plan, number: int, command: Command, facts: PlanFacts, known: Mapping[str, int]
) -> CommandInfo:
    own = facts.commands.get(number, CommandFacts())
    nodes = command.origin
    kernel = command.kernel if command.host is None else command.host.function
    operators = tuple(facts.operators.get(node, ("", -1))[0] for node in nodes)
    name = own.main or (nodes[-1] if nodes else kernel)
    operator, index = facts.operators.get(own.main, ("", -1))
    operator = own.operator or operator
    if not operator:
        parts = distinct(operators)
        more = "+..." if len(parts) > _MOST_OPERATORS else ""
        operator = "+".join(parts[:_MOST_OPERATORS]) + more or kernel.rsplit("_", 1)[0]
        index = facts.operators.get(name, ("", -1))[1]
    return CommandInfo(
        number, kernel, name, operator, index, nodes, operators,
        [_tensor(plan, t, known) for t in own.reads],
        [_tensor(plan, t, known) for t in own.writes],
        _value(own.operations, known) or 0,
    )  # fmt: skip


def distinct(operators: tuple[str, ...]) -> list[str]:
    """Those of a command's nodes that are known, each once; a function's nodes have several."""
    return [*dict.fromkeys(part for o in operators if o for part in o.split("+"))]


def _tensor(plan: Plan, tensor: TensorFacts, known: Mapping[str, int]) -> TensorInfo:
    shape = [_value(d, known) for d in tensor.dims]
    sized = [d for d in shape if d is not None]
    is_sized = len(sized) == len(shape)
    dtype = dtypes.BY_NAME.get(tensor.type)
    item_bytes = dtype.size_bytes if dtype is not None else 8
    is_weight = plan.buffers[tensor.buffer].kind == "constant"
    size = math.prod(sized) * item_bytes if is_sized else 0
    return TensorInfo(tensor.type, sized if is_sized else None, int(size), is_weight)


def _value(dim: Dim, known: Mapping[str, int]) -> int | None:
    """A size in numbers; None where a run did not get so far."""
    try:
        return sizes.evaluate(dim, known)
    except (KeyError, ZeroDivisionError):
        return None


def _buffers(plan: Plan, known: Mapping[str, int]) -> list[HeldBuffer]:
    return [
        HeldBuffer(max(0, _value(b.size_bytes, known) or 0), b.first, b.last)
        for b in plan.buffers
        if b.kind == "arena"
    ]


def _alive(buffers: list[HeldBuffer], count: int) -> tuple[list[int], list[int]]:
    """Bytes that are held while each command runs: rounded as they lie, and as they are used."""
    changes = np.zeros((2, count + 1), np.int64)
    for b in buffers:
        rounded = -(-b.size_bytes // ALIGNMENT) * ALIGNMENT
        for row, size in enumerate((rounded, b.size_bytes)):
            changes[row, b.first] += size
            changes[row, min(b.last + 1, count)] -= size
    whole, used = (list(itertools.accumulate(row)) for row in changes.tolist())
    return whole, used
