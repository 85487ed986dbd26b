"""Why a planning pass, or a kernel, was not taken.

What refuses gives a `Reason` in place of a result. Its text is written when somebody reads it, so
sessions, which read none, pay for an object of two fields at most.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING

from sardonyx.base.records import dataclass
from sardonyx.base.texts import agreeing

if TYPE_CHECKING:
    from sardonyx.plan.groups import Group
    from sardonyx.tensor.tensor import Tensor


class Reason:
    """A sentence without its full stop, with the numbers that decided.

    Args:
        text: The sentence, as `base.texts.agreeing` takes it if there are values.
        values: What it names.
    """

    __slots__ = ("_text", "_values")

    def __init__(self, text: str, *values: object) -> None:
        self._text, self._values = text, values

    def __str__(self) -> str:
        return agreeing(self._text, *self._values) if self._values else self._text

    def __repr__(self) -> str:
        return f"Reason({str(self)!r})"


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a planning pass did to a group.

    Attributes:
        name: Of the pass.
        changed: Whether it changed the group.
        reason: Why, or why not.
        tensor: Whose memory it is about; None if it is about the group.
    """

    name: str
    changed: bool
    reason: Reason
    tensor: Tensor | None = None


class Reasons:
    """What planning passes did, for people who ask; sessions have none of this."""

    def __init__(self) -> None:
        self._found: dict[Tensor, list[PassOutcome]] = {}

    def note(self, name: str, group: Group, reason: Reason, *, changed: bool) -> None:
        """A pass looked at a group, which is as it is afterwards."""
        for root in group.roots:
            found = self._found.setdefault(root.tensor, [])
            found.append(PassOutcome(name, changed, reason))

    def add(self, name: str, tensor: Tensor, reason: Reason, *, changed: bool) -> None:
        """The same of what one tensor's memory is, or is written by."""
        found = self._found.setdefault(tensor, [])
        found.append(PassOutcome(name, changed, reason, tensor))

    def apart(self, tensor: Tensor, names: Container[str]) -> list[PassOutcome]:
        """Why some passes left a tensor, and the group that computes it, apart from readers."""
        found = dict.fromkeys(self._found.get(tensor, ()))
        return [o for o in found if o.name in names and not o.changed]

    def of(self, group: Group) -> list[PassOutcome]:
        """What became of a group, in the order of the passes."""
        return list(dict.fromkeys(self._outcomes(r.tensor for r in group.roots)))

    def _outcomes(self, tensors: Iterable[Tensor]) -> Iterator[PassOutcome]:
        for tensor in tensors:
            yield from self._found.get(tensor, ())
