"""What most likely will be needed: to be compiled while the graph is still being planned."""

from __future__ import annotations

from collections.abc import Container

from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import F32
from sardonyx.kernel.matmul.micro import ROWS, build_micro
from sardonyx.targets.target import Target

#: Operators that end in products of floats, unless their operands are codes.
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_CODES = ("QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear")


def expected(operators: Container[str], target: Target) -> list[Program]:
    """Functions that a model with these operators needs, as far as they say so.

    Args:
        operators: Types of the model's nodes.
        target: What it is compiled for.
    """
    if not any(op in operators for op in _PRODUCTS) or any(op in operators for op in _CODES):
        return []
    return [build_micro(F32, rows, target.block_sizes.vectors, target.lanes(32)) for rows in ROWS]
