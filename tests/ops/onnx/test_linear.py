"""Products of matrices against onnx's reference."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op

RNG = np.random.default_rng(5)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((1, 4), (4, 1)),
        ((2, 3, 1), (2, 1, 3)),
        ((0, 4), (4, 2)),
        ((3, 0), (0, 2)),
    ],
)
def test_matmul(a, b, dtype):
    x, y = floats(*a, dtype=dtype), floats(*b, dtype=dtype)
    wide = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    check_op("MatMul", [x, y], opset=13, expected=[wide])


def test_matmul_of_integers():
    x, y = RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 2))
    check_op("MatMul", [x, y])


def test_matmul_errors():
    with pytest.raises(InvalidGraph, match="inner sizes differ"):
        check_op("MatMul", [floats(2, 3), floats(4, 2)], expected=[], symbolic=False)


@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.5, "beta": 2.0}])
@pytest.mark.parametrize("c", [None, (), (5,), (3, 1), (1, 5), (3, 5)])
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(attributes, c, transposed):
    a, b = (
        floats(*((4, 3) if transposed[0] else (3, 4))),
        floats(*((5, 4) if transposed[1] else (4, 5))),
    )
    inputs = [a, b] + ([] if c is None else [floats(*c)])
    attributes = {**attributes, "transA": transposed[0], "transB": transposed[1]}
    check_op("Gemm", inputs, attributes, 13)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->i", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,i->i", [(3,), (3,)]),
        ("i,i", [(3,), (3,)]),
        ("ij,j,jk->ik", [(2, 3), (3,), (3, 4)]),
        ("...ij,...jk->...ik", [(2, 1, 2, 3), (4, 3, 5)]),
        ("...i->...", [(2, 3, 4)]),
        (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ],
)
def test_einsum(equation, shapes):
    operands = [floats(*s) for s in shapes]
    expected = np.einsum(equation, *operands)
    check_op("Einsum", operands, {"equation": equation}, 12, expected=[expected])


_EXTENTS = dict(zip("abcdeijklA", (2, 3, 4, 5, 2, 2, 3, 4, 3, 2), strict=True))


@pytest.mark.parametrize(
    "equation",
    "ii ii->i iij->j iij->ij i,i i,i-> ij,jk ij-> i->i ...ii->...i ...ij,...jk->...ik"
    " i...,i...->i... ...i,...i ij...->ji... ab,bc,cd->ad ab,bc,cd,de i,j,k->kji ii,jj->ij"
    " ii,ii->i a,a,a->a ...,...->... ... Ab,bA-> ij,...j->...i ijij->ij abc,cd,e->abe"
    " aab,b->a ij,k-> i...j->... ...a,b...->ab... ,ij->ij , -> ...->...".split(),
)
@pytest.mark.parametrize("hidden", [(), (3,), (2, 3)])
def test_einsum_forms(equation, hidden):
    """Ellipses, traces and diagonals, sums over what is not named, several operands, none."""
    operands = []
    for number, term in enumerate(equation.split("->")[0].split(",")):
        head, dots, tail = term.partition("...")
        covered = hidden[min(number, 1) :] if dots else ()  # the second operand has an axis less
        shape = [_EXTENTS[x] for x in head] + [*covered] + [_EXTENTS[x] for x in tail]
        operands.append(np.asarray(floats(*shape), np.float32))
    expected = np.einsum(equation, *operands)
    check_op("Einsum", operands, {"equation": equation}, 12, expected=[expected])


@pytest.mark.parametrize("equation", ["ij->ik", "ij,jk->ik", "ijk->i", "ij->ii"])
def test_einsum_errors(equation):
    with pytest.raises(InvalidGraph, match="Einsum"):
        check_op("Einsum", [floats(2, 3)], {"equation": equation}, expected=[])
