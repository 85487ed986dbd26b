"""`TensorQuantOverrides`: parameters of single tensors that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import Parameters
from sardonyx.quantization.enums import QuantType

_KEYS = frozenset("quant_type axis scale zero_point symmetric reduce_range rmin rmax".split())
_COMPUTED = ("symmetric", "reduce_range", "rmin", "rmax")


def check_overrides(graph: Graph, overrides: Mapping[str, Any]) -> None:
    """Look whether overrides can be followed.

    Raises:
        InvalidArgument: One names no tensor, has an unknown key, or contradicts itself.
        NotImplemented: One asks for a conversion between types of codes.
    """
    for name, items in overrides.items():
        where = f"TensorQuantOverrides {name!r}"
        value = graph.value(name)
        if value is None:
            raise InvalidArgument(message(where, "The model has no tensor of that name"))
        if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
            raise InvalidArgument(message(where, "It is not a list of dictionaries"))
        for item in items:
            _check(where, item)
        if len(items) > 1 and "axis" not in items[0]:
            what = "Several dictionaries stand for channels, and the first does not say `axis`"
            raise InvalidArgument(message(where, what))
        if "axis" in items[0]:
            _check_channels(where, value, items)


def _check(where: str, item: dict[str, Any]) -> None:
    if "convert" in item:
        raise errors.NotImplemented(
            message(
                where,
                "Conversion between types of codes is not supported",
                do="Give the tensor one `quant_type`",
            )
        )
    for key in item:
        if key not in _KEYS:
            raise InvalidArgument(
                message(where, "There is no such key", expected=", ".join(sorted(_KEYS)), got=key)
            )
    if ("scale" in item) != ("zero_point" in item):
        raise InvalidArgument(message(where, "`scale` and `zero_point` only go together"))
    if "scale" in item and any(key in item for key in _COMPUTED):
        what = f"Where `scale` is given, none of {', '.join(_COMPUTED)} has a meaning"
        raise InvalidArgument(message(where, what))
    if not isinstance(item.get("quant_type", QuantType.QInt8), QuantType):
        raise InvalidArgument(message(where, "`quant_type` is no QuantType"))


def _check_channels(where: str, value: Value, items: list[dict[str, Any]]) -> None:
    axis, rank = items[0]["axis"], len(value.shape or ())
    if value.constant is None:
        raise InvalidArgument(message(where, "Only constants have scales for channels"))
    if not isinstance(axis, int) or not -rank <= axis < rank:
        what = "The tensor has no such axis"
        raise InvalidArgument(message(where, what, expected=f"below {rank}", got=repr(axis)))
    channels = value.constant.shape[axis]
    if len(items) not in (1, channels):
        expected = f"1 or {channels}, the number of channels"
        raise InvalidArgument(
            message(where, "It has the wrong length", expected=expected, got=str(len(items)))
        )


def given_parameters(
    items: list[dict[str, Any]], type: QuantType, value: Value
) -> Parameters | None:
    """The scale and zero point that overrides give outright, or None.

    Args:
        items: The overrides of a tensor.
        type: Type of codes, unless they name another.
        value: The tensor.
    """
    if not items or "scale" not in items[0]:
        return None
    type = items[0].get("quant_type", type)
    float_type = value.dtype.numpy if value.dtype is not None else np.float32
    scale = np.array([item["scale"] for item in items], float_type)
    zero = np.array([item["zero_point"] for item in items]).astype(type.dtype.numpy)
    axis = items[0].get("axis")
    if axis is None:
        return Parameters(scale[0], zero[0], type)
    axis %= len(value.shape or ())
    if len(items) == 1 and value.constant is not None:
        channels = value.constant.shape[axis]
        scale, zero = np.repeat(scale, channels), np.repeat(zero, channels)
    return Parameters(scale, zero, type, axis)
