"""Which providers outside the package a session has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.base.records import dataclass

if TYPE_CHECKING:
    from sardonyx.ir.graph import Graph
    from sardonyx.plugins.provider import PluginProvider
    from sardonyx.runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class Plugin:
    """A provider outside the package, under the name that sessions ask for."""

    name: str
    provider: PluginProvider


@dataclass(frozen=True, slots=True)
class Regions:
    """A provider of the package that has parts of a model: all of it would be too much.

    It is offered the branches of If, too, and gets all that it is offered and that is worth it.

    Attributes:
        name: As sessions ask for it.
        compile: Makes the engine of a part.
    """

    name: str
    compile: Callable[[Graph], Engine]


@dataclass(slots=True)
class Plugins:
    """Those of a session.

    Attributes:
        all: In order of preference.
        needs_parts: Whether a session without any part is refused.
        may_fall_back: Whether the processor computes what they do not.
        on_processor: Makes what computes a part, a model's bytes, on the processor.
    """

    all: tuple[Plugin | Regions, ...] = ()
    may_fall_back: bool = True
    needs_parts: bool = False
    on_processor: Callable[[bytes], Callable[[Sequence[Any]], list[Any]]] | None = None
