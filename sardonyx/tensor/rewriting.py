"""Scalar expressions made again with other loads, indices or operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import rebuild
from sardonyx.tensor.scalar import (
    BINARY,
    COMPARE,
    UNARY,
    Scalar,
    binary,
    cast,
    check_index,
    compare,
    load,
    make_node,
    select,
    size,
    unary,
    whole_number,
)


def rewrite(
    x: Scalar,
    replace_load: Callable[[Scalar], Scalar | None] = lambda _: None,
    atoms: Mapping[Atom, Dim] | None = None,
) -> Scalar:
    """Rebuild an expression: atoms replaced in all indices, then loads by `replace_load`."""
    memo: dict[Scalar, Scalar] = {}
    table = atoms or {}

    def dim(value: Dim) -> Dim:
        if isinstance(value, int):
            return value

        def replace(atom: Atom) -> Dim | None:
            if atom in table:
                return table[atom]
            if atom.kind == "opaque" and isinstance(atom.payload, Scalar):
                inner = visit(atom.payload)
                if inner is not atom.payload or any(map(_touches, atom.arguments)):
                    whole = whole_number(inner)
                    low, high = (dim(a) for a in atom.arguments)
                    return whole if whole is not None else sizes.opaque(inner, low, high)
            return None

        return rebuild(value, replace)

    def _touches(value: Dim) -> bool:
        return any(a in table for a in sizes.atoms_of(value))

    def visit(node: Scalar) -> Scalar:
        found = memo.get(node)
        if found is None:
            found = memo[node] = _visit(node)
        return found

    def _visit(node: Scalar) -> Scalar:
        if node.op == "constant":
            return node
        if node.op == "size":
            return size(dim(node.dim))
        if node.op == "load":
            tensor, indices = node.tensor, node.at
            moved = load(tensor, tuple(dim(i) for i in indices))
            replaced = replace_load(moved)
            return moved if replaced is None else replaced
        arguments = tuple(visit(a) for a in node.arguments)
        if node.op == "check_index":
            return check_index(arguments[0], dim(node.dim))
        return remake(node, arguments)

    return visit(x)


def remake(node: Scalar, arguments: tuple[Scalar, ...]) -> Scalar:
    """The same operation on other operands, simplified."""
    if node.op == "select":
        return select(*arguments)
    if node.op == "cast":
        return cast(arguments[0], node.dtype, node.rounding)
    if node.op in COMPARE:
        return compare(node.op, *arguments)
    if node.op in BINARY:
        return binary(node.op, *arguments)
    if node.op in UNARY:
        return unary(node.op, *arguments)
    return make_node(node.op, node.dtype, arguments, node.dim)
