"""Attention whose heads of keys and values are shared by groups of queries.

    attention(heads(q), repeat(heads(k)), repeat(heads(v)))  ->  GroupQueryAttention(q, k, v)

The operator's own mask is switched off: what is added to the scores says all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sardonyx.base.dtypes import INT32, INT64, DType
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.masks import Lengths, Mask, MaskBuilder, MaskSizes
from sardonyx.tools.optimizer.pattern import PatternMatch
from sardonyx.tools.optimizer.rules import MICROSOFT, Rule, constant, like, node_of, table


def _scaled(x: str, number: str) -> str:
    return f"(Product({x}, #{number}) | {x})"


def _repeated(name: str) -> str:
    heads = f"Transpose{{perm=0 2 1 3}}(Reshape({name}, _))"
    cached = f"(present_{name}=Concat{{axis=2}}(past_{name}, {heads}) | {heads})"
    return f"Reshape({name}_wide=Expand({name}_one=Unsqueeze({cached}, ...), _), _)"


_NAMED = {
    "q": _scaled("q4=Transpose{perm=0 2 1 3}(Reshape(q, _))", "q_after"),
    "k": _scaled(f"Transpose{{perm=0 1 3 2}}({_scaled(_repeated('k'), 'k_after')})", "k_last"),
    "scores": _scaled("product=MatMul($q, $k)", "scale"),
    "masked": "Add($scores, mask) | $scores",
}
_TEXT = (
    "Reshape(Transpose{perm=0 2 1 3}("
    f"result=MatMul(Softmax{{axis=-1}}($masked), {_repeated('v')})), _)"
)
#: onnxruntime's kernels take heads of multiples of this.
_STEP = 8


def grouped(*, no_mask: bool = False) -> list[Rule]:
    """The rule; masks may be left out."""

    def build(graph: Graph, root: Node, found: PatternMatch) -> Patch | str:
        return _Fusion(graph, root, found, no_mask).patch()

    return table([("GroupQueryAttention", _TEXT, build)], _NAMED)


class _Fusion:
    def __init__(self, graph: Graph, root: Node, found: PatternMatch, no_mask: bool) -> None:
        self._graph, self._root, self._found, self._no_mask = graph, root, found, no_mask
        self._nodes: list[Node] = []

    def patch(self) -> Patch | str:
        found, graph, root = self._found, self._graph, self._root
        q, k, v, past = found["q"], found["k"], found["v"], found.get("past_k")
        product, one, wide = found["product"].shape, found["k_one"].shape, found["k_wide"].shape
        if product is None or one is None or wide is None or len(one) != 5 or len(wide) != 5:
            return "its axes are not known"
        batch, heads, length, total = product
        groups, size = one[1], one[4]
        if not (isinstance(heads, int) and isinstance(groups, int) and isinstance(size, int)):
            return "the number of its heads or their size is not known"
        if size % _STEP or heads % groups:
            return f"heads have {size} channels, no multiple of {_STEP}"
        each = heads // groups
        repeated = (batch, groups, each, total, size)
        if one != (batch, groups, 1, total, size) or wide != repeated:
            return "keys are not repeated for groups of queries"
        if found["v_one"].shape != one or found["v_wide"].shape != repeated:
            return "values are not repeated as keys are"
        if root.output.shape != (batch, length, heads * size) or q.shape != root.output.shape:
            return "heads are not put side by side again"
        if k.shape is None or v.shape != k.shape or k.shape[2:] != (groups * size,):
            return "keys and values differ in shape"
        if (past is None) != (found.get("past_v") is None):
            return "keys are kept and values are not, or the other way round"
        if past is not None and batch != 1 and length != 1:
            return "onnxruntime takes kept keys with one item, or with one query"
        scale = math.prod(found.numbers.values(), start=1.0)
        sizes = MaskSizes(batch, heads, length, total, size, size)
        mask = self._mask(sizes, Lengths(q, 1, k, 1, past))
        if isinstance(mask, str):
            return mask
        attributes: dict[str, Attribute] = {
            "num_heads": heads, "kv_num_heads": groups, "scale": scale, "causal": 0
        }  # fmt: skip
        last, count = self._lengths(q, k, past, batch)
        inputs = [q, k, v, past, found.get("past_v"), last, count, None, None, None, mask.bias]
        kept = (batch, groups, total, size)
        outputs = [like(graph, root.output), like(graph, k, kept), like(graph, v, kept)]
        replacements = {root.output: outputs[0]}
        for name, new in (("present_k", outputs[1]), ("present_v", outputs[2])):
            if found.get(name) is not None:
                replacements[found[name]] = new
        self._nodes.append(
            node_of(
                "GroupQueryAttention", inputs, outputs, attributes,
                domain=MICROSOFT, found=found,
            )
        )  # fmt: skip
        return Patch(replacements, self._nodes, "GroupQueryAttention")

    def _mask(self, sizes: MaskSizes, lengths: Lengths) -> Mask | str:
        mask = self._found.get("mask")
        if mask is None or self._no_mask:
            return Mask()
        return MaskBuilder(self._graph, self._nodes, sizes, lengths).added(mask, None)

    def _lengths(self, q: Value, k: Value, past: Value | None, batch: Dim) -> tuple[Value, Value]:
        """The last place of each item, and the number of places."""
        count = self._size(k, 1)
        if past is not None:
            count = self._add("Add", [self._size(past, 2), count], INT64, ())
        count = self._add("Cast", [count], INT32, (), {"to": INT32.onnx_id})
        one = constant(self._graph, "one", np.array(1, np.int32))
        last = self._add("Sub", [count, one], INT32, ())
        items = self._size(q, 0, shape=(1,))
        return self._add("Expand", [last, items], INT32, (batch,)), count

    def _size(self, value: Value, axis: int, shape: tuple[int, ...] = ()) -> Value:
        whole = self._add("Shape", [value], INT64, (len(value.shape or ()),))
        at = constant(self._graph, "axis", np.full(shape, axis, np.int64))
        return self._add("Gather", [whole, at], INT64, shape, {"axis": 0})

    def _add(
        self,
        op_type: str,
        inputs: Sequence[Value],
        dtype: DType,
        shape: tuple[Dim, ...],
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        made = self._graph.new_value(f"{self._root.output.name}_{op_type.lower()}", dtype, shape)
        self._nodes.append(node_of(op_type, inputs, [made], attributes))
        return made
