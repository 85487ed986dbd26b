"""Distances between the rows of two matrices: CDist (com.microsoft)."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.registry import op
from sardonyx.tensor import language as t
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Tensor, indices, make_reduce, reduced_indices


@op("CDist", 1, domain="com.microsoft")
def c_dist(a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """The distance, or its square, of every row of `a` from every row of `b`.

    Differences are squared and added up: a product of the matrices would be faster, but loses all
    digits of the distance between neighbours, which is what the operator is used for.
    """
    if metric not in ("euclidean", "sqeuclidean"):
        raise InvalidGraph(
            message("CDist", "There is no such metric", expected="euclidean or sqeuclidean",
                    got=metric)
        )  # fmt: skip
    if a.rank != 2 or b.rank != 2 or a.dtype is not b.dtype or not a.dtype.is_float:
        got = f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
        raise InvalidGraph(message("CDist", "Two matrices of one float type are needed", got=got))
    t.assume_equal(a.shape[1], b.shape[1], "CDist", "The rows differ in length")
    shape = (a.shape[0], b.shape[0])
    (i, j), (k,) = indices(shape), reduced_indices((a.shape[1],))
    difference = load(a, (i, k)) - load(b, (j, k))
    squares = make_reduce(shape, (a.shape[1],), "sum", difference * difference, a.dtype)
    return t.sqrt(squares) if metric == "euclidean" else squares
