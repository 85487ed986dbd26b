"""Whether a lowering checks data: asked of each node, so nothing is walked to find out."""

from __future__ import annotations

from contextvars import ContextVar

from sardonyx.base.settings import Setting

#: Kernels that refuse nothing in the tensors that they order, pick from and add up.
_HARMLESS = frozenset(("compact", "scan", "sort_rows", "top_k"))

_noted: ContextVar[list[str] | None] = ContextVar("noted checks", default=None)


def noting_checks() -> Setting[list[str]]:
    """Inside the block, the list grows with each check that is made, and each call that may."""
    return Setting(_noted, [])


def may_refuse(kernel: str, operands: int) -> bool:
    """Whether a kernel with loops of its own, a region or the host may check so many operands."""
    return kernel not in _HARMLESS or operands > 1  # a second one says how many, or which axis


def note_check(what: str) -> None:
    """Say that a run may refuse data here."""
    noted = _noted.get()
    if noted is not None:
        noted.append(what)
