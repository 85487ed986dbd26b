"""The passes over a graph, in order. The list is all there is to the order."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from sardonyx.base import knobs
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.ir.graph import Graph
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.verify import verify as verify_graph
from sardonyx.passes.count_positions import count_positions
from sardonyx.passes.declarations import check_declarations
from sardonyx.passes.dimensions import separate_dimensions
from sardonyx.passes.fold_batch_norm import fold_batch_norm
from sardonyx.passes.fold_shapes import fold_shapes
from sardonyx.passes.infer import infer
from sardonyx.passes.join_products import join_products
from sardonyx.passes.link_gradients import link_gradients
from sardonyx.passes.merge_equal import merge_equal
from sardonyx.passes.mix_early import mix_early
from sardonyx.passes.share_element import share_element

_logger = get_logger("passes")

Pass = Callable[[Graph], object]

#: Name for people, pass, lowest optimisation level at which it runs.
PASSES: list[tuple[str, Pass, int]] = [
    ("separate clashing dimensions", separate_dimensions, 0),
    ("link gradients to what they name", link_gradients, 0),
    ("remove what nothing reads", remove_dead, 1),
    ("count positions", count_positions, 1),
    ("infer shapes", infer, 0),
    ("compare with what is declared", check_declarations, 0),
    ("merge equal values", merge_equal, 1),
    ("read one of equal elements", share_element, 1),
    ("fold known shapes", fold_shapes, 0),
    ("fold batch normalisation", fold_batch_norm, 1),
    ("mix channels before resizing", mix_early, 1),
    ("join products of one factor", join_products, 1),
    ("remove dead nodes", remove_dead, 1),
]


@dataclass(frozen=True)
class PassLook:
    """How to look at what passes do.

    Attributes:
        after: Stop after the pass of this name.
        verify: Check the graph after every pass; by default as the knob SARDONYX_VERIFY says.
        watch: Called after each pass, with its name.
    """

    after: str | None = None
    verify: bool | None = None
    watch: Callable[[str, Graph], None] | None = None


_NO_LOOK = PassLook()


def optimise(
    graph: Graph,
    level: int = 99,
    *,
    sizes: Mapping[str, int] | None = None,
    join: bool = False,
    without: Container[str] = (),
    look: PassLook = _NO_LOOK,
) -> None:
    """Run the passes on a graph, in place.

    Args:
        graph: What to work on.
        level: onnxruntime's optimisation level; 0 runs only what is needed to run at all.
        sizes: Numbers for named dimensions of the inputs.
        join: Whether one large product is better than several with the same left factor.
        without: Passes that are left out, of those that need not run.
        look: Whether and how to look at what passes do.

    Raises:
        InvalidGraph: The model is not valid, or a pass broke the graph: the text names it.
        InvalidArgument: There is no pass of the name `look.after`.
    """
    if sizes:
        _override(graph, sizes)
    check = knobs.get("SARDONYX_VERIFY") if look.verify is None else look.verify
    for name, run, lowest in PASSES:
        is_wanted = level >= lowest and (join or run is not join_products)
        if is_wanted and not (lowest and name in without):
            run(graph)
            _logger.debug("after %s: %d nodes", name, len(graph.nodes))
            if look.watch is not None:
                look.watch(name, graph)
            if check:
                verify_graph(graph, after=name)
        if name == look.after:
            return


def _override(graph: Graph, numbers: Mapping[str, int]) -> None:
    """Give named dimensions of the inputs their numbers."""
    for value in graph.inputs:
        if value.shape is not None:
            value.shape = tuple(
                d if isinstance(d, int) else numbers.get(repr(d), d) for d in value.shape
            )
