"""The family of GELU, in every order in which exporters write its products.

Gelu:       x * 0.5 * (1 + erf(x / sqrt(2)))
FastGelu:   x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))
QuickGelu:  x * sigmoid(alpha * x)
"""

from __future__ import annotations

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.patch import Patch
from sardonyx.tools.optimizer.pattern import PatternMatch
from sardonyx.tools.optimizer.rules import Build, Rule, is_vector, replace, same_shape, table

_NAMED = {
    "cube": "Pow(x, 3) | Product(x, x, x) | Product(Pow(x, 2), x)",
    "bent": (
        "Product(0.7978845608, Sum(x, Product(0.044715, $cube)))"
        " | Product(0.7978845608, Sum(x, Product(0.044715, x, x, x)))"
        " | Product(0.7978845608, x, Sum(1, Product(0.044715, x, x)))"
        " | Product(0.7978845608, x, Sum(1, Product(0.044715, Pow(x, 2))))"
    ),
}


def _unary(op_type: str) -> Build:
    def build(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        x = found["x"]
        if not same_shape(x, root.output):
            return "its constants have more axes than what they scale"
        if x.dtype is None or not x.dtype.is_float:
            return "it is not computed in floats"
        if not found.is_closed(root.output, x):
            return "an inner value is read elsewhere"
        alpha = found.numbers.get("alpha", 1.0)
        attributes = {"alpha": alpha} if op_type == "QuickGelu" else None
        return replace(root, op_type, [x], attributes, found=found)

    return build


def _biased(op_type: str) -> Build:
    def build(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        x, bias = found["x"], found["bias"]
        if not same_shape(x, root.output) or x.shape is None or not x.shape:
            return "the bias has more axes than what it is added to"
        if not is_vector(bias, x.shape[-1]):
            return "the bias is no vector of the last axis"
        if not found.is_closed(root.output):
            return "the biased value is read elsewhere"
        return replace(root, op_type, [x, bias], found=found)

    return build


GELU: list[Rule] = table(
    [
        ("Gelu", "Product(x, Sum(Erf(Product(x, 0.70710678)), 1), 0.5)", _unary("Gelu")),
        ("Gelu", "Product(x, Sum(Product(Erf(Product(x, 0.70710678)), 0.5), 0.5))", _unary("Gelu")),
        ("Gelu", "Gelu{approximate=none}(x)", _unary("Gelu")),
        ("FastGelu", "Product(x, Sum(Tanh($bent), 1), 0.5)", _unary("FastGelu")),
        ("FastGelu", "Product(x, Sum(Product(Tanh($bent), 0.5), 0.5))", _unary("FastGelu")),
        ("FastGelu", "Gelu{approximate=tanh}(x)", _unary("FastGelu")),
        ("QuickGelu", "Product(x, Sigmoid(Product(x, #alpha)))", _unary("QuickGelu")),
        ("QuickGelu", "Product(x, Sigmoid(x))", _unary("QuickGelu")),
    ],
    _NAMED,
)  # fmt: skip

BIAS_GELU: list[Rule] = table(
    [
        ("BiasGelu", "ms.Gelu(Add(x, bias!))", _biased("BiasGelu")),
        ("FastGelu", "ms.FastGelu(Add(x, bias!))", _biased("FastGelu")),
    ]
)

#: Less exact, on request: GELU by tanh in the place of that by erf.
APPROXIMATION: list[Rule] = table(
    [
        ("FastGelu", "ms.Gelu(x)", _unary("FastGelu")),
        ("FastGelu", "ms.BiasGelu(x, bias)", _biased("FastGelu")),
    ]
)


def _with_product(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    w = found["w"]
    if w.shape is None or len(w.shape) != 2 or not found.is_closed(root.output):
        return "the product is not of a matrix, or is read elsewhere"
    inputs = [found["x"], w, found.get("bias")]
    return replace(root, "GemmFastGelu", inputs, found=found)


#: On request, for GPUs.
GEMM_FAST_GELU: list[Rule] = table(
    [
        (
            "GemmFastGelu",
            "ms.FastGelu(MatMul(x, w!), bias!) | ms.FastGelu(MatMul(x, w!))",
            _with_product,
        )
    ]
)
