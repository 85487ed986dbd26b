"""Models with inputs of unknown rank: what is known of them before a run brings the ranks.

Nothing is compiled before that. The graph is inferred with ranks that are only tried, for the types
of its outputs, and for errors that no rank would mend. Two more kinds of input may decide how many
axes there are: a list of whole numbers of any length, as the shape of a Reshape, and a sequence or
an optional whose tensors have an undeclared rank. Their *rank* is that length, or that of the
tensors; they wait for runs only where the model cannot be lowered without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import INT32, INT64, DType
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.ops.registry import record_of
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.declared import ValueInfo

#: Ranks that are tried, the likeliest first.
_TRIED = (4, 3, 2, 1, 0, 5, 6)


def unranked_inputs(graph: Graph) -> tuple[str, ...]:
    """Names of the inputs that are tensors of unknown rank."""
    return tuple(v.name for v in graph.inputs if v.kind == "tensor" and v.shape is None)


def inputs_that_may_decide(graph: Graph) -> tuple[str, ...]:
    """Names of lists of any length, and of sequences and optionals of tensors of unknown rank."""
    return tuple(v.name for v in graph.inputs if _is_list(v) or _inside(v) is not None)


def _is_list(value: Value) -> bool:
    if value.kind != "tensor" or value.dtype not in (INT64, INT32):
        return False
    shape = value.shape
    return shape is not None and len(shape) == 1 and not isinstance(shape[0], int)


def _inside(value: Value) -> ValueType | None:
    """The type of the tensors in a sequence or an optional, if it does not say their rank."""
    inside = value.type.element if value.kind in ("sequence", "optional") and value.type else None
    if inside is None or inside.kind != "tensor" or inside.shape is not None:
        return None
    return inside


def give_ranks(graph: Graph, ranks: Mapping[str, int]) -> None:
    """Give inputs of unknown rank, or declared as numbers, so many dimensions of any size.

    Lists get that length, tensors in sequences and optionals that rank.
    """
    for value in graph.inputs:
        if value.name not in ranks:
            continue
        rank, inside = ranks[value.name], _inside(value)
        axes = tuple(sizes.symbol(f"{value.name}.{axis}") for axis in range(rank))
        if inside is not None and value.type is not None:
            value.type = replace(value.type, element=replace(inside, shape=axes))
        elif _is_list(value):
            value.shape = (rank,)
        elif not value.shape:
            value.shape = axes


def inputs_that_decide(
    graph: Graph, refusal: Callable[[Graph], SardonyxError | None]
) -> tuple[str, ...]:
    """As few of `inputs_that_may_decide` as must be known for the graph to be lowered.

    Args:
        graph: Stays as it is. It cannot be lowered as it is.
        refusal: Why a copy of it, which may be changed, cannot be lowered either; None if it can.

    Returns:
        Their names; none, if knowing all of them does not help.

    Raises:
        SardonyxError: The refusal that comes whatever they are.
    """

    def tried(names: Sequence[str], rank: int) -> SardonyxError | None:
        trial = graph.clone()
        give_ranks(trial, dict.fromkeys(names, rank))
        return refusal(trial)

    names = inputs_that_may_decide(graph)
    reasons: list[SardonyxError] = []
    for rank in _TRIED:
        reason = tried(names, rank)
        if reason is None:
            break
        reasons.append(reason)
    else:
        if len({str(reason) for reason in reasons}) == 1:
            raise reasons[0]
        return ()
    return _needed((), names, lambda known: bool(known) and tried(known, rank) is None)


def _needed(
    known: tuple[str, ...], names: tuple[str, ...], suffice: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """As few of the names as suffice beside those that are known; by halves, since most do not."""
    if suffice(known):
        return ()
    if len(names) == 1:
        return names
    first, second = names[: len(names) // 2], names[len(names) // 2 :]
    of_second = _needed(known + first, second, suffice)
    return _needed(known + of_second, first, suffice) + of_second


def outputs_of_unranked(
    graph: Graph, level: int, numbers: Mapping[str, int], names: tuple[str, ...]
) -> tuple[ValueInfo, ...]:
    """The outputs of a graph with inputs of unknown rank: types as inferred, shapes as declared.

    Args:
        graph: Stays as it is.
        level: The optimisation level.
        numbers: Sizes of named dimensions.
        names: The inputs whose rank is unknown.

    Raises:
        InvalidGraph, NotImplemented: As inference, where no rank can help.
    """
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
