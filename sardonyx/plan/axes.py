"""Loop axes made simple: divisions in indices split an axis, contiguous neighbours become one.

`[N, S, H*D] -> [N, S, H, D]` leaves `i // D` and `i - D * (i // D)` in the indices. With `i`
split into `D * high + low` both become plain variables. Afterwards axes that every access walks as
if they were one long axis are merged, so that vectors are full and index arithmetic is small.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from sardonyx.base import integer, quotients, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

Access = tuple[Tensor, tuple[Dim, ...]]


def extent_of(variable: Dim) -> Dim:
    """How many values an index variable has."""
    atom = sizes.as_atom(variable)
    return 1 if atom is None else atom.arguments[0]


def offset_of(strides: tuple[Dim, ...], at: tuple[Dim, ...]) -> Dim:
    """Elements from the start of an array to the element at `at`."""
    return sizes.inner_product(at, strides)


def nested_in(dim: Dim) -> list[Scalar]:
    """The expressions whose values `dim` uses as indices."""
    return [a.payload for a in sizes.opaque_in(dim) if isinstance(a.payload, Scalar)]


def own_dims(x: Scalar) -> tuple[Dim, ...]:
    """The symbolic integers of one node."""
    if x.op == "load":
        return x.at
    return (x.dim,) if x.op in ("size", "check_index") else ()


def nodes_of(body: Scalar) -> Iterator[Scalar]:
    """Every node of an expression, also inside indices, each once."""
    seen: set[Scalar] = set()
    stack = [body]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        yield x
        stack.extend(x.arguments)
        for dim in own_dims(x):
            stack.extend(nested_in(dim))


def dims_of(body: Scalar) -> Iterator[Dim]:
    """Every symbolic integer in an expression: load indices, sizes, extents of checks."""
    for x in nodes_of(body):
        yield from own_dims(x)


def _shifted_atom(dim: Dim) -> Atom | None:
    """The atom that this is, perhaps with a number added."""
    number = sum(c for monomial, c in sizes.terms_of(dim) if not monomial)
    return sizes.as_atom(dim - number)


class Axes:
    """The loop variables of a kernel, with the bodies and stores that use them.

    Args:
        spaces: Tuples of index variables that may be split, and merged within their tuple.
        bodies: Expressions over them.
        stores: Tensors written, with indices.
    """

    def __init__(
        self, spaces: Iterable[Iterable[Dim]], bodies: list[Scalar], stores: Sequence[Access]
    ) -> None:
        self.spaces = [[v for v in space if v != 0] for space in spaces]
        self.bodies, self.stores = bodies, list(stores)
        #: Values of the original variables in terms of the present ones.
        self.values: dict[Atom, Dim] = {}
        for variable in (v for space in self.spaces for v in space):
            atom = sizes.as_atom(variable)
            if atom is not None:
                self.values[atom] = variable
        self._fresh = 0

    def _new(self, extent: Dim) -> Dim:
        """A variable that no space has: others may have split or merged these axes before."""
        taken = {v for space in self.spaces for v in space}
        while True:
            self._fresh += 1
            found = sizes.numbered_index(extent, self._fresh, "s")
            if found == 0 or found not in taken:
                return found

    def _replace(self, atoms: dict[Atom, Dim]) -> None:
        self.bodies = [rewrite(b, atoms=atoms) for b in self.bodies]
        self.stores = [(t, tuple(substitute(i, atoms) for i in at)) for t, at in self.stores]
        self.values = {a: substitute(v, atoms) for a, v in self.values.items()}

    # -- splitting ----------------------------------------------------------------------------

    def split(
        self,
        strides: Mapping[Tensor, tuple[Dim, ...]] | None = None,
        whole: Container[Atom] = (),
    ) -> None:
        """Split axes until no index divides one of them, where that is possible.

        With `strides` also those that an index divides with a number added, if elements that are
        read lie side by side along that index. What is in `whole` stays as it is.
        """
        while True:
            found = self._divided(strides or {}, whole)
            if found is None:
                return
            space, position, divisor, count = found
            variable = space[position]
            high, low = self._new(count), self._new(divisor)
            space[position : position + 1] = [v for v in (high, low) if v != 0]
            value = high * divisor + low
            self._replace({sizes.variable(variable): value})

    def _divided(
        self, strides: Mapping[Tensor, tuple[Dim, ...]], whole: Container[Atom]
    ) -> tuple[list[Dim], int, Dim, Dim] | None:
        divisions: dict[Atom, None] = {}
        for dim in self._all_dims():
            divisions.update(dict.fromkeys(sizes.atoms_of(dim, "floordiv")))
        for division in divisions:
            numerator, divisor = division.arguments
            atom = sizes.as_atom(numerator)
            if atom is None and self._lies_along(division, strides):
                atom = _shifted_atom(numerator)
            if atom is None or atom.kind != "index" or atom.arguments[0] == divisor:
                continue
            if atom in whole:
                continue
            for space in self.spaces:
                for position, variable in enumerate(space):
                    if sizes.as_atom(variable) is atom:
                        count = quotients.exact_quotient(atom.arguments[0], divisor)
                        if count is not None:
                            return space, position, divisor, count
        return None

    def _lies_along(self, division: Atom, strides: Mapping[Tensor, tuple[Dim, ...]]) -> bool:
        return any(
            step == 1 and division in sizes.atoms_of(index)
            for tensor, at in self._accesses()
            if tensor in strides
            for index, step in zip(at, strides[tensor], strict=True)
        )

    def _all_dims(self) -> Iterator[Dim]:
        for body in self.bodies:
            yield from dims_of(body)
        for _, at in self.stores:
            yield from at

    # -- merging ------------------------------------------------------------------------------

    def merge(self, strides: Mapping[Tensor, tuple[Dim, ...]]) -> None:
        """Merge neighbours within each space that all accesses walk as one axis."""
        offsets = [offset_of(strides[t], at) for t, at in self._accesses()]
        loose = self._outside_offsets()
        for space in self.spaces:
            changed = True
            while changed:
                changed = False
                for a in space:
                    for b in space:
                        if a is not b and self._mergeable(a, b, offsets, loose):
                            self._merge(space, a, b)
                            offsets = [offset_of(strides[t], at) for t, at in self._accesses()]
                            changed = True
                            break
                    if changed:
                        break

    def _accesses(self) -> Iterator[Access]:
        for body in self.bodies:
            yield from (x.payload for x in loads_of(body))
        yield from self.stores

    def _outside_offsets(self) -> set[Atom]:
        """Variables that are used for more than finding elements."""
        found: set[Atom] = set()
        for body in self.bodies:
            for x in nodes_of(body):
                if x.op in ("size", "check_index"):
                    found |= sizes.atoms_of(x.dim)
        return found

    def _mergeable(self, a: Dim, b: Dim, offsets: list[Dim], loose: set[Atom]) -> bool:
        outer, inner = sizes.as_atom(a), sizes.as_atom(b)
        if outer is None or inner is None or outer in loose or inner in loose:
            return False
        if inner.arguments[0] == 0:
            return False
        for offset in offsets:
            high = sizes.coefficient_of(offset, outer)
            low = sizes.coefficient_of(offset, inner)
            if high is None or low is None:
                return False
            if inner in sizes.atoms_of(high[0]) or outer in sizes.atoms_of(low[0]):
                return False
            if high[0] != low[0] * inner.arguments[0]:
                return False
        return True

    def _merge(self, space: list[Dim], a: Dim, b: Dim) -> None:
        extent = extent_of(a) * extent_of(b)
        merged = self._new(extent)
        outer, inner = sizes.variable(a), sizes.variable(b)
        values = {
            atom: substitute(
                value,
                {
                    outer: integer.floordiv(merged, extent_of(b)),
                    inner: integer.modulo(merged, extent_of(b)),
                },
            )
            for atom, value in self.values.items()
        }
        # Only offsets use the two, and in them a * extent(b) + b is what counts.
        self._replace({outer: 0, inner: merged})
        self.values = values
        space[space.index(b)] = merged
        space.remove(a)

    # -- joining ------------------------------------------------------------------------------

    def join(
        self, strides: Mapping[Tensor, tuple[Dim, ...]], lanes: int, given: Container[Tensor]
    ) -> None:
        """Join axes that stores walk as one where some loads stay for several steps in a row.

        Such as groups and the few channels of each: a vector then covers several groups, and the
        index of what stays is `axis // count`.

        Args:
            strides: Of all that lies in memory.
            lanes: Of a vector; it takes as many steps of every element that stays.
            given: What is handed on in registers.
        """
        loose = self._outside_offsets()
        for space in self.spaces:
            for b in list(space):
                count = extent_of(b)
                if not isinstance(count, int) or not 2 <= count <= lanes // 2 or lanes % count:
                    continue
                outer = (
                    a for a in space if a is not b and self._joinable(a, b, strides, given, loose)
                )
                a = next(outer, None)
                if a is not None:
                    joined = self._new(extent_of(a) * count)
                    high, low = integer.floordiv(joined, count), integer.modulo(joined, count)
                    self._replace({sizes.variable(a): high, sizes.variable(b): low})
                    space[space.index(b)] = joined
                    space.remove(a)
                    return

    def _joinable(
        self,
        a: Dim,
        b: Dim,
        strides: Mapping[Tensor, tuple[Dim, ...]],
        given: Container[Tensor],
        loose: set[Atom],
    ) -> bool:
        outer, inner, count = sizes.variable(a), sizes.variable(b), extent_of(b)
        if outer in loose or inner in loose:
            return False
        stays = 0
        accesses = [a.payload for body in self.bodies for a in loads_of(body)]
        written = [offset_of(strides[t], at) for t, at in self.stores if t not in given]
        read = [offset_of(strides[t], at) for t, at in accesses if t not in given]
        for offset in (*written, *read):
            high, low = (sizes.coefficient_of(offset, v) for v in (outer, inner))
            if high is None or low is None or not isinstance(high[0], int):
                return False
            if low[0] == 0 and offset in read:
                stays += high[0] != 0
            elif low[0] != 1 or high[0] != count:
                return False
        return bool(stays)
