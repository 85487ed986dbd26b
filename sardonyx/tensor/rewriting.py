"""Expressions and tensors made again with other loads, indices or operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import rebuild
from sardonyx.tensor.operations import BINARY, COMPARE, UNARY
from sardonyx.tensor.scalar import (
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
from sardonyx.tensor.tensor import (
    Call,
    Contract,
    Map,
    Reduce,
    Tensor,
    make_call,
    make_contract,
    make_map,
    make_reduce,
)
from sardonyx.tensor.traverse import operands_of, topological


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
            moved = dim(node.dim)
            return node if moved is node.dim else size(moved)
        if node.op == "load":
            return _load(node)
        arguments = tuple([visit(a) for a in node.arguments])
        same = all(map(is_, arguments, node.arguments))
        if node.op == "check_index":
            limit = dim(node.dim)
            return node if same and limit is node.dim else check_index(arguments[0], limit)
        return node if same else remake(node, arguments)

    def _load(node: Scalar) -> Scalar:
        indices = node.at
        at = tuple([dim(i) for i in indices])
        moved = node if all(map(is_, at, indices)) else load(node.tensor, at)
        replaced = replace_load(moved)
        return moved if replaced is None else replaced

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


def substituted(outputs: Iterable[Tensor], replacements: Mapping[Tensor, Tensor]) -> list[Tensor]:
    """Tensors as they are computed from others of the same shapes and types."""
    wanted = list(outputs)
    new = dict(replacements)

    def moved(x: Scalar) -> Scalar | None:
        other = new.get(x.tensor)
        return None if other is None or other is x.tensor else load(other, x.at)

    for t in topological(wanted, replacements):
        if not any(new.get(o, o) is not o for o in operands_of(t)):
            continue
        if isinstance(t, Map):
            new[t] = make_map(t.shape, rewrite(t.body, moved))
        elif isinstance(t, Reduce):
            new[t] = make_reduce(t.shape, t.extents, t.kind, rewrite(t.body, moved), t.dtype)
        elif isinstance(t, Contract):
            left, right = rewrite(t.left, moved), rewrite(t.right, moved)
            new[t] = make_contract(t.shape, t.extents, left, right, t.dtype, t.accumulator)
        elif isinstance(t, Call):
            operands = tuple(new.get(o, o) for o in t.operands)
            calls = make_call(t.kernel, operands, t.all_outputs, **dict(t.attributes))
            new[t] = calls[t.output]
    return [new.get(t, t) for t in wanted]
