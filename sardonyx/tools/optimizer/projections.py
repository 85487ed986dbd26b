"""What an attention reads: products with weights, together or apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import PatternMatch, attribute_of, match, parse
from sardonyx.tools.optimizer.rules import array_of

_PRODUCTS = parse(
    "Add(MatMul(x, w!), b!) | MatMul(x, w!)"
    " | Reshape(Gemm:gemm(Reshape(x, _), w!, b!), _) | Reshape(Gemm:gemm(Reshape(x, _), w!), _)"
)
_BIASED = parse("Add(m, b!)")


@dataclass(frozen=True)
class Projection:
    """A value that is x @ weight + bias.

    Attributes:
        x: (batch, length, channels).
        weight: (channels, size).
        bias: (size,), None if there is none.
    """

    x: Value
    weight: Array
    bias: Array | None


def projection_of(value: Value) -> Projection | None:
    """How a value of three axes is made of another and of constants; None if it is not.

    A part of a larger product, by Split, is one with the columns of its own.
    """
    node = value.producer
    if node is not None and node.op_type == "Split" and not node.domain:
        whole = node.input(0)
        rank = len(value.shape or ())
        if whole is None or attribute_of(node, "axis") not in (-1, rank - 1):
            return None
        sizes = [v.shape[-1] if v.shape else None for v in node.outputs]
        if not all(isinstance(size, int) for size in sizes):
            return None
        found = projection_of(whole)
        start = sum(int(str(size)) for size in sizes[: value.producer_index])
        columns = slice(start, start + int(str(sizes[value.producer_index])))
        if found is None:
            return None
        bias = None if found.bias is None else found.bias[columns]
        return Projection(found.x, found.weight[:, columns], bias)
    for found_product in match(_PRODUCTS, value):
        made = _made(value, found_product)
        if made is not None:
            return made
    return None


def _made(value: Value, found: PatternMatch) -> Projection | None:
    x, weight, bias = found["x"], found["w"], found.get("b")
    if x.shape is None or value.shape is None or len(x.shape) != 3 or len(weight.shape or ()) != 2:
        return None
    if x.shape[:2] != value.shape[:2]:
        return None
    matrix = array_of(weight)
    gemm = found.named.get("gemm")
    if gemm is not None:
        plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
        if any(float(str(attribute_of(gemm, k) or 0)) != wanted for k, wanted in plain.items()):
            return None
        matrix = matrix.T if attribute_of(gemm, "transB") else matrix
    row = None if bias is None else array_of(bias)
    if row is not None and row.size == 1:
        row = np.broadcast_to(row.reshape(1), (matrix.shape[1],))
    if matrix.shape[0] != x.shape[2] or (row is not None and row.shape != (matrix.shape[1],)):
        return None
    return Projection(x, matrix, row)


def joined(parts: list[Projection]) -> tuple[Array, Array | None]:
    """Weights and biases of several projections side by side: (channels, sizes), (sizes,)."""
    weight = np.concatenate([p.weight for p in parts], axis=1)
    if all(p.bias is None for p in parts):
        return weight, None
    return weight, np.concatenate([_bias(p.bias, p.weight) for p in parts])


def _bias(bias: Array | None, weight: Array) -> Array:
    return np.zeros(weight.shape[1], weight.dtype) if bias is None else bias


def without_bias(value: Value) -> tuple[Value, Array | None]:
    """A value without the vector of constants that is added to it last, and that vector."""
    if not value.is_graph_output and value.use_count == 1:
        for found in match(_BIASED, value):
            row, inner = array_of(found["b"]), found["m"]
            if inner.shape == value.shape and value.shape and row.shape == (value.shape[-1],):
                return inner, row
    return value, None
