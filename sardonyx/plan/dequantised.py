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

    Args:
        tensors: All that is computed.
        kept: What has memory in any case.
    """

    def __init__(self, tensors: Sequence[Tensor], kept: Collection[Tensor]) -> None:
        self._kept = kept
        self.contractions = {t for t in tensors if isinstance(t, Contract) and self._is_one(t)}

    def _body_of(self, x: Scalar) -> Scalar | None:
        tensor = x.tensor
        if not isinstance(tensor, Map) or tensor in self._kept:
            return None
        return rewrite(tensor.body, atoms=bind(indices(tensor.shape), x.at))

    def _is_one(self, tensor: Contract) -> bool:
        if tensor.dtype is not dtypes.FLOAT or tensor.accumulator is not dtypes.FLOAT:
            return False
        factors = [codes_of(x, self._body_of) for x in (tensor.left, tensor.right)]
        return fit(factors, reduced_indices(tensor.extents), tensor.extents)


def is_decoded(body: Scalar) -> bool:
    """Whether an expression dequantises one element where it lies: cheap to do again."""
    found = codes_of(body) if body.dtype is dtypes.FLOAT else None
    return found is not None and found.code.op == "load" and found.scale is not None


def fit(factors: Sequence[Codes | None], reduced: Sequence[Dim], extents: Sequence[Dim]) -> bool:
    """Whether 32 bits hold the sum of products, and all but codes leaves it."""
    summed = {sizes.as_atom(v) for v in reduced}
    found = [f for f in factors if f is not None and f.scale is not None]
    if len(found) < 2 or index_atoms(found[0].zero):
        return False
    if any(index_atoms(x) & summed for f in found for x in (f.zero, f.scale) if x is not None):
        return False
    return is_small(found[0], found[1], extents)
