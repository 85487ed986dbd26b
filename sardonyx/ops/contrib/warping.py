"""DynamicTimeWarping: the cheapest way through a matrix of costs."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import FLOAT, INT32, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.regions import Outside, Repeated, seen_inside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_equal,
    compute,
    constant,
    reshape,
)
from sardonyx.tensor.region import Body
from sardonyx.tensor.scalar import Scalar

_WARPING = "DynamicTimeWarping"
#: Where the cheapest way to a place comes from: both before, the row before, the column before.
_BOTH, _ROW, _COLUMN = range(3)


class _Steps:
    """A scope whose loops have names of their own."""

    def __init__(self, scope: Scope, name: str) -> None:
        self._scope, self.name = scope, f"{scope.name}:{name}"
        self.by_shapes = scope.by_shapes
        self.inline, self.body, self.own = scope.inline, scope.body, scope.own


@op(_WARPING, 1, domain="com.microsoft")
def dynamic_time_warping(costs: Tensor, *, scope: Scope) -> Tensor:
    """Rows and columns, int32[2, steps], of the cheapest way from the first place to the last.

    The total of a place is its cost and the least of the totals at the row before, the column
    before, and both; one that is strictly least decides, else the column before.
    """
    if costs.rank == 3:  # noqa: PLR2004 - a batch of one
        assume_equal(costs.shape[0], 1, _WARPING, "There is more than one matrix")
        costs = reshape(costs, costs.shape[1:])
    if costs.rank != 2:  # noqa: PLR2004 - a matrix
        what = "It needs a matrix of costs"
        raise InvalidGraph(message(_WARPING, what, got=str(list(costs.shape))))
    rows, columns = costs.shape
    for extent in (rows, columns):
        assume_at_most(1, extent, _WARPING, "The matrix is empty")
    most = sizes.total((rows, columns, -1))
    origins = _origins(costs, most, _Steps(scope, "totals"))
    path = _way_back(origins, rows, columns, most, _Steps(scope, "way"))
    count = path.shape[0]

    def body(which: Dim, step: Dim) -> Scalar:
        last = sizes.total((count, -1, -step))
        return scalar.load(path, (last, which))

    return compute((2, count), body)


def _origins(costs: Tensor, most: Dim, scope: Scope) -> Tensor:
    """Where the way to each place comes from, int32[diagonals, rows], diagonal by diagonal."""
    rows, columns = costs.shape
    far = constant(float("inf"), FLOAT, (rows,))

    def step(inputs: Sequence[Tensor], outside: Outside) -> Body:
        before, earlier = inputs
        given, number = seen_inside(costs, outside), repeated.counter

        def three(i: Dim) -> tuple[Scalar, Scalar, Scalar]:
            above = integer.maximum(i - 1, 0)
            first = scalar.compare("eq", scalar.size(i), 0)
            infinite = scalar.constant(float("inf"), FLOAT)
            both = scalar.select(first, infinite, scalar.load(earlier, (above,)))
            row = scalar.select(first, infinite, scalar.load(before, (above,)))
            return both, row, scalar.load(before, (i,))

        def total(i: Dim) -> Scalar:
            both, row, column = three(i)
            least = scalar.binary("min", scalar.binary("min", both, row), column)
            begin = scalar.compare("eq", scalar.size(number), 0)
            j = scalar.size(number - i)
            inside = (j >= 0) & (j < scalar.size(columns))
            at = scalar.as_index(
                scalar.binary("min", scalar.binary("max", j, 0), scalar.size(columns - 1)), columns
            )
            cost = scalar.load(given, (i, at))
            found = cost + scalar.select(begin, scalar.constant(0.0, FLOAT), least)
            return scalar.select(inside, found, float("inf"))

        def origin(i: Dim) -> Scalar:
            both, row, column = three(i)
            from_row = scalar.select((row < both) & (row < column), _ROW, scalar.size(_COLUMN))
            return scalar.select((both < row) & (both < column), scalar.size(_BOTH), from_row)

        totals = compute((rows,), total)
        return Body([totals, before, compute((rows,), origin, INT32)])

    repeated = Repeated(scope, step, [far, far], [])
    repeated.settle([], 0)
    return repeated.region(most, None, False, [], ())[2]


def _way_back(origins: Tensor, rows: Dim, columns: Dim, most: Dim, scope: Scope) -> Tensor:
    """Places from the last one to the first, int32[steps, 2]."""
    end = [compute((), lambda d=d: scalar.size(d - 1)) for d in (rows, columns)]

    def step(inputs: Sequence[Tensor], outside: Outside) -> Body:
        given = seen_inside(origins, outside)
        i, j = (scalar.load(x, ()) for x in inputs)
        diagonal = scalar.as_index(i + j, most)
        found = scalar.cast(scalar.load(given, (diagonal, scalar.as_index(i, rows))), INT64)
        first_row, first_column = scalar.compare("eq", i, 0), scalar.compare("eq", j, 0)
        found = scalar.select(first_column, scalar.size(_ROW), found)
        found = scalar.select(first_row, scalar.size(_COLUMN), found)
        upward = scalar.select(scalar.compare("eq", found, _COLUMN), scalar.size(0), scalar.size(1))
        aside = scalar.select(scalar.compare("eq", found, _ROW), scalar.size(0), scalar.size(1))
        going = compute((), lambda: ~(first_row & first_column))

        def place(which: Dim) -> Scalar:
            return scalar.select(scalar.compare("eq", scalar.size(which), 0), i, j)

        after = [
            compute((), lambda x=x, d=d: scalar.binary("max", x - d, 0))
            for x, d in ((i, upward), (j, aside))
        ]
        return Body([going, *after, compute((2,), place, INT32)])

    repeated = Repeated(scope, step, end, [])
    repeated.settle([], 1)
    return repeated.region(most, None, True, [], ())[2]
