"""Numbers and names as people read them."""

from __future__ import annotations

import re
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
