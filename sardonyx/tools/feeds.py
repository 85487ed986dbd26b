"""Feeds of random numbers for the inputs of a session, of this engine or of onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import message
from sardonyx.ir.constant import Array
from sardonyx.tools.made_up import input_sizes


def random_feeds(
    nodes: Iterable[Any], sizes: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, Array]:
    """An array for each input: normal numbers, whole numbers 0 and 1, truth values, short texts.

    Args:
        nodes: What `get_inputs` of a session gives.
        sizes: Sizes of dimensions; others are as `made_up.input_sizes` chooses them.
        seed: Of the random numbers; with the same one arrays are the same.

    Raises:
        InvalidArgument: Two sizes are given for one name.
        NotImplemented: An input is no tensor.
        Fail: An input is larger than the memory.
    """
    inputs = list(nodes)
    shapes = input_sizes(inputs, sizes).shapes
    random = np.random.default_rng(seed)
    found = {}
    for node in inputs:
        try:
            found[node.name] = _random(node, shapes[node.name], random)
        except (MemoryError, ValueError, OverflowError) as error:  # too large for NumPy
            what = f"No array of its sizes can be made up ({error})"
            raise errors.Fail(
                message(f"input {node.name}", what, do="Give smaller sizes")
            ) from None
    return found


def _random(node: Any, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    text = node.type.removeprefix("tensor(").removesuffix(")")
    dtype = dtypes.BY_NAME.get(text)
    if dtype is None:
        what = f"No values can be made up for {node.type}"
        raise errors.NotImplemented(message(f"input {node.name}", what, do="Give inputs in files"))
    if dtype is dtypes.STRING:
        return random.choice(np.array(["a", "bc", "def"], object), shape)
    if dtype.is_integer:
        return random.integers(0, 2, shape).astype(dtype.numpy)
    if dtype is dtypes.BOOL:
        return random.random(shape) < 0.5
    made: Array = random.standard_normal(shape).astype(dtype.numpy)
    return made
