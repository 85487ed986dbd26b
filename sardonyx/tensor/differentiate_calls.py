"""Gradients by what special kernels read, given those by what they give."""

from __future__ import annotations

from sardonyx.base import dtypes, errors, sizes
from sardonyx.base.errors import message
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.elementwise import compute, constant
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Call, Tensor, make_call

#: Those of scatters whose derivative does not hang on the numbers that are combined.
_COMBINATIONS = ("none", "add")


def passed_on(t: Call, by: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Operands of a call, each with its part of the gradient.

    Raises:
        NotImplemented: What the kernel computes has no derivative here.
    """
    x, facts = t.operands[0], dict(t.attributes)
    if t.kernel == "scan" and facts["kind"] == "sum":
        facts["reverse"] = not facts["reverse"]
        return [(x, _one("scan", (by, *t.operands[1:]), x, **facts))]
    if t.kernel == "top_k":
        found = make_call(t.kernel, t.operands, t.all_outputs, **facts)[1]
        facts = {"axis": facts["axis"], "reduction": "add"}
        return [(x, _one("scatter_elements", (_zeros(x), found, by), x, **facts))]
    if t.kernel.startswith("scatter_") and facts["reduction"] in _COMBINATIONS:
        return _of_scatter(t, by)
    how = f" with the reduction {facts['reduction']}" if "reduction" in facts else ""
    what = f"There is no derivative of what the kernel {t.kernel} computes{how}"
    raise errors.NotImplemented(message("Gradient", what))


def _of_scatter(t: Call, by: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What is replaced has no part of the gradient; of updates of one element the last counts."""
    x, positions, updates = t.operands
    facts = dict(t.attributes)
    taken = _gathered(t, by)
    if facts["reduction"] == "add":
        return [(x, by), (updates, taken)]
    kept = _one(t.kernel, (by, positions, _zeros(updates)), x, **facts)
    count = sizes.product(updates.shape)
    number = compute((count,), lambda k: scalar.size(k), dtypes.INT64)
    numbers = number.reshape(*updates.shape)
    nowhere = constant(-1, dtypes.INT64, x.shape)
    written = make_call(
        t.kernel, (nowhere, positions, numbers), ((x.shape, dtypes.INT64),), **facts
    )
    winner = _gathered(t, written[0])

    def share(*at: Dim) -> Scalar:
        is_last = scalar.compare("eq", scalar.load(winner, at), scalar.load(numbers, at))
        return scalar.select(is_last, scalar.load(taken, at), 0.0)

    return [(x, kept), (updates, compute(updates.shape, share, updates.dtype))]


def _gathered(t: Call, source: Tensor) -> Tensor:
    """The elements of `source` where a scatter writes its updates."""
    _, positions, updates = t.operands

    def index(at: tuple[Dim, ...], axis: int) -> Dim:
        extent = source.shape[axis]
        return scalar.as_index(scalar.check_index(scalar.load(positions, at), extent), extent)

    def body(*at: Dim) -> Scalar:
        if t.kernel == "scatter_elements":
            axis = t.integer("axis")
            return scalar.load(source, (*at[:axis], index(at, axis), *at[axis + 1 :]))
        outer = at[: positions.rank - 1]
        chosen = tuple(index((*outer, k), k) for k in range(t.integer("depth")))
        return scalar.load(source, (*chosen, *at[len(outer) :]))

    return compute(updates.shape, body)


def _one(kernel: str, operands: tuple[Tensor, ...], like: Tensor, **facts: object) -> Tensor:
    (found,) = make_call(kernel, operands, ((like.shape, like.dtype),), **facts)
    return found


def _zeros(like: Tensor) -> Tensor:
    return constant(0.0, like.dtype, like.shape)
