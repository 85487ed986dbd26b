"""Which providers outside the package a session has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sardonyx.runtime.plugin import PluginProvider


@dataclass(frozen=True, slots=True)
class Plugin:
    """A provider outside the package, under the name that sessions ask for."""

    name: str
    provider: PluginProvider


@dataclass(slots=True)
class Plugins:
    """Those of a session.

    Attributes:
        all: In order of preference.
        may_fall_back: Whether the processor computes what they do not.
        on_processor: Makes what computes a part, a model's bytes, on the processor.
    """

    all: tuple[Plugin, ...] = ()
    may_fall_back: bool = True
    on_processor: Callable[[bytes], Callable[[Sequence[Any]], list[Any]]] | None = None
