"""An input or output as programs see it."""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.runtime.declared import ValueInfo


class NodeArg:
    """An input or output of a model.

    Attributes:
        name: Its name.
        type: Its type in ONNX's words, such as `tensor(float)`.
        shape: A number, a name or None for each axis.
    """

    def __init__(self, info: ValueInfo, sizes: Mapping[str, int] | None = None) -> None:
        self.name = info.name
        self.type = info.dtype.type_text
        self.shape = list(info.shape_with(sizes or {}))

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"
