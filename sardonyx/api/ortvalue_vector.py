"""`OrtValueVector`: onnxruntime's own kind of list of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sardonyx.api.ortvalue import OrtValue
from sardonyx.base import dtypes
from sardonyx.base.arguments import names_misfits


class OrtValueVector(list[OrtValue]):
    """A list of values, with the names of onnxruntime's own kind of list."""

    def push_back(self, value: OrtValue) -> None:
        """Add one."""
        self.append(value)

    @names_misfits
    def push_back_batch(self, values: Iterable[OrtValue]) -> None:
        """Add several."""
        self.extend(values)

    def reserve(self, count: int) -> None:
        """A list grows by itself."""

    def shrink_to_fit(self) -> None:
        """A list shrinks by itself."""

    def bool_tensor_indices(self) -> list[int]:
        """Which values are of type bool."""
        return [k for k, value in enumerate(self) if value.element_type() == dtypes.BOOL.onnx_id]

    @names_misfits
    def element_type_at(self, index: int) -> int:
        """ONNX's number of a value's element type."""
        return self[index].element_type()

    @names_misfits
    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """All values as DLPack capsules, or as what a function makes of each."""
        capsules = [value.to_dlpack() for value in self]
        return capsules if to_tensor is None else [to_tensor(capsule) for capsule in capsules]

    @names_misfits
    def dlpack_at(self, index: int) -> Any:
        """A value as a DLPack capsule."""
        return self[index].__dlpack__()
