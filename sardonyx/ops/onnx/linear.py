"""Products of matrices: MatMul, Gemm, Einsum."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.tensor import language as t
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import (
    Shape,
    Tensor,
    indices,
    make_call,
    make_map,
    reduced_indices,
)


@op("MatMul", 1, 9, 13)
def matmul_1(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's matmul."""
    return t.matmul(a, b)


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    factors: tuple[float, float],
    transposed: tuple[int, int],
) -> Tensor:
    """alpha * a @ b + beta * c for `factors` (alpha, beta); `transposed` are a and b."""
    (alpha, beta), (transposed_a, transposed_b) = factors, transposed
    if len(a.shape) != 2 or len(b.shape) != 2 or a.dtype is not b.dtype:
        raise InvalidGraph(message("Gemm", "Two matrices of one type are needed"))
    rows, inner_a = a.shape[::-1] if transposed_a else a.shape
    inner_b, columns = b.shape[::-1] if transposed_b else b.shape
    assume_equal(inner_a, inner_b, "Gemm", "The inner sizes differ")

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        (i, j), (k,) = at, over
        left = load(a, (k, i) if transposed_a else (i, k))
        return left, load(b, (j, k) if transposed_b else (k, j))

    inner = inner_a if isinstance(inner_a, int) else inner_b
    result = t.contract((rows, columns), (inner,), body)
    if alpha != 1.0:
        result = result * alpha
    if c is None or beta == 0.0:
        return result
    t.assume_broadcast(c.shape, result.shape, "Gemm", "The summand")
    added = c if beta == 1.0 else c * beta
    return t.elementwise(lambda x, y: x + y, result, t.broadcast_to(added, result.shape))


@op("Gemm", 1, 6)
def gemm_1(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """alpha * a @ b + beta * c, where c is broadcast only if that is asked for."""
    product = _gemm(a, b, None, (alpha, beta), (transA, transB))
    if not broadcast:
        t.assume_shape(c.shape, product.shape, "Gemm", "Without `broadcast`, the summand")
    return _gemm(a, b, c, (alpha, beta), (transA, transB))


@op("Gemm", 7, 9)
def gemm_7(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """alpha * a @ b + beta * c, where c is broadcast."""
    return _gemm(a, b, c, (alpha, beta), (transA, transB))


@op("Gemm", 11, 13)
def gemm_11(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """As before; c may be left out."""
    return _gemm(a, b, c, (alpha, beta), (transA, transB))


@op("Det", 11, 22)
def det_11(x: Tensor) -> Tensor:
    """Determinants of the matrices in the last two axes."""
    if x.rank < 2:
        raise InvalidGraph(message("Det", "Matrices are needed", got=f"rank {x.rank}"))
    assume_equal(x.shape[-1], x.shape[-2], "Det", "The matrices are not square")
    wide = t.accumulator(x.dtype)
    (result,) = make_call("determinant", (x.cast(wide),), ((x.shape[:-2], wide),))
    return result.cast(x.dtype)


# -- Einsum -----------------------------------------------------------------------------------


def _labels(term: str, rank: int) -> list[str]:
    """One label per axis; axes under an ellipsis get numbers, counted from the last."""
    if "..." in term:
        head, tail = term.split("...", 1)
        covered = rank - len(head) - len(tail)
        labels = [*head, *(f"~{k}" for k in range(covered, 0, -1)), *tail]
    else:
        labels = list(term)
        covered = 0
    if covered < 0 or len(labels) != rank or not all(x.isalpha() or x[0] == "~" for x in labels):
        raise InvalidGraph(message("Einsum", f"The term {term!r} does not fit {rank} axes"))
    return labels


def _result_labels(terms: list[list[str]], output: str | None) -> list[str]:
    every = [label for term in terms for label in term]
    hidden = sorted({x for x in every if x[0] == "~"}, key=lambda x: -int(x[1:]))
    if output is None:
        return hidden + sorted(x for x in set(every) if every.count(x) == 1 and x[0] != "~")
    if "..." in output:
        head, tail = output.split("...", 1)
        return [*head, *hidden, *tail]
    return list(output)


def _extents(terms: list[list[str]], operands: tuple[Tensor, ...]) -> dict[str, Dim]:
    extents: dict[str, Dim] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            known = extents.get(label)
            extents[label] = size if known is None else t.broadcast_dim(known, size)
    return extents


def _product(
    left: tuple[Tensor, list[str]],
    right: tuple[Tensor, list[str]] | None,
    result: list[str],
    extents: dict[str, Dim],
) -> Tensor:
    """One step: two operands, or one, summed over what the result does not name."""
    mentioned = dict.fromkeys(left[1] + (right[1] if right else []))
    summed = [label for label in mentioned if label not in result]
    shape: Shape = tuple(extents[label] for label in result)
    over: Shape = tuple(extents[label] for label in summed)
    place = dict(zip(result, indices(shape), strict=True))
    place.update(zip(summed, reduced_indices(over), strict=True))

    def read(operand: Tensor, labels: list[str]) -> Scalar:
        pairs = zip(labels, operand.shape, strict=True)
        return load(operand, tuple(t.broadcast_index(d, place[label]) for label, d in pairs))

    if right is None:
        x = left[0]
        if not summed:
            return make_map(shape, read(*left))
        full = t.compute((*shape, *over), lambda *at: _placed(left, result + summed, at))
        return full.sum(tuple(range(len(shape), len(shape) + len(over)))).cast(x.dtype)
    if not summed:
        return make_map(shape, read(*left) * read(*right))
    return t.contract(shape, over, lambda _, __: (read(*left), read(*right)))


def _placed(operand: tuple[Tensor, list[str]], labels: list[str], at: tuple[Dim, ...]) -> Scalar:
    place = dict(zip(labels, at, strict=True))
    pairs = zip(operand[1], operand[0].shape, strict=True)
    return load(operand[0], tuple(t.broadcast_index(d, place[label]) for label, d in pairs))


@op("Einsum", 12)
def einsum_12(*operands: Tensor, equation: str) -> Tensor:
    """Einstein's sum; more than two operands are multiplied from left to right."""
    text = equation.replace(" ", "")
    given, arrow, output = text.partition("->")
    written = given.split(",")
    if len(written) != len(operands):
        raise InvalidGraph(message("Einsum", f"{equation!r} does not fit {len(operands)} inputs"))
    terms = [_labels(w, len(x.shape)) for w, x in zip(written, operands, strict=True)]
    result = _result_labels(terms, output if arrow else None)
    extents = _extents(terms, operands)
    if len(set(result)) != len(result) or not set(result) <= set(extents):
        raise InvalidGraph(message("Einsum", f"The result of {equation!r} is not valid"))
    if len(operands) == 1:
        return _product((operands[0], terms[0]), None, result, extents)
    x, labels = operands[0], terms[0]
    for number in range(1, len(operands)):
        later = {label for term in terms[number + 1 :] for label in term} | set(result)
        both = dict.fromkeys(labels + terms[number])
        last = number == len(operands) - 1
        kept = result if last else [label for label in both if label in later]
        x = _product((x, labels), (operands[number], terms[number]), kept, extents)
        labels = kept
    return x
