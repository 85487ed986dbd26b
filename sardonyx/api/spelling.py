"""The nearest valid spelling of a name that is not one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: object, valid: Iterable[str]) -> str:
    """A sentence that names the nearest of `valid`, or all of them if few; "" if there is none."""
    import difflib  # only for errors

    if not isinstance(name, str):
        return "Names are text"
    known = sorted(valid)
    folded = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), folded, 1)
    if found:
        return f"Did you mean {folded[found[0]]!r}?"
    return f"The names are {', '.join(map(repr, known))}" if 0 < len(known) <= 12 else ""
