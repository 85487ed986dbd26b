"""What is to be quantised, and into what."""

from __future__ import annotations

from dataclasses import dataclass, field

from sardonyx.ir.node import Node
from sardonyx.quantization.enums import QuantType
from sardonyx.quantization.options import Options

_SIGNED = (QuantType.QInt4, QuantType.QInt8, QuantType.QInt16)


@dataclass(frozen=True)
class QuantizationSettings:
    """The arguments of a quantisation.

    Attributes:
        activation_type: Codes of what is computed.
        weight_type: Codes of weights.
        per_channel: A scale for each channel of a weight.
        reduce_range: One bit less for weights.
        op_types: Operators to quantise.
        only: Names of the nodes to quantise; empty for all.
        excluded: Names of nodes to leave alone.
        options: The extra options.
    """

    activation_type: QuantType
    weight_type: QuantType
    per_channel: bool = False
    reduce_range: bool = False
    op_types: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    options: Options = field(default_factory=Options)

    def wants(self, node: Node, *, always: bool = False) -> bool:
        """Whether a node is to be quantised; `always` leaves its operator out of account."""
        return (
            (always or node.op_type in self.op_types)
            and (not self.only or node.name in self.only)
            and node.name not in self.excluded
        )

    def is_symmetric_weight(self, type: QuantType) -> bool:
        """Whether weights of a type have zero as their middle code."""
        given = self.options.weight_symmetric
        return type in _SIGNED if given is None else given
