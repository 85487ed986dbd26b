"""Sizes that nobody gave, for inputs that are made up: one rule for all tools.

Dimensions without a number have size 1, but for those of pictures: a network of convolutions gives
nothing for one pixel. What is chosen is told (`told`), and where a run fails the text says which
sizes were chosen, and how others, or inputs, are given (`explained`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, SardonyxError, message

#: Sizes that nothing says: of a picture's sides, of those of a latent picture, of its colours, of
#: anything else.
_SIDE, _LATENT_SIDE, _COLOURS, _OTHER = 224, 64, 3, 1
#: Channels of pictures; those of latent ones, and of pictures with transparency.
_CHANNELS, _FOUR = (1, 3, 4), 4
_PICTURES = ("float", "float16", "bfloat16", "double", "uint8")
_IS_SIDE = re.compile(r"(?i)height|width|(?:^|[^a-z])(?:h|w|ht|wd)(?:[^a-z]|$)|^i?[hw]$")
_IS_NO_SIDE = re.compile(r"(?i)seq|past|token|len|time|frame|cache|target|source|batch|head")
#: So many dimensions are named in a text.
_NAMED = 8


@dataclass(frozen=True)
class Sizes:
    """The sizes of made-up inputs.

    Attributes:
        shapes: By input.
        chosen: What nobody gave: sizes by name, or as INPUT.AXIS for dimensions without one.
    """

    shapes: Mapping[str, tuple[int, ...]]
    chosen: Mapping[str, int]

    def told(self, flag: str = "--dim") -> str:
        """A line about the sizes that nobody gave; "" if there are none."""
        if not self.chosen:
            return ""
        some = list(self.chosen.items())[:_NAMED]
        more = ", ..." if len(self.chosen) > _NAMED else ""
        listed = ", ".join(f"{name}={size}" for name, size in some)
        return f"sizes chosen: {listed}{more} (others with {flag} NAME=N)"


def input_sizes(nodes: Iterable[Any], given: Mapping[str, int] | None = None) -> Sizes:
    """Sizes for all inputs.

    Args:
        nodes: What `get_inputs` of a session gives.
        given: Sizes of dimensions, see `dimension_names`. One of INPUT.AXIS holds for all
            dimensions of the same name, unless they have sizes of their own.

    Raises:
        InvalidArgument: Two sizes are given for one name.
    """
    inputs = list(nodes)
    free = [(node, axis, d) for node in inputs for axis, d in enumerate(node.shape) if _is_free(d)]
    known = dict(given or {})
    for node, axis, d in free:
        place = f"{node.name}.{axis}"
        if place in known and _is_name(d):
            size = known.setdefault(d, known[place])
            if size != known[place]:
                what = f"{place} is {d!r}, which has two sizes: {size} and {known[place]}"
                raise InvalidArgument(message("--dim", what))
    pictures = {(node.name, axis): size for node in inputs for axis, size in _picture(node)}
    # A name that also stands somewhere else is no side of a picture.
    elsewhere = {d for node, axis, d in free if d and (node.name, axis) not in pictures}
    chosen: dict[str, int] = {}
    for node, axis, d in free:
        name = d if _is_name(d) else f"{node.name}.{axis}"
        if name not in known and f"{node.name}.{axis}" not in known:
            wanted = _OTHER if d in elsewhere else pictures.get((node.name, axis), _OTHER)
            chosen.setdefault(name, wanted)
    both = {**chosen, **known}
    shapes = {
        node.name: tuple(
            both.get(f"{node.name}.{axis}", both.get(str(d), _OTHER)) if _is_free(d) else d
            for axis, d in enumerate(node.shape)
        )
        for node in inputs
    }
    return Sizes(shapes, chosen)


def _is_name(d: Any) -> bool:
    """Whether it is the name of a size: some exporters write a question mark for any."""
    return isinstance(d, str) and d not in ("", "?")


def _is_free(d: Any) -> bool:
    return not isinstance(d, int) or d < 0


def _picture(node: Any) -> Iterator[tuple[int, int]]:
    """Axes without a size of a batch of pictures, or of one, with sizes; nothing for others.

    Channels are before the sides, or behind them: their number is one of `_CHANNELS`, or the sides
    are called so.
    """
    shape, rank = list(node.shape), len(node.shape)
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    if rank not in (3, 4) or kind not in _PICTURES:
        return
    first = rank - 3
    for channel, sides in ((first, (first + 1, first + 2)), (rank - 1, (first, first + 1))):
        unknown = [axis for axis in sides if _is_free(shape[axis])]
        names = [shape[axis] for axis in unknown if isinstance(shape[axis], str)]
        is_called_so = bool(names) and all(_IS_SIDE.search(name) for name in names)
        if not unknown or (not is_called_so and any(_IS_NO_SIDE.search(name) for name in names)):
            continue
        count = shape[channel]
        if isinstance(count, str) and _IS_SIDE.search(count):
            continue
        if not is_called_so:
            # What has one channel or four may be keys of an attention's heads, too.
            is_unclear = count != _COLOURS and (rank == 3 or len(unknown) < 2)
            if _is_free(count) or count not in _CHANNELS or is_unclear:
                continue
        if _is_free(count):
            yield channel, _COLOURS
        for axis in unknown:
            yield axis, _LATENT_SIDE if count == _FOUR else _SIDE
        return


def dimension_names(nodes: Iterable[Any]) -> list[str]:
    """The dimensions of inputs that are no numbers: names, and INPUT.AXIS for each."""
    free = [
        (f"{node.name}.{axis}", d)
        for node in nodes
        for axis, d in enumerate(node.shape)
        if _is_free(d)
    ]
    names = [d for _, d in free if isinstance(d, str) and d]
    return list(dict.fromkeys([*names, *(place for place, _ in free)]))


def check_sizes(nodes: Iterable[Any], sizes: Mapping[str, int], flag: str = "--dim") -> None:
    """Refuse sizes of dimensions that no input has.

    Raises:
        InvalidArgument: There is such a size; the text has the nearest name.
    """
    names = dimension_names(nodes)
    for name in sizes:
        if name not in names:
            what = f"No input has a dimension {name!r}"
            raise InvalidArgument(message(flag, what, do=nearest(name, names)))


@contextmanager
def explained(
    sizes: Sizes, others: str = "--inputs FILE.npz", flag: str = "--dim"
) -> Iterator[None]:
    """Where a run on made-up inputs fails, the error says so, and what else can be given.

    Args:
        sizes: Those of the inputs; nothing was made up if there are none.
        others: The argument that gives inputs; "" if the command takes none.
        flag: The argument that gives sizes.

    Raises:
        Fail: The run failed on made-up inputs; else what it raised.
    """
    try:
        yield
    except SardonyxError as error:
        names = list(sizes.chosen)[:_NAMED]
        if not sizes.shapes or not (names or others):
            raise
        what = f"The model does not run on inputs that were made up: {error}"
        known = f"Nobody gave {', '.join(f'{k} ({v})' for k, v in sizes.chosen.items())}. "
        ways = [" ".join(f"{flag} {name}=N" for name in names), others]
        do = f"{known if names else ''}Try {', or '.join(filter(None, ways))}"
        raise errors.Fail(message("inputs", what, do=do)) from error
