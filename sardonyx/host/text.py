"""Strings: to and from numbers, join, split, normalise, match (ONNX operator spec)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import RuntimeException, message
from sardonyx.host.functions import host_function

_NAMES = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def texts(items: list[str], shape: tuple[int, ...]) -> Any:
    """An array of strings."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


@host_function
def from_numbers(x: Any) -> Any:
    """Numbers as the shortest text that gives the same number again (ONNX: Cast to string)."""
    if x.dtype == np.bool_:
        return texts(["1" if v else "0" for v in x.reshape(-1).tolist()], x.shape)
    if x.dtype.kind in "iu":
        return texts([str(v) for v in x.reshape(-1).tolist()], x.shape)
    return texts([_NAMES.get(str(v), str(v)) for v in x.reshape(-1)], x.shape)


@host_function
def to_numbers(x: Any, *, to: str) -> Any:
    """Text as numbers: plain or scientific notation, NaN, INF (ONNX: Cast from string)."""
    target = dtypes.BY_NAME[to]
    flat = x.reshape(-1).tolist()
    values: list[Any] = []
    for text in flat:
        try:
            if target.is_float:
                values.append(float(text))
            else:
                values.append(_whole(text))
        except (ValueError, OverflowError):
            what = f"The text {text!r} is no number"
            raise RuntimeException(message("Cast", what, expected=to)) from None
    try:
        wide = np.array(values, np.float64 if target.is_float else None)
        return wide.astype(target.numpy).reshape(x.shape) if values else np.empty(
            x.shape, target.numpy
        )
    except OverflowError:
        raise RuntimeException(message("Cast", f"A number does not fit {to}")) from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


@host_function
def concat(x: Any, y: Any) -> Any:
    """Texts put together, element by element, with broadcasting (StringConcat)."""
    try:
        a, b = np.broadcast_arrays(x, y)
    except ValueError as error:
        raise RuntimeException(message("StringConcat", str(error))) from None
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    return texts([left + right for left, right in pairs], a.shape)
