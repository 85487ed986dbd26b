"""Kernels to be: which roots are computed together, over which index variables.

- `Rows`: maps and reductions over one domain, `outer` times `inner`. Reductions run over all of
  `inner`; maps over `outer` alone or over both. A chain of reductions with pointwise work between
  them (softmax, normalisation) is one such group; a pointwise kernel is one without `inner`.
- `Product`: one contraction with the pointwise map that reads it as epilogue.
- `Special`: one invocation of a kernel program with loops of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim
from sardonyx.plan.inline import Root
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Call, Tensor


@dataclass(eq=False, slots=True)
class Stage:
    """One member of a `Rows` group, in the group's index variables.

    Attributes:
        root: The root that it computes.
        kind: `map`, or a reduction's kind.
        body: What one element is.
        indices: Where the element goes in the root's buffer.
        full: Whether the body runs over `inner` (always for reductions).
        stored: Whether anything outside the group reads it.
    """

    root: Root
    kind: str
    body: Scalar
    indices: tuple[Dim, ...]
    full: bool
    stored: bool = True


@dataclass(eq=False, slots=True)
class Rows:
    """Maps and reductions over one domain. See the module's text."""

    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    stages: list[Stage]

    @property
    def roots(self) -> list[Root]:
        """The roots that the group computes."""
        return [s.root for s in self.stages]


@dataclass(eq=False, slots=True)
class Product:
    """A contraction over `loops` (one index variable per axis of the output) and its epilogue.

    Attributes:
        root: The root that is written.
        loops: Index variables of the output axes; 0 for an axis of extent 1.
        reduced: Index variables of the summed axes.
        left: First factor.
        right: Second factor.
        accumulator: Type in which the sum is kept.
        result: The load that stands for the sum in `epilogue`.
        epilogue: What is stored at `loops`.
    """

    root: Root
    contraction: Root
    loops: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    left: Scalar
    right: Scalar
    accumulator: DType
    result: Scalar
    epilogue: Scalar

    @property
    def roots(self) -> list[Root]:
        """The roots that the group computes."""
        return [self.root]


@dataclass(eq=False, slots=True)
class Special:
    """One invocation of a special kernel: the roots are its outputs that are used."""

    call: Call
    operands: tuple[Scalar, ...]
    outputs: list[Root] = field(default_factory=list)

    @property
    def views(self) -> list[tuple[Tensor, tuple[Dim, ...], tuple[Dim, ...]]]:
        """Per operand: the buffer, the operand's shape, and where its elements are in the buffer."""
        shapes = [o.shape for o in self.call.operands]
        return [(o.tensor, s, o.at) for o, s in zip(self.operands, shapes, strict=True)]

    @property
    def roots(self) -> list[Root]:
        """The roots that the group computes."""
        return self.outputs


Group = Rows | Product | Special
