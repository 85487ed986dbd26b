"""The ranks of feeds, where a model does not declare them.

Apart from `compiler.ranks`, since a session that comes from a cache or a bundle needs no operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.decisions import is_decision
from sardonyx.base.dtypes import from_numpy
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.object_types import ObjectType
from sardonyx.base.sizes import MOST_AXES
from sardonyx.runtime.declared import ValueInfo

#: The name of a type, and sizes: what a plan that waits for the shape of a tensor is made for.
FedShape = tuple[str, tuple[int, ...]]

#: Elements of a list that a plan of its own computes: more are measured nowhere
#: (`ops.core.contents.MOST_MEASURED`). Whether the node that reads it takes so many, its lowering
#: says.
_MOST_COMPUTED = 1024


def shape_of(feed: Any, info: ValueInfo) -> FedShape:
    """What `compiler.deciding_shapes.give_shapes` needs to know of an input: what a run is fed.

    Raises:
        InvalidArgument: The feed is of another type or rank, or a list of too many elements.
    """
    where = f"input {info.name}"
    _check_type(feed, info, where)
    wanted = len(info.shape)
    if feed.ndim != wanted:
        what = "The feed has the wrong rank"
        do = "Feed a list of numbers" if wanted == 1 else ""
        raise InvalidArgument(message(where, what, expected=str(wanted), got=str(feed.ndim), do=do))
    # Each element would be an axis of a plan.
    do = "Feed as many elements as the node that reads it has axes, twice as many for pads"
    return _shape(feed, where, MOST_AXES, do)


def shape_of_computed(array: Any, name: str) -> FedShape:
    """The same of a value that a plan of its own computes, or of a decision.

    Raises:
        InvalidArgument: It is a list of too many elements, or of a type that no tensor has.
    """
    # How often a loop may go round, `passes.write_out` says.
    most = None if is_decision(name) else _MOST_COMPUTED
    do = "Compute as many elements as the node that reads it has axes"
    return _shape(array, f"value {name}", most, do)


def _shape(array: Any, where: str, most: int | None, do: str) -> FedShape:
    shape = tuple(map(int, array.shape))
    if len(shape) == 1 and most is not None and shape[0] > most:
        what = "A list that decides how many axes there are is too long"
        expected = f"at most {most} elements"
        raise InvalidArgument(message(where, what, expected=expected, got=str(shape[0]), do=do))
    kind = from_numpy(array.dtype.newbyteorder("="))
    if kind is None:
        raise InvalidArgument(message(where, f"No tensor has the type {array.dtype}"))
    return kind.name, shape


def _check_type(feed: Any, info: ValueInfo, where: str) -> None:
    if from_numpy(feed.dtype.newbyteorder("=")) is not info.dtype:
        raise InvalidArgument(
            message(
                where, "The type of the feed is wrong",
                expected=info.dtype.type_text, got=str(feed.dtype),
            )
        )  # fmt: skip


def rank_of(feed: Any, info: ValueInfo) -> int:
    """What `compiler.ranks.give_ranks` needs to know of an input, from what a run is fed.

    Raises:
        InvalidArgument: The feed is of another type or form, or its tensors differ in rank.
    """
    where = f"input {info.name}"
    if isinstance(info.dtype, ObjectType):
        items = feed if info.dtype.form == "sequence" else [feed]
        if not isinstance(items, (list, tuple)):
            got = type(feed).__name__
            do = "Feed a list of arrays"
            raise InvalidArgument(
                message(where, "The feed is no list", expected="list", got=got, do=do)
            )
        ranks = {_axes_of(item, where) for item in items if item is not None}
        if len(ranks) > 1:
            what = "The tensors of one sequence have different numbers of axes"
            got, do = str(sorted(ranks)), "Feed tensors that have as many axes as each other"
            raise InvalidArgument(message(where, what, expected="one number", got=got, do=do))
        return ranks.pop() if ranks else 1
    _check_type(feed, info, where)
    return int(feed.ndim)


def _axes_of(item: Any, where: str) -> int:
    try:
        return int(np.ndim(item))
    except ValueError as error:  # a list of lists of several lengths
        what = f"An item, a {type(item).__name__}, is no array: {error}"
        raise InvalidArgument(message(where, what)) from error
