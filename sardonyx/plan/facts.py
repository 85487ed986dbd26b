"""What profiles say of a plan's commands: tensors, nodes, work. No run needs it.

It lies in a session's cache entry as JSON, which is read when the first profile asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.plan.dims import DimReader, DimWriter
from sardonyx.plan.groups import Attention, Group
from sardonyx.plan.plan import Command, Plan
from sardonyx.tensor.tensor import Contract, Tensor
from sardonyx.tensor.traverse import operands_of, topological


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor that a command reads or writes.

    Attributes:
        buffer: Number of the plan's buffer that it lies in.
        type: Name of the element type, as in `tensor(float)`.
        dims: Its shape, as it lies in memory: weights may be packed.
    """

    buffer: int
    type: str
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What a command does.

    Attributes:
        reads, writes: In the order of its arguments.
        main: The node whose sums it computes; "" if there are none.
        operator: What it is called where it does what several operators say together.
        operations: Multiplications and additions of these sums; 0 if there are none.
    """

    reads: tuple[TensorFacts, ...] = ()
    writes: tuple[TensorFacts, ...] = ()
    main: str = ""
    operator: str = ""
    operations: Dim = 0


@dataclass(slots=True)
class PlanFacts:
    """Of all commands.

    Attributes:
        commands: By number.
        operators: Operator of each node of the file that commands come from, and which one it is.
    """

    commands: dict[int, CommandFacts] = field(default_factory=dict)
    operators: dict[str, tuple[str, int]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """What `from_bytes` reads."""
        w = DimWriter()

        def tensors(found: tuple[TensorFacts, ...]) -> list[Any]:
            return [[t.buffer, t.type, w.dims(t.dims)] for t in found]

        commands = [
            [
                number,
                tensors(c.reads),
                tensors(c.writes),
                c.main,
                c.operator,
                w.dim(c.operations),
            ]  # fmt: skip
            for number, c in self.commands.items()
        ]
        return json.dumps([w.table, commands, self.operators], separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> PlanFacts:
        """The reverse; no bytes are no facts."""
        if not data:
            return PlanFacts()
        table, commands, operators = json.loads(data)
        r = DimReader(table)

        def tensors(written: list[Any]) -> tuple[TensorFacts, ...]:
            return tuple(TensorFacts(buffer, type, r.dims(dims)) for buffer, type, dims in written)

        return PlanFacts(
            {
                number: CommandFacts(
                    tensors(reads), tensors(writes), main, operator, r.dim(operations)
                )
                for number, reads, writes, main, operator, operations in commands
            },
            {name: (operator, number) for name, (operator, number) in operators.items()},
        )


@dataclass(frozen=True, slots=True)
class FactSums:
    """Of what a group computes, what `CommandFacts` says of its sums of products."""

    main: str
    operator: str
    operations: Dim


def sums_of(
    groups: Iterable[Group], origins: Mapping[Tensor, tuple[str, ...]]
) -> dict[Tensor, FactSums]:
    """For what groups compute, and where that contains sums of products."""
    rows = [(group, root) for group in groups for root in group.roots]
    stored = {root.tensor for _, root in rows}
    found: dict[Tensor, FactSums] = {}
    for group, root in rows:
        inlined = topological(operands_of(root.tensor), stored)
        sums = [t for t in (*inlined, root.tensor) if isinstance(t, Contract)]
        if sums:
            names = list(dict.fromkeys(name for t in sums for name in origins.get(t, ())[:1]))
            is_fused = isinstance(group, Attention) and len(names) > 1
            work = sizes.total(sizes.product((2, *t.shape, *t.extents)) for t in sums)
            name = names[0] if names else ""
            found[root.tensor] = FactSums(name, "Attention" if is_fused else "", work)
    return found


def operators_of(graph: Graph) -> dict[str, tuple[str, int]]:
    """The operators of a file's nodes, by name, with their numbers; a function's are joined."""
    found: dict[str, tuple[str, int]] = {}
    for number, node in enumerate(nodes_of(graph)):
        for name in node.origin[:1] or (node.name,):
            before = found.get(name)
            if before is None:
                found[name] = (node.op_type, number)
            elif node.op_type not in before[0].split("+"):
                found[name] = (f"{before[0]}+{node.op_type}", before[1])
    return found


def nodes_of(graph: Graph) -> Iterator[Node]:
    """All nodes, those of inner graphs behind the node that has them."""
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs():
            yield from nodes_of(inner)


def used_operators(
    plan: Plan, operators: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    """Those of nodes that commands come from."""
    # Commands that compute parts of one tensor have one origin, as long as there are parts.
    origins = {id(c.origin): c.origin for c in plan.commands if isinstance(c, Command)}
    names = {name for origin in origins.values() for name in origin}
    return {name: operators[name] for name in names if name in operators}
