"""Names of devices: they mean the same wherever one is taken."""

from __future__ import annotations

import re

#: Other names of a device, or of memory, with the one that it has here.
_SAME = {"gpu": "cuda", "cuda_pinned": "cudapinned"}
_NUMBERED = re.compile(r"(\w+):([0-9]{1,9})", re.ASCII)


def device_named(text: str) -> tuple[str, int | None]:
    """A device's name as it is spelt here, and the number behind it: `GPU:1` is ("cuda", 1).

    The number is None where there is none. Of what is no device's name, small letters come back.
    """
    found = _NUMBERED.fullmatch(text)
    name = (found[1] if found else text).lower()
    return _SAME.get(name, name), int(found[2]) if found else None
