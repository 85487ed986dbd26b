"""Attributes that name values: they mean what the name means where the node stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute
from sardonyx.loader.functions import FunctionScope

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Domain and operator, and the attributes.
NAMING: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("ai.onnx.preview.training", "Gradient"): ("xs", "zs", "y"),
}


def renamed(
    attributes: dict[str, Attribute], naming: tuple[str, ...], scope: FunctionScope, where: str
) -> dict[str, Attribute]:
    """The attributes with the names that the graph has for the values.

    Raises:
        InvalidGraph: A name means nothing in the scope.
    """

    def name_of(given: object) -> str:
        name = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
        found = scope.find(name)
        if found is None:
            raise InvalidGraph(message(where, f"It names {name!r}, which does not exist here"))
        return found.name

    found = dict(attributes)
    for attribute in naming:
        given = attributes.get(attribute)
        if isinstance(given, list | LongList):
            found[attribute] = [name_of(item) for item in given]
        elif isinstance(given, str | bytes):
            found[attribute] = name_of(given)
    return found
