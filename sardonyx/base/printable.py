"""Text of others, made harmless for terminals, logs and pages.

Errors need it, and processes that compile import errors: nothing is imported here that takes time.
"""

from __future__ import annotations

from collections.abc import Iterable

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
