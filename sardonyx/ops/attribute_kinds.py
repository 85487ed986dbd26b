"""What Python makes of an attribute, by the annotation of the lowering that takes it."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.types import ValueType

#: Whether it is a list, and of what.
Kind = tuple[bool, tuple[type, ...]]

_KINDS: dict[str, Kind] = {
    "int": (False, (int,)),
    "float": (False, (float, int)),
    "str": (False, (str,)),
    "str | bytes": (False, (str, bytes)),
    "Sequence[int]": (True, (int,)),
    "Sequence[float]": (True, (float, int)),
    "Sequence[str]": (True, (str,)),
    "Sequence[str | bytes]": (True, (str, bytes)),
    "Graph": (False, (Graph,)),
    "Constant": (False, (Constant,)),
    "ValueType": (False, (ValueType,)),
}


def kind_of(annotation: str) -> Kind:
    """The kind that an annotation stands for; one that may be None has a default."""
    return _KINDS[annotation.removesuffix(" | None")]


def check_attribute(where: str, name: str, value: object, kind: Kind) -> None:
    """Refuse an attribute of another kind than the operator's.

    Raises:
        InvalidGraph: It is no list, or one, or of something else.
    """
    is_list, types = kind
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) is is_list and all(isinstance(x, types) for x in items):
        return
    wanted = " or ".join(t.__name__ for t in types)
    got = type(items[0]).__name__ if items else "nothing"
    raise InvalidGraph(
        message(
            where,
            f"Its attribute {name!r} has the wrong type",
            expected=f"a list of {wanted}" if is_list else wanted,
            got=f"a list of {got}" if isinstance(value, list) else got,
        )
    )
