"""What a model declares: its inputs, its outputs, what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """An input or output as the model declares it: sizes are numbers, names, or None."""

    name: str
    dtype: DType
    shape: tuple[int | str | None, ...]

    @property
    def form(self) -> str:
        """Its type and sizes, such as `float[N, 3]`; `?` for a size without a name."""
        if getattr(self.dtype, "numpy", None) is None:
            return self.dtype.name
        sizes = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype.name}[{sizes}]"

    def shape_with(self, sizes: Mapping[str, int]) -> tuple[int | str | None, ...]:
        """The shape with sizes by name; those of dimensions without one are of NAME.AXIS."""
        return tuple(
            d if isinstance(d, int) else sizes.get(d or f"{self.name}.{axis}", d)
            for axis, d in enumerate(self.shape)
        )


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a file says about itself, under onnxruntime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
