"""Whether a lowering checks data: asked of each node, so nothing is walked to find out."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from sardonyx.base.settings import Setting

if TYPE_CHECKING:
    from sardonyx.tensor.scalar import Scalar

#: Kernels that refuse nothing in the tensors that they order, pick from and add up.
_HARMLESS = frozenset(("compact", "scan", "sort_rows", "top_k"))

_noted: ContextVar[list[str] | None] = ContextVar("noted checks", default=None)


def noting_checks() -> Setting[list[str]]:
    """Inside the block, the list grows with each check that is made, and each call that may."""
    return Setting(_noted, [])


def may_refuse(kernel: str, operands: int) -> bool:
    """Whether a kernel with loops of its own, a region or the host may check so many operands."""
    return kernel not in _HARMLESS or operands > 1  # a second one says how many, or which axis


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
