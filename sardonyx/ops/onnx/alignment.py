"""How two operands were broadcast before version 7: the second one, where attributes say."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.tensor.language import (
    Tensor,
    assume_broadcast,
    assume_shape,
    normalise_axis,
    reshape,
    unsqueeze,
)


def aligned(a: Tensor, b: Tensor, axis: int | None, broadcast: int, where: str) -> Tensor:
    """The second operand with axes of size 1 added, so that NumPy's rules do what was meant.

    Its axes are those of `a` from `axis` on, by default the last ones; one element fits everywhere.

    Args:
        a: The first operand, whose shape is that of the result.
        b: The second one.
        axis: The attribute of that name.
        broadcast: That one, too; without it, the shapes must be equal.
        where: The operator, for errors.

    Raises:
        InvalidGraph: The shapes do not fit.
    """
    if not broadcast:
        assume_shape(b.shape, a.shape, where, "Without `broadcast`, the second operand")
        return b
    if all(d == 1 for d in b.shape):
        return reshape(b, ())
    if axis is not None:
        behind = a.rank - normalise_axis(axis, a.rank, where) - b.rank
        if behind < 0:
            what = f"The second operand has more axes than the first one from axis {axis} on"
            raise InvalidGraph(message(where, what, got=f"{list(b.shape)} and {list(a.shape)}"))
        b = unsqueeze(b, range(b.rank, b.rank + behind))
    assume_broadcast(b.shape, a.shape, where, "The second operand")
    return b
