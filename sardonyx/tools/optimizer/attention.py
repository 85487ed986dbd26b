"""Attention, written out in matrix products and a softmax, becomes one node.

    softmax(scale * heads(q) @ heads(k).T + mask) @ heads(v), heads side by side again

`Attention` if q, k and v are products of one value with constants, else `MultiHeadAttention`, which
also keeps what was computed of earlier tokens: `past_key` before the keys, `past_value` before the
values. Heads that something else was done to (rotated, repeated) are taken as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sardonyx.base.sizes import Dim, as_atom
from sardonyx.ir.constant import Array
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.masks import Lengths, Mask, MaskBuilder, MaskSizes, leaves_something
from sardonyx.tools.optimizer.pattern import PatternMatch
from sardonyx.tools.optimizer.projections import joined, projection_of, without_bias
from sardonyx.tools.optimizer.rules import MICROSOFT, Rule, constant, like, node_of, table


def _heads(x: str) -> str:
    return f"Transpose{{perm=0 2 1 3}}(Reshape({x}, _))"


def _scaled(x: str, number: str) -> str:
    return f"(Product({x}, #{number}) | {x})"


def _cached(name: str, x: str) -> str:
    return f"(present_{name}=Concat{{axis=2}}(past_{name}, {x}) | {x})"


_K = f"k4={_heads(_scaled('k', 'k_before'))}"
_V = f"v4={_heads('v')}"
_NAMED = {
    "q": _scaled(f"(q4={_heads(_scaled('q', 'q_before'))} | q4)", "q_after"),
    "keys": (
        f"Transpose{{perm=0 2 3 1}}(k_split=Reshape({_scaled('k', 'k_before')}, _))"
        f" | Transpose{{perm=0 1 3 2}}({_scaled(_cached('key', _K), 'k_after')})"
        f" | Transpose{{perm=0 1 3 2}}({_scaled('k4', 'k_after')})"
    ),
    "k": _scaled("($keys)", "k_last"),
    "v": f"{_cached('value', _V)} | v4",
    "scores": _scaled("product=MatMul($q, $k)", "scale"),
    "masked": (
        "Add(Add($scores, mask), second) | Add($scores, mask) | $scores"
        " | Where(kept, $scores, fill!) | Where(hidden, fill!, $scores)"
    ),
    "chances": "guard=Where(IsNaN(p=Softmax{axis=-1}($masked)), 0, p) | Softmax{axis=-1}($masked)",
    "attention": "MatMul($chances, $v)",
}


@dataclass(frozen=True)
class AttentionOptions:
    """What users may ask of attentions.

    Attributes:
        num_heads: Only those of so many heads; 0 for any.
        hidden_size: Only those of so many channels; 0 for any.
        multi_head: Never `Attention`.
        no_mask: Leave masks out.
        raw_mask: Hand on a mask of zeros and ones as it is, where it is made from one.
        mask_index: Hand on the sums of its rows: how long each item is.
    """

    num_heads: int = 0
    hidden_size: int = 0
    multi_head: bool = False
    no_mask: bool = False
    raw_mask: bool = False
    mask_index: bool = False


def attention(options: AttentionOptions | None = None) -> list[Rule]:
    """The rules, as options ask for them."""
    chosen = options or AttentionOptions()

    def build(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        return _Fusion(graph, root, found, chosen).patch()

    text = "Reshape(joined=Transpose{perm=0 2 1 3}(result=$attention), _)"
    return table([("Attention", text, build)], _NAMED)


class _Fusion:
    def __init__(
        self, graph: Graph, root: Node, found: PatternMatch, options: AttentionOptions
    ) -> None:
        self._graph, self._root, self._found, self._options = graph, root, found, options
        self._nodes: list[Node] = []

    def patch(self) -> Patch | str:
        sizes = self._sizes()
        if isinstance(sizes, str):
            return sizes
        found = self._found
        heads, channels = self._options.num_heads, self._options.hidden_size
        wrong = heads not in (0, sizes.heads) or channels not in (0, sizes.heads * sizes.size)
        if wrong:
            return f"it has {sizes.heads} heads of {sizes.size} channels"
        if found.get("present_key") is not None and "k_before" in found.numbers:
            return "its keys are scaled before they are kept"
        if (found.get("present_key") is None) != (found.get("present_value") is None):
            return "keys are kept and values are not, or the other way round"
        attributes: dict[str, Attribute] = {"num_heads": sizes.heads}
        scale = math.prod(found.numbers.values(), start=1.0)
        if not math.isclose(scale, sizes.size**-0.5, rel_tol=1e-6):
            attributes["scale"] = scale
        if found.get("past_key") is None and not self._options.multi_head:
            patch = self._packed(sizes, attributes)
            if patch is not None:
                return patch
        return self._multi_head(sizes, attributes)

    def _packed(self, sizes: MaskSizes, attributes: dict[str, Attribute]) -> Patch | str | None:
        """`Attention`, or None where queries, keys and values are no products of one value."""
        values = [self._found.get(name) for name in "qkv"]
        parts = [p for v in values if v is not None and (p := projection_of(v)) is not None]
        if len(parts) < len(values) or any(p.x is not parts[0].x for p in parts):
            return None
        x = parts[0].x
        mask = self._mask(sizes, Lengths(x, 1, x, 1))
        if isinstance(mask, str):
            return mask
        weight, row = joined(parts)
        attributes |= mask.attributes
        if sizes.size != sizes.value_size:
            attributes["qkv_hidden_sizes"] = [p.weight.shape[1] for p in parts]
        bias = None if row is None else self._constant("bias", row)
        inputs = [x, self._constant("weight", weight), bias, mask.index, None, mask.bias]
        return self._finish("Attention", inputs, attributes)

    def _mask(self, sizes: MaskSizes, lengths: Lengths) -> Mask | str:
        found = self._found
        mask, second, choice = found.get("mask"), found.get("second"), found.get("kept")
        inverted = choice is None and found.get("hidden") is not None
        choice = found.get("hidden") if inverted else choice
        if (mask is None and choice is None) or self._options.no_mask:
            return Mask()
        builder = MaskBuilder(self._graph, self._nodes, sizes, lengths)
        if mask is None and choice is not None:
            return builder.chosen(choice, found["fill"], inverted=inverted)
        if mask is None:
            return Mask()
        if found.get("guard") is not None and (second is not None or not leaves_something(mask)):
            return "its mask may hide all keys of a query, which has a meaning of its own"
        if second is None and (self._options.raw_mask or self._options.mask_index):
            whole = builder.raw(mask, lengths_only=self._options.mask_index)
            if whole is not None:
                return whole
        return builder.added(mask, second)

    def _sizes(self) -> MaskSizes | str:
        found = self._found
        product, result = found["product"].shape, found["result"].shape
        q4 = found["q4"].shape
        if product is None or result is None or q4 is None or len(product) != 4 or len(q4) != 4:
            return "it has not four axes"
        batch, heads, length, total = product
        size, value_size = q4[3], result[3]
        if not (isinstance(heads, int) and isinstance(size, int) and isinstance(value_size, int)):
            return "the number of its heads or their size is not known"
        if not all(map(_is_same, result, (batch, heads, length))):
            return "its mask has more items, heads or queries than its scores"
        target = self._root.inputs[1]
        known = target.elements if target is not None else None
        if self._root.output.shape != self._joined_shape() and (known is None or 0 in known):
            return "heads are not put side by side again"
        q, k, v = found.get("q"), found.get("k"), found.get("v")
        if q4[:3] != (batch, heads, length) or (
            q is not None and q.shape != (batch, length, heads * size)
        ):
            return "queries are shared between heads or items"
        for part, width in ((k, size), (v, value_size)):
            whole = part.shape if part is not None else None
            if whole is not None and (len(whole) != 3 or whole[0] != batch):
                return "keys or values are shared between items"
            if whole is not None and whole[2] != heads * width:
                return "keys or values are shared between heads"
        for name in ("k4", "v4"):
            value = found.get(name)
            if value is not None and (value.shape is None or value.shape[:2] != (batch, heads)):
                return "keys or values are shared between heads or items"
        split = found.get("k_split")
        if split is not None and (split.shape is None or split.shape[2:] != (heads, size)):
            return "keys are not split as queries are"
        return MaskSizes(batch, heads, length, total, size, value_size)

    # The node

    def _multi_head(self, sizes: MaskSizes, attributes: dict[str, Attribute]) -> Patch | str:
        found = self._found
        q, k, v = found.get("q"), found.get("k"), found.get("v")
        past = found.get("past_key")
        row: Value | None = None
        axis = 1
        if k is None or v is None:
            k, v, axis = found.get("k4"), found.get("v4"), 2
            if k is None or v is None or past is not None:
                return "keys and values are not split in the same way"
        elif q is not None:
            apart = [without_bias(value) for value in (q, k, v)]
            if all(b is not None for _, b in apart):
                q, k, v = (value for value, _ in apart)
                row = self._constant("bias", np.concatenate([b for _, b in apart if b is not None]))
        if q is None:
            q = self._side_by_side(found["q4"], sizes)
        mask = self._mask(sizes, Lengths(q, 1, k, axis, past))
        if isinstance(mask, str):
            return mask
        if mask.index is not None and past is not None:
            return "a raw mask and kept keys together are not supported by MultiHeadAttention"
        attributes |= mask.attributes
        inputs = [q, k, v, row, mask.index, mask.bias, past, found.get("past_value")]
        return self._finish("MultiHeadAttention", inputs, attributes)

    def _side_by_side(self, heads: Value, sizes: MaskSizes) -> Value:
        apart = (sizes.batch, sizes.length, sizes.heads, sizes.size)
        width = sizes.heads * sizes.size
        perm: dict[str, Attribute] = {"perm": [0, 2, 1, 3]}
        moved = self._add("Transpose", [heads], apart, heads, perm)
        to = self._integers("joined", [0, 0, width])
        return self._add("Reshape", [moved, to], (sizes.batch, sizes.length, width), heads)

    def _finish(
        self, op_type: str, inputs: Sequence[Value | None], attributes: dict[str, Attribute]
    ) -> Patch:
        graph, root, found = self._graph, self._root, self._found
        joined_shape = self._joined_shape()
        made = like(graph, root.output, joined_shape)
        outputs, replacements = [made], {root.output: made}
        for name in ("present_key", "present_value"):
            old = found.get(name)
            if old is not None:
                outputs.append(like(graph, old))
                replacements[old] = outputs[-1]
        self._nodes.append(
            node_of(op_type, inputs, outputs, attributes, domain=MICROSOFT, found=found)
        )
        if joined_shape != root.output.shape:
            # Something has merged the joining of the heads with a reshape after it.
            again = like(graph, root.output)
            self._nodes.append(node_of("Reshape", [made, root.inputs[1]], [again]))
            replacements[root.output] = again
        return Patch(replacements, self._nodes, op_type)

    def _joined_shape(self) -> tuple[Dim, ...]:
        batch, heads, length, size = self._found["result"].shape or ()
        return batch, length, heads * size

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        shape: tuple[Dim, ...],
        of: Value,
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        made = like(self._graph, of, shape)
        self._nodes.append(node_of(op_type, inputs, [made], attributes))
        return made

    def _constant(self, hint: str, array: Array) -> Value:
        return constant(self._graph, f"{self._root.output.name}_{hint}", array)

    def _integers(self, hint: str, numbers: list[int]) -> Value:
        return self._constant(hint, np.array(numbers, np.int64))


def _is_same(size: Dim, scores: Dim) -> bool:
    """Whether a size after the mask is that before it.

    Sizes that are broadcast are taken as equal. One that is never larger cannot be the larger one
    of the two, and so is that of the scores in any run.
    """
    atom = as_atom(size)
    return size == scores or (atom is not None and atom.kind == "min" and scores in atom.arguments)
