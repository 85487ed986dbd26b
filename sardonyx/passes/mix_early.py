"""Channels are mixed before an image is enlarged, and by one product where there were two.

Conv(Concat(Resize(a), Resize(b), c), w, bias)
->  Resize(Conv(a, w1)) + Resize(Conv(b, w2)) + Conv(c, w3) + bias  with w in parts along channels

for convolutions of 1 x 1: interpolation does the same to all channels, so it may come before or
after sums over channels. A small image has less to sum up. Heads of segmentation networks are like
that (SegFormer's, of 4 images, sums 5 times less), and there a linear layer is in front:

Conv(Reshape(Transpose(MatMul(x, u) + a)), w)  ->  Reshape(Transpose(MatMul(x, u w') + a w'))

Weights are multiplied in double, once. Half floats stay as they are: every step rounds there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.dtypes import DOUBLE, FLOAT, INT64, DType
from sardonyx.base.integer import is_nonnegative, known_equal
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch, apply
from sardonyx.ir.value import Value
from sardonyx.passes.linear_layers import LinearLayer, is_same_always, layer_of, made_for_one

#: First version of the operator set whose Slice takes its bounds as inputs.
_SLICES = 10
_RESIZES = ("Resize", "Upsample")
#: So many inputs has Resize where the second is a region of interest.
_INPUTS_WITH_REGION = 3
#: Fewer channels than so many, and than there are afterwards, are faster enlarged first: 4 to 64
#: took twice as long otherwise.
_FEW_CHANNELS = 16
#: What an interpolation may not do: put in numbers that are in no channel, or look at sizes of all
#: axes to choose a scale.
_ODD = {
    "coordinate_transformation_mode": "tf_crop_and_resize",
    "keep_aspect_ratio_policy": ("not_larger", "not_smaller"),
}


def mix_early(graph: Graph) -> int:
    """Rewrite every convolution that allows it.

    Returns:
        How many there were.
    """
    count = 0
    for node in [n for n in graph.nodes if n.op_type == "Conv" and n.graph is graph]:
        patch = _Mixing(graph, node).patch() if _is_mixing(node) else None
        if patch is not None:
            apply(graph, patch)
            count += 1
    return count


@dataclass(frozen=True, slots=True)
class _Part:
    """Channels that a convolution reads: an image, and what enlarges it if it is not read so."""

    image: Value
    channels: int
    resize: Node | None


def _is_mixing(node: Node) -> bool:
    """Whether this is a convolution that only mixes channels, by known weights."""
    given = node.attributes
    x, weight, bias = node.input(0), node.input(1), node.input(2)
    if node.domain or node.version < _SLICES or x is None or weight is None:
        return False
    if weight.dtype not in (FLOAT, DOUBLE) or weight.shape is None or x.shape is None:
        return False
    if not all(isinstance(d, int) for d in weight.shape) or set(weight.shape[2:]) - {1}:
        return False
    if given.get("group", 1) != 1 or given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    if any(_integers(node, "pads")) or set(_integers(node, "strides")) - {1}:
        return False
    return is_same_always(weight) and (bias is None or is_same_always(bias))


def _integers(node: Node, name: str) -> list[int]:
    found: Any = node.attributes.get(name)
    return [] if found is None else [*found]


class _Mixing:
    """The rewriting of one convolution."""

    def __init__(self, graph: Graph, node: Node) -> None:
        x, weight = node.inputs[0], node.inputs[1]
        assert x is not None and weight is not None and weight.shape  # noqa: S101, PT018 - seen
        self.graph, self.node, self.x, self.weight = graph, node, x, weight
        self.dtype: DType = weight.dtype or FLOAT
        first, second = weight.shape[:2]
        assert isinstance(first, int) and isinstance(second, int)  # noqa: S101, PT018 - seen
        self.out, self.channels = first, second
        self.nodes: list[Node] = []

    def patch(self) -> Patch | None:
        """What to change; None if nothing is gained."""
        parts = self._parts()
        layers = [layer_of(self.graph, p.image, p.channels, self.out) for p in parts]
        if not any(p.resize for p in parts) and not any(layers):
            return None
        terms: list[Value] = []
        rest: list[tuple[Value, Value]] = []
        start = 0
        for part, layer in zip(parts, layers, strict=True):
            end = start + part.channels
            weight = self.weight
            if len(parts) > 1:
                weight = self._slice(weight, start, end, 1, (self.out, part.channels))
            start = end
            if layer is not None:
                mixed = self._layer_of(layer, weight, part)
            elif part.resize is not None:
                mixed = self._mix(part.image, weight)
            else:
                rest.append((part.image, weight))
                continue
            terms.append(mixed if part.resize is None else self._resized(part, mixed))
        if rest:
            terms.insert(0, self._mix(*self._joined(rest)))
        total = terms[0]
        shape = self.node.output.shape
        for term in terms[1:]:
            total = self._add("Add", [total, term], shape)
        bias = self.node.input(2)
        if bias is not None:
            ones = (1,) * (len(self.weight.shape or ()) - 2)
            column = self._add(
                "Reshape", [bias, self._numbers((1, -1, *ones))], (1, self.out, *ones)
            )
            total = self._add("Add", [total, column], shape)
        return Patch({self.node.output: total}, self.nodes, "mix channels before resizing")

    # -- what there is ------------------------------------------------------------------------

    def _parts(self) -> list[_Part]:
        concat = made_for_one(self.graph, self.x, ("Concat",))
        axis = concat.attributes.get("axis") if concat is not None else None
        rank = len(self.x.shape or ())
        values: list[Value | None] = [self.x]
        if concat is not None and axis in (1, 1 - rank):
            values = list(concat.inputs)
        found = []
        for value in values:
            if value is None or value.shape is None or not isinstance(value.shape[1], int):
                return [_Part(self.x, self.channels, None)]
            resize = None
            if value.shape[1] >= _FEW_CHANNELS or value.shape[1] >= self.out:
                resize = _enlarging(self.graph, value)
            image = resize.inputs[0] if resize is not None else value
            assert image is not None  # noqa: S101 - _enlarging has looked
            found.append(_Part(image, value.shape[1], resize))
        if not any(p.resize for p in found):
            return [_Part(self.x, self.channels, None)]
        return found

    # -- what there will be -------------------------------------------------------------------

    def _add(
        self,
        op_type: str,
        inputs: Iterable[Value | None],
        shape: tuple[Dim, ...] | None,
        attributes: dict[str, Attribute] | None = None,
        dtype: DType | None = None,
        like: Node | None = None,
    ) -> Value:
        made = self.graph.new_value(
            f"{self.node.output.name}_{op_type.lower()}", dtype or self.dtype, shape
        )
        origin = (*self.node.origin, *(like.origin if like is not None else ()))
        version = like.version if like is not None else self.node.version
        self.nodes.append(
            Node(op_type, "", inputs, (made,), attributes, version=version, origin=origin)
        )
        return made

    def _numbers(self, numbers: Iterable[int]) -> Value:
        constant = Constant.from_array(np.array([*numbers], np.int64), INT64)
        return self.graph.add_constant("numbers", constant)

    def _slice(
        self, x: Value, start: int, end: int, axis: int, shape: tuple[Dim, ...],
        dtype: DType | None = None,
    ) -> Value:  # fmt: skip
        bounds = [self._numbers([k]) for k in (start, end, axis)]
        full = (*shape, *(x.shape or ())[len(shape) :])
        return self._add("Slice", [x, *bounds], full, dtype=dtype)

    def _joined(self, rest: list[tuple[Value, Value]]) -> tuple[Value, Value]:
        """Images side by side, and their weights."""
        if len(rest) == 1:
            return rest[0]
        found = []
        for values in zip(*rest, strict=True):
            first = values[0].shape or (0,)
            channels = sizes.total(v.shape[1] for v in values if v.shape is not None)
            shape = (first[0], channels, *first[2:])
            found.append(self._add("Concat", values, shape, {"axis": 1}))
        return found[0], found[1]

    def _mix(self, image: Value, weight: Value) -> Value:
        before = image.shape or (0,)
        shape = (before[0], self.out, *before[2:])
        return self._add("Conv", [image, weight], shape, dict(self.node.attributes))

    def _resized(self, part: _Part, mixed: Value) -> Value:
        resize = part.resize
        assert resize is not None  # noqa: S101 - the caller knows
        inputs = [mixed, *resize.inputs[1:]]
        wanted, rank = resize.input(3), len(resize.output.shape or ())
        axes = [a % rank for a in _integers(resize, "axes")] or [*range(rank)]
        if wanted is not None and 1 in axes:
            inputs[3] = self._with_channels(wanted, axes.index(1), part.channels)
        shape = resize.output.shape or ()
        shape = (shape[0], self.out, *shape[2:])
        return self._add(resize.op_type, inputs, shape, dict(resize.attributes), like=resize)

    def _with_channels(self, wanted: Value, place: int, channels: int) -> Value:
        """A list of sizes, with the number of channels that there are now."""
        if channels == self.out:
            return wanted
        (rank,) = wanted.shape or (0,)
        assert isinstance(rank, int)  # noqa: S101 - a shape's rank is known
        pieces = []
        if place:
            pieces.append(self._slice(wanted, 0, place, 0, (place,), INT64))
        pieces.append(self._numbers([self.out]))
        if place + 1 < rank:
            pieces.append(self._slice(wanted, place + 1, rank, 0, (rank - place - 1,), INT64))
        made = self._add("Concat", pieces, (rank,), {"axis": 0}, INT64)
        if wanted.elements is not None:
            before, after = wanted.elements[:place], wanted.elements[place + 1 :]
            made.elements = (*before, self.out, *after)
        return made

    def _layer_of(self, layer: LinearLayer, weight: Value, part: _Part) -> Value:
        """The linear layer with the weights behind it, and its steps again."""
        x, own = layer.product.inputs
        assert x is not None and own is not None and own.shape  # noqa: S101, PT018 - seen
        flat = self._add(
            "Reshape", [weight, self._numbers((self.out, part.channels))],
            (self.out, part.channels),
        )  # fmt: skip
        transposed = self._add("Transpose", [flat], (part.channels, self.out), {"perm": [1, 0]})
        wide = self._cast(transposed, DOUBLE)
        matrix = self._times(own, wide, (own.shape[0], self.out))
        found = self._add(
            "MatMul", [x, matrix], (*(layer.product.output.shape or ())[:-1], self.out),
            like=layer.product,
        )  # fmt: skip
        if layer.bias is not None:
            row = self._times(layer.bias, wide, (self.out,))
            found = self._add("Add", [found, row], found.shape)
        for node, axis in layer.steps:
            shape = list(node.output.shape or ())
            shape[axis] = self.out
            inputs: list[Value | None] = [found, *node.inputs[1:]]
            if node.op_type == "Reshape":
                wanted = node.inputs[1]
                assert wanted is not None  # noqa: S101 - Reshape has two inputs
                inputs[1] = self._with_channels(wanted, axis, part.channels)
            given = dict(node.attributes)
            found = self._add(node.op_type, inputs, tuple(shape), given, like=node)
        return found

    def _times(self, left: Value, right: Value, shape: tuple[Dim, ...]) -> Value:
        """A product of weights, rounded once."""
        exact = self._add("MatMul", [self._cast(left, DOUBLE), right], shape, dtype=DOUBLE)
        return self._cast(exact, self.dtype)

    def _cast(self, x: Value, dtype: DType) -> Value:
        if x.dtype is dtype:
            return x
        return self._add("Cast", [x], x.shape, {"to": dtype.onnx_id}, dtype)


def _keeps_channels(resize: Node, rank: int) -> bool:
    """Whether channels stay as they are: a scale of nearly 1 makes mixtures, as many as before."""
    axes = [a % rank for a in _integers(resize, "axes")] or [*range(rank)]
    if resize.input(3) is not None or 1 not in axes:
        return True
    scales = resize.input(1 if len(resize.inputs) < _INPUTS_WITH_REGION else 2)
    if scales is None or scales.constant is None or not scales.is_fixed:
        return False
    return bool(scales.constant.array().reshape(-1)[axes.index(1)] == 1)


def _enlarging(graph: Graph, value: Value) -> Node | None:
    """What makes an image larger, or may do so, all channels alike."""
    node = made_for_one(graph, value, _RESIZES)
    x = node.input(0) if node is not None else None
    if node is None or x is None or x.shape is None or value.shape is None:
        return None
    if len(x.shape) != len(value.shape) or len(x.shape) < 3:
        return None
    if any(node.attributes.get(name) in ([odd] if isinstance(odd, str) else odd)
           for name, odd in _ODD.items()):  # fmt: skip
        return None
    if not all(known_equal(a, b) for a, b in zip(x.shape[:2], value.shape[:2], strict=True)):
        return None
    if not _keeps_channels(node, len(x.shape)):
        return None
    before, after = (sizes.product(s[2:]) for s in (x.shape, value.shape))
    lost = before - after
    return None if is_nonnegative(lost - 1) else node
