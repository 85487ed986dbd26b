"""Numbers and names as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def bytes_text(count: int) -> str:
    """A number of bytes in the unit that suits it: `192 bytes`, `1.3 kB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 input`, `2 inputs`, `3 entries`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"


def shortened(text: str, most: int = 60) -> str:
    """A text on one line, with at most so many characters; of a longer one the end is left out."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def home() -> str:
    """The user's folder; "" where it is not known."""
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


def from_home(text: str) -> str:
    """A text in which paths in the user's folder begin at `~`."""
    own = home()
    return re.sub(rf"{re.escape(own)}(?![\w.-])", "~", text) if len(own) > 1 else text


#: Letters without a shape that Unicode does not call controls: they hide in names.
_SHAPELESS = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x3164, 0xFFA0,
              *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)  # fmt: skip


def printable(text: str, *, has_lines: bool = False) -> str:
    r"""A text that changes nothing but what is read where it is printed.

    Names in models may hold what terminals obey (escape sequences), what reorders or hides other
    text (bidirectional marks, characters without width), and what looks like another line of a log.
    Each such character becomes an escape of Python's: `\x1b`, `\u202e`, `\n`.

    Args:
        text: It may hold any characters.
        has_lines: Whether newlines and tabs in it are our own, and stay.
    """
    if text.isprintable() and (text.isascii() or _SHAPELESS.isdisjoint(text)):
        return text
    own = "\n\t" if has_lines else ""
    return "".join(c if c in own or _is_plain(c) else _escaped(c) for c in text)


def printable_lines(lines: Iterable[str]) -> str:
    """Lines as one text, each of them `printable`."""
    return "\n".join(map(printable, lines))


def _is_plain(c: str) -> bool:
    # Spaces of other widths are no `isprintable`, and harm nobody.
    is_space = c.isspace() and c > "\x85" and c not in "\u2028\u2029"
    return is_space or (c.isprintable() and c not in _SHAPELESS)


def _escaped(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")
