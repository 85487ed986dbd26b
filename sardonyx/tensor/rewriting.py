"""Expressions and tensors made again with other loads, indices or operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim, opaque_in
from sardonyx.base.substitution import rebuild, rebuild_all
from sardonyx.tensor.checked import Checks, checks_in, with_checks
from sardonyx.tensor.operations import BINARY, CHECKS, COMPARE, UNARY
from sardonyx.tensor.scalar import (
    Scalar,
    binary,
    cast,
    check_index,
    check_range,
    compare,
    load,
    make_load,
    make_node,
    select,
    size,
    unary,
    whole_number,
)
from sardonyx.tensor.tensor import (
    Buffer,
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


def _same(x: Scalar) -> Scalar | None:
    return None


def _is_renaming(table: Mapping[Atom, Dim]) -> bool:
    """Whether index variables are replaced by others, each over what the one before ran over."""
    after = [sizes.as_atom(value) for value in table.values()]
    return len(set(after)) == len(after) and all(
        new is not None and old.kind == new.kind == "index" and old.arguments == new.arguments
        for old, new in zip(table, after, strict=True)
    )


def rewrite(
    x: Scalar,
    replace_load: Callable[[Scalar], Scalar | None] = _same,
    atoms: Mapping[Atom, Dim] | None = None,
) -> Scalar:
    """Rebuild an expression: atoms replaced in all indices, then loads by `replace_load`."""
    return Rewriting(replace_load, atoms or {}).visit(x)


class Rewriting:
    """What `rewrite` does, for several expressions, which may share parts.

    Args:
        replace_load: See `rewrite`.
        table: The atoms there.
    """

    # Closures that call each other would be left to the collector.
    __slots__ = (
        "_dims",
        "_has_symbols",
        "_memo",
        "_rebuild",
        "_renames",
        "_replace_load",
        "_table",
    )

    def __init__(
        self, replace_load: Callable[[Scalar], Scalar | None], table: Mapping[Atom, Dim]
    ) -> None:
        self._replace_load, self._table = replace_load, table
        self._renames = replace_load is _same and _is_renaming(table)
        self._has_symbols = any(a.kind == "symbol" for a in table)
        self._rebuild = rebuild_all if self._has_symbols else rebuild
        self._memo: dict[Scalar, Scalar] = {}
        self._dims: dict[Dim, Dim] = {}

    def dim(self, value: Dim) -> Dim:
        """A symbolic integer as it is afterwards."""
        if isinstance(value, int):
            return value
        found = self._dims.get(value)
        if found is None:
            found = self._dims[value] = self._moved(value)
        return found

    def _moved(self, value: Dim) -> Dim:
        if sizes.opaque_in(value):
            return self._rebuild(value, self._atom)
        if not self._has_symbols and sizes.atoms_of(value).isdisjoint(self._table):
            return value
        return self._rebuild(value, self._table.get, self._table)

    def _atom(self, atom: Atom) -> Dim | None:
        found = self._table.get(atom)
        if found is not None:
            return found
        if atom.kind == "opaque" and isinstance(atom.payload, Scalar):
            inner = self.visit(atom.payload)
            if inner is not atom.payload or any(map(self._touches, atom.arguments)):
                whole = whole_number(inner)
                low, high = (self.dim(a) for a in atom.arguments)
                return whole if whole is not None else sizes.opaque(inner, low, high)
        return None

    def _touches(self, value: Dim) -> bool:
        return any(a in self._table for a in sizes.atoms_of(value) | sizes.leaves_of(value))

    def visit(self, node: Scalar) -> Scalar:
        """The node as it is afterwards."""
        if node.op == "constant":
            return node
        found = self._memo.get(node)
        if found is None:
            found = self._memo[node] = self._visit(node)
        return found

    def _visit(self, node: Scalar) -> Scalar:
        if node.op == "load":
            return self._load(node)
        if node.op == "size":
            moved = self.dim(node.dim)
            return node if moved is node.dim else size(moved)
        visit, same, arguments = self.visit, True, list[Scalar]()
        for before in node.arguments:
            after = visit(before)
            same = same and after is before
            arguments.append(after)
        if node.op == "check_index":
            limit = self.dim(node.dim)
            return node if same and limit is node.dim else check_index(arguments[0], limit)
        return node if same else self._remade(node, tuple(arguments))

    def _remade(self, node: Scalar, arguments: tuple[Scalar, ...]) -> Scalar:
        if self._renames:  # what could be decided was
            return make_node(node.op, node.dtype, arguments, node.payload)
        return remake(node, arguments)

    def _load(self, node: Scalar) -> Scalar:
        indices = node.at
        at = tuple([self.dim(i) for i in indices])
        moved = node if all(map(is_, at, indices)) else load(node.tensor, at)
        if moved.op != "load":  # an element that is known
            found: Scalar | None = self.visit(moved)
        else:
            found = self._replace_load(moved)
        result = moved if found is None else found
        if any(map(opaque_in, indices)) or any(map(opaque_in, at)):
            return with_checks(result, (*self._checks_in(indices), *checks_in(at)))
        return result

    def _checks_in(self, indices: tuple[Dim, ...]) -> Checks:
        """The checks of indices as they are afterwards, if there is anything left to check."""
        if any(atom in self._table for i in indices for atom in opaque_in(i)):
            return ()
        made = map(self.visit, checks_in(indices))
        return tuple(check for check in made if check.op in CHECKS)


class Renaming(Rewriting):
    """Expressions that read other buffers, of which no more is known: nothing becomes simpler.

    Args:
        rename: The buffer in place of another; different ones for different ones.
    """

    __slots__ = ("_rename",)

    def __init__(self, rename: Callable[[Buffer], Buffer]) -> None:
        super().__init__(_same, {})
        self._rename = rename

    def dim(self, value: Dim) -> Dim:
        """A symbolic integer, in which only loaded values change."""
        return super().dim(value) if sizes.opaque_in(value) else value

    def _load(self, node: Scalar) -> Scalar:
        return make_load(self._rename(node.buffer), tuple([self.dim(i) for i in node.at]))

    def _remade(self, node: Scalar, arguments: tuple[Scalar, ...]) -> Scalar:
        return make_node(node.op, node.dtype, arguments, node.payload)


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
    if node.op == "check_range":
        value, low, high = arguments
        return check_range(value, node.payload, low, high)
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
