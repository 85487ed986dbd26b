"""SparseToDenseMatMul: the product of a sparse matrix and a dense one."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.contrib.transformer import fused_mat_mul
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.sparse_values import rows_of, sparse_type
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.language import accumulator, cast, transpose
from sardonyx.tensor.tensor import Tensor, make_call

DOMAIN = "com.microsoft"
_NAME = "SparseToDenseMatMul"


@op(_NAME, 1, domain=DOMAIN, flags=("objects",))
def sparse_to_dense_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803 - the schema's name
) -> Tensor:
    """alpha times the product of a sparse matrix (m, k) and a dense one (k, n).

    The sparse one is an input of the model, or a constant of which the file has few elements; it
    is never made dense. A dense constant is multiplied as one.
    """
    if b.dtype.is_integer and (alpha % 1 or (alpha < 0 and b.dtype.kind == "u")):
        what = f"alpha is no number of its type {b.dtype.name}"
        raise InvalidGraph(message(_NAME, what, expected="a whole number", got=str(alpha)))
    if sparse_type(a) is not None and b.rank != 2:
        what = "B, which a sparse tensor is multiplied by, has the wrong rank"
        raise InvalidGraph(message(_NAME, what, expected="2", got=str(b.rank)))
    rows = rows_of(a, bool(transA), _NAME) if b.rank == 2 else None
    if rows is None:
        if a.rank != 2 or b.rank < 2:
            got = f"{a.rank} and {b.rank}"
            raise InvalidGraph(message(_NAME, "Wrong ranks", expected="2, and 2 or more", got=got))
        return fused_mat_mul(a, b, alpha=alpha, transA=transA, transB=transB)
    if rows.values.dtype is not b.dtype:
        what = "The types of its inputs differ"
        got = f"{rows.values.dtype.name} and {b.dtype.name}"
        raise InvalidGraph(message(_NAME, what, got=got))
    dense = transpose(b, (1, 0)) if transB else b
    height, depth = rows.shape
    what = f"The columns of A and the rows of B differ: {depth!r} and {dense.shape[0]!r}"
    assume_equal(depth, dense.shape[0], _NAME, what)
    shape = (height, dense.shape[1])
    operands = (rows.outer, rows.inner, rows.values, dense)
    (result,) = make_call("sparse_rows", operands, ((shape, b.dtype),))
    if alpha == 1.0:
        return result
    return cast(cast(result, accumulator(b.dtype)) * alpha, b.dtype)
