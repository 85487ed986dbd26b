"""onnxruntime, where it is as new as what tests compare with it."""

from __future__ import annotations

from importlib import metadata
from typing import Any

_OLDEST = (1, 31)


def onnxruntime() -> Any:
    """The package; None where there is none, or one that lacks operators that tests compare."""
    try:
        found = tuple(int(x) for x in metadata.version("onnxruntime").split(".")[:2])
        if found < _OLDEST:
            return None
        import onnxruntime as package
    except (ImportError, ValueError):
        return None
    return package
