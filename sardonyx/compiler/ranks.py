"""Models with inputs of unknown rank: what is known of them before a run brings the ranks.

Nothing is compiled before that. The graph is inferred with ranks that are only tried, for the types
of its outputs, and for errors that no rank would mend. More may decide how many axes there are: a
sequence or an optional whose tensors have an undeclared rank, and the shapes of tensors, fed or
computed, such as the length of a list that is the shape of a Reshape. Plans wait for these only
where the model cannot be lowered without.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import INT32, INT64, DType
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.compiler.deciding_shapes import (
    Decider,
    decider_of,
    deciders_of,
    decision_for,
    give_decisions,
    give_outputs,
    give_shapes,
)
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import record_of, where
from sardonyx.passes.pipeline import PassLook, optimise
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.fed_ranks import FedShape

_logger = get_logger("session")

#: What a plan waits for: a rank, or a type and a shape.
Fact = int | FedShape

#: Ranks that are tried, the likeliest first.
_TRIED = (4, 3, 2, 1, 0, 5, 6)
#: Each trial takes the model through all passes. Eighty lists one behind another need as many.
_MOST_TRIALS = 256
#: Plans that wait one behind another: a branch in a branch in a loop, and lists in each.
_MOST_PLANS = 8
#: Inputs that an error names.
_MOST_NAMED = 4


def unranked_inputs(graph: Graph) -> tuple[str, ...]:
    """Names of the inputs that are tensors of unknown rank."""
    return tuple(v.name for v in graph.inputs if v.kind == "tensor" and v.shape is None)


def inputs_that_may_decide(graph: Graph) -> dict[str, Decider | None]:
    """Lists of any length, and sequences and optionals of tensors of unknown rank, by name.

    None for those whose rank would decide.
    """
    found: dict[str, Decider | None] = {}
    for value in graph.inputs:
        if _is_list(value):
            found[value.name] = decider_of(value)
        elif _inside(value) is not None:
            found[value.name] = None
    return found


def _trials(decider: Decider | None, number: int) -> Sequence[Fact]:
    return [number] if decider is None else list(decider.trials(number))


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
        if value.name not in ranks:
            continue
        rank, inside = ranks[value.name], _inside(value)
        axes = tuple(sizes.symbol(f"{value.name}.{axis}") for axis in range(rank))
        if inside is not None and value.type is not None:
            value.type = replace(value.type, element=replace(inside, shape=axes))
        elif not value.shape:
            value.shape = axes


def give(graph: Graph, facts: Mapping[str, Fact]) -> None:
    """Give values ranks, or types and shapes."""
    give_decisions(graph, {n: fact for n, fact in facts.items() if not isinstance(fact, int)})
    give_ranks(graph, {name: fact for name, fact in facts.items() if isinstance(fact, int)})
    give_shapes(graph, {name: fact for name, fact in facts.items() if not isinstance(fact, int)})


class WaitingModel(NamedTuple):
    """What a plan waits for.

    Attributes:
        names: The values, and decisions, that a run must bring first.
        facts: What the graph can be lowered with: of them, then of what the plan for them waits for
            in turn.
    """

    names: tuple[str, ...]
    facts: Mapping[str, Fact]


#: Why a copy of a graph, which may be changed, cannot be lowered; None if it can.
Refusal = Callable[[Graph], SardonyxError | None]


def inputs_that_decide(
    graph: Graph, spent: Graph, refused: SardonyxError, refusal: Refusal, depth: int = _MOST_PLANS
) -> WaitingModel:
    """What the graph can be lowered with: ranks and shapes of as few values as must be known.

    Where no list outside decides, branches and loops are decided on, one by one: each of their
    plans finds what decides in it.

    Args:
        graph: Stays as it is.
        spent: The copy of it that was refused.
        refused: Why it cannot be lowered as it is.
        refusal: Why a copy of it, which may be changed, cannot be lowered either; None if it can.
        depth: How many plans may wait, one behind another.

    Raises:
        SardonyxError: The refusal that comes whatever they are, or what to declare.
    """
    asked = deciders_of(spent, refused)
    search = _Search(graph, refused, refusal)
    try:
        found = search.run(asked)
        return WaitingModel(tuple(found), found)
    except SardonyxError:
        waiting = _decided(graph, refused, refusal, search, depth) if depth else None
        if waiting is None:
            raise
        return waiting


def _decided(
    graph: Graph, refused: SardonyxError, refusal: Refusal, search: _Search, depth: int
) -> WaitingModel | None:
    """The same where a branch or loop is refused: what it decides, and what its plan waits for.

    It may be refused only once lists are known that `search` has found: plans wait for these first.
    """
    decision = decision_for(graph, refused)
    tries: list[dict[str, Fact]] = []
    if decision is not None:
        if not _can_be_computed(graph, decision, refusal, depth):
            return None
        _logger.info("Plans wait for %s, as without it: %s", decision, refused)
        tries = [{decision: (INT64.name, (length,))} for length in (1, 0)]
    else:
        tries = [facts for facts in [search.before_decision()] if facts]
    for facts in tries:
        whole = graph.clone()
        try:
            give(whole, facts)
            spent = whole.clone()
            reason = refusal(spent)
            if reason is None:
                return WaitingModel(tuple(facts), facts)
            then = inputs_that_decide(whole, spent, reason, refusal, depth - 1)
            return WaitingModel(tuple(facts), facts | dict(then.facts))
        except SardonyxError as error:
            _logger.debug("It is refused with %s, too: %s", facts, error)
    return None


def _can_be_computed(graph: Graph, decision: str, refusal: Refusal, depth: int) -> bool:
    """Whether there is a plan for a decision: a loop's end may depend on what has none."""
    whole = graph.clone()
    try:
        give_outputs(whole, (decision,))
        spent = whole.clone()
        reason = refusal(spent)
        if reason is not None:
            inputs_that_decide(whole, spent, reason, refusal, depth - 1)
    except SardonyxError as error:
        _logger.debug("No plan has the %s: %s", decision, error)
        return False
    return True


class _Search:
    """Tries ranks and shapes, each time with the whole model."""

    def __init__(
        self,
        graph: Graph,
        refused: SardonyxError,
        refusal: Callable[[Graph], SardonyxError | None],
    ) -> None:
        self._graph, self._refused, self._refusal = graph, refused, refusal
        self._deciding = inputs_that_may_decide(graph)
        self._nodes = list(graph.nodes)
        self._numbers = {f"[{where(node)}]": k for k, node in enumerate(self._nodes)}
        self._candidates = _candidates(graph)
        self._count = 0
        #: What the refusal that came furthest through the nodes asks for.
        self._asked: list[Decider] = []
        self._furthest, self._best, self._last = -2, dict[str, Fact](), refused

    def run(self, asked: list[Decider]) -> dict[str, Fact]:
        """See `inputs_that_decide`; `asked` is what the first refusal is about."""
        if not self._deciding:
            self._deciding.update((decider.name, decider) for decider in asked)
        if not self._deciding:
            raise self._refused
        while True:
            names = ", ".join(self._deciding)
            what = "Lengths or ranks of %s are tried, as without them: %s"
            _logger.info(what, names, self._refused)
            self._asked = asked
            try:
                found = self._fitting()
                break
            except SardonyxError:
                more = {d.name: d for d in self._asked if d.name not in self._deciding}
                if not more or self._count >= _MOST_TRIALS:
                    raise
                self._deciding.update(more)

        def suffice(known: tuple[str, ...]) -> bool:
            return bool(known) and self._tried({name: found[name] for name in known}) is None

        needed = _needed((), tuple(found), suffice)
        names = ", ".join(needed)
        _logger.info("After %d trials: plans wait for lengths or ranks of %s", self._count, names)
        return {name: found[name] for name in needed}

    def before_decision(self) -> dict[str, Fact] | None:
        """What must be known for a branch or loop to be all that is refused; None if none is."""
        decision, best = decision_for(self._graph, self._last), self._best
        if decision is None:
            return None

        def suffice(known: tuple[str, ...]) -> bool:
            reason = self._tried({name: best[name] for name in known})
            return reason is not None and decision_for(self._graph, reason) == decision

        try:
            return {name: best[name] for name in _needed((), tuple(best), suffice)}
        except SardonyxError:  # there were too many trials
            return None

    def _tried(self, facts: Mapping[str, Fact]) -> SardonyxError | None:
        if self._count == _MOST_TRIALS:
            what = (
                "The number of axes of the model's tensors depends on too many inputs: "
                f"{self._count} trials did not tell which numbers fit. Without any: {self._refused}"
            )
            do = "Declare how many elements the lists have, or how many axes the items have"
            raise errors.NotImplemented(message(_inputs(tuple(self._deciding)), what, do=do))
        self._count += 1
        trial = self._graph.clone()
        give(trial, facts)
        reason = self._refusal(trial)
        if reason is not None and self._place(reason) > self._furthest:
            self._furthest, self._best, self._last = self._place(reason), dict(facts), reason
            self._asked = deciders_of(trial, reason) or self._asked
        return reason

    def _place(self, reason: SardonyxError) -> int:
        text = str(reason)
        return next((k for head, k in self._numbers.items() if text.startswith(head)), -1)

    def _fitting(self) -> dict[str, Fact]:
        """Facts of all that may decide, with which the graph can be lowered.

        First the same for all. From those that come furthest through the nodes on, those that the
        refused node depends on are changed one by one, as long as that comes further.
        """
        self._furthest, self._best, self._last = -2, {}, self._refused
        reasons: list[SardonyxError] = []
        for number in self._candidates:
            facts = {name: _trials(d, number)[0] for name, d in self._deciding.items()}
            reason = self._tried(facts)
            if reason is None:
                return facts
            reasons.append(reason)
        is_single = all(len(_trials(d, 1)) == 1 for d in self._deciding.values())
        if is_single and len({str(reason) for reason in reasons}) == 1:
            raise reasons[0]
        if self._furthest <= self._place(self._refused):
            raise self._refused  # no length helps
        goes_on = True
        while goes_on:
            goes_on, before = False, self._furthest
            read = [name for name in _read_by(self._nodes[before]) if name in self._deciding]
            for name, number in itertools.product(read, self._candidates):
                for fact in _trials(self._deciding[name], number):
                    facts = self._best | {name: fact}
                    if self._tried(facts) is None:
                        return facts
                    goes_on = goes_on or self._furthest > before
                if goes_on:
                    break
        what = "The number of axes of the model's tensors depends on it, and no number that was"
        raise errors.NotImplemented(
            message(
                _inputs(read or tuple(self._deciding)), f"{what} tried fits: {self._last}",
                do="Declare how many elements the list has, or how many axes its items have",
            )
        ) from self._refused  # fmt: skip


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
    return [*_TRIED, *range(len(_TRIED), min(most, sizes.MOST_AXES) + 1)]


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
    fitting: Mapping[str, Fact] | None = None,
) -> tuple[ValueInfo, ...]:
    """The outputs of a graph with inputs of unknown rank: types as inferred, shapes as declared.

    Args:
        graph: Stays as it is.
        level: The optimisation level.
        numbers: Sizes of named dimensions.
        names: The inputs whose rank is unknown.
        fitting: Ranks and shapes of them that are known to do.

    Raises:
        InvalidGraph, NotImplemented: As inference, where no rank can help.
    """
    reasons = []
    deciding = dict[str, Decider | None].fromkeys(names) | inputs_that_may_decide(graph)
    known = [dict.fromkeys(names)] + ([deciding] if len(deciding) > len(names) else [])
    likely: list[Mapping[str, Fact]] = [
        {name: _trials(decider, rank)[0] for name, decider in some.items()}
        for some in known
        for rank in _TRIED
    ]
    for facts in [fitting] if fitting else likely:
        trial = graph.clone()
        give(trial, facts)
        try:
            optimise(trial, level, sizes=numbers, look=PassLook(after="infer shapes"))
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
