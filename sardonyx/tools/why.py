"""Why one node of a model is computed as it is: its kernels, and what is known of the choice."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base import sizes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import scope
from sardonyx.base.printable import printable_lines
from sardonyx.base.sizes import Dim
from sardonyx.compiler.model_interface import input_info
from sardonyx.compiler.stages import Planned, planned
from sardonyx.compiler.targets import DEVICES
from sardonyx.compiler.text_groups import Item, value_of
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.tools.explain import why_without_kernel
from sardonyx.tools.made_up import check_sizes
from sardonyx.tools.measured import measure_node


def why_text(
    model: Any,
    node: str,
    *,
    known: Mapping[str, int] | None = None,
    level: int = 99,
    target: str | None = None,
    measured: int | None = None,
) -> str:
    """What becomes of a node: kernels, candidates, what passes did, layouts, times.

    Args:
        model: What `loader.load` takes.
        node: Name of the node, or of one of its outputs.
        known: Sizes of dimensions, for expected times.
        level: onnxruntime's optimisation level.
        target: One of `compiler.targets.TARGETS`; None for this machine.
        measured: Threads of runs in which its kernels are measured, 0 for as many as there are
            processors; None for no runs.

    Raises:
        InvalidArgument: There is no such node, dimension or target.
        SardonyxError: The model is to be measured, and does not run with random inputs.
    """
    with scope(logging.ERROR, ""):  # sessions warn of the file
        graph = load(model)
        known = known or {}
        check_sizes(map(input_info, graph.inputs), known)
        name, operator = _found(graph, node)
        reason = why_without_kernel(load(model), name, level)
        plan = planned(graph, target, level)
    items = [item for item in plan.work.items if name in item.nodes]
    lines = [f"node {name}: {operator}"]
    if not items:
        lines.append(f"no kernel: {reason}")
    for item in items:
        lines.append(plan.work.group(item))
        lines += [f"  {line}" for line in _lines(plan, item, name, known, target in DEVICES)]
    if measured is not None and any(item.made for item in items):
        with scope(logging.ERROR, ""):
            times = measure_node(model, name, known=known, level=level, threads=measured)
        lines += [f"  {line}" for line in times.lines()]
    return printable_lines(lines)


def _found(graph: Graph, name: str) -> tuple[str, str]:
    """The name of the node that is meant, and its operator."""
    outputs: dict[str, tuple[str, str]] = {}
    nodes: dict[str, tuple[str, str]] = {}
    for node in graph.walk():
        own = node.origin[0] if node.origin else node.name
        nodes.setdefault(own, (own, node.op_type))
        outputs.update((v.name, (own, node.op_type)) for v in node.outputs)
    found = nodes.get(name) or outputs.get(name)
    if found is None:
        what = f"No node is called {name!r}, and none has such an output"
        raise InvalidArgument(message("--why", what, do=nearest(name, [*nodes, *outputs])))
    return found


def _lines(
    plan: Planned, item: Item, name: str, known: Mapping[str, int], on_device: bool
) -> Iterator[str]:
    others = " ".join(n for n in item.nodes if n != name)
    yield f"fused with: {others or 'no other node'}"
    yield from (f"choice: {text}" for text in plan.work.choices_of(item))
    yield from (f"candidate: {text}" for text in plan.work.candidates_of(item, known))
    yield from (f"pass: {text}" for text in plan.work.passes_of(item))
    yield from (f"apart: {text}" for text in plan.work.apart_of(item))
    yield from (f"layout: {text}" for text in plan.work.layouts_of(item))
    if item.made and not on_device:  # costs are of the processor's threads
        yield f"expected: {_expected(plan, item, known)}"


def _expected(plan: Planned, item: Item, known: Mapping[str, int]) -> str:
    """Time of a group in a run, by the cost model, and its share."""
    if all(i.kernel.program.name in plan.work.once for i in item.own):
        return "nothing in a run: it is computed once, when the session is made"
    own = _cost(plan, [item])
    value = value_of(own, known)
    if not isinstance(value, int):
        return f"{own!r} ns on one thread, by the cost model; --dim gives sizes"
    whole = value_of(_cost(plan, plan.work.items), known)
    share = ""
    if isinstance(whole, int) and whole:
        share = f", {100 * value / whole:.0f} % of all kernels"
    return f"{value} ns on one thread{share}, by the cost model"


def _cost(plan: Planned, items: Sequence[Item]) -> Dim:
    once = plan.work.once
    made = (i.kernel for item in items for i in item.made)
    return sizes.total(k.cost_ns for k in made if k.program.name not in once)
