"""What becomes of each node of a model: its kernel, or the reason why it has none."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sardonyx.api.inspection import SessionInspection, inspect
from sardonyx.api.session import InferenceSession
from sardonyx.base import errors
from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import scope
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.loader.load import load
from sardonyx.passes.dimensions import fix_denoted
from sardonyx.passes.pipeline import PassLook, optimise
from sardonyx.plan.plan import Command
from sardonyx.profiling.commands import describe, distinct
from sardonyx.runtime.explain import estimated_shares
from sardonyx.tools.feeds import random_feeds
from sardonyx.tools.made_up import Sizes, check_sizes, explained, input_sizes

#: Operators whose results are their inputs' elements in another order, or more often.
_MOVES = frozenset(
    "Reshape Transpose Squeeze Unsqueeze Flatten Identity Slice Split Expand Concat Pad Tile "
    "DepthToSpace SpaceToDepth Gather ReverseSequence CenterCropPad Dropout".split()
)
_UNREAD = "remove what nothing reads"
_OF_PASS = {
    _UNREAD: "nothing reads its results",
    "remove dead nodes": "nothing reads its results any more, once others were simplified",
    "merge equal values": "its result is known to be equal to another value, which stands for it",
    "fold known shapes": "its result follows from shapes, and is a constant",
    "fold batch normalisation": "it became part of the weights of the convolution before it",
    "join products of one factor": "it became part of a larger product with the same left factor",
}
_SIZES = "it only works out sizes, which is done before kernels run"
_OF_WEIGHTS = "it depends on weights alone, and was computed when the session was made"
_BODIES = "it is control flow: the nodes of its bodies have kernels"
_MOVED = "no elements move: what reads it finds them where its input has them"
_SIMPLIFIED = "its value was simplified away, or it stands in a branch that is never taken"


@dataclass(frozen=True)
class KernelFacts:
    """One kernel of a run.

    Attributes:
        plan: "" for the session's own plan, else what for there is another one.
        number: Which command of that plan it is.
        kernel: Its symbol, or the function on the host.
        where: `host` if Python does it, else the target that its code is for.
        operator: What it computes.
        nodes, operators: The nodes in it, and their operators.
        inputs, outputs: Types and shapes, as they lie in memory.
        operations: Multiplications and additions of its sums.
        share: Its part of the estimated time of all kernels; None where that is not known.
        library: The library's function that does it where it can; "" for none.
        note: What the planner remarked.
    """

    plan: str
    number: int
    kernel: str
    where: str
    operator: str
    nodes: list[str]
    operators: list[str]
    inputs: list[str]
    outputs: list[str]
    operations: int
    share: float | None
    library: str
    note: str


@dataclass(frozen=True)
class NodeFacts:
    """A node of the file: the kernels that it is in; if there are none, why."""

    name: str
    operator: str
    kernels: list[str]
    reason: str


@dataclass(frozen=True)
class ModelExplanation:
    """All of it.

    Attributes:
        text: What `InferenceSession.explain` says.
        kernels: In the order of a run.
        nodes: In the file's order.
        memory: What the session holds, see `InferenceSession.memory`.
        timings: Seconds by phase of making the session.
        run: Why no run was made before; "" if one was, or none was asked for.
        sizes: A line about the sizes of that run that nobody gave; "" for none.
    """

    text: str
    kernels: list[KernelFacts]
    nodes: list[NodeFacts]
    memory: dict[str, Any]
    timings: dict[str, float] = field(default_factory=dict)
    run: str = ""
    sizes: str = ""

    @property
    def fusions(self) -> dict[str, int]:
        """How many kernels compute several nodes, by their operators; most frequent first."""
        found = Counter(" ".join(k.operators) for k in self.kernels if len(k.nodes) > 1)
        return dict(found.most_common())

    @property
    def reasons(self) -> dict[str, int]:
        """How many nodes have no kernel, by reason; most frequent first."""
        return dict(Counter(n.reason for n in self.nodes if n.reason).most_common())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kernels": [asdict(k) for k in self.kernels],
            "nodes": [asdict(n) for n in self.nodes],
            "fusions": self.fusions,
            "memory": {k: v for k, v in self.memory.items() if k != "devices"},
            "timings_s": self.timings,
            "no_run": self.run,
            "sizes": self.sizes,
        }


def explain_model(
    model: Any,
    session: InferenceSession,
    *,
    sizes: Mapping[str, int] | None = None,
    run: bool = True,
    verbose: bool = False,
) -> ModelExplanation:
    """What a session does, and what became of each node of its model.

    Args:
        model: What the session was made of: what `loader.load` takes.
        session: The session.
        sizes: Sizes of dimensions in the run, see `random_feeds`.
        run: Whether to run once on random inputs first: sizes and memory are known then.
        verbose: Whether the text has all details.

    Raises:
        InvalidArgument: No input has a dimension of such a name.
    """
    check_sizes(session.get_inputs(), sizes or {})
    chosen = input_sizes(session.get_inputs(), sizes or {})
    why = _run(session, chosen, sizes or {}) if run else ""
    text = session.explain(verbose=verbose)
    kernels = list(_kernels(inspect(session), ""))
    options = session.get_session_options()
    level = int(options.graph_optimization_level)
    with scope(logging.ERROR, ""):  # the session has warned of the file already
        graph = load(model)
    fix_denoted(graph, options.denoted_sizes, options.free_dimension_overrides)
    nodes = _nodes(graph, kernels, level, options.free_dimension_overrides)
    told = chosen.told() if run else ""
    return ModelExplanation(text, kernels, nodes, session.memory(), session.timings, why, told)


def _run(session: InferenceSession, chosen: Sizes, sizes: Mapping[str, int]) -> str:
    """Run once; why not, if it fails."""
    try:
        with explained(chosen, others=""):
            session.run(None, random_feeds(session.get_inputs(), sizes))
    except SardonyxError as error:
        return str(error)
    return ""


def _kernels(found: SessionInspection, purpose: str) -> Iterator[KernelFacts]:
    plan, known = found.plan, found.sizes
    info = describe(plan, found.facts, known).commands
    commands = {k: c for k, c in enumerate(plan.commands) if isinstance(c, Command)}
    shares = estimated_shares(plan, known)
    for number, command in commands.items():
        own = info[number]
        yield KernelFacts(
            purpose, number, own.kernel, "host" if command.host else found.runs_on,
            own.operator, list(own.nodes), distinct(own.operators),
            [f"{t.type}{t.shape if t.shape is not None else '[?]'}" for t in own.inputs],
            [f"{t.type}{t.shape if t.shape is not None else '[?]'}" for t in own.outputs],
            own.operations, shares[number],
            command.library.function if command.library else "", command.note,
        )  # fmt: skip
    for name, other in found.variants.items():
        yield from _kernels(other, name)


# -- nodes --------------------------------------------------------------------------------------


def why_without_kernel(graph: Graph, name: str, level: int) -> str:
    """The reason why a node of a graph, which was just loaded, has no kernel, if it has none."""
    return next((n.reason for n in _nodes(graph, [], level, {}) if n.name == name), _SIMPLIFIED)


def _nodes(
    graph: Graph, kernels: list[KernelFacts], level: int, sizes: Mapping[str, int]
) -> list[NodeFacts]:
    """The file's nodes, those of subgraphs behind the ones that have them."""
    graph.overridable.clear()
    found = [(node.origin[0] if node.origin else node.name, node.op_type) for node in graph.walk()]
    of_sizes, of_weights, holders = _kinds(graph)
    # Nodes that nothing reads stay until a pass drops them: they went with their last reader.
    alive = {name for name, _ in found} & _read(graph)
    gone = dict.fromkeys((name for name, _ in found if name not in alive), _UNREAD)

    def watch(name: str, now: Graph) -> None:
        left = _read(now)
        gone.update(dict.fromkeys(alive - left, name))
        alive.intersection_update(left)

    # Where only runs know the ranks of inputs, passes come no further than that.
    with contextlib.suppress(errors.NotImplemented):
        optimise(graph, level, sizes=sizes, look=PassLook(watch=watch))
    places: dict[str, list[str]] = {}
    for k in kernels:
        where = f"{k.number} {k.kernel}" + (f" ({k.plan})" if k.plan else "")
        for name in dict.fromkeys(k.nodes):
            places.setdefault(name, []).append(where)

    def reason(name: str, operator: str) -> str:
        if name in places:
            return ""
        if name in gone and name not in of_sizes | of_weights:
            return _OF_PASS.get(gone[name], f"gone after: {gone[name]}")
        if name in holders:
            return _BODIES
        for kind, text in ((of_weights, _OF_WEIGHTS), (of_sizes, _SIZES)):
            if name in kind:
                return text
        return _MOVED if operator in _MOVES else _SIMPLIFIED

    return [
        NodeFacts(name, operator, places.get(name, []), reason(name, operator))
        for name, operator in dict.fromkeys(found)
    ]


def _read(graph: Graph) -> set[str]:
    """Names of the nodes whose results reach an output."""
    wanted = set(graph.outputs)
    found: set[str] = set()
    for node in reversed(list(graph.nodes)):
        if wanted.intersection(node.outputs):
            found.update((*node.origin, node.name))
            wanted.update(v for v in node.inputs if v is not None)
            wanted.update(node.captures())
            for inner in node.subgraphs():
                found |= _read(inner)
    return found


def _kinds(graph: Graph) -> tuple[set[str], set[str], set[str]]:
    """Names of nodes that compute sizes, that depend on weights alone, that hold subgraphs."""
    of_sizes: set[str] = set()
    of_weights: set[str] = set()
    holders: set[str] = set()
    constant: set[Value] = set()
    sizes: set[Value] = set()
    for node in graph.walk():
        read = [v for v in node.inputs if v is not None]
        constant.update(v for v in read if v.constant is not None)
        name = node.origin[0] if node.origin else node.name
        if any(True for _ in node.subgraphs()):
            holders.add(name)
        elif node.op_type in ("Shape", "Size"):
            of_sizes.add(name)
            sizes.update(node.outputs)
        elif node.op_type == "Constant" or (read and all(v in constant for v in read)):
            of_weights.add(name)
            constant.update(node.outputs)
        elif read and all(v in constant or v in sizes for v in read):
            of_sizes.add(name)
            sizes.update(node.outputs)
    return of_sizes, of_weights, holders
