"""Which float contractions of a graph are of dequantised codes, before anything gets memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.codes import Codes, codes_of, index_atoms, is_small
from sardonyx.tensor.composition import bind
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Contract, Map, Tensor, indices, reduced_indices


class Dequantised:
    """Contractions of a graph whose factors are dequantised codes.

    Attributes:
        contractions: Those that can be sums of integers.
        refused: Those that cannot, though a factor is dequantised, and why.

    Args:
        tensors: All that is computed.
        kept: What has memory in any case.
    """

    def __init__(self, tensors: Sequence[Tensor], kept: Collection[Tensor]) -> None:
        self._kept = kept
        self.contractions: set[Contract] = set()
        self.refused: dict[Tensor, str] = {}
        for tensor in tensors:
            if isinstance(tensor, Contract) and tensor.accumulator is dtypes.FLOAT:
                self._sort(tensor)

    def _sort(self, tensor: Contract) -> None:
        left, right = (codes_of(x, self._body_of) for x in (tensor.left, tensor.right))
        if left is None and right is None:
            return
        reason = unfit(left, right, reduced_indices(tensor.extents), tensor.extents)
        if tensor.dtype is not dtypes.FLOAT:
            reason = f"its result is {tensor.dtype}"
        if reason:
            self.refused[tensor] = f"no integers: {reason}"
        else:
            self.contractions.add(tensor)

    def _body_of(self, x: Scalar) -> Scalar | None:
        tensor = x.tensor
        if not isinstance(tensor, Map) or tensor in self._kept:
            return None
        return rewrite(tensor.body, atoms=bind(indices(tensor.shape), x.at))


def is_decoded(body: Scalar) -> bool:
    """Whether an expression dequantises one element where it lies: cheap to do again."""
    found = codes_of(body) if body.dtype is dtypes.FLOAT else None
    return found is not None and found.code.op == "load" and found.scale is not None


def unfit(
    left: Codes | None, right: Codes | None, reduced: Sequence[Dim], extents: Sequence[Dim]
) -> str:
    """Why a float contraction of factors cannot be a sum of integers; nothing if it can."""
    for name, factor in (("left", left), ("right", right)):
        if factor is None or factor.scale is None:
            return f"its {name} factor is not dequantised from 8 bits"
    assert left is not None  # noqa: S101 - narrows the type for the checker
    assert right is not None  # noqa: S101 - narrows the type for the checker
    summed = {sizes.as_atom(v) for v in reduced}
    for x in (left.zero, left.scale, right.zero, right.scale):
        if x is not None and index_atoms(x) & summed:
            return "its scales or zero points change along what is summed"
    if index_atoms(left.zero):
        return "its left factor has several zero points"
    return "" if is_small(left, right, extents) else "its sums may need more than 32 bits"
