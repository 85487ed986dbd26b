"""Rotary embeddings: heads rotated by angles that grow with their place.

    x * cos + concat(-upper(x), lower(x)) * sin  ->  RotaryEmbedding(x, places, cosines, sines)

The cosines are rows of a table that never changes, taken by places, or are computed in the model:
then each place has a row of its own. Either way the two halves of a row are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.base.dtypes import INT64
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import (
    PatternMatch,
    attribute_of,
    is_fixed,
    match,
    number_of,
    parse,
)
from sardonyx.tools.optimizer.rules import (
    MICROSOFT,
    Rule,
    array_of,
    constant,
    like,
    node_of,
    table,
)

_HEADS = parse("Transpose{perm=0 2 1 3}(Reshape(flat, _))")
#: (batch or 1, 1, length, size): what has one row for each place.
_RANK = 4
#: Operators that keep the halves of the last axis what they are.
_ELEMENTWISE = frozenset(("Cast", "Cos", "Sin", "Unsqueeze", "Expand"))


def _fuse(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
    return _Rotation(graph, root, found).patch()


class _Rotation:
    def __init__(self, graph: Graph, root: Node, found: PatternMatch) -> None:
        self._graph, self._root, self._found = graph, root, found
        self._nodes: list[Node] = []

    def patch(self) -> Patch | str:
        found = self._found
        x, cos, sin = found["x"], found["cos"], found["sin"]
        if x.shape is None or len(x.shape) != _RANK or x.shape != self._root.output.shape:
            return "what is turned has not four axes"
        batch, heads, length, size = x.shape
        if not isinstance(heads, int) or not isinstance(size, int) or size % 2:
            return "the number of heads or their size is not known"
        half = size // 2
        if not (is_half(found["lower"], x, 0, half) and is_half(found["upper"], x, half, size)):
            return "it is not rotated by halves"
        if cos.shape != sin.shape or cos.shape is None or len(cos.shape) != _RANK:
            return "cosines and sines differ in shape"
        if cos.shape[0] not in (1, batch) or cos.shape[1:] != (1, length, size):
            return "there is not one row of cosines for each place"
        if not (_has_equal_halves(cos) and _has_equal_halves(sin)):
            return "the halves of its cosines may differ"
        places, tables = self._tables(cos, sin, half, batch)
        flat = next((f["flat"] for f in match(_HEADS, x)), None)
        attributes: dict[str, Attribute] = {"num_heads": heads}
        if flat is None or flat.shape != (batch, length, heads * size):
            made = like(self._graph, self._root.output)
            self._rotate([x, places, *tables], made, {})
            return Patch({self._root.output: made}, self._nodes, "RotaryEmbedding")
        # The heads are split after they were rotated, so that what follows sees them as they were.
        rotated = like(self._graph, flat)
        self._rotate([flat, places, *tables], rotated, attributes)
        shape = self._integers([0, 0, heads, size])
        split = self._add("Reshape", [rotated, shape], rotated, (batch, length, heads, size))
        made = self._add("Transpose", [split], x, x.shape, {"perm": [0, 2, 1, 3]})
        return Patch({self._root.output: made}, self._nodes, "RotaryEmbedding")

    def _rotate(self, inputs: list[Value], made: Value, attributes: dict[str, Attribute]) -> None:
        self._nodes.append(
            node_of(
                "RotaryEmbedding", inputs, [made], attributes,
                domain=MICROSOFT, found=self._found,
            )
        )  # fmt: skip

    def _tables(
        self, cos: Value, sin: Value, half: int, batch: Dim
    ) -> tuple[Value, tuple[Value, Value]]:
        """Places, (batch, length), and cosines and sines, (rows, half)."""
        pair = (_gathered(cos), _gathered(sin))
        if pair[0] is not None and pair[1] is not None and pair[0][1] is pair[1][1]:
            index = pair[0][1]
            if index.dtype is INT64 and index.shape is not None and len(index.shape) == 2:
                tables = tuple(
                    constant(self._graph, f"{held.name}_half", array_of(held)[:, :half])
                    for held, _ in (pair[0], pair[1])
                )
                return self._for_each_item(index, batch), (tables[0], tables[1])
        rows = [self._rows(value, half) for value in (cos, sin)]
        shape = self._add("Shape", [rows[0]], None, (2,))
        count = self._add("Gather", [shape, self._number(0)], None, (), {"axis": 0})
        counting = [self._number(0), count, self._number(1)]
        total = (rows[0].shape or (1,))[0]
        places = self._add("Range", counting, None, (total,))
        # One row of places for each item that has cosines of its own.
        first, length = (cos.shape or ())[0], (cos.shape or ())[2]
        items = self._integers([1]) if first == 1 else self._size(cos, 0)
        to = self._add("Concat", [items, self._integers([-1])], None, (2,), {"axis": 0})
        places = self._add("Reshape", [places, to], None, (first, length))
        return self._for_each_item(places, batch), (rows[0], rows[1])

    def _rows(self, value: Value, half: int) -> Value:
        """(batch or 1, 1, length, size) -> (rows, half)"""
        batch, one, length, _ = value.shape or ()
        bounds = [self._integers([number]) for number in (0, half, 3)]
        lower = self._add("Slice", [value, *bounds], value, (batch, one, length, half))
        to = self._integers([-1, half])
        return self._add("Reshape", [lower, to], value, (batch * length, half))

    def _for_each_item(self, places: Value, batch: Dim) -> Value:
        first, length = places.shape or ()
        if first == batch:
            return places
        items = self._size(self._found["x"], 0)
        to = self._add("Concat", [items, self._integers([1])], None, (2,), {"axis": 0})
        return self._add("Expand", [places, to], places, (batch, length))

    def _size(self, value: Value, axis: int) -> Value:
        shape = self._add("Shape", [value], None, (len(value.shape or ()),))
        return self._add("Gather", [shape, self._integers([axis])], None, (1,), {"axis": 0})

    def _integers(self, numbers: list[int]) -> Value:
        return constant(self._graph, "numbers", np.array(numbers, np.int64))

    def _number(self, number: int) -> Value:
        return constant(self._graph, "number", np.array(number, np.int64))

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        of: Value | None,
        shape: tuple[Dim, ...],
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        """A node; its result is of the type of another value, or counts."""
        hint = f"{self._root.output.name}_{op_type.lower()}"
        made = self._graph.new_value(hint, INT64 if of is None else of.dtype, shape)
        self._nodes.append(node_of(op_type, inputs, [made], attributes))
        return made


def is_half(part: Value, x: Value, start: int, end: int) -> bool:
    """Whether a value is x[..., start:end]."""
    node = part.producer
    if node is None or node.domain or node.input(0) is not x:
        return False
    shape = x.shape or ()
    if part.shape != (*shape[:-1], end - start):
        return False
    if node.op_type == "Split":
        sizes = [v.shape[-1] if v.shape else None for v in node.outputs]
        last = attribute_of(node, "axis") in (-1, len(shape) - 1)
        return last and sizes == [end - start] * 2 and bool(part.producer_index) == bool(start)
    if node.op_type != "Slice" or len(node.inputs) < 3:
        return False
    starts, axes, steps = node.input(1), node.input(3), node.input(4)
    if starts is None or axes is None or axes.elements not in ((-1,), (len(shape) - 1,)):
        return False
    if steps is not None and steps.elements != (1,):
        return False
    first = number_of(starts)
    return first is not None and first % int(str(shape[-1])) == start


def _has_equal_halves(value: Value) -> bool:
    """Whether the two halves of the last axis are surely the same."""
    if is_fixed(value):
        array = array_of(value)
        half = array.shape[-1] // 2 if array.ndim else 0
        return bool(np.array_equal(array[..., :half], array[..., half:]))
    node = value.producer
    if node is None or node.domain:
        return False
    first = node.input(0)
    if first is None:
        return False
    if node.op_type == "Concat":
        last = attribute_of(node, "axis") in (-1, len(value.shape or ()) - 1)
        return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    if node.op_type == "Gather":
        return attribute_of(node, "axis") == 0 and _has_equal_halves(first)
    if node.op_type in ("Mul", "Div"):
        scaled = [v for v in node.inputs if v is not None and number_of(v) is None]
        return len(scaled) == 1 and scaled[0].shape == value.shape and _has_equal_halves(scaled[0])
    same = bool(first.shape and value.shape and first.shape[-1] == value.shape[-1])
    return node.op_type in _ELEMENTWISE and same and _has_equal_halves(first)


def _gathered(value: Value) -> tuple[Value, Value] | None:
    """The table and the places that rows come from, with an axis of heads put between."""
    for found in match(_ROWS, value):
        held = found["table"]
        if held.shape is not None and len(held.shape) == 2:
            return held, found["places"]
    return None


_ROWS = parse("Unsqueeze(Gather{axis=0}(table!, places), ...)")

ROTARY: list[Rule] = table(
    [
        (
            "RotaryEmbedding",
            "Add(Mul(x, cos), Mul(Concat{axis=3}(Neg(upper), lower), sin))",
            _fuse,
        )
    ]
)
