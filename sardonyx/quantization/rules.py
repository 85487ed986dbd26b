"""What each operator asks for, as onnxruntime's quantiser has it."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.quantization.marks import Marks, Rule
from sardonyx.quantization.model import is_fixed

#: Operators without which a model has no constants as text; here as `mode` of Pad.
_PADS_WITH_ITS_OWN = ("reflect", "edge", "wrap")


def attribute(node: Node, name: str, default: object) -> object:
    """An attribute, text as str."""
    found: object = node.attributes.get(name, default)
    return found.decode() if isinstance(found, bytes) else found


def _outputs(marks: Marks, node: Node) -> list[Value]:
    return [] if node.op_type in marks.options.bare_outputs else list(node.outputs)


def every_tensor(marks: Marks, node: Node) -> None:
    """All inputs and outputs."""
    for value in (*node.inputs, *_outputs(marks, node)):
        marks.activation(value)


def _conv(marks: Marks, node: Node) -> None:
    marks.activation(node.input(0))
    for value in _outputs(marks, node):
        marks.activation(value)
    marks.weight(node.input(1), 0 if node.op_type == "Conv" else 1)
    if node.input(2) is not None:
        marks.bias(node, 2)


def _gemm(marks: Marks, node: Node) -> None:
    marks.activation(node.input(0))
    for value in _outputs(marks, node):
        marks.activation(value)
    marks.weight(node.input(1), 0 if node.attributes.get("transB") else 1)
    if node.input(2) is not None:
        alpha, beta = (node.attributes.get(name, 1.0) for name in ("alpha", "beta"))
        if isinstance(alpha, int | float) and isinstance(beta, int | float):
            marks.bias(node, 2, alpha, beta)


def _matmul(marks: Marks, node: Node) -> None:
    if marks.options.constant_factor_only and not is_fixed(node.input(1)):
        return
    for value in (*node.inputs, *_outputs(marks, node)):
        if is_fixed(value):
            marks.weight(value, 1, node.op_type)
        else:
            marks.activation(value)


def _norm(marks: Marks, node: Node) -> None:
    marks.activation(node.input(0))
    if is_fixed(node.input(1)):
        marks.weight(node.input(1), 1, node.op_type)
    else:
        marks.activation(node.input(1))
    if node.input(2) is not None:
        marks.bias(node, 2)
    for value in _outputs(marks, node):
        marks.activation(value)


def _clip(marks: Marks, node: Node) -> None:
    x = node.input(0)
    if not marks.is_marked(x):
        return
    options = marks.options
    if options.activation_symmetric or options.keep_activations or not marks.merge(node):
        marks.activation(x)
        for value in _outputs(marks, node):
            marks.activation(value)


def _move(marks: Marks, node: Node) -> None:
    """An operator whose output has elements, or means, of its first input."""
    x = node.input(0)
    if marks.options.force:
        marks.activation(x)
    if not marks.is_marked(x):
        return
    for value in _outputs(marks, node):
        marks.same(value, x)


def _gather(marks: Marks, node: Node) -> None:
    x = node.input(0)
    if is_fixed(x):
        marks.activation(x)
    _move(marks, node)


def _from_version(version: int, rule: Rule) -> Rule:
    """A rule for nodes of an operator set from some version on; older ones are left alone."""

    def guarded(marks: Marks, node: Node) -> None:
        if node.version >= version:
            rule(marks, node)

    return guarded


def _split(marks: Marks, node: Node) -> None:
    x = node.input(0)
    if not marks.is_marked(x):
        marks.activation(x)
    for value in _outputs(marks, node):
        if marks.is_marked(x):
            marks.same(value, x)


def _pad(marks: Marks, node: Node) -> None:
    x = node.input(0)
    for value in node.inputs:
        marks.activation(value)
    for value in _outputs(marks, node):
        if pads_with_codes(node):
            marks.same(value, x)
        else:
            marks.activation(value)


def pads_with_codes(node: Node) -> bool:
    """Whether a Pad puts in nothing that its input's codes cannot say: zeros, or its elements."""
    mode = attribute(node, "mode", "constant")
    if mode in _PADS_WITH_ITS_OWN:
        return True
    filler = node.input(2)
    if filler is None:
        return not node.attributes.get("value", 0)
    return filler.constant is not None and not np.any(filler.constant.array())


def _where(marks: Marks, node: Node) -> None:
    values = (node.input(1), node.input(2))
    if marks.options.force:
        for value in values:
            marks.activation(value)
    if all(marks.is_marked(value) for value in values):
        for value in _outputs(marks, node):
            marks.activation(value)


#: Operators with a rule of their own where floats stand between codes.
QDQ_RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Clip": _clip,
    "Relu": _clip,
    "Reshape": _move,
    "Transpose": _move,
    "Squeeze": _move,
    "Unsqueeze": _move,
    "Flatten": _move,
    "Resize": _from_version(11, _move),
    "MaxPool": _from_version(12, _move),
    "AveragePool": _move,
    "Slice": _move,
    "TopK": _move,
    "Pad": _pad,
    "Split": _split,
    "Gather": _gather,
    "GatherElements": _gather,
    "Where": _where,
    "InstanceNormalization": _norm,
    "LayerNormalization": _norm,
    "BatchNormalization": _norm,
    "CumSum": every_tensor,
}
#: Where operators work on codes, pooling has a scale of its own for its output.
OPERATOR_RULES: dict[str, Rule] = {
    **QDQ_RULES,
    "AveragePool": every_tensor,
}
#: Operators that are quantised unless others are asked for.
STATIC_OPERATORS = frozenset(QDQ_RULES) | frozenset(
    """ArgMax Add Mul LeakyRelu Sigmoid GlobalAveragePool Concat Softmax
    EmbedLayerNormalization""".split()
)
