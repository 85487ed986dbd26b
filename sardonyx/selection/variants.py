"""Ways to compute a kernel that differ from what the cost model would choose.

The cost model (`kernel.matmul.winograd_choice`, `kernel.matmul.balance`,
`kernel.loops.block_sizes`) decides in no time, and knows little of a machine. Where somebody
measures (`compiler.tuning`), a structure gets one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.loops.block_sizes import BlockSizes

#: What each number may be.
_VALID: Mapping[str, tuple[int, ...]] = {
    "winograd": (-1, 0, 2, 4),
    "rows": (0, 24, 48, 96, 192),
    "vectors": (0, 1, 2, 3, 4),
    "elements": (0, 1024, 4096, 16384),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a kernel; as constructed, what the cost model chooses.

    Attributes:
        winograd: Outputs of a tile of a convolution along each axis; 0 for direct sums, -1 for what
            the cost model says.
        rows: Rows of a block of a product, at most; 0 for the default.
        vectors: Vectors of columns in a tile of a product; 0 for the default.
        elements: Elements of a block of a pointwise kernel, at most; 0 for the default.
    """

    winograd: int = -1
    rows: int = 0
    vectors: int = 0
    elements: int = 0

    def block_sizes(self, default: BlockSizes) -> BlockSizes:
        """The sizes of blocks."""
        return replace(
            default,
            rows=self.rows or default.rows,
            vectors=min(self.vectors or default.vectors, default.vectors),
            elements=self.elements or default.elements,
        )

    def to_numbers(self) -> dict[str, int]:
        """The numbers that differ from the default's, by name."""
        default = asdict(DEFAULT)
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    @classmethod
    def from_numbers(cls, numbers: object) -> Variant:
        """What `to_numbers` gave.

        Raises:
            InvalidArgument: There is no such variant.
        """
        if not isinstance(numbers, Mapping) or not all(
            type(value) is int and value in _VALID.get(str(name), ())
            for name, value in numbers.items()
        ):
            what = "There is no such way to compute a kernel"
            valid = {name: list(values) for name, values in _VALID.items()}
            raise InvalidArgument(message("tuning", what, expected=str(valid), got=repr(numbers)))
        return cls(**numbers)


DEFAULT = Variant()

#: What is measured beside the default. A structure that has no such choice gets the same kernel.
CANDIDATES = (
    Variant(winograd=0), Variant(winograd=2), Variant(winograd=4),
    Variant(rows=24), Variant(rows=48), Variant(rows=192),
    Variant(vectors=2), Variant(vectors=3),
    Variant(elements=1024), Variant(elements=16384),
)  # fmt: skip


class Choices(Protocol):
    """Which variant a structure gets."""

    def of(self, key: tuple[Any, ...]) -> Variant:
        """That of a structure."""
