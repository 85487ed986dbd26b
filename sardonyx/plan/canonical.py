"""Groups of equal structure made equal: one kernel serves all layers of a network.

The buffers of a group are replaced by placeholders, numbered in the order in which they appear. Two
groups that then consist of the same (hash-consed) expressions over the same strides get one kernel,
called with different arguments. Operands that commute are in one order by then.
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx.base.dtypes import DType
from sardonyx.base.interning import WeakTable
from sardonyx.base.sizes import Dim
from sardonyx.plan.groups import Attention, Contraction, LoopNest, Stage
from sardonyx.plan.inline import Materialized
from sardonyx.plan.layout import row_major
from sardonyx.tensor.commuting import Commuting
from sardonyx.tensor.rewriting import Renaming
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor, buffer
from sardonyx.tensor.traverse import loads_of

Strides = tuple[Dim, ...]
Shareable = LoopNest | Contraction | Attention

# Weak, as all that is interned: placeholders stand for buffers of models that still are.
_PLACEHOLDERS: WeakTable[tuple[int, tuple[Dim, ...], DType], Buffer] = WeakTable()


def placeholder(number: int, shape: tuple[Dim, ...], dtype: DType) -> Buffer:
    """The buffer that stands for the one that appears as number `number`."""
    key = (number, shape, dtype)
    found = _PLACEHOLDERS.get(key)
    if found is None:
        found = _PLACEHOLDERS.add(key, buffer(f"b{number}", shape, dtype))
    return found


class Canonical:
    """A group over placeholders.

    Attributes:
        group: The group with placeholders in place of buffers.
        strides: Strides of the placeholders.
        buffers: Placeholder -> the buffer that it stands for.
        key: Equal for groups that can share a kernel.
    """

    def __init__(self, group: Shareable, strides: dict[Tensor, Strides]) -> None:
        self._names: dict[Buffer, Buffer] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self._strides_before = strides
        self._renaming = Renaming(self._rename)
        self._commuting = Commuting(group.result if isinstance(group, Contraction) else None)
        self.strides: dict[Tensor, Strides] = {}
        self.group = self._renamed(group)
        del self._renaming, self._commuting  # the former holds what holds it
        shapes = tuple((b.shape, b.dtype, self.strides[b]) for b in self._names.values())
        self.key = (*structure_of(self.group), shapes)

    def _rename(self, tensor: Buffer) -> Buffer:
        found = self._names.get(tensor)
        if found is None:
            found = placeholder(len(self._names), tensor.shape, tensor.dtype)
            self._names[tensor], self.buffers[found] = found, tensor
            self.strides[found] = self._strides_before.get(tensor) or row_major(tensor.shape)
        return found

    def _body(self, body: Scalar) -> Scalar:
        body = self._commuting.ordered(body)
        for x in loads_of(body):
            self._rename(x.buffer)
        return self._renaming.visit(body)

    def _root(self, root: Materialized) -> Materialized:
        return replace(root, buffer=self._rename(root.buffer), readers=[], bodies=())

    def _renamed(self, group: Shareable) -> Shareable:
        if isinstance(group, LoopNest):
            return self._rows(group)
        return self._product(group) if isinstance(group, Contraction) else self._attention(group)

    def _attention(self, group: Attention) -> Attention:
        return replace(
            group, root=self._root(group.root), inner=(), query=self._body(group.query),
            keys=self._body(group.keys), score=self._body(group.score),
            scores=self._body(group.scores), values=self._body(group.values),
            result=self._body(group.result), epilogue=self._body(group.epilogue),
        )  # fmt: skip

    def _rows(self, group: LoopNest) -> LoopNest:
        stages = []
        for s in group.stages:
            body = self._body(s.body)
            stages.append(Stage(self._root(s.root), s.kind, body, s.indices, s.full, s.stored))
        return LoopNest(group.outer, group.inner, stages)

    def _product(self, group: Contraction) -> Contraction:
        left, right = self._body(group.left), self._body(group.right)
        result, epilogue = self._body(group.result), self._body(group.epilogue)
        return replace(
            group, root=self._root(group.root), contraction=self._root(group.contraction),
            left=left, right=right, result=result, epilogue=epilogue,
        )  # fmt: skip


class LatestCanonical:
    """The group that was asked for last over placeholders: it mostly is once more."""

    def __init__(self) -> None:
        self._asked: tuple[Shareable, dict[Tensor, Strides], Canonical] | None = None

    def of(self, group: Shareable, strides: dict[Tensor, Strides]) -> Canonical:
        """A group over placeholders."""
        asked = self._asked
        if asked is None or asked[0] is not group or asked[1] is not strides:
            asked = self._asked = (group, strides, Canonical(group, strides))
        return asked[2]


def structure_of(g: Shareable) -> tuple[object, ...]:
    """What a group over placeholders consists of."""
    if isinstance(g, LoopNest):
        stages = tuple(
            (s.root.buffer, s.kind, s.body, s.indices, s.full, s.stored) for s in g.stages
        )
        return ("rows", g.outer, g.inner, stages)
    if isinstance(g, Attention):
        return (
            "attention", g.root.buffer, g.batch, g.row, g.key, g.column, g.depth, g.query,
            g.keys, g.score, g.scores, g.values, g.result, g.epilogue, g.at, g.guarded,
        )  # fmt: skip
    return (
        "product", g.root.buffer, g.loops, g.at, g.reduced, g.left, g.right, g.accumulator,
        g.result, g.epilogue,
    )  # fmt: skip


def as_rows(product: Contraction) -> LoopNest:
    """A contraction as a plain sum and the epilogue that reads it: for what no fast form takes."""
    from sardonyx.tensor import scalar

    accumulator = product.accumulator
    left, right = (scalar.cast(x, accumulator) for x in (product.left, product.right))
    total = Stage(product.contraction, "sum", left * right, product.result.at, True, stored=False)
    final = Stage(product.root, "map", product.epilogue, product.at, False)
    if product.contraction is product.root or product.contraction.buffer is product.root.buffer:
        total.stored = True
        return LoopNest(product.loops, product.reduced, [total])
    return LoopNest(product.loops, product.reduced, [total, final])
