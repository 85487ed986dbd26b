"""What networks of diffusion have, for GPUs: onnxruntime has no kernels of these for processors.

    GroupNorm:      InstanceNormalization of groups, times gain, plus shift, perhaps x * sigmoid(x)
    SkipGroupNorm:  the same of a sum
    NhwcConv:       a convolution of images whose channels come last
    BiasSplitGelu:  lower(x + b) * gelu(upper(x + b))
    BiasAdd:        x + bias + skip

Images are transposed before and after: Transposes that meet cancel afterwards.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Item, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.options import FusionOptions
from sardonyx.tools.optimizer.pattern import PatternMatch, attribute_of, is_fixed
from sardonyx.tools.optimizer.rotary import is_half
from sardonyx.tools.optimizer.rules import (
    MICROSOFT,
    Rule,
    array_of,
    constant,
    is_vector,
    like,
    node_of,
    replace,
    same_shape,
    table,
)

_TO_LAST: list[Item] = [0, 2, 3, 1]
_TO_FIRST: list[Item] = [0, 3, 1, 2]
_AXES = 4
_NORM = (
    "Add(Mul(Reshape(InstanceNormalization:norm(grouped=Reshape(x, _), ones!, zeros!), _),"
    " gamma!), beta!)"
)
#: From this version on, gain and shift of GroupNormalization are those of channels.
_BY_CHANNEL = 21


def diffusion(options: FusionOptions) -> list[list[Rule]]:
    """The rules that options ask for, in their order."""
    first = options.use_group_norm_channels_first

    def norm(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        return _group_norm(graph, root, found, channels_last=not first)

    norms = table(
        [
            ("GroupNorm", f"Mul(y=({_NORM}), Sigmoid(y))", norm),
            ("GroupNorm", _NORM, norm),
            ("GroupNorm", "GroupNormalization:norm(x, gamma!, beta!)", norm),
        ]
    )
    skip_norms = table(
        [
            (
                "SkipGroupNorm",
                "ms.GroupNorm(Transpose{perm=0 2 3 1}(total=Add(a, b)), gamma, beta)",
                _skip_group_norm,
            )
        ]
    )
    steps = [
        (options.enable_bias_splitgelu, table([("BiasSplitGelu", _GATED, _split_gelu)])),
        (options.enable_group_norm, norms),
        (options.enable_skip_group_norm and not first, skip_norms),
        (options.enable_bias_add, table([("BiasAdd", _BIASED, _bias_add)])),
        (options.enable_nhwc_conv, table([("NhwcConv", "Conv(x, w!, ...)", _nhwc_conv)])),
    ]
    return [rules for enabled, rules in steps if enabled]


def _transposed(graph: Graph, nodes: list[Node], x: Value, perm: list[Item]) -> Value:
    shape = tuple((x.shape or ())[int(str(axis))] for axis in perm)
    made = like(graph, x, shape)
    nodes.append(node_of("Transpose", [x], [made], {"perm": perm}))
    return made


def _channels(value: Value, count: object) -> bool:
    return is_fixed(value) and value.constant is not None and value.constant.element_count == count


def _group_norm(
    graph: Graph, root: Node, found: PatternMatch, *, channels_last: bool
) -> Patch | str:  # fmt: skip
    x, norm = found["x"], found.named["norm"]
    gamma, beta, grouped = found["gamma"], found["beta"], found.get("grouped")
    if x.shape is None or len(x.shape) != _AXES or not same_shape(x, root.output):
        return "its image has not four axes"
    count = x.shape[1]
    if not (_channels(gamma, count) and _channels(beta, count)):
        return "gain and shift are not those of channels"
    if grouped is not None:
        if grouped.shape is None or len(grouped.shape) != 3 or grouped.shape[0] != x.shape[0]:
            return "channels are not grouped"
        groups = grouped.shape[1]
        if np.any(array_of(found["ones"]) != 1) or np.any(array_of(found["zeros"]) != 0):
            return "groups have gains of their own"
        if any(len(v.shape or ()) < 3 or v.shape[-3:] != (count, 1, 1) for v in (gamma, beta)):  # type: ignore[index]
            return "gain and shift are not those of channels"
    else:
        groups = attribute_of(norm, "num_groups")  # type: ignore[assignment]
        if norm.version < _BY_CHANNEL:
            return "gain and shift are those of groups"
    if not isinstance(groups, int) or not isinstance(count, int) or count % groups:
        return "the number of its groups is not known"
    if not found.is_closed(root.output):
        return "an inner value is read elsewhere"
    nodes: list[Node] = []
    vectors = [
        constant(graph, value.name, array_of(value).reshape(-1).astype(np.float32))
        for value in (gamma, beta)
    ]
    attributes: dict[str, Attribute] = {
        "groups": groups,
        "epsilon": float(str(attribute_of(norm, "epsilon"))),
        "activation": int("y" in found.values),
        "channels_last": int(channels_last),
    }
    image = _transposed(graph, nodes, x, _TO_LAST) if channels_last else x
    made = like(graph, image)
    inputs = [image, *vectors]
    nodes.append(node_of("GroupNorm", inputs, [made], attributes, domain=MICROSOFT, found=found))
    result = _transposed(graph, nodes, made, _TO_FIRST) if channels_last else made
    return Patch({root.output: result}, nodes, "GroupNorm")


def _skip_group_norm(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    a, b, total = found["a"], found["b"], found["total"]
    if not same_shape(a, b):
        return "the two that are added differ in shape"
    nodes: list[Node] = []
    images = [_transposed(graph, nodes, value, _TO_LAST) for value in (a, b)]
    outputs = [like(graph, root.output), like(graph, images[0])]
    node = node_of(
        "SkipGroupNorm", [images[0], found["gamma"], found["beta"], images[1]], outputs,
        root.attributes, domain=MICROSOFT, found=found,
    )  # fmt: skip
    nodes.append(node)
    replacements = {root.output: outputs[0]}
    if total.is_graph_output or total.use_count > 1:
        replacements[total] = _transposed(graph, nodes, outputs[1], _TO_FIRST)
    return Patch(replacements, nodes, "SkipGroupNorm")


def _nhwc_conv(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, weight = found["x"], found["w"]
    if len(x.shape or ()) != _AXES or x.dtype is None or x.dtype.name not in ("float", "float16"):
        return "it is not of images in floats"
    if attribute_of(root, "group") not in (1, None):
        return "its channels are in groups"
    filters = array_of(weight).transpose(0, 2, 3, 1)
    nodes: list[Node] = []
    image = _transposed(graph, nodes, x, _TO_LAST)
    shape = root.output.shape or ()
    made = like(graph, root.output, tuple(shape[int(str(axis))] for axis in _TO_LAST))
    inputs = [image, constant(graph, weight.name, filters), *root.inputs[2:]]
    nodes.append(
        node_of(
            "NhwcConv", inputs, [made], root.attributes, domain=MICROSOFT, found=found
        )
    )  # fmt: skip
    return Patch({root.output: _transposed(graph, nodes, made, _TO_FIRST)}, nodes, "NhwcConv")


_GATED = "Mul(lower, ms.Gelu(upper))"


def _split_gelu(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    lower, upper = found["lower"], found["upper"]
    node = lower.producer
    whole = node.input(0) if node is not None else None
    if whole is None or whole.shape is None or len(whole.shape) != 3:
        return "what is gated is no half of a value of three axes"
    size = whole.shape[-1]
    if not isinstance(size, int) or size % 2:
        return "the size of its halves is not known"
    half = size // 2
    if not (is_half(lower, whole, 0, half) and is_half(upper, whole, half, size)):
        return "it is not gated by halves"
    add = whole.producer
    vectors = [] if add is None or add.op_type != "Add" else [v for v in add.inputs if is_fixed(v)]
    if add is None or len(vectors) != 1 or not is_vector(vectors[0], size):
        return "nothing is added before"
    x = next(v for v in add.inputs if v is not vectors[0])
    if not same_shape(x, whole):
        return "nothing is added before"
    return replace(root, "BiasSplitGelu", [x, vectors[0]], found=found)


_BIASED = "Add(biased=Add(x, bias!), skip)"


def _bias_add(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, skip, bias = found["x"], found["skip"], found["bias"]
    if len(x.shape or ()) != 3 or not same_shape(x, skip) or x.shape is None:
        return "the two that are added have not one shape of 3 axes"
    if not is_vector(bias, x.shape[-1]) or is_fixed(skip):
        return "what is added is no vector of the last axis"
    if not found.is_closed(root.output):
        return "the biased value is read elsewhere"
    return replace(root, "BiasAdd", [x, bias, skip], found=found)
