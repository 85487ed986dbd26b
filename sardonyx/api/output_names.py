"""Which outputs a run is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, WrongType, message

#: Lists of names that are remembered; programs ask for the same ones in each run.
_MOST_KNOWN = 64


class OutputNames:
    """Where outputs stand that are asked for by name.

    Args:
        names: Of all outputs.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._every = list(range(len(self._names)))
        self._known: dict[tuple[str, ...], list[int] | None] = {}

    def places(self, names: Any) -> list[int] | None:
        """The places of these outputs; None for all of them in their order, as for no names.

        Raises:
            WrongType: That is no list.
            InvalidArgument: There is no such output.
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise WrongType(
                message(
                    "run", "output_names is not a list", expected=f"[{names!r}]", got=repr(names)
                )
            )
        listed = tuple(names)
        for name in listed:
            if not isinstance(name, str) or name not in self._names:
                raise InvalidArgument(
                    message(
                        "run", f"The model has no output {name!r}", do=nearest(name, self._names)
                    )
                )
        places = [self._names.index(name) for name in listed]
        found = None if not places or places == self._every else places
        if len(self._known) < _MOST_KNOWN:
            self._known[listed] = found
        return found

    def known(self, names: Any) -> tuple[list[int] | None] | None:
        """The places in a tuple if these names were asked for before; None if not."""
        if type(names) is not list and type(names) is not tuple:
            return None
        try:
            return (self._known[tuple(names)],)
        except (KeyError, TypeError):  # new, or something in it is no name
            return None
