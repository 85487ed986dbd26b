"""Values whose shapes decide how many axes a model's tensors have: inputs, and inner values.

A list of sizes may be computed: reshaped, joined, chosen by data. If its length follows from the
inputs' shapes, plans wait for those. If not, the list itself is computed first, by a plan of its
own, and fed to the plan for its length, in which it is one more input.

A list in a branch, or in the body of a loop, is no value of the outermost graph. There it is
computed first which branch is taken, or how often the loop goes round. That is a list, too, as long
as what it says (`passes.write_out`): the plan for its length has the nodes of the branch, or those
of each iteration, in the outermost graph, and finds what else decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sardonyx.base import dtypes, sizes
from sardonyx.base.decisions import is_decision
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.compiler.model_interface import keep_outputs
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.ops.core.contents import DataDependent, decided_by_data
from sardonyx.passes.write_out import add_decision, decision_around, write_out
from sardonyx.runtime.fed_ranks import FedShape


@dataclass(frozen=True, slots=True)
class Decider:
    """A tensor whose shape decides.

    Attributes:
        name: Its name among the values of the outermost graph.
        dtype: The name of its type.
        shape: Its sizes, as far as they are numbers; None for the others.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def trials(self, number: int) -> Iterator[FedShape]:
        """Shapes to try: the number at each axis in turn, from the last one on, 1 elsewhere."""
        free = [axis for axis, d in enumerate(self.shape) if d is None]
        for chosen in reversed(free):
            fixed = (1 if d is None else d for d in self.shape)
            yield self.dtype, tuple(number if k == chosen else d for k, d in enumerate(fixed))


def decider_of(value: Value) -> Decider | None:
    """A value of the outermost graph as what may decide; None if its shape is known, or no list."""
    if value.kind != "tensor" or value.dtype is None or not value.shape:
        return None
    shape = tuple(d if isinstance(d, int) else None for d in value.shape)
    return Decider(value.name, value.dtype.name, shape) if None in shape else None


def deciders_of(graph: Graph, refused: SardonyxError) -> list[Decider]:
    """What decides on the length of the list for which a graph could not be lowered.

    Args:
        graph: The graph, as it was when it was refused.
        refused: Why.
    """
    found: dict[str, Decider] = {}
    for value in _asked_for(refused):
        for outer in _outermost(graph, value):
            for source in _sources(graph, outer):
                decider = decider_of(source)
                if decider is not None:
                    found[decider.name] = decider
    return list(found.values())


def _asked_for(refused: BaseException) -> tuple[Value, ...]:
    cause = decided_by_data(refused)
    return cause.values if isinstance(cause, DataDependent) else ()


def _outermost(graph: Graph, value: Value) -> list[Value]:
    """The values of the outermost graph that a value, perhaps of a body, is computed from."""
    if value.graph is graph:
        return [value]
    owners = {inner: node for node in graph.walk() for inner in node.subgraphs()}
    found: dict[Value, None] = {}
    seen, stack = {value}, [value]
    while stack:
        inner = stack.pop()
        if inner.graph is graph:
            found[inner] = None
            continue
        for read in _read_for(inner, owners):
            if read is not None and read not in seen:
                seen.add(read)
                stack.append(read)
    return list(found)


def _read_for(value: Value, owners: Mapping[Graph, Node]) -> Sequence[Value | None]:
    """What a value of a body is computed from, one step back."""
    if value.producer is not None:
        return (*value.producer.inputs, *value.producer.captures())
    owner = None if value.graph is None else owners.get(value.graph)
    if owner is None or value.graph is None or value not in value.graph.inputs:
        return ()
    # The inputs of the body of a Loop or Scan stand where those of the node do.
    place = value.graph.inputs.index(value)
    return owner.inputs[place : place + 1]


def _sources(graph: Graph, value: Value) -> list[Value]:
    """The inputs that the sizes of a value follow from; itself, where data has a say."""
    symbols = {atom for d in value.shape or () for atom in sizes.leaves_of(d)}
    owners = _owners(graph, {sizes.of_atom(atom) for atom in symbols})
    return [value] if owners is None else owners


def _owners(graph: Graph, symbols: set[sizes.Size]) -> list[Value] | None:
    """The inputs that have these sizes; None if some are of no input."""
    shapes = {v: set(v.shape or ()) for v in graph.inputs if v.kind == "tensor"}
    known: set[Dim] = set().union(*shapes.values())
    if not symbols or not symbols <= known:
        return None
    return [v for v, dims in shapes.items() if dims & symbols]


def decision_for(graph: Graph, refused: SardonyxError) -> str | None:
    """The decision that a graph waits for where the body of a branch or loop was refused.

    Args:
        graph: The graph, as it was before it was refused.
        refused: Why.
    """
    cause = decided_by_data(refused)
    return None if cause is None else decision_around(graph, cause.node)


def give_decisions(graph: Graph, shapes: Mapping[str, FedShape]) -> None:
    """Write out the branches and loops that were decided; `give_shapes` adds the inputs.

    Raises:
        NotImplemented: A loop goes round too often.
    """
    for name, (_, dims) in shapes.items():
        if is_decision(name):
            write_out(graph, name, dims[0])


def give_outputs(graph: Graph, names: Sequence[str]) -> None:
    """Let a graph give these values alone, inner ones and decisions too; () for its outputs.

    Raises:
        InvalidArgument: There is no such value.
    """
    for name in names:
        if is_decision(name) and graph.value(name) is None:
            add_decision(graph, name)
    keep_outputs(graph, tuple(names))


def give_shapes(graph: Graph, shapes: Mapping[str, FedShape]) -> None:
    """Give inputs these shapes; inner values, and decisions, become inputs behind the others.

    Raises:
        InvalidArgument: The graph has no such value.
    """
    inputs = {value.name: value for value in graph.inputs}
    is_cut = False
    for name, (dtype, dims) in shapes.items():
        value = inputs.get(name)
        if value is not None:
            declared = value.shape or dims
            pairs = zip(declared, dims, strict=True)
            value.shape = tuple(d if isinstance(d, int) else size for d, size in pairs)
            continue
        inner = graph.value(name)
        if inner is None and is_decision(name):
            graph.add_input(Value(name, dtypes.BY_NAME[dtype], dims))
            continue
        if inner is None or inner.graph is not graph:
            raise InvalidArgument(message("run", f"The model has no inner tensor {name!r}"))
        given = Value(graph.fresh_name(f"{name}_given"), dtypes.BY_NAME[dtype], dims)
        graph.add_input(given)
        graph.replace_uses(inner, given)
        is_cut = True
    if is_cut:
        remove_dead(graph)
