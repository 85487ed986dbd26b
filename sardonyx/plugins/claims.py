"""Parts of a model that providers outside the package compute: claimed, compiled, called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import SardonyxError, message
from sardonyx.base.forks import RenewedLock
from sardonyx.base.handlers import pass_on
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.host.claimed import keep
from sardonyx.host.user_defined import is_function
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.value import Value
from sardonyx.loader.writer import write
from sardonyx.ops.core.lower import lower
from sardonyx.passes.parts import as_graph, find_parts
from sardonyx.plugins.provider import (
    Array,
    Compute,
    DeviceMemory,
    ModelNode,
    ModelPart,
    ModelValue,
    Refused,
)
from sardonyx.plugins.regions import RegionRun, is_worth
from sardonyx.plugins.registered import Plugin, Plugins, Regions
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.tensor import Tensor

_logger = get_logger("provider")

#: Domain of the nodes that stand for parts; no file can import it.
DOMAIN = "sardonyx.claimed"


class Claim:
    """A part that a provider computes in each run.

    Attributes:
        provider: Its name.
        nodes: Names of the nodes of the file.
        calls: How often it was asked.
        refusals: How often the processor stood in.
        reason: Why, the last time.
        copied_bytes: To and from memory of the provider's own.
        region: What runs it, if that is a provider of the package.
    """

    def __init__(
        self, plugin: Plugin | Regions, body: Graph, compute: Compute, plugins: Plugins
    ) -> None:
        self.provider, self.body = plugin.name, body
        self.nodes = tuple(dict.fromkeys(n for x in body.nodes for n in x.origin or (x.name,)))
        self.calls = self.refusals = self.copied_bytes = 0
        self.reason = ""
        self._compute, self._plugins = compute, plugins
        self.region = compute if isinstance(compute, RegionRun) else None
        self._memory: DeviceMemory | None = getattr(compute, "memory", None)
        self._lock = RenewedLock()
        self._instead: Callable[[Sequence[Array]], list[Array]] | None = None
        self._number, self._count = keep(self), len(body.outputs)

    @property
    def where(self) -> str:
        """How texts name it."""
        first = self.nodes[0] if self.nodes else "?"
        return f"{self.provider}: {len(self.nodes)} nodes from {first}"

    def lower(
        self,
        inputs: Sequence[Tensor],
        inline: Callable[[Graph, Sequence[Tensor]], list[Tensor]],
    ) -> tuple[Tensor, ...]:
        """The call in place of the nodes, whose shapes and conditions still hold."""
        results = [Result(x.dtype, x.shape) for x in inline(self.body, inputs)]
        return host_call("claimed.part", inputs, results, number=self._number)

    def __call__(self, *given: Array) -> tuple[Array, ...]:
        """The arrays of the outputs.

        Raises:
            RuntimeException: The provider failed; or it refused, and nobody may stand in.
        """
        with self._lock:
            self.calls += 1
        for array in given:
            array.flags.writeable = False  # it lies where the run has it
        try:
            found = self._asked(given)
        except Refused as refusal:
            return self._on_processor(given, str(refusal))
        except SardonyxError:
            raise
        except Exception as error:
            pass_on(error)
            if isinstance(error, MemoryError):
                what = f"There is no memory: {error}"
                raise errors.OutOfMemory(message(self.where, what)) from error
            what = f"The provider failed: {type(error).__name__}: {error}"
            raise errors.RuntimeException(message(self.where, what)) from error
        if len(found) != self._count:
            raise errors.RuntimeException(
                message(
                    self.where, "The provider gave another number of results",
                    expected=str(self._count), got=str(len(found)),
                )
            )  # fmt: skip
        return found

    def _asked(self, given: Sequence[Array]) -> tuple[Array, ...]:
        memory = self._memory
        if memory is None:
            found = tuple(map(np.asarray, self._compute(given)))
            if self.region is not None:
                with self._lock:
                    self.copied_bytes += sum(x.nbytes for x in (*given, *found))
            return found
        handed = [memory.upload(x) for x in given]
        found = tuple(np.asarray(memory.download(x)) for x in self._compute(handed))
        with self._lock:
            self.copied_bytes += sum(x.nbytes for x in (*given, *found))
        return found

    def _on_processor(self, given: Sequence[Array], reason: str) -> tuple[Array, ...]:
        plugins = self._plugins
        if not plugins.may_fall_back or plugins.on_processor is None:
            what = f"The provider refuses: {reason}"
            do = "Leave out session.disable_cpu_ep_fallback"
            raise errors.RuntimeException(message(self.where, what, do=do))
        with self._lock:
            self.refusals += 1
            if self._instead is None or reason != self.reason:
                _logger.warning("[%s] the processor stands in: %s", self.where, reason)
            self.reason = reason
            if self._instead is None:
                self._instead = plugins.on_processor(write(self.body))
        return tuple(self._instead([np.array(x) for x in given]))


@dataclass(slots=True)
class Claims:
    """What became of a model's nodes.

    Attributes:
        made: Parts that providers compute.
        refused: Provider, first node and reason of those that were refused when compiled.
        nodes: What stands for each part in the graph.
        left: Names of the nodes that the processor has, by the reason.
    """

    made: list[Claim] = field(default_factory=list)
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    nodes: dict[Node, Claim] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)

    def forget(self) -> None:
        """Once the graph is lowered: weights of parts that nobody else computes are let go of."""
        self.nodes.clear()
        for made in self.made:
            if made.region is not None:
                made.body = Graph(made.body.name)


def claim(graph: Graph, plugins: Plugins) -> Claims:
    """Let providers claim nodes of a graph, and put one node in place of each part, in place.

    Only nodes of the outermost graph are offered, whose values are tensors of numbers and whose
    sizes do not depend on data. `Regions` have those of branches, too.

    Raises:
        EPFail: A provider failed, or claims what it was not offered.
        Fail: Nodes are left, and may not be.
        NotImplemented: There is no part, and the session needs one.
    """
    claims = Claims()
    for plugin in plugins.all:
        if isinstance(plugin, Regions):
            _claim_regions(graph, plugin, claims, plugins)
            continue
        offered = [node for node in graph.nodes if not _why_left(node)]
        shown, by_view = _shown(graph, offered)
        try:
            wanted = list(plugin.provider.claim(shown))
            chosen = {by_view[node] for node in wanted}
        except Exception as error:
            what = f"It cannot claim nodes: {type(error).__name__}: {error}"
            raise errors.EPFail(message(plugin.name, what)) from error
        for nodes in find_parts(graph, chosen):
            _replace(graph, plugin, nodes, claims, plugins)
    rest = [node.name for node in graph.nodes if node not in claims.nodes]
    if plugins.all and rest and not plugins.may_fall_back:
        what = "Nodes are left for the processor, which session.disable_cpu_ep_fallback forbids"
        raise errors.Fail(message("session", what, got=", ".join(rest[:10])))
    if plugins.needs_parts and not claims.made:
        raise errors.NotImplemented(message("session", "No part of the model is one for a device"))
    return claims


def _claim_regions(graph: Graph, regions: Regions, claims: Claims, plugins: Plugins) -> None:
    """Have a device compute what it can of a graph, and of the branches in it."""
    offered = []
    for node in list(graph.nodes):
        reason = _why_left(node, may_omit=True)
        if not reason:
            offered.append(node)
        elif node not in claims.nodes:
            claims.left.setdefault(reason, []).append(node.name or node.op_type)
        if node.op_type == "If" and not node.domain:
            for branch in node.subgraphs():
                _claim_regions(branch, regions, claims, plugins)
    for nodes in find_parts(graph, offered):
        body, _, _ = as_graph(graph, nodes)
        if is_worth(lower(body)):
            _replace(graph, regions, nodes, claims, plugins)
        else:
            names = [node.name or node.op_type for node in nodes]
            claims.left.setdefault(_LITTLE, []).extend(names)


#: Why the processor has a node.
_LITTLE = "no product, convolution or loop is among their neighbours, so copies would cost more"


def _replace(
    graph: Graph, plugin: Plugin | Regions, nodes: list[Node], claims: Claims, plugins: Plugins
) -> None:
    body, inputs, outputs = as_graph(graph, nodes)
    try:
        if isinstance(plugin, Regions):
            compute: Compute = RegionRun(plugin.compile(body))
        else:
            shown, _ = _shown(body, list(body.nodes))
            compute = plugin.provider.compile(shown)
    except (Refused, errors.NotImplemented) as refusal:
        claims.refused.append((plugin.name, nodes[0].name, str(refusal)))
        where = f"{plugin.name}: {len(nodes)} nodes from {nodes[0].name}"
        _logger.warning("[%s] left to the processor: %s", where, refusal)
        return
    except Exception as error:
        if isinstance(plugin, Regions) and isinstance(error, SardonyxError):
            raise
        what = f"It cannot compile nodes from {nodes[0].name}: {type(error).__name__}: {error}"
        raise errors.EPFail(message(plugin.name, what)) from error
    made = Claim(plugin, body, compute, plugins)
    results = [graph.new_value(value.name, value.dtype, value.shape) for value in outputs]
    node = Node("Part", DOMAIN, inputs, results, name=plugin.name, version=1, origin=made.nodes)
    graph.add_node(node)
    for old, new in zip(outputs, results, strict=True):
        graph.replace_uses(old, new)
    for old_node in reversed(nodes):
        graph.remove_node(old_node)
    graph.topological_sort()
    claims.made.append(made)
    claims.nodes[node] = made


def _why_left(node: Node, *, may_omit: bool = False) -> str:
    """Why a node is not offered; "" if it is. A provider of the package `may_omit` results."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and not v.is_omitted]
    if node.domain == DOMAIN:
        return "another provider has them"
    if any(v.kind != "tensor" or (v.dtype is not None and v.dtype.is_code) for v in values):
        return "they work on strings, sequences, optionals or maps"
    if any(True for _ in node.subgraphs()):
        return "they are branches or loops"
    if may_omit and is_function(node.domain, node.op_type):
        return "they are functions of Python"
    if node.measured:
        return "their sizes depend on data"
    if not may_omit and any(v.is_omitted for v in node.outputs):
        return "some of their results are not wanted"
    if any(v.dtype is None or v.shape is None for v in values):
        return "the types or shapes of their values are not known"
    if any(v.constant is not None and not v.constant.has_data for v in values):
        return "their weights have no contents"
    return ""


def _shown(graph: Graph, nodes: list[Node]) -> tuple[ModelPart, dict[ModelNode, Node]]:
    """How a provider sees nodes of a graph."""
    views: dict[Value, ModelValue] = {}

    def view(value: Value | None) -> ModelValue | None:
        if value is None or value.dtype is None or value.shape is None:
            return None
        found = views.get(value)
        if found is None:
            shape = tuple(map(_shown_size, value.shape))
            found = ModelValue(value.name, value.dtype.numpy, shape, value.constant)
            views[value] = found
        return found

    inside = set(nodes)
    by_view: dict[ModelNode, Node] = {}
    for node in nodes:
        shown = ModelNode(
            node.name, node.op_type, node.domain, node.version, tuple(map(view, node.inputs)),
            tuple(map(view, node.outputs)),
            {name: _shown_attribute(value) for name, value in node.attributes.items()},
        )  # fmt: skip
        by_view[shown] = node
    inputs, outputs = [], []
    for value, made in views.items():
        if value.producer in inside:
            if value.is_graph_output or any(n not in inside for n, _ in value.uses):
                outputs.append(made)
        elif value.constant is None:
            inputs.append(made)
    order = {id(v): k for k, v in enumerate(map(views.get, graph.outputs)) if v is not None}
    outputs.sort(key=lambda v: order.get(id(v), len(order)))
    return ModelPart(tuple(inputs), tuple(outputs), tuple(by_view)), by_view


def _shown_size(size: Dim) -> int | str:
    return size if isinstance(size, int) else repr(size)


def _shown_attribute(value: Attribute) -> Any:
    if isinstance(value, Constant):
        return value.array()
    if isinstance(value, (list, LongList)):
        return [x.array() if isinstance(x, Constant) else x for x in value]
    return value
