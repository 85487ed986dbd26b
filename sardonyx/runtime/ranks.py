"""Models with inputs of unknown rank: what is known of them before a run brings the ranks.

Nothing is compiled before that. The graph is inferred with ranks that are only tried, for the types
of its outputs, and for errors that no rank would mend.
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.ops.registry import record_of
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.declared import ValueInfo

#: Ranks that are tried, the likeliest first.
_TRIED = (4, 3, 2, 1, 0, 5, 6)


def unranked_inputs(graph: Graph) -> tuple[str, ...]:
    """Names of the inputs that are tensors of unknown rank."""
    return tuple(v.name for v in graph.inputs if v.kind == "tensor" and v.shape is None)


def give_ranks(graph: Graph, ranks: Mapping[str, int]) -> None:
    """Give inputs of unknown rank, or declared as numbers, so many dimensions of any size."""
    for value in graph.inputs:
        if value.name in ranks and not value.shape:
            axes = range(ranks[value.name])
            value.shape = tuple(sizes.symbol(f"{value.name}.{axis}") for axis in axes)


def outputs_of_unranked(
    graph: Graph, level: int, numbers: Mapping[str, int]
) -> tuple[ValueInfo, ...]:
    """The outputs of a graph with inputs of unknown rank: types as inferred, shapes as declared.

    Args:
        graph: Stays as it is.
        level: The optimisation level.
        numbers: Sizes of named dimensions.

    Raises:
        InvalidGraph, NotImplemented: As inference, where no rank can help.
    """
    names = unranked_inputs(graph)
    reasons = []
    for rank in _TRIED:
        trial = graph.clone()
        give_ranks(trial, dict.fromkeys(names, rank))
        try:
            optimise(trial, level, sizes=numbers, after="infer shapes")
        except (InvalidGraph, errors.NotImplemented) as reason:
            reasons.append(reason)
            continue
        found = [value.dtype for value in trial.outputs]
        break
    else:
        _raise_independent(graph, names, reasons)
        found = [None for _ in graph.outputs]
    return tuple(map(_output, graph.outputs, found))


def _raise_independent(
    graph: Graph, names: tuple[str, ...], reasons: list[InvalidGraph | errors.NotImplemented]
) -> None:
    """Raise what is wrong whatever the ranks are."""
    # Ranks of several inputs may have to differ, which was not tried.
    if len(names) == 1 and len({str(reason) for reason in reasons}) == 1:
        raise reasons[0]
    for node in graph.walk():
        record_of(node)


def _output(value: Value, inferred: DType | None) -> ValueInfo:
    said = value.declared
    dtype = inferred
    if dtype is None and said is not None:
        dtype = said.dtype if said.kind == "tensor" else said.as_dtype()
    if dtype is None:
        what = "Its type is not declared, and the inputs' ranks, which it depends on, are not known"
        raise InvalidGraph(message(f"output {value.name}", what))
    shape = said.shape if said is not None and said.kind == "tensor" else None
    dims = (d if isinstance(d, int) else repr(d) for d in shape or ())
    names = (None if d == f"{value.name}.{k}" else d for k, d in enumerate(dims))
    return ValueInfo(value.name, dtype, tuple(names))
