"""Maps, and tables that values are looked up in (ONNX operator spec, ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import RuntimeException, message
from sardonyx.base.interrupt import claim
from sardonyx.host.functions import host_function, host_maker
from sardonyx.host.items import Items
from sardonyx.host.text import texts

#: About what a number takes as an object and in a map.
_ENTRY_BYTES = 64


@host_maker
def zip_rows(*, keys: tuple[Any, ...]) -> Callable[[Any], Items]:
    """A map for each row, from the keys to its elements (ZipMap)."""
    count = len(keys)

    def zipped(x: Any) -> Items:
        claim(_ENTRY_BYTES * x.size)
        rows = x.tolist() if x.ndim == 2 else x.reshape(-1, count).tolist()
        return Items([dict(zip(keys, row)) for row in rows])  # noqa: B905 - checked as sizes

    return zipped


@host_function
def vector(given: dict[Any, Any], *, keys: tuple[Any, ...], to: str) -> Any:
    """A row with the value of each key, 0 or "" where the map has none (DictVectorizer).

    Keys that are not in the vocabulary are left out, as by scikit-learn and onnxruntime.
    """
    absent: Any = "" if to == "string" else 0
    return _row([given.get(key, absent) for key in keys], to)


@host_function
def cast_map(given: dict[int, Any], *, width: int | None, to: str) -> Any:
    """A row of a map's values: by ascending key, or with `width` each at its key (CastMap)."""
    converters: dict[str, Callable[[Any], Any]] = {"string": str, "float": float, "int64": _whole}
    convert = converters[to]
    try:
        if width is None:
            return _row([convert(given[key]) for key in sorted(given)], to)
        claim(8 * width)
        values = ["" if to == "string" else 0] * width
        for key, value in given.items():
            if not 0 <= key < width:
                what = f"The key {key} is outside"
                raise RuntimeException(message("CastMap", what, expected=f"0 to {width - 1}"))
            values[key] = convert(value)
    except ValueError as error:
        raise RuntimeException(message("CastMap", f"A value is no number: {error}")) from None
    return _row(values, to)


def _whole(value: Any) -> int:
    return int(float(value))


def _row(values: list[Any], dtype: str) -> Any:
    if dtype == "string":
        return texts(values, (1, len(values)))
    return np.array(values, dtypes.BY_NAME[dtype].numpy).reshape(1, len(values))


@host_maker
def positions(*, keys: tuple[str, ...]) -> Callable[[Any], Any]:
    """For each string the place of the last key that equals it, or -1."""
    places = {key: k for k, key in enumerate(keys)}

    def found(x: Any) -> Any:
        return np.array([places.get(t, -1) for t in x.reshape(-1)], np.int64).reshape(x.shape)

    return found
