"""Types as a model file declares them: of inputs, outputs, values and type attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base.object_types import object_type
from sardonyx.base.records import dataclass

if TYPE_CHECKING:
    from sardonyx.base.dtypes import DType
    from sardonyx.base.sizes import Dim

#: The kinds of value that ONNX knows.
KINDS = ("tensor", "sequence", "optional", "map", "sparse", "opaque")


@dataclass(frozen=True, slots=True)
class ValueType:
    """A declared type.

    Attributes:
        kind: One of `KINDS`.
        dtype: Element type of a tensor or sparse tensor; key type of a map; None when undeclared.
        shape: Declared shape of a tensor or sparse tensor; None when the rank is undeclared.
        element: Type inside a sequence or an optional; type of the values of a map.
        denotation: What the type stands for, such as `IMAGE`; mostly empty.
        denoted: What each axis stands for, such as `DATA_BATCH`; () where no axis says it.
    """

    kind: str = "tensor"
    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None
    element: ValueType | None = None
    denotation: str = ""
    denoted: tuple[str, ...] = ()

    def as_dtype(self) -> DType | None:
        """The element type of a tensor; of a sequence and the like, its own type.

        None where something is undeclared, or for opaque values.
        """
        if self.kind == "tensor":
            return self.dtype
        if self.kind == "sparse":
            inside, known = self.dtype, self.shape
        else:
            inside = self.element.as_dtype() if self.element is not None else None
            known = self.element.shape if self.element is not None else None
        if inside is None or self.kind == "opaque":
            return None
        shape = None if known is None else tuple(d if isinstance(d, int) else None for d in known)
        return object_type(self.kind, inside, shape, key=self.dtype if self.kind == "map" else None)

    def __str__(self) -> str:
        """The type as onnxruntime's `NodeArg.type` writes it, such as `seq(tensor(float))`."""
        name = self.dtype.name if self.dtype else "undefined"
        if self.kind == "tensor":
            return f"tensor({name})"
        if self.kind == "sparse":
            return f"sparse_tensor({name})"
        if self.kind == "map":
            return f"map({name},{self.element})"
        if self.kind == "sequence":
            return f"seq({self.element})"
        return f"{self.kind}({self.element})" if self.element else self.kind
