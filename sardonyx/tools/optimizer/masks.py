"""Masks of attentions, as onnxruntime's operators take them.

What is added to scores is handed on with four axes: items and heads, which may be 1, lengths of
queries and of keys, which may not. On request, a mask of zeros and ones is handed on as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sardonyx.base.dtypes import INT32, INT64, DType
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import is_fixed, match, number_of, parse
from sardonyx.tools.optimizer.rules import array_of, constant, like, node_of

#: First version whose Unsqueeze and ReduceSum take axes as an input.
_AXES_AS_INPUT = 13
#: The first axes of a mask, items and heads, may be 1 where those of the scores are not.
_SHARED_AXES = 2
#: What is added to scores hides them if it is less than this.
_HIDING = -9999.0
_CHOSEN = parse("Where(kept, 0, fill!) | Where(hidden, fill!, 0)")
_RAW = parse("Product(Sub(1, m), #filter)")


@dataclass(frozen=True)
class MaskSizes:
    """batch, heads, length of queries and of keys, size of a head of keys and of values."""

    batch: Dim
    heads: int
    length: Dim
    total: Dim
    size: int
    value_size: int


@dataclass(frozen=True)
class Lengths:
    """Values that the new node reads anyway, and which of their axes tell the lengths of scores.

    Attributes:
        query: Its first axis counts items.
        query_axis: That of queries.
        key: What keys come from.
        key_axis: That of keys.
        past: Earlier keys; their third axis counts, too.
    """

    query: Value
    query_axis: int
    key: Value
    key_axis: int
    past: Value | None = None


@dataclass(frozen=True)
class Mask:
    """Inputs of the new node.

    Attributes:
        index: The mask of zeros and ones, or lengths.
        bias: What is added to scores.
        attributes: What goes with it.
    """

    index: Value | None = None
    bias: Value | None = None
    attributes: dict[str, Attribute] = field(default_factory=dict)


class MaskBuilder:
    """Writes the nodes that a mask needs to a list."""

    def __init__(self, graph: Graph, nodes: list[Node], sizes: MaskSizes, lengths: Lengths) -> None:
        self._graph, self._nodes, self._sizes, self._lengths = graph, nodes, sizes, lengths

    def raw(self, mask: Value, *, lengths_only: bool) -> Mask | None:
        """(1 - m) * filter becomes m, or the sums of its rows; None if it is not of that form."""
        whole = (self._sizes.batch, self._sizes.total)
        for found in match(_RAW, mask):
            inner: Value | None = found["m"]
            while inner is not None and inner.shape != whole and inner.producer is not None:
                plain = inner.producer.op_type in ("Cast", "Unsqueeze", "Expand")
                inner = inner.producer.input(0) if plain else None
            if inner is not None and inner.shape == whole:
                index = self._cast(inner, INT32)
                if lengths_only:
                    index = self._row_sums(index)
                return Mask(index, None, {"mask_filter_value": found.numbers["filter"]})
        return None

    def added(self, mask: Value, second: Value | None) -> Mask | str:
        """One or two masks that are added, or why they cannot be handed on."""
        bias = self._wide(mask)
        if second is None or isinstance(bias, str):
            return bias if isinstance(bias, str) else Mask(bias=bias)
        other = self._wide(second)
        if isinstance(other, str):
            return other
        pairs = zip(bias.shape or (), other.shape or (), strict=True)
        shape = tuple(b if a == 1 else a for a, b in pairs)
        return Mask(bias=self._add("Add", [bias, other], like(self._graph, bias, shape)))

    def chosen(self, choice: Value, fill: Value, *, inverted: bool) -> Mask | str:
        """Scores that a number takes the place of: it is added to them, instead.

        That is the same unless all scores of a query are replaced.

        Args:
            choice: Where scores are kept, or hidden if `inverted`.
            fill: The number.
            inverted: See `choice`.
        """
        number = number_of(fill)
        if number is None or number > _HIDING:
            return "its mask does not hide, it replaces"
        if not _keeps_something(choice, inverted=inverted):
            return "its mask may hide all keys of a query, which has a meaning of its own"
        dtype = self._lengths.query.dtype
        if dtype is None or choice.shape is None or fill.dtype is not dtype:
            return "the shape or type of its mask does not fit"
        zero = constant(self._graph, "zero", np.zeros((), dtype.numpy))
        made = self._graph.new_value(f"{choice.name}_added", dtype, choice.shape)
        pair = [fill, zero] if inverted else [zero, fill]
        return self.added(self._add("Where", [choice, *pair], made), None)

    def _wide(self, mask: Value) -> Value | str:
        shape, sizes = mask.shape, self._sizes
        if shape is None or len(shape) > 4 or mask.dtype is not self._lengths.query.dtype:
            return "the shape or type of its mask does not fit"
        if len(shape) < 4:
            axes = list(range(4 - len(shape)))
            shape = (*[1] * len(axes), *shape)
            mask = self._on_axes("Unsqueeze", mask, axes, like(self._graph, mask, shape))
        wanted = (sizes.batch, sizes.heads, sizes.length, sizes.total)
        pairs = list(zip(shape, wanted, strict=True))
        if any(isinstance(d, int) and isinstance(w, int) and d not in (1, w) for d, w in pairs):
            return "the shape of its mask is not that of its scores"
        kept = [d == w or (k < _SHARED_AXES and d == 1) for k, (d, w) in enumerate(pairs)]
        if all(kept):
            return mask
        target = [
            self._integers([1]) if kept[k] else self._size(w, k) for k, w in enumerate(wanted)
        ]
        to = self._add("Concat", target, self._new("mask_shape", (4,)), {"axis": 0})
        wide = tuple(d if kept[k] else w for k, (d, w) in enumerate(pairs))
        return self._add("Expand", [mask, to], like(self._graph, mask, wide))

    def _size(self, dim: Dim, axis: int) -> Value:
        """A size of the scores as a tensor."""
        if isinstance(dim, int):
            return self._integers([dim])
        lengths = self._lengths
        if axis == 0:
            return self._dimension(lengths.query, 0)
        if axis == _SHARED_AXES:
            return self._dimension(lengths.query, lengths.query_axis)
        size = self._dimension(lengths.key, lengths.key_axis)
        if lengths.past is None:
            return size
        earlier = self._dimension(lengths.past, 2)
        return self._add("Add", [earlier, size], self._new("size", (1,)))

    def _dimension(self, source: Value, axis: int) -> Value:
        rank = len(source.shape or ())
        shape = self._add("Shape", [source], self._new("shape", (rank,)))
        at = self._integers([axis])
        return self._add("Gather", [shape, at], self._new("size", (1,)), {"axis": 0})

    def _row_sums(self, index: Value) -> Value:
        made = self._graph.new_value(f"{index.name}_sums", INT32, (index.shape or ())[:1])
        return self._on_axes("ReduceSum", index, [1], made, {"keepdims": 0})

    def _on_axes(
        self,
        op_type: str,
        x: Value,
        axes: list[int],
        made: Value,
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        if self._graph.opset.get("", 0) >= _AXES_AS_INPUT:
            return self._add(op_type, [x, self._integers(axes)], made, attributes)
        return self._add(op_type, [x], made, {**(attributes or {}), "axes": [*axes]})

    def _cast(self, x: Value, dtype: DType) -> Value:
        if x.dtype is dtype:
            return x
        made = self._graph.new_value(f"{x.name}_{dtype.name}", dtype, x.shape)
        return self._add("Cast", [x], made, {"to": dtype.onnx_id})

    def _new(self, hint: str, shape: tuple[Dim, ...]) -> Value:
        return self._graph.new_value(hint, INT64, shape)

    def _integers(self, numbers: list[int]) -> Value:
        return constant(self._graph, "numbers", np.array(numbers, np.int64))

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        made: Value,
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        self._nodes.append(node_of(op_type, inputs, [made], attributes))
        return made


def leaves_something(mask: Value) -> bool:
    """Whether what is added to scores surely leaves a number for every query."""
    if is_fixed(mask):
        return bool(np.isfinite(array_of(mask)).any(axis=-1).all()) if mask.shape else False
    for found in match(_CHOSEN, mask):
        number = number_of(found["fill"])
        if number is not None and np.isfinite(number):
            return True
        choice = found.get("kept") or found["hidden"]
        if _keeps_something(choice, inverted=found.get("kept") is None):
            return True
    return False


def _keeps_something(choice: Value, *, inverted: bool) -> bool:
    """Whether a mask of bools surely keeps a key for every query.

    A constant tells. A part of one, from the first key on, keeps the first key if the whole does.
    """
    node, whole = choice.producer, choice
    while node is not None and node.op_type == "Slice" and not node.domain:
        first = node.input(0)
        starts, axes, steps = node.input(1), node.input(3), node.input(4)
        if first is None or starts is None or axes is None or axes.elements is None:
            return False
        rank = len(first.shape or ())
        if steps is not None and steps.elements != (1,) * len(axes.elements):
            return False
        for place, axis in enumerate(axes.elements):
            last = isinstance(axis, int) and rank and axis % rank == rank - 1
            if last and (starts.elements is None or starts.elements[place] != 0):
                return False
        whole, node = first, first.producer
    if not is_fixed(whole) or not whole.shape or whole.shape[-1] == 0:
        return False
    array = array_of(whole).astype(bool) != inverted
    return bool(array.any(axis=-1).all() if whole is choice else array[..., 0].all())
