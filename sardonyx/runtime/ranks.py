"""Models with inputs of unknown rank: what is known of them before a run brings the ranks.

Nothing is compiled before that. The graph is inferred with ranks that are only tried, for the types
of its outputs, and for errors that no rank would mend. Two more kinds of input may decide how many
axes there are: a list of whole numbers of any length, as the shape of a Reshape, and a sequence or
an optional whose tensors have an undeclared rank. Their *rank* is that length, or that of the
tensors; they wait for runs only where the model cannot be lowered without.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import INT32, INT64, DType
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.ops.registry import record_of, where
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.fed_ranks import MOST_AXES

_logger = get_logger("session")

#: Ranks that are tried, the likeliest first.
_TRIED = (4, 3, 2, 1, 0, 5, 6)
#: Each trial takes the model through all passes. Eighty lists one behind another need as many.
_MOST_TRIALS = 256
#: Inputs that an error names.
_MOST_NAMED = 4


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

    Tensors in sequences and optionals get that rank, too.
    """
    for value in graph.inputs:
        if value.name not in ranks or _is_list(value):
            continue
        rank, inside = ranks[value.name], _inside(value)
        axes = tuple(sizes.symbol(f"{value.name}.{axis}") for axis in range(rank))
        if inside is not None and value.type is not None:
            value.type = replace(value.type, element=replace(inside, shape=axes))
        elif not value.shape:
            value.shape = axes


def give_lengths(graph: Graph, lengths: Mapping[str, int]) -> None:
    """Give lists of any length so many elements."""
    for value in graph.inputs:
        if value.name in lengths and _is_list(value):
            value.shape = (lengths[value.name],)


def inputs_that_decide(
    graph: Graph, refused: SardonyxError, refusal: Callable[[Graph], SardonyxError | None]
) -> dict[str, int]:
    """Ranks of inputs with which the graph can be lowered: of as few as must be known.

    Args:
        graph: Stays as it is.
        refused: Why it cannot be lowered as it is.
        refusal: Why a copy of it, which may be changed, cannot be lowered either; None if it can.

    Raises:
        SardonyxError: The refusal that comes whatever they are, or what to declare.
    """
    deciding = inputs_that_may_decide(graph)
    names = ", ".join(deciding)
    _logger.info("Lengths or ranks of %s are tried, as without them: %s", names, refused)
    count = 0

    def tried(ranks: Mapping[str, int]) -> SardonyxError | None:
        nonlocal count
        if count == _MOST_TRIALS:
            what = (
                "The number of axes of the model's tensors depends on too many inputs: "
                f"{count} trials did not tell which numbers fit. Without any: {refused}"
            )
            do = "Declare how many elements the lists have, or how many axes the items have"
            raise errors.NotImplemented(message(_inputs(deciding), what, do=do))
        count += 1
        trial = graph.clone()
        give_ranks(trial, ranks)
        give_lengths(trial, ranks)
        return refusal(trial)

    found = _ranks_that_fit(graph, refused, tried)

    def suffice(known: tuple[str, ...]) -> bool:
        return bool(known) and tried({name: found[name] for name in known}) is None

    needed = _needed((), tuple(found), suffice)
    _logger.info("After %d trials: plans wait for lengths or ranks of %s", count, ", ".join(needed))
    return {name: found[name] for name in needed}


def _ranks_that_fit(
    graph: Graph,
    refused: SardonyxError,
    tried: Callable[[Mapping[str, int]], SardonyxError | None],
) -> dict[str, int]:
    """Such ranks of all `inputs_that_may_decide`.

    First the same for all. From those that come furthest through the nodes on, ranks of what the
    refused node depends on are changed one by one, as long as that comes further.
    """
    names = inputs_that_may_decide(graph)
    nodes = list(graph.nodes)
    numbers = {f"[{where(node)}]": k for k, node in enumerate(nodes)}

    def node_of(reason: SardonyxError) -> int:
        return next((k for text, k in numbers.items() if str(reason).startswith(text)), -1)

    reasons: list[SardonyxError] = []
    furthest, best, last = -2, dict[str, int](), refused
    candidates = _candidates(graph)
    for rank in candidates:
        ranks = dict.fromkeys(names, rank)
        reason = tried(ranks)
        if reason is None:
            return ranks
        reasons.append(reason)
        if node_of(reason) > furthest:
            furthest, best, last = node_of(reason), ranks, reason
    if len({str(reason) for reason in reasons}) == 1:
        raise reasons[0]
    if furthest <= node_of(refused):
        raise refused  # no length helps
    known = frozenset(names)
    goes_on = True
    while goes_on:
        goes_on = False
        read = [name for name in _read_by(nodes[furthest]) if name in known]
        for name, rank in itertools.product(read, candidates):
            ranks = best | {name: rank}
            reason = tried(ranks)
            if reason is None:
                return ranks
            if node_of(reason) > furthest:
                furthest, best, last, goes_on = node_of(reason), ranks, reason, True
                break
    what = "The number of axes of the model's tensors depends on it, and no number that was tried"
    raise errors.NotImplemented(
        message(
            _inputs(read or names), f"{what} fits: {last}",
            do="Declare how many elements the list has, or how many axes its items have",
        )
    ) from refused  # fmt: skip


def _inputs(names: Sequence[str]) -> str:
    """Where an error is: inputs, of which the first few are named."""
    more = len(names) - _MOST_NAMED
    named = ", ".join(names[:_MOST_NAMED])
    return f"input {named} and {more} more" if more > 0 else f"input {named}"


def _candidates(graph: Graph) -> list[int]:
    """Ranks to try: the likely ones, and as many as some node's permutation has axes."""
    most = 0
    for node in graph.walk():
        axes = node.attributes.get("perm")
        most = max(most, len(axes) if isinstance(axes, Sequence) else 0)
    return [*_TRIED, *range(len(_TRIED), min(most, MOST_AXES) + 1)]


def _inside_of(node: Node) -> Iterator[Node]:
    return (inner for graph in node.subgraphs() for inner in graph.walk())


def _read_by(node: Node) -> list[str]:
    """Names of what a node depends on, the nearest first: they are likely to be at fault."""
    found: dict[str, None] = {}
    seen, nodes = {node}, deque([node])
    while nodes:
        node = nodes.popleft()
        for value in (v for n in (node, *_inside_of(node)) for v in n.inputs if v is not None):
            found[value.name] = None
            if value.producer is not None and value.producer not in seen:
                seen.add(value.producer)
                nodes.append(value.producer)
    return list(found)


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
    graph: Graph,
    level: int,
    numbers: Mapping[str, int],
    names: tuple[str, ...],
    fitting: Mapping[str, int] | None = None,
) -> tuple[ValueInfo, ...]:
    """The outputs of a graph with inputs of unknown rank: types as inferred, shapes as declared.

    Args:
        graph: Stays as it is.
        level: The optimisation level.
        numbers: Sizes of named dimensions.
        names: The inputs whose rank is unknown.
        fitting: Ranks of them that are known to do.

    Raises:
        InvalidGraph, NotImplemented: As inference, where no rank can help.
    """
    reasons = []
    deciding = inputs_that_may_decide(graph)
    known = [names, names + deciding] if deciding else [names]
    likely = [dict.fromkeys(some, rank) for some in known for rank in _TRIED]
    for ranks in [fitting] if fitting else likely:
        trial = graph.clone()
        give_ranks(trial, ranks)
        give_lengths(trial, ranks)
        try:
            optimise(trial, level, sizes=numbers, after="infer shapes")
        except (InvalidGraph, errors.NotImplemented) as reason:
            reasons.append(reason)
            continue
        found = [value.dtype for value in trial.outputs]
        break
    else:
        _raise_independent(graph, names, reasons[: len(_TRIED)])
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
