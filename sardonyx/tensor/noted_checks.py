"""Whether a lowering checks data: asked of each node, so nothing is walked to find out."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from operator import sub
from typing import TYPE_CHECKING

from sardonyx.base import integer
from sardonyx.base.dtypes import DType
from sardonyx.base.settings import Setting
from sardonyx.base.sizes import Dim

if TYPE_CHECKING:
    from sardonyx.tensor.scalar import Scalar
    from sardonyx.tensor.tensor import Tensor

#: Kernels that refuse nothing in the tensors that they order and add up.
_HARMLESS = frozenset(("compact", "scan", "sort_rows"))

_noted: ContextVar[list[str] | None] = ContextVar("noted checks", default=None)


def noting_checks() -> Setting[list[str]]:
    """Inside the block, the list grows with each check that is made, and each call that may."""
    return Setting(_noted, [])


def may_refuse(
    kernel: str, operands: Sequence[Tensor], outputs: Sequence[tuple[Sequence[Dim], DType]]
) -> bool:
    """Whether a kernel with loops of its own, a region or the host may check what it is given."""
    if kernel == "top_k":  # more than there are
        return not all(map(integer.is_nonnegative, map(sub, operands[0].shape, outputs[0][0])))
    return kernel not in _HARMLESS or len(operands) > 1  # a second one says how many, or which axis


def may_divide_by_zero(x: Scalar) -> bool:
    """Whether a node divides integers by what is not known: a run refuses to divide by 0."""
    if x.op not in ("div", "rem") or not x.dtype.is_integer:
        return False
    divisor = x.arguments[1]
    return divisor.op != "constant" or not divisor.payload


def note_check(what: str) -> None:
    """Say that a run may refuse data here."""
    noted = _noted.get()
    if noted is not None:
        noted.append(what)
