"""What is done once for a plan: plain data, however it was found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from sardonyx.base.records import dataclass
from sardonyx.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx.base.dtypes import DType
    from sardonyx.base.sizes import Dim
    from sardonyx.tensor.tensor import Tensor


class Stored(Protocol):
    """Elements that a plan reads or writes; a `tensor.Buffer` is one. Compared by identity.

    Attributes:
        shape: Sizes; plain numbers.
        dtype: Element type.
        constant: The constant with the contents, where the model has them.
    """

    @property
    def shape(self) -> tuple[Dim, ...]: ...  # noqa: D102 - see above

    @property
    def dtype(self) -> DType: ...  # noqa: D102 - see above

    @property
    def constant(self) -> object: ...  # noqa: D102 - see above

    @property
    def label(self) -> str:
        """What errors call them."""


@dataclass(eq=False, slots=True)
class Preparation:
    """Kernels that run once, and share nothing with those of other preparations.

    Attributes:
        plan: What they do.
        constants: Buffers behind the plan's constants, in order.
        outputs: Buffers of the plan's outputs, in order.
    """

    plan: Plan
    constants: Sequence[Stored]
    outputs: Sequence[Stored]


class Recipe(Protocol):
    """How the constants of a plan are made.

    Attributes:
        preparations: What runs once; outputs become constants.
        constants: Those of the plan, in order.
    """

    @property
    def preparations(self) -> Sequence[Preparation]: ...  # noqa: D102 - see above

    @property
    def constants(self) -> Sequence[Stored]: ...  # noqa: D102 - see above


def size_bytes(buffer: Stored | Tensor) -> int:
    """Bytes of a buffer whose shape is known."""
    return math.prod(int(d) for d in buffer.shape) * buffer.dtype.stored.itemsize
