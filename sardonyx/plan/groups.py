"""Kernels to be: which roots are computed together, over which index variables.

- `LoopNest`: maps and reductions over one domain, `outer` times `inner`. Reductions run over all of
  `inner`; maps over `outer` alone or over both. A chain of reductions with pointwise work between
  them (softmax, normalisation) is one such group; a pointwise kernel is one without `inner`.
- `Contraction`: one contraction with the pointwise map that reads it as epilogue.
- `Attention`: a contraction whose result goes through a softmax into another contraction, so that
  the scores between them never lie in memory.
- `CustomKernel`: one invocation of a kernel program with loops of its own.
"""

from __future__ import annotations

from dataclasses import field

from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.inline import Materialized
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Call


@dataclass(eq=False, slots=True)
class Stage:
    """One member of a `LoopNest` group, in the group's index variables.

    Attributes:
        root: The root that it computes.
        kind: `map`, or a reduction's kind.
        body: What one element is.
        indices: Where the element goes in the root's buffer.
        full: Whether the body runs over `inner` (always for reductions).
        stored: Whether anything outside the group reads it.
    """

    root: Materialized
    kind: str
    body: Scalar
    indices: tuple[Dim, ...]
    full: bool
    stored: bool = True


@dataclass(eq=False, slots=True)
class LoopNest:
    """Maps and reductions over one domain. See the module's text."""

    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    stages: list[Stage]

    @property
    def roots(self) -> list[Materialized]:
        """The roots that the group computes."""
        return [s.root for s in self.stages]


@dataclass(eq=False, slots=True)
class Contraction:
    """A contraction over the index variables `loops`, and its epilogue.

    Attributes:
        root: The root that is written.
        contraction: The root of the sum; `root` itself where there is no epilogue.
        loops: Index variables of the output, split where an index divides one.
        at: Where in the output an element is stored.
        reduced: Index variables of the summed axes.
        left: First factor.
        right: Second factor.
        accumulator: Type in which the sum is kept.
        result: The load that stands for the sum in `epilogue`.
        epilogue: What is stored.
    """

    root: Materialized
    contraction: Materialized
    loops: tuple[Dim, ...]
    at: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    left: Scalar
    right: Scalar
    accumulator: DType
    result: Scalar
    epilogue: Scalar

    @property
    def roots(self) -> list[Materialized]:
        """The roots that the group computes."""
        return [self.root]


@dataclass(eq=False, slots=True)
class Attention:
    """`sum over t of softmax over t (scores(s, t)) * value(t, e)`, all in one set of variables.

    (Vaswani et al. 2017, equation 1.) `batch`, `row` and `column` are axes of the output.

    Attributes:
        root: The root that is written.
        inner: The roots between, which get no memory.
        batch: Variables of independent products.
        row: The variable of queries; 0 if there is one.
        key: The variable that the softmax runs over.
        column: The variable of the output's last factor.
        depth: Variables that the scores sum over.
        query: First factor of the scores.
        keys: Second factor of the scores.
        score: Stands for the summed product in `scores`.
        scores: What goes into the softmax: scale, mask and all.
        values: What the weights are multiplied with.
        result: Stands for the weighted sum in `epilogue`.
        epilogue: What is stored.
        at: Where it is stored.
        guarded: Whether a query all of whose scores are minus infinity gets zeros, not NaN.
    """

    root: Materialized
    inner: tuple[Materialized, ...]
    batch: tuple[Dim, ...]
    row: Dim
    key: Dim
    column: Dim
    depth: tuple[Dim, ...]
    query: Scalar
    keys: Scalar
    score: Scalar
    scores: Scalar
    values: Scalar
    result: Scalar
    epilogue: Scalar
    at: tuple[Dim, ...]
    guarded: bool = False

    @property
    def roots(self) -> list[Materialized]:
        """The roots that the group computes."""
        return [self.root]


@dataclass(eq=False, slots=True)
class CustomKernel:
    """One invocation of a special kernel: the roots are its outputs that are used."""

    call: Call
    operands: tuple[Scalar, ...]
    outputs: list[Materialized] = field(default_factory=list)

    @property
    def views(self) -> list[tuple[Buffer, tuple[Dim, ...], tuple[Dim, ...]]]:
        """Per operand: the buffer, the operand's shape, where its elements are in the buffer."""
        shapes = [o.shape for o in self.call.operands]
        return [(o.buffer, s, o.at) for o, s in zip(self.operands, shapes, strict=True)]

    @property
    def roots(self) -> list[Materialized]:
        """The roots that the group computes."""
        return self.outputs


Group = LoopNest | Contraction | Attention | CustomKernel
