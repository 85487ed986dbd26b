"""Feeds of random numbers for the inputs of a session, of this engine or of onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx.api.spelling import nearest
from sardonyx.base import dtypes, errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.constant import Array

#: Sizes of dimensions that nothing else says.
_DEFAULT_SIZE = 1


def random_feeds(
    nodes: Iterable[Any], sizes: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, Array]:
    """An array for each input: normal numbers, whole numbers 0 and 1, truth values, short texts.

    Args:
        nodes: What `get_inputs` of a session gives.
        sizes: Sizes of dimensions, see `dimension_names`; others are 1.
        seed: Of the random numbers; with the same one arrays are the same.

    Raises:
        NotImplemented: An input is no tensor.
        Fail: An input is larger than the memory.
    """
    random = np.random.default_rng(seed)
    found = {}
    for node in nodes:
        try:
            found[node.name] = _random(node, sizes or {}, random)
        except (MemoryError, ValueError, OverflowError) as error:  # too large for NumPy
            what = f"No array of its sizes can be made up ({error})"
            raise errors.Fail(
                message(f"input {node.name}", what, do="Give smaller sizes")
            ) from None
    return found


def dimension_names(nodes: Iterable[Any]) -> list[str]:
    """The dimensions of inputs that are no numbers: names, and INPUT.AXIS for each."""
    free = [
        (f"{node.name}.{axis}", d)
        for node in nodes
        for axis, d in enumerate(node.shape)
        if not isinstance(d, int) or d < 0
    ]
    names = [d for _, d in free if isinstance(d, str) and d]
    return list(dict.fromkeys([*names, *(place for place, _ in free)]))


def check_sizes(nodes: Iterable[Any], sizes: Mapping[str, int], flag: str = "--free-dim") -> None:
    """Refuse sizes of dimensions that no input has.

    Raises:
        InvalidArgument: There is such a size; the text has the nearest name.
    """
    names = dimension_names(nodes)
    for name in sizes:
        if name not in names:
            what = f"No input has a dimension {name!r}"
            raise InvalidArgument(message(flag, what, do=nearest(name, names)))


def _random(node: Any, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
    text = node.type.removeprefix("tensor(").removesuffix(")")
    dtype = dtypes.BY_NAME.get(text)
    if dtype is None:
        what = f"No values can be made up for {node.type}"
        raise errors.NotImplemented(message(f"input {node.name}", what, do="Give inputs in files"))
    shape = [
        d
        if isinstance(d, int) and d >= 0
        else sizes.get(f"{node.name}.{axis}", sizes.get(str(d), _DEFAULT_SIZE))
        for axis, d in enumerate(node.shape)
    ]
    if dtype is dtypes.STRING:
        return random.choice(np.array(["a", "bc", "def"], object), shape)
    if dtype.is_integer:
        return random.integers(0, 2, shape).astype(dtype.numpy)
    if dtype is dtypes.BOOL:
        return random.random(shape) < 0.5
    made: Array = random.standard_normal(shape).astype(dtype.numpy)
    return made
