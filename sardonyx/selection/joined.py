"""Joined tensors of many parts: one kernel for parts of one form, called for each of them.

A choice between parts along an axis, `i < e1 ? a[i] : i < e2 ? b[i - e1] : ...`, is one kernel
where there are few. Of many it would be as long as they are: to write, to compile and to look
through in a run. Here each part is a map over its own length, and writes its share of the joined
tensor, which begins at an address of its own; lengths, strides and whatever else differs are
arguments. So kernels depend on what is computed, not on how many parts there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim, Monomial
from sardonyx.plan.axes import extent_of
from sardonyx.plan.canonical import placeholder, structure_of
from sardonyx.plan.groups import LoopNest, Stage
from sardonyx.plan.joined import Joined, Share
from sardonyx.plan.layout import row_major
from sardonyx.selection.general_loop_nest import GeneralLoopNest
from sardonyx.tensor import scalar
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, make_load, make_node, whole_number
from sardonyx.tensor.tensor import Buffer, Tensor

#: Lengths of parts stay numbers in kernels if there are at most so many.
_FEW_LENGTHS = 4
#: Numbers that may be negative have no bound in kernels.
_NO_BOUND = -(1 << 62)

Strides = Mapping[Tensor, tuple[Dim, ...]]


@dataclass(frozen=True, slots=True)
class JoinedPart:
    """A part of a joined tensor.

    Attributes:
        rows: The map that computes it, over stand-ins and symbols.
        places: For what it writes, what that is part of, and at which byte it begins.
    """

    rows: GeneralLoopNest
    places: dict[Buffer, tuple[Buffer, Dim]]


def parts_of(joined: Joined, strides: Strides) -> list[JoinedPart]:
    """The parts of a joined tensor; none where some part's kernel could serve that part alone."""
    root, shares = joined.stage.root, joined.shares
    lengths = {x.length for x in shares}
    numbers = set[Dim]((*root.buffer.shape, *_strides_of(root.buffer, strides)))
    if len(lengths) <= _FEW_LENGTHS:
        numbers |= lengths
    found = []
    for share in shares:
        part = _Making(joined, strides, numbers).part(share)
        if part is None:
            return []
        found.append(part)
    return found


def _strides_of(tensor: Tensor, strides: Strides) -> tuple[Dim, ...]:
    return strides.get(tensor) or row_major(tensor.shape)


class _NotShared(Exception):
    """An expression whose kernel would depend on more than sizes."""


class _Making:
    """Makes one part general.

    Args:
        joined: The joined tensor.
        strides: Of all buffers.
        numbers: Extents and strides that all parts have in common: they stay numbers.
    """

    def __init__(self, joined: Joined, strides: Strides, numbers: set[Dim]) -> None:
        self._stage, self._outer, self._axis = joined.stage, joined.stage.indices, joined.axis
        self._strides, self._numbers = strides, numbers
        self._values: dict[Atom, Dim] = {}
        self._symbols: dict[Dim, Dim] = {}
        self._atoms: dict[Atom, Dim] = {}
        self._stand_ins: dict[Tensor, Buffer] = {}
        self._steps: dict[Tensor, tuple[Dim, ...]] = {}
        self._actual: dict[Buffer, Buffer] = {}
        self._places: dict[Buffer, tuple[Buffer, Dim]] = {}
        self._memo: dict[Scalar, Scalar] = {}

    def part(self, share: Share) -> JoinedPart | None:
        """What computes a share; None if its kernel could not be shared."""
        extents = [*map(extent_of, self._outer)]
        extents[self._axis] = share.length
        own = [0 if v == 0 else sizes.numbered_index(e, k, "o") for k, (v, e) in
               enumerate(zip(self._outer, extents, strict=True))]  # fmt: skip
        general = [0 if v == 0 else sizes.numbered_index(self._size(e), k, "o") for k, (v, e) in
                   enumerate(zip(own, extents, strict=True))]  # fmt: skip
        self._atoms = sizes.in_place_of(own, general)
        moved = list(own)
        moved[self._axis] = own[self._axis] + share.begin
        body = rewrite(share.body, atoms=sizes.in_place_of(self._outer, moved))
        try:
            body = self._general(body)
            root = self._stage.root
            place = self._place(tuple(extents), share.begin)
        except _NotShared:
            return None
        made = Stage(replace(root, buffer=place), "map", body, tuple(general), False)
        group = LoopNest(tuple(general), (), [made])
        shapes = tuple((b.shape, b.dtype, self._steps[b]) for b in self._stand_ins.values())
        rows = GeneralLoopNest(
            group, self._steps, ("part", *structure_of(group), shapes), self._actual, self._values
        )
        return JoinedPart(rows, self._places)

    def _size(self, value: Dim) -> Dim:
        """A symbol for an extent or a stride, the same wherever it occurs."""
        if value in (0, 1) or (isinstance(value, int) and value in self._numbers):
            return value
        found = self._symbols.get(value)
        if found is None:
            found = self._symbols[value] = sizes.symbol(f"part size {len(self._symbols)}")
            self._values[sizes.variable(found)] = value
        return found

    def _number(self, value: Dim) -> Dim:
        """The same for a number that may be negative."""
        if value == 0:
            return 0
        found = self._symbols.get(value)
        if found is None:
            name = f"part number {len(self._symbols)}"
            found = self._symbols[value] = sizes.measured(name, _NO_BOUND)
            self._values[sizes.variable(found)] = value
        return found

    def _stand_in(self, tensor: Tensor, actual: Buffer | None = None) -> Buffer:
        """What stands for a buffer, or for what is part of it and has its strides."""
        assert isinstance(tensor, Buffer)  # noqa: S101 - kernels load buffers alone
        found = self._stand_ins.get(tensor)
        if found is None:
            actual = actual or tensor
            number, extents = len(self._stand_ins), tuple(map(self._size, actual.shape))
            found = self._stand_ins[tensor] = placeholder(number, extents, tensor.dtype)
            self._steps[found] = tuple(map(self._size, _strides_of(tensor, self._strides)))
            self._actual[found] = actual
        return found

    def _place(self, extents: tuple[Dim, ...], begin: Dim) -> Buffer:
        """Where the part is written."""
        whole = self._stage.root.buffer
        step = _strides_of(whole, self._strides)[self._axis]
        part = Buffer(extents, whole.dtype, ("part of", whole))
        self._places[part] = whole, sizes.product((begin, step, whole.dtype.size_bytes))
        return self._stand_in(whole, part)

    def _general(self, x: Scalar) -> Scalar:
        """An expression over stand-ins."""
        found = self._memo.get(x)
        if found is None:
            found = self._memo[x] = self._made(x)
        return found

    def _made(self, x: Scalar) -> Scalar:
        if x.op == "load":
            return make_load(self._stand_in(x.tensor), tuple(map(self._index, x.at)))
        if x.op == "size":
            return scalar.size(self._index(x.dim))
        arguments = x.arguments
        if x.op in COMPARE and any(a.op == "size" for a in arguments):
            # Where an index ends is a number where sizes are known: another one in each part.
            return make_node(x.op, x.dtype, tuple(map(self._limit, arguments)))
        if not arguments:
            return x
        payload = self._number(x.dim) if x.op == "check_index" else x.payload
        return make_node(x.op, x.dtype, tuple(map(self._general, arguments)), payload)

    def _limit(self, x: Scalar) -> Scalar:
        number = whole_number(x) if x.op == "constant" else None
        return self._general(x) if number is None else scalar.size(self._number(number))

    def _index(self, dim: Dim) -> Dim:
        """A symbolic integer of the part's index variables, other sizes in it as symbols."""
        terms = []
        for inner, factor in _by_variables(dim).items():
            if inner:
                value = factor if isinstance(factor, int) else self._number(factor)
            else:
                value = self._number(factor)
            for atom in inner:
                value = value * self._atom(atom)
            terms.append(value)
        return sizes.total(terms)

    def _atom(self, atom: Atom) -> Dim:
        if atom.kind == "index":
            return self._atoms[atom]
        left, right = atom.arguments
        if atom.kind == "opaque":
            if not isinstance(atom.payload, Scalar):
                raise _NotShared
            value = self._general(atom.payload)
            return sizes.opaque(value, self._index(left), self._index(right))
        if atom.kind == "floordiv":
            divisor = right if isinstance(right, int) else self._index(right)
            return integer.floordiv(self._index(left), divisor)
        ends = map(self._index, (left, right))
        return integer.maximum(*ends) if atom.kind == "max" else integer.minimum(*ends)


def _by_variables(dim: Dim) -> dict[Monomial, Dim]:
    """Products of what varies in a part, and what they are multiplied with."""
    found: dict[Monomial, dict[Monomial, int]] = {}
    for monomial, coefficient in sizes.terms_of(dim):
        inner = tuple([a for a in monomial if _varies(a)])
        rest = tuple([a for a in monomial if a not in inner])
        found.setdefault(inner, {})[rest] = coefficient
    return {inner: sizes.from_terms(terms) for inner, terms in found.items()}


def _varies(atom: Atom) -> bool:
    """Whether it has another value for each element."""
    return any(a.kind in ("index", "opaque") for a in sizes.atoms_of(sizes.of_atom(atom)))
