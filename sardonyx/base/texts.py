"""Numbers as people read them."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """A number of bytes in the unit that suits it: `192 bytes`, `1.3 kB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
