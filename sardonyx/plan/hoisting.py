"""What an epilogue computes from constants alone is computed once, before any run.

Factors and terms of the results' channels become a few numbers for each channel, which kernels
load, computed in double. Single numbers do, too, so that the layers of a network have one kernel:
what sets them apart is what they load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Atom
from sardonyx.plan.axes import extent_of
from sardonyx.plan.codes import codes_of, index_atoms
from sardonyx.plan.groups import Contraction
from sardonyx.plan.requantise import is_fixed
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import remake, rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, indices, make_map
from sardonyx.tensor.traverse import loads_of

#: More numbers than this are not worth memory of their own.
_MOST = 1 << 16
_KEPT = (0.0, 1.0, -1.0)


def with_numbers(group: Contraction, stored: Callable[[Map], Buffer]) -> Contraction:
    """A contraction of codes with what its epilogue computes from constants loaded.

    Args:
        group: The contraction.
        stored: Where the contents of a map of constants are going to be.
    """
    left = codes_of(group.left)
    if left is not None and left.zero.op == "constant" and left.zero.payload != 0:
        zero = scalar.constant(left.zero.payload, left.code.dtype)
        if zero.payload == left.zero.payload:
            point = scalar.cast(stored_number(zero, stored), dtypes.INT32)
            group = replace(group, left=replace(left, zero=point).whole)
    return replace(group, epilogue=hoisted(group.epilogue, stored, group.result))


def hoisted(x: Scalar, stored: Callable[[Map], Buffer], result: Scalar) -> Scalar:
    """The expression with the largest parts that never change loaded.

    Args:
        x: The expression.
        stored: Where the contents of a map of constants are going to be.
        result: The load of what the kernel itself computes: of constants, it never changes either.
    """
    memo: dict[Scalar, Scalar] = {}

    def visit(node: Scalar) -> Scalar:
        found = memo.get(node)
        if found is None:
            found = memo[node] = _moved(node, stored, result) or _remade(node)
        return found

    def _remade(node: Scalar) -> Scalar:
        if not node.arguments:
            return node
        return remake(node, tuple(map(visit, node.arguments)))

    return visit(x)


def stored_number(x: Scalar, stored: Callable[[Map], Buffer]) -> Scalar:
    """A literal as something that is loaded."""
    return load(stored(make_map((1,), x)), (0,))


def _moved(x: Scalar, stored: Callable[[Map], Buffer], result: Scalar) -> Scalar | None:
    """A load in place of an expression that never changes; None if it has to stay."""
    if x.dtype not in (dtypes.FLOAT, dtypes.INT32) or not is_fixed(x) or x.op in ("load", "size"):
        return None
    if x.op == "constant":
        plain = x.payload in _KEPT or x.payload != x.payload or abs(x.payload) == float("inf")
        return None if plain else stored_number(x, stored)
    loads = loads_of(x)
    if not loads or result in loads:
        return None
    atoms = sorted((a for a in index_atoms(x) if a is not None), key=lambda a: a.order)
    variables = [sizes.of_atom(a) for a in atoms]
    shape = tuple(map(extent_of, variables))
    volume = sizes.product(shape)
    if not isinstance(volume, int) or volume > _MOST:
        return None
    places: dict[Atom, sizes.Dim] = dict(zip(atoms, indices(shape), strict=True))
    exact = scalar.cast(_widened(rewrite(x, atoms=places), stored, {}), x.dtype)
    contents = make_map(shape or (1,), exact)
    return load(stored(contents), tuple(variables) or (0,))


def _widened(x: Scalar, stored: Callable[[Map], Buffer], known: dict[Scalar, Scalar]) -> Scalar:
    """An expression of floats in double: factors of factors are rounded once, at the end.

    `known` has the parts that were met before.
    """
    if x not in known:
        known[x] = _in_double(x, stored, known)
    return known[x]


def _in_double(x: Scalar, stored: Callable[[Map], Buffer], known: dict[Scalar, Scalar]) -> Scalar:
    if x.dtype is not dtypes.FLOAT:
        return x
    if x.op in ("add", "sub", "mul", "div", "neg"):
        return remake(x, tuple(_widened(a, stored, known) for a in x.arguments))
    if x.op == "cast" and x.arguments[0].dtype.is_integer:
        return scalar.cast(x.arguments[0], dtypes.DOUBLE)
    if x.op == "constant":
        return stored_number(scalar.constant(x.payload, dtypes.DOUBLE), stored)
    return scalar.cast(x, dtypes.DOUBLE)
