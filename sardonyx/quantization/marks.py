"""Which tensors of a graph become codes: what each quantised node asks for.

Nothing is changed here, but nodes go whose work the range of codes does already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.quantization.calibration_data import TensorData
from sardonyx.quantization.model import FLOATS, is_fixed
from sardonyx.quantization.settings import QuantizationSettings

_logger = get_logger("quantization")

Ranges = dict[Value, TensorData]
#: Numbers of this size are no data but say `never`, as masks of attention do. A range with one
#: would leave a single code for everything else.
_NEVER = 1e30


@dataclass
class Mark:
    """A tensor that becomes codes.

    Attributes:
        is_weight: Whether it gets the type of weights.
        axis: Axis of channels that have scales of their own, or None.
        like: The tensor whose scale and zero point it shares, or None.
    """

    is_weight: bool = False
    axis: int | None = None
    like: Value | None = None


@dataclass(frozen=True)
class Bias:
    """A bias that becomes codes of 32 bits, with the scale of the sums that it is added to.

    Attributes:
        node: Who reads it.
        index: As which input.
        x: What the weights are multiplied with.
        weight: The weights.
        alpha: What the sums are multiplied with.
        beta: What the bias is multiplied with.
    """

    node: Node
    index: int
    x: Value
    weight: Value
    alpha: float = 1.0
    beta: float = 1.0


class Marks:
    """Collects what nodes ask for.

    Attributes:
        tensors: What becomes codes, in order.
        biases: What becomes codes of 32 bits.
    """

    def __init__(self, graph: Graph, settings: QuantizationSettings, ranges: Ranges) -> None:
        self.graph = graph
        self.settings = settings
        self.options = settings.options
        self.ranges = ranges
        self.tensors: dict[Value, Mark] = {}
        self.biases: list[Bias] = []

    def collect(self, rules: dict[str, Rule], default: Rule) -> None:
        """Ask every node that is to be quantised."""
        for node in self.graph.nodes:
            if node.graph is self.graph and self.settings.wants(node):
                rules.get(node.op_type, default)(self, node)

    def can(self, value: Value | None) -> bool:
        """Whether a value can become codes."""
        if value is None or value.is_omitted or value.dtype not in FLOATS:
            return False
        if value.producer is not None and value.producer.op_type == "DequantizeLinear":
            return False
        return is_fixed(value) or self._has_bounds(value)

    def _has_bounds(self, value: Value) -> bool:
        found = self.ranges.get(value)
        if found is None:
            return True  # the error comes when its scale is asked for
        low, high = found.range_value
        if not np.isfinite(low).all() or not np.isfinite(high).all():
            size = np.inf
        else:
            size = float(max(np.max(np.abs(low)), np.max(np.abs(high))))
        if size < _NEVER:
            return True
        _logger.warning("%s reaches %g: it stays a float.", value.name, size)
        return False

    def is_marked(self, value: Value | None) -> bool:
        """Whether a value becomes codes."""
        return value in self.tensors

    def activation(self, value: Value | None) -> None:
        """Ask for a value as codes of the type of activations."""
        if value is not None and self.can(value):
            self.tensors.setdefault(value, Mark())

    def weight(self, value: Value | None, axis: int, op_type: str = "") -> None:
        """Ask for a value as codes of the type of weights.

        Args:
            value: The weights.
            axis: The axis of their channels.
            op_type: The operator whose axis the options may give instead.
        """
        if value is None or not self.can(value):
            return
        found = self._channel_axis(value, axis, op_type)
        if found is not None or self.options.block:
            self.tensors[value] = Mark(is_weight=True, axis=found)
        else:
            self.tensors.setdefault(value, Mark(is_weight=True))

    def _channel_axis(self, value: Value, axis: int, op_type: str) -> int | None:
        if not is_fixed(value):
            return None
        given = self.options.overrides.get(value.name)
        if given is not None:
            found = given[0].get("axis")
            if found is None:
                return None
            axis = found
        elif not self.settings.per_channel:
            return None
        else:
            axis = self.options.channel_axes.get(op_type, axis)
        rank = len(value.shape or ())
        if not -rank <= axis < rank:
            _logger.warning("%s has no axis %d: it gets one scale.", value.name, axis)
            return None
        return axis % rank

    def same(self, output: Value, like: Value | None) -> None:
        """Ask for an output with the scale and zero point of an input."""
        if like is not None and self.can(output):
            self.tensors[output] = Mark(like=like)

    def bias(self, node: Node, index: int, alpha: float = 1.0, beta: float = 1.0) -> None:
        """Ask for a bias, input `index`, in 32 bits; inputs 0 and 1 are multiplied."""
        value, x, weight = node.input(index), node.input(0), node.input(1)
        if value is None or x is None or weight is None or not self.options.quantise_bias:
            return
        if value.name in self.options.overrides:
            self.weight(value, 0)
            return
        if not is_fixed(value) or value.dtype not in FLOATS:
            _logger.warning("The bias of node %s is computed: it stays a float.", node.name)
            return
        self.biases.append(Bias(node, index, x, weight, alpha, beta))

    def merge(self, node: Node) -> bool:
        """Remove a node that only clips, if the codes of its input can have its output's range."""
        x, y = node.input(0), node.outputs[0]
        is_alone = x is not None and x.use_count == 1 and not x.is_graph_output
        if x is None or not is_alone or x.producer is None or y not in self.ranges:
            return False
        if {x.name, y.name} & self.options.overrides.keys():
            return False
        name = y.name
        self.ranges[x] = self.ranges[y]
        is_output = y.is_graph_output
        self.graph.replace_uses(y, x)
        self.graph.remove_node(node)
        if not is_output:
            self.graph.rename(x, name)
        return True


Rule = Callable[[Marks, Node], None]
