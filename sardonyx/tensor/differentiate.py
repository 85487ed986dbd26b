"""Gradients of tensors, as tensors: reverse mode over the language's own forms.

What a tensor passes on to one that it loads is the gradient by itself, times the derivative of its
expression by the load, summed over all elements that load the same one. Which those are is found by
solving the load's indices for the loading tensor's index variables:

    y[i, j] = sum over r of x[i, r] * w[r, j]   x[u, v] is loaded where i = u, r = v, for every j
    ->  dx[u, v] = sum over j of dy[u, j] * w[v, j]

So gradients of products are products, and of convolutions, windows and slices again windows. Where
indices come from data, or cannot be solved for, the summands are scattered.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.derivatives import is_one, partials, size_of, times
from sardonyx.tensor.differentiate_calls import passed_on
from sardonyx.tensor.elementwise import cast, compute, constant
from sardonyx.tensor.reduction import accumulator
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.solving import solve
from sardonyx.tensor.tensor import (
    Call,
    Contract,
    Map,
    Reduce,
    Shape,
    Tensor,
    indices,
    make_call,
    make_contract,
    make_map,
    make_reduce,
    reduced_indices,
)
from sardonyx.tensor.traverse import loads_of, operands_of, topological

#: Expressions of more operations are not made by putting others in.
_LARGEST_EXPRESSION = 300


def gradients(y: Tensor, xs: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> list[Tensor]:
    """The gradient of the sum of `y` by each of `xs`, which, as `fixed`, are taken as independent.

    Where a function has no derivative at a point, one of its one-sided ones is taken, or for equal
    extremes their mean; the Relu of 0 has the derivative 0.

    Raises:
        NotImplemented: `y` depends on one of them in a way that has no derivative here.
    """
    return _Gradients(y, xs, fixed).run()


class _Gradients:
    def __init__(self, y: Tensor, xs: Sequence[Tensor], fixed: Sequence[Tensor]) -> None:
        self.y, self.xs = y, xs
        self.leaves = dict.fromkeys((*xs, *fixed))
        self.order = topological([y], self.leaves)
        self.moving = {x for x in xs if x.dtype.is_float}
        for t in self.order:
            if t.dtype.is_float and any(o in self.moving for o in operands_of(t)):
                self.moving.add(t)
        self.parts: dict[Tensor, list[Tensor]] = {y: [constant(1.0, y.dtype, y.shape)]}
        self.bodies: dict[Tensor, Scalar] = {}
        for t in self.order:
            if isinstance(t, Map):
                self.bodies[t] = self._pointwise(t)

    def _pointwise(self, t: Map) -> Scalar:
        """The expression of a map, with those of maps that it reads in step put in.

        Only within one expression is what a condition does not choose left out: 0 times the
        infinite derivative of an exponential beside it would be no number.
        """
        here = indices(t.shape)

        def inner(x: Scalar) -> Scalar | None:
            in_step = x.tensor in self.moving and x.tensor.shape == t.shape and x.at == here
            return self.bodies.get(x.tensor) if in_step else None

        body = rewrite(t.body, inner)
        return body if size_of(body) <= _LARGEST_EXPRESSION else t.body

    def run(self) -> list[Tensor]:
        for t in reversed(self.order):
            if t in self.moving and t in self.parts:
                self._pass_on(t, self._total(t))
        return [self._total(x) for x in self.xs]

    def _total(self, t: Tensor) -> Tensor:
        parts = self.parts.get(t)
        if parts is None:
            return constant(0.0, t.dtype, t.shape)
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        self.parts[t] = [whole]
        return whole

    def _is_moving(self, t: Tensor) -> bool:
        return t in self.moving

    def _add(self, t: Tensor, part: Tensor) -> None:
        self.parts.setdefault(t, []).append(part)

    def _pass_on(self, t: Tensor, by: Tensor) -> None:
        """Add to the gradients by what `t` loads, given the one by `t`."""
        extents = t.extents if isinstance(t, (Reduce, Contract)) else ()
        if isinstance(t, Call):
            for x, part in passed_on(t, by):
                self._add(x, part)
        elif isinstance(t, Contract):
            for one, other in ((t.left, t.right), (t.right, t.left)):
                for load, slope in partials(one, self._is_moving).items():
                    factor = times(scalar.cast(slope, other.dtype), other)
                    self._add(load.tensor, _collected(load, t.shape, extents, by, factor))
        elif isinstance(t, (Map, Reduce)):
            shares: Scalar | None = None
            if isinstance(t, Reduce):
                by, shares = _shares(t, by)
            body = self.bodies.get(t, t.body)
            for load, slope in partials(body, self._is_moving).items():
                factor = slope if shares is None else _weighted(shares, slope)
                self._add(load.tensor, _collected(load, t.shape, extents, by, factor))


def _shares(t: Reduce, by: Tensor) -> tuple[Tensor, Scalar | None]:
    """The gradient by a reduction, and how much of it goes to each of what is reduced."""
    if t.kind == "sum":
        return by, None
    at, body, wide = indices(t.shape), t.body, t.body.dtype
    result = scalar.cast(scalar.load(t, at), wide)
    if t.kind in ("min", "max"):
        same = scalar.compare("eq", body, result)
        count = make_reduce(t.shape, t.extents, "sum", scalar.cast(same, t.dtype), t.dtype)
        return by / count, scalar.cast(same, wide)
    if t.kind == "prod":
        # The product of the others: the whole one divided, unless a factor is 0.
        zero = scalar.compare("eq", body, 0.0)
        others = make_reduce(t.shape, t.extents, "prod", scalar.select(zero, 1.0, body), t.dtype)
        count = make_reduce(
            t.shape, t.extents, "sum", scalar.cast(zero, dtypes.INT64), dtypes.INT64
        )
        zeros, rest = scalar.load(count, at), scalar.cast(scalar.load(others, at), wide)
        alone = scalar.select(scalar.compare("eq", zeros, 1), rest, 0.0)
        return by, scalar.select(zero, alone, result / body)
    what = f"There is no derivative of the reduction {t.kind}"
    raise errors.NotImplemented(message("Gradient", what))


def _weighted(share: Scalar, slope: Scalar) -> Scalar:
    return times(slope, scalar.cast(share, slope.dtype))


# -- sums over what loads the same element ----------------------------------------------------


def _collected(load: Scalar, shape: Shape, extents: Shape, by: Tensor, factor: Scalar) -> Tensor:
    """The sum of `by * factor` over all (shape, extents) where `load` is one and the same element.

    Args:
        load: The load, of the tensor whose gradient this is a part of.
        shape: Of the tensor that loads.
        extents: Over which it reduces.
        by: The gradient by it.
        factor: The derivative of one of its summands by the load.
    """
    x = load.tensor
    wide = _wider(accumulator(by.dtype), factor.dtype)
    left = scalar.cast(scalar.load(by, indices(shape)), wide)
    right = scalar.cast(factor, wide)
    places = solve(load.at, x.shape, shape, extents)
    if places is None:
        return _scattered(load, shape, extents, times(left, right))
    is_safe = not any(
        places.guarded & sizes.atoms_of(i) for inner in loads_of(right) for i in inner.at
    )
    left, right = (rewrite(e, atoms=places.values) for e in (left, right))
    if places.free and is_safe and not is_one(right):
        left = _where(places.conditions, left)
        total: Tensor = make_contract(x.shape, places.free, left, right, wide, wide)
        return cast(total, x.dtype)
    summand = _where(places.conditions, times(left, right))
    if not places.free:
        return make_map(x.shape, scalar.cast(summand, x.dtype))
    return cast(make_reduce(x.shape, places.free, "sum", summand, wide), x.dtype)


def _wider(a: DType, b: DType) -> DType:
    return a if a.bits >= b.bits else b


def _where(conditions: Sequence[Scalar], value: Scalar) -> Scalar:
    both: Scalar | None = None
    for condition in conditions:
        both = condition if both is None else both & condition
    return value if both is None else scalar.select(both, value, 0.0)


def _scattered(load: Scalar, shape: Shape, extents: Shape, summand: Scalar) -> Tensor:
    """As `_collected`, with every summand added where its load is from."""
    x, whole = load.tensor, (*shape, *extents)
    renamed = sizes.in_place_of(reduced_indices(extents), indices(whole)[len(shape) :])
    updates = make_map(whole, rewrite(summand, atoms=renamed))
    places = [rewrite(scalar.size(i), atoms=renamed) for i in load.at]

    def place(*at: Dim) -> Scalar:
        found = _inside(places[0], x.shape[0])
        for axis, extent in enumerate(x.shape[1:], 1):
            here = scalar.compare("eq", scalar.size(at[-1]), axis)
            found = scalar.select(here, _inside(places[axis], extent), found)
        return found

    positions = compute((*whole, x.rank), place)
    zeros = constant(0.0, summand.dtype, x.shape)
    (total,) = make_call(
        "scatter_nd", (zeros, positions, updates), ((x.shape, summand.dtype),),
        depth=x.rank, reduction="add",
    )  # fmt: skip
    return cast(total, x.dtype)


def _inside(place: Scalar, extent: Dim) -> Scalar:
    """An index that may lie outside where its load is not chosen, and 0 is added."""
    last = scalar.size(extent - 1)
    return scalar.binary("max", scalar.binary("min", place, last), 0)
