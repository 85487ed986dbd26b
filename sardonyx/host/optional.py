"""Optionals: None where there is nothing, else the value (ONNX operator spec, Optional*)."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import RuntimeException, message
from sardonyx.host.functions import host_function
from sardonyx.host.sequence import kept


@host_function
def wrap(value: Any = None) -> Any:
    """An optional with this value, or with none."""
    return kept(value)


@host_function
def has_element(optional: Any = None) -> bool:
    """Whether there is a value."""
    return optional is not None


@host_function
def get_element(optional: Any) -> Any:
    """The value."""
    if optional is None:
        raise RuntimeException(message("OptionalGetElement", "The optional has no element"))
    return optional
