"""Rewritings in ONNX's own operators, those of onnxruntime's basic level.

Conv(Pad(x), w)          ->  Conv(x, w) with more pads
Mul(Conv(x, w, b), s)    ->  Conv(x, w * s, b * s);  Add likewise
Add(MatMul(x, w), b)     ->  Gemm(x, w, b), where x is a matrix
Gemm(Transpose(x), w)    ->  Gemm(x, w) with transA
Transpose(Transpose(x))  ->  Transpose(x);  Reshape likewise
Reshape(x, Concat(...))  ->  Reshape(x, [0, -1, 12, 64])
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Item, Node
from sardonyx.ir.patch import Patch, remove_dead
from sardonyx.ir.value import Value
from sardonyx.passes.infer import infer
from sardonyx.passes.merge_equal import merge_equal
from sardonyx.tools.optimizer.fold import fold_constants
from sardonyx.tools.optimizer.pattern import PatternMatch, attribute_of, is_fixed, number_of
from sardonyx.tools.optimizer.rules import (
    Build,
    Rule,
    RuleReport,
    array_of,
    constant,
    is_vector,
    replace,
    run,
    table,
)

#: What folding makes possible may make further folding possible.
_ROUNDS = 5


def simplify(
    graph: Graph,
    report: RuleReport | None = None,
    *,
    merge: bool = True,
    without: Container[str] = (),
) -> None:
    """Fold, rewrite, and merge what has become equal; shapes must have been inferred.

    Args:
        graph: What to work on.
        report: Where to note what was done.
        merge: Whether layout operations in a row become one; patterns of fusions have them apart.
        without: Steps that are left out: `fold constants`, those of `STEPS`, passes.
    """
    rules = [*SIMPLIFICATIONS, *MERGES] if merge else SIMPLIFICATIONS
    left_out = {build for name, build in STEPS.items() if name in without}
    rules = [rule for rule in rules if rule.build not in left_out]
    for _ in range(_ROUNDS):
        changed = fold_constants(graph) if "fold constants" not in without else 0
        changed += run(graph, rules, report)
        if not changed:
            break
        refresh(graph, without)


def refresh(graph: Graph, without: Container[str] = ()) -> None:
    """Infer again, merge equal values, remove what nothing reads."""
    infer(graph)
    if "merge equal values" not in without and merge_equal(graph):
        remove_dead(graph)
    remove_dead(graph)


def _with(node: Node, **changed: Attribute) -> dict[str, Attribute]:
    return {**node.attributes, **changed}


def _pad(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    pad, x = found.named["pad"], found["x"]
    if found["padded"].use_count != 1 or found["padded"].is_graph_output:
        return "the padded image is read elsewhere"
    if attribute_of(pad, "mode") not in ("constant", None) or pad.input(3) is not None:
        return "its borders are no constants"
    fill = pad.input(2)
    number = 0.0 if fill is None else number_of(fill)
    if number != 0.0 or float(str(pad.attributes.get("value", 0.0))) != 0.0:
        return "its borders are not zero"
    second = pad.input(1)
    given = pad.attributes.get("pads", second.elements if second is not None else None)
    rank = len(x.shape or ())
    if given is None or rank < 3 or len(given) != 2 * rank:  # type: ignore[arg-type]
        return "its sizes are not known"
    sizes = [d if isinstance(d, int) else -1 for d in given]  # type: ignore[union-attr]
    begin, end = sizes[:rank], sizes[rank:]
    if min(sizes) < 0 or any(begin[:2]) or any(end[:2]):
        return "it cuts, or pads items or channels"
    if root.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", b"NOTSET", b"VALID"):
        return "the convolution pads by itself"
    own = root.attributes.get("pads") or [0] * (2 * (rank - 2))
    pads: list[Item] = [int(str(a)) + b for a, b in zip(own, [*begin[2:], *end[2:]], strict=True)]  # type: ignore[arg-type]
    kept: dict[str, Attribute] = {k: v for k, v in root.attributes.items() if k != "auto_pad"}
    return replace(
        root, "Conv", [x, *root.inputs[1:]], {**kept, "pads": pads}, domain="", found=found
    )


def _per_channel(value: Value, rank: int, channels: int) -> Array | None:
    """A constant that is a number for each channel, as a vector."""
    array = array_of(value)
    if array.size == 1 and array.ndim <= rank:
        return np.broadcast_to(array.reshape(1), (channels,))
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.ndim > rank or shape[1] != channels or array.size != channels:
        return None
    return array.reshape(channels)


def _conv(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    conv, weight = found.named["conv"], found["w"]
    made, bias = conv.output, conv.input(2)
    if made.use_count != 1 or made.is_graph_output or made.shape != root.output.shape:
        return "the convolution is read elsewhere"
    if weight.shape is None or made.dtype is None or made.dtype.name not in ("float", "double"):
        return "it is not computed in floats"
    if bias is not None and not is_fixed(bias):
        return "its bias may change"
    row = _per_channel(found["s"], len(weight.shape), int(str(weight.shape[0])))
    if row is None:
        return "what follows is not one number for each channel"
    filters = array_of(weight)
    shift = np.zeros(row.shape, filters.dtype) if bias is None else array_of(bias)
    if root.op_type == "Mul":
        filters = filters * row.reshape(-1, *[1] * (filters.ndim - 1))
        shift = shift * row
        inputs = [conv.inputs[0], constant(graph, weight.name, filters)]
    else:
        shift = shift + row
        inputs = [conv.inputs[0], weight]
    if bias is not None or root.op_type == "Add":
        inputs.append(constant(graph, f"{weight.name}_bias", shift))
    return replace(root, "Conv", inputs, conv.attributes, domain="", found=found)


def _gemm(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, w, bias = found["x"], found["w"], found["b"]
    if len(x.shape or ()) != 2 or len(w.shape or ()) != 2 or w.shape is None:
        return "the product is not of two matrices"
    if not found.is_closed(root.output):
        return "the product is read elsewhere"
    if not is_vector(bias, w.shape[1]) or graph.opset.get("", 0) < 7:
        return "the bias is no row"
    if x.dtype is None or x.dtype.name not in ("float", "float16", "double", "bfloat16"):
        return "it is not computed in floats"
    return replace(root, "Gemm", [x, w, bias], domain="", found=found)


def _transposed_factors(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    if attribute_of(found.named["swap"], "perm") not in (None, [1, 0]):
        return "it does not turn a matrix"
    name = "transA" if found["factor"] is root.inputs[0] else "transB"
    inputs = [found["x"] if v is found["factor"] else v for v in root.inputs]
    if inputs.count(found["x"]) > 1:
        return "both factors are the same"
    changed = _with(root, **{name: 0 if attribute_of(root, name) else 1})
    return replace(root, "Gemm", inputs, changed, domain="", found=found)


def _transposed_twice(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    rank = len(found["x"].shape or ())
    backwards = list(range(rank))[::-1]
    outer = root.attributes.get("perm") or backwards
    inner = found.named["inner"].attributes.get("perm") or backwards
    perm: list[Item] = [int(str(list(inner)[int(str(axis))])) for axis in outer]  # type: ignore[arg-type, union-attr]
    return replace(root, "Transpose", [found["x"]], {"perm": perm}, domain="", found=found)


def _reshaped_twice(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    target = root.inputs[1]
    if target is None or target.elements is None or attribute_of(root, "allowzero"):
        return "its shape is not known"
    if 0 in target.elements:
        return "its shape takes sizes of the first"
    inputs = [found["x"], target]
    return replace(root, "Reshape", inputs, root.attributes, domain="", found=found)


def _target(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    x, target = found["x"], found["target"]
    if target.constant is not None:
        return ""
    known = target.elements
    if known is None or x.shape is None or attribute_of(root, "allowzero"):
        return "its shape is not known"
    sizes: list[int] = []
    for axis, d in enumerate(known):
        if isinstance(d, int):
            sizes.append(d)
        elif axis < len(x.shape) and x.shape[axis] == d:
            sizes.append(0)
        else:
            sizes.append(-1)
    if sizes.count(-1) > 1 or any(d == 0 for d in known if isinstance(d, int)):
        return "more than one size is not known"
    fixed = constant(graph, "shape", np.array(sizes, np.int64))
    attributes = {k: v for k, v in root.attributes.items() if k != "allowzero"}
    return replace(root, "Reshape", [x, fixed], attributes, domain="", found=found)


SIMPLIFICATIONS: list[Rule] = table(
    [
        ("Conv", "Conv(padded=Pad:pad(x, ...), _, ...)", _pad),
        ("Conv", "Mul(Conv:conv(_, w!, ...), s!) | Add(Conv:conv(_, w!, ...), s!)", _conv),
        ("Gemm", "Add(MatMul(x, w!), b!)", _gemm),
        (
            "Gemm",
            "Gemm(factor=Transpose:swap(x), _, ...) | Gemm(_, factor=Transpose:swap(x), ...)",
            _transposed_factors,
        ),
        ("Reshape", "Reshape(x, target)", _target),
    ]
)

#: What makes fusions harder to find, and so comes after them.
MERGES: list[Rule] = table(
    [
        ("Transpose", "Transpose(Transpose:inner(x))", _transposed_twice),
        ("Reshape", "Reshape(Reshape(x, _), _)", _reshaped_twice),
    ]
)

#: Steps that can be left out, by name.
STEPS: dict[str, Build] = {
    "fold pads of convolutions": _pad,
    "fold factors of convolutions": _conv,
    "join MatMul and Add": _gemm,
    "transpose factors of Gemm": _transposed_factors,
    "merge Transposes": _transposed_twice,
    "merge Reshapes": _reshaped_twice,
}
