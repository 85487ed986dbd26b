"""What Python makes of an attribute, by the annotation of the lowering that takes it."""

from __future__ import annotations

from typing import Any, NamedTuple

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.types import ValueType


class Kind(NamedTuple):
    """A kind of attribute.

    Attributes:
        is_list: Whether it is a list.
        types: What it is, or what its items are.
        is_long: Whether the lowering takes a list as a `LongList`, else as a tuple.
    """

    is_list: bool
    types: tuple[type, ...]
    is_long: bool = False


#: By what annotations say.
KINDS: dict[str, Kind] = {
    "int": Kind(False, (int,)),
    "float": Kind(False, (float, int)),
    "str": Kind(False, (str,)),
    "str | bytes": Kind(False, (str, bytes)),
    "Sequence[int]": Kind(True, (int,)),
    "Sequence[float]": Kind(True, (float, int)),
    "Sequence[str]": Kind(True, (str,)),
    "Sequence[str | bytes]": Kind(True, (str, bytes)),
    "LongList[int]": Kind(True, (int,), True),
    "LongList[float]": Kind(True, (float, int), True),
    "LongList[str]": Kind(True, (str,), True),
    "Graph": Kind(False, (Graph,)),
    "Constant": Kind(False, (Constant,)),
    "ValueType": Kind(False, (ValueType,)),
}


def kind_of(annotation: str) -> Kind:
    """The kind that an annotation stands for; one that may be None has a default."""
    return KINDS[annotation.removesuffix(" | None")]


def argument_of(where: str, name: str, value: object, kind: Kind) -> object:
    """What a lowering gets for an attribute.

    Raises:
        InvalidGraph: It is no list, or one, or of something else than the operator's.
    """
    is_list = isinstance(value, list | LongList)
    if isinstance(value, LongList):
        types = value.kinds
    else:
        types = frozenset(map(type, value if isinstance(value, list) else [value]))
    wanted = kind.types
    if is_list is kind.is_list and all(issubclass(t, wanted) for t in types):
        if not isinstance(value, list | LongList):
            return value
        if not kind.is_long:
            return tuple(value)
        return value if isinstance(value, LongList) else LongList[Any].of(value, wanted[0])
    texts = " or ".join(t.__name__ for t in wanted)
    got = " or ".join(sorted(t.__name__ for t in types)) or "nothing"
    raise InvalidGraph(
        message(
            where,
            f"Its attribute {name!r} has the wrong type",
            expected=f"a list of {texts}" if kind.is_list else texts,
            got=f"a list of {got}" if is_list else got,
        )
    )
