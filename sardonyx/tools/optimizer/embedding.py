"""Sums of embeddings, normalised, become one EmbedLayerNormalization.

LayerNormalization(words[ids] + positions[0, 1, 2...] + segments[types], gain, bias)
"""

from __future__ import annotations

import numpy as np

from sardonyx.base.dtypes import INT32, INT64
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import PatternMatch, attribute_of, is_fixed
from sardonyx.tools.optimizer.rules import (
    MICROSOFT,
    Rule,
    array_of,
    is_vector,
    like,
    node_of,
    table,
)

_Part = tuple[Value, Value]


def _fuse(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    total = found["total"]
    if total.shape is None or len(total.shape) != 3:
        return "its sum has not three axes"
    if attribute_of(root, "axis") not in (-1, 2) or any(v.is_used for v in root.outputs[1:]):
        return "its normalisation is another one"
    batch, length, size = total.shape
    if not (is_vector(found["gamma"], size) and is_vector(found["beta"], size)):
        return "gain or bias is no vector of the last axis"
    parts = [(found[f"e{k}"], found[f"i{k}"]) for k in range(3) if f"e{k}" in found.values]
    if not all(_is_table(weights, size) and _is_index(index) for weights, index in parts):
        return "what is added is not all taken from tables by integers"
    positions = next((p for p in parts if _is_position(p[1], batch)), None)
    if positions is None:
        return "no part is taken by positions"
    # The larger table is that of words: the sum is the same in either role.
    others = sorted((p for p in parts if p is not positions), key=lambda p: -_rows(p[0]))
    words = next((p for p in others if p[1].shape == (batch, length)), None)
    if words is None or not all(_is_row_for_each(index, batch) for _, index in others):
        return "ids have not one row for each item"
    segments = next((p for p in others if p is not words), None)
    nodes: list[Node] = []

    def as_int32(value: Value) -> Value:
        if value.dtype is INT32:
            return value
        made = graph.new_value(f"{value.name}_int32", INT32, value.shape)
        to: dict[str, Attribute] = {"to": INT32.onnx_id}
        nodes.append(node_of("Cast", [value], [made], to))
        return made

    place = None if is_counting(positions[1]) else _two_axes(positions[1])
    if place is None and not is_counting(positions[1]):
        return "its positions have no row of their own"
    inputs = [
        as_int32(words[1]),
        None if segments is None else as_int32(segments[1]),
        words[0],
        positions[0],
        None if segments is None else segments[0],
        found["gamma"],
        found["beta"],
        None,
        None if place is None else as_int32(place),
    ]
    made = like(graph, root.output)
    # onnxruntime's type inference wants the second output even where nothing reads it.
    outputs = [made, graph.new_value(f"{made.name}_mask_index", INT32, (batch,))]
    replacements = {root.output: made}
    if total.is_graph_output or total.use_count > 1:
        outputs.append(like(graph, total))
        replacements[total] = outputs[-1]
    attributes: dict[str, Attribute] = {"epsilon": float(str(attribute_of(root, "epsilon")))}
    nodes.append(
        node_of(
            "EmbedLayerNormalization", inputs, outputs, attributes,
            domain=MICROSOFT, found=found,
        )
    )  # fmt: skip
    return Patch(replacements, nodes, "EmbedLayerNormalization")


def _rows(weights: Value) -> int:
    rows = (weights.shape or (0,))[0]
    return rows if isinstance(rows, int) else 0


def _is_row_for_each(index: Value, batch: Dim) -> bool:
    return index.shape is not None and len(index.shape) == 2 and index.shape[0] == batch


def _is_table(weights: Value, size: Dim) -> bool:
    shape = weights.shape or ()
    return len(shape) == 2 and shape[1] == size and isinstance(shape[0], int)


def _is_index(index: Value) -> bool:
    return index.dtype in (INT32, INT64) and index.shape is not None


def _is_position(index: Value, batch: Dim) -> bool:
    shape = index.shape or ()
    if is_counting(index):
        return True
    return batch != 1 and len(shape) == 2 and shape[0] == 1


def _two_axes(index: Value) -> Value | None:
    return index if len(index.shape or ()) == 2 else None


def is_counting(value: Value) -> bool:
    """Whether the last axis surely counts 0, 1, 2, whatever is before it."""
    node = value.producer
    if node is None:
        if not is_fixed(value) or not value.shape:
            return False
        array = array_of(value)
        return bool(np.array_equal(array, np.broadcast_to(np.arange(array.shape[-1]), array.shape)))
    if node.domain or not node.inputs or node.inputs[0] is None:
        return False
    first = node.inputs[0]
    if node.op_type == "Range":
        known = [v.elements if v is not None else None for v in node.inputs]
        return known[0] == (0,) and known[2] == (1,)
    if node.op_type in ("Cast", "Expand"):
        same = bool(first.shape and value.shape and first.shape[-1] == value.shape[-1])
        return same and is_counting(first)
    if node.op_type in ("Unsqueeze", "Squeeze", "Reshape"):
        same = bool(first.shape and value.shape and first.shape[-1] == value.shape[-1])
        ones = all(d == 1 for d in (*(first.shape or ())[:-1], *(value.shape or ())[:-1]))
        return same and ones and is_counting(first)
    if node.op_type == "Slice" and len(node.inputs) >= 3:
        starts = node.inputs[1].elements if node.inputs[1] is not None else None
        axes = node.input(3)
        steps = node.input(4)
        rank = len(first.shape or ())
        last = axes is not None and axes.elements in ((-1,), (rank - 1,))
        plain = steps is None or steps.elements == (1,)
        return starts == (0,) and (last or rank == 1) and plain and is_counting(first)
    return False


def _sum(count: int) -> str:
    parts = ", ".join(f"Gather{{axis=0}}(e{k}!, i{k})" for k in range(count))
    return f"LayerNormalization(total=Sum({parts}), gamma!, beta!)"


EMBEDDING: list[Rule] = table([("EmbedLayerNormalization", _sum(count), _fuse) for count in (3, 2)])
