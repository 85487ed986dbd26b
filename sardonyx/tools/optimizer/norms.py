"""Layer normalisations: written out, and with what is added before them.

LayerNormalization:            (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * g + b
SimplifiedLayerNormalization:  x / sqrt(mean(x ** 2) + epsilon) * g
Skip...:                       the same of input + skip + bias
"""

from __future__ import annotations

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import PatternMatch, attribute_of
from sardonyx.tools.optimizer.rules import (
    MICROSOFT,
    Rule,
    axes_of,
    is_vector,
    like,
    node_of,
    replace,
    same_shape,
    table,
)

_NAMED = {
    "centred": "d=Sub(x, ReduceMean:mean(x, ...))",
    "square": "Pow(d, 2) | Mul(d, d)",
    "deviation": "Sqrt(Sum(ReduceMean:variance($square, ...), #epsilon))",
    "normal": (
        "Div($centred, $deviation) | Mul($centred, Reciprocal($deviation))"
        " | Mul($centred, Div(1, $deviation))"
    ),
    "square_x": "Pow(x, 2) | Mul(x, x)",
    "size": "Sqrt(Sum(ReduceMean:variance($square_x, ...), #epsilon))",
    "simple": "Div(x, $size) | Mul(x, Reciprocal($size)) | Mul(x, Div(1, $size))",
    "factor": "factor=Mul(Reciprocal($deviation), gamma!)",
}


def _is_last(node: Node, x: Value) -> bool:
    axes = axes_of(node)
    rank = len(x.shape or ())
    return axes in ([-1], [rank - 1]) and attribute_of(node, "keepdims") == 1


def _written_out(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, gamma, beta = found["x"], found["gamma"], found["beta"]
    if x.shape is None or not all(
        _is_last(found.named[name], x) for name in ("mean", "variance") if name in found.named
    ):
        return "it is not over the last axis"
    size = x.shape[-1]
    if not (is_vector(gamma, size) and is_vector(beta, size) and same_shape(x, root.output)):
        return "gain or bias is no vector of the last axis"
    attributes: dict[str, Attribute] = {"axis": -1, "epsilon": found.numbers["epsilon"]}
    return replace(root, "LayerNormalization", [x, gamma, beta], attributes, domain="", found=found)


def _simplified(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, gamma = found["x"], found["gamma"]
    if x.shape is None or not _is_last(found.named["variance"], x):
        return "it is not over the last axis"
    if not is_vector(gamma, x.shape[-1]) or not same_shape(x, root.output):
        return "the gain is no vector of the last axis"
    attributes: dict[str, Attribute] = {
        "axis": -1, "epsilon": found.numbers["epsilon"], "stash_type": 1
    }  # fmt: skip
    return replace(
        root,
        "SimplifiedLayerNormalization",
        [x, gamma],
        attributes,
        domain="",
        found=found,
    )


LAYER_NORM: list[Rule] = table(
    [
        ("LayerNormalization", "Add(Mul($normal, gamma!), beta!)", _written_out),
        (
            "LayerNormalization",
            "Add(Mul(x, $factor), Sub(beta!, Mul(ReduceMean:mean(x, ...), factor)))",
            _written_out,
        ),
        ("SimplifiedLayerNormalization", "Mul($simple, gamma!)", _simplified),
    ],
    {**_NAMED, "centred_again": _NAMED["centred"]},
)


def _skip(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    a, b, total = found["a"], found["b"], found["total"]
    rank = len(a.shape or ())
    if not same_shape(a, b) or rank not in (2, 3) or a.shape is None:
        return "the two that are added have not one shape of 3 axes"
    if any(value.is_used for value in root.outputs[1:]):
        return "its mean or deviation is read"
    beta = root.input(2)
    gamma = root.inputs[1]
    if not is_vector(gamma, a.shape[-1]) or (beta is not None and not is_vector(beta)):
        return "its gain has not one axis"
    if attribute_of(root, "axis") not in (-1, rank - 1):
        return "it is not over the last axis"
    if a.dtype is None or a.dtype.name not in ("float", "float16"):
        return "there is no kernel for its type"
    simple = root.op_type == "SimplifiedLayerNormalization"
    made = like(graph, root.output)
    outputs = [made]
    replacements: dict[Value, Value] = {root.output: made}
    if total.is_graph_output or total.use_count > 1:
        kept = like(graph, total)
        omitted = [Value("", total.dtype), Value("", total.dtype)]
        outputs += [*omitted, kept]
        replacements[total] = kept
    epsilon = attribute_of(root, "epsilon")
    attributes: dict[str, Attribute] = {"epsilon": float(epsilon)}  # type: ignore[arg-type]
    inputs = [a, b, gamma] if simple else [a, b, gamma, beta]
    op_type = f"Skip{root.op_type}"
    node = node_of(op_type, inputs, outputs, attributes, domain=MICROSOFT, found=found)
    return Patch(replacements, [node], op_type)


SKIP: list[Rule] = table(
    [
        ("SkipLayerNormalization", "LayerNormalization(total=Add(a, b), _, ...)", _skip),
        (
            "SkipSimplifiedLayerNormalization",
            "SimplifiedLayerNormalization(total=Add(a, b), _)",
            _skip,
        ),
    ]
)


def _biased(place: int) -> object:
    def build(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        skip, x, bias = found["skip"], found["x"], found["bias"]
        if not is_vector(bias, (x.shape or (None,))[-1]) or not same_shape(x, skip):
            return "what is added is no vector of the last axis"
        if found["biased"].use_count != 1 or found["biased"].is_graph_output:
            return "the biased value is read elsewhere"
        inputs: list[Value | None] = [*root.inputs, *[None] * (place - len(root.inputs))]
        inputs[:2] = [x, skip]
        outputs = [like(graph, v) if not v.is_omitted else Value("", v.dtype) for v in root.outputs]
        node = node_of(
            root.op_type, [*inputs, bias], outputs, root.attributes,
            domain=MICROSOFT, found=found,
        )  # fmt: skip
        pairs = zip(root.outputs, outputs, strict=True)
        return Patch({old: new for old, new in pairs if not old.is_omitted}, [node], "bias")

    return build


BIAS_SKIP: list[Rule] = table(
    [
        (
            op_type,
            f"ms.{op_type}(biased=Add(x, bias!), skip, {gains}) | "
            f"ms.{op_type}(skip, biased=Add(x, bias!), {gains})",
            _biased(place),  # type: ignore[misc]
        )
        for op_type, gains, place in (
            ("SkipLayerNormalization", "_, _", 4),
            ("SkipLayerNormalization", "_", 4),
            ("SkipSimplifiedLayerNormalization", "_", 3),
        )
    ]
)
