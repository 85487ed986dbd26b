"""Copies of constants for any sizes: one kernel packs the weights of many layers, in any model.

So are transformed filters, sums and largest elements, and whatever else is computed once of
constants.

Packing runs once, so nothing is lost where its kernel gets extents and strides as arguments. Here
`p[i0, i1, i2] = w[48 * i0 + i2, i1]` over (2, 16, 48), strides (16, 1), becomes the same over
(a, b, 48), strides (c, 1), called with a = 2, b = 16, c = 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.inline import is_view
from sardonyx.plan.layout import row_major
from sardonyx.plan.reasons import Reason
from sardonyx.selection.invocation import Invocation
from sardonyx.tensor import scalar
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.rewriting import remake, rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import (
    Buffer,
    Map,
    Reduce,
    Tensor,
    indices,
    make_map,
    make_reduce,
    reduced_indices,
)
from sardonyx.tensor.traverse import loads_of, parts_of

#: Elements of whole vectors, whatever the target.
_LANES = 16
#: Other innermost axes of up to so many elements stay numbers.
_MOST_LANES = 128
#: Extents and steps of up to so many elements (a filter's taps) of what is read stay numbers where
#: something is computed of it: elements that its lanes, or loops, have in common are seen by them.
_FEW = 9


_UNKNOWN = Reason("it reads nothing, has no elements, or only a run knows its sizes")
_COMPUTES = Reason("it computes something in every run, or where it reads is looked up")


@dataclass(frozen=True, slots=True)
class GeneralCopy:
    """A copy whose sizes are symbols.

    Attributes:
        contents: What is written.
        target: Stands for where it is written.
        strides: Of the sources' stand-ins; of the target's, where it is not row-major.
        actual: What the stand-ins stand for.
        values: What the symbols stand for.
    """

    contents: Map | Reduce
    target: Buffer
    strides: dict[Tensor, tuple[Dim, ...]]
    actual: dict[Buffer, Buffer]
    values: dict[Atom, Dim]

    def specific(self, made: Invocation) -> Invocation:
        """The invocation for the actual buffers and sizes, given that for the stand-ins."""

        buffers = tuple(self.actual[a] if isinstance(a, Buffer) else a for a in made.arguments)
        moved = replace(
            made, arguments=buffers,
            reads=tuple(self.actual[b] for b in made.reads),
            writes=tuple(self.actual[b] for b in made.writes),
        )  # fmt: skip
        return with_values(moved, self.values)


def with_values(made: Invocation, values: Mapping[Atom, Dim]) -> Invocation:
    """An invocation with sizes in place of the symbols that stand for them."""
    arguments = tuple(a if isinstance(a, Buffer) else substitute(a, values) for a in made.arguments)
    return replace(made, kernel=_valued(made.kernel, values), arguments=arguments)


def _valued(kernel: Kernel, values: Mapping[Atom, Dim]) -> Kernel:
    """A kernel with sizes in place of symbols."""

    def number(dim: Dim) -> Dim:
        return substitute(dim, values)

    return replace(
        kernel, blocks=number(kernel.blocks), cost_ns=number(kernel.cost_ns),
        scratch_bytes=number(kernel.scratch_bytes),
        per_block=tuple((name, number(size)) for name, size in kernel.per_block),
    )  # fmt: skip


@dataclass(slots=True)
class Valued:
    """Kernels for any sizes with the sizes of layers, which many layers have in common."""

    _known: dict[tuple[Kernel, tuple[Dim, ...]], Kernel] = field(default_factory=dict)

    def of(self, kernel: Kernel, values: Mapping[Atom, Dim]) -> Kernel:
        """A kernel with sizes in place of symbols, also among its arguments."""
        key = kernel, tuple(values.values())
        found = self._known.get(key)
        if found is None:
            arguments = tuple(
                a if isinstance(a, Buffer) else substitute(a, values) for a in kernel.arguments
            )
            found = self._known[key] = replace(_valued(kernel, values), arguments=arguments)
        return found


def lanes_extent(value: int, values: dict[Atom, Dim]) -> Dim:
    """The innermost extent: a few whole vectors, or a number of elements."""
    if value % _LANES and value <= _MOST_LANES:
        return value
    unit = 1 if value % _LANES else _LANES
    made = sizes.symbol("general elements" if unit == 1 else "general vectors")
    values[sizes.variable(made)] = value // unit
    return made * unit


def structure_of_copy(
    contents: Map | Reduce, strides: Mapping[Tensor, tuple[Dim, ...]]
) -> tuple[object, list[Buffer]]:
    """What is packed but for what it reads, and that: equal ones differ in their buffers alone."""
    read = list(dict.fromkeys(x.buffer for x in loads_of(contents.body)))
    named = {t: placeholder(k, t.shape, t.dtype) for k, t in enumerate(read)}
    body = rewrite(contents.body, lambda x: load(named[x.buffer], x.at))
    steps = tuple(strides.get(t) or row_major(t.shape) for t in read)
    reduced = (contents.kind, contents.extents) if isinstance(contents, Reduce) else ()
    return (contents.shape, *reduced, body, steps), read


def general_copy(
    contents: Map | Reduce,
    target: Buffer,
    strides: dict[Tensor, tuple[Dim, ...]],
    *,
    runs_once: bool = False,
) -> GeneralCopy | Reason:
    """What is packed as a copy for any sizes; why it is more than a copy, or has unknown sizes.

    Args:
        contents: What is written.
        target: Where, row-major.
        strides: Of what it reads.
        runs_once: Whether little code is worth more than speed: it may compute something, too.
    """

    def strides_of(tensor: Tensor) -> tuple[Dim, ...]:
        return strides.get(tensor) or row_major(tensor.shape)

    read = list(dict.fromkeys(x.buffer for x in loads_of(contents.body)))
    known = all(isinstance(d, int) for t in read for d in (*t.shape, *strides_of(t)))
    is_copy = isinstance(contents, Map) and is_view(contents.body)
    extents = contents.extents if isinstance(contents, Reduce) else ()
    if not read or not known:
        return _UNKNOWN
    if not (is_copy or (runs_once and _is_computed(contents.body))):
        return _COMPUTES
    axes = (*contents.shape, *extents)
    if not contents.shape or not all(isinstance(d, int) and d > 0 for d in axes):
        return _UNKNOWN
    values: dict[Atom, Dim] = {}

    def symbol(value: Dim) -> Dim:
        """A symbol in place of a number, unless the number makes things simpler."""
        if value in (0, 1):
            return value
        made = sizes.symbol(f"general {len(values)}")
        values[sizes.variable(made)] = value
        return made

    def size(value: Dim) -> Dim:
        """The same for extents and steps of what is read."""
        stays = not is_copy and isinstance(value, int) and value <= _FEW
        return value if stays else symbol(value)

    *outer, last = contents.shape
    kept = set() if is_copy else _told_apart(contents.body)
    lead = tuple(
        n if sizes.as_atom(i) in kept else symbol(n)
        for i, n in zip(indices(contents.shape), outer, strict=False)
    )
    is_narrow = not (is_copy or extents) and int(last) <= _MOST_LANES
    shape = (*lead, last if is_narrow else lanes_extent(int(last), values))
    stand_ins: dict[Buffer, Buffer] = {}
    moved: dict[Tensor, tuple[Dim, ...]] = {}
    for number, tensor in enumerate(read):
        stand_in = placeholder(number, tuple(map(size, tensor.shape)), tensor.dtype)
        stand_ins[tensor] = stand_in
        moved[stand_in] = tuple(map(size, strides_of(tensor)))
    reduced = tuple(map(size, extents))
    atoms = sizes.in_place_of(indices(contents.shape), indices(shape))
    atoms |= sizes.in_place_of(reduced_indices(extents), reduced_indices(reduced))

    def stand(x: Scalar) -> Scalar:
        at = tuple(_moved(i, atoms, last, shape[-1]) for i in x.at)
        return load(stand_ins[x.buffer], at)

    def limit(value: int) -> Scalar:
        return scalar.size(symbol(value))

    body = _general_body(contents.body, stand, limit, lambda i: _moved(i, atoms, last, shape[-1]))
    made: Map | Reduce = make_map(shape, body)
    if isinstance(contents, Reduce):
        made = make_reduce(shape, reduced, contents.kind, body, contents.dtype)
    place = placeholder(len(read), shape, contents.dtype)
    actual = {b: t for t, b in stand_ins.items()}
    return GeneralCopy(made, place, moved, {**actual, place: target}, values)


def _told_apart(body: Scalar) -> set[Atom]:
    """Index variables whose values are told apart, such as those of a transformed filter."""
    compared = (x for x in parts_of(body) if x.op == "eq")
    positions = (a.dim for x in compared for a in x.arguments if a.op == "size")
    return {atom for position in positions for atom in sizes.atoms_of(position, "index")}


def _is_computed(body: Scalar) -> bool:
    """Whether what is computed reads where positions say, so that its sizes may be symbols."""
    return not any(sizes.opaque_in(i) for x in loads_of(body) for i in x.at)


def _moved(index: Dim, atoms: Mapping[Atom, Dim], width: Dim, general: Dim) -> Dim:
    """An index in other variables; steps of a panel's width are those of the width's symbol."""
    terms = []
    for monomial, coefficient in sizes.terms_of(index):
        step = general if coefficient == width and len(monomial) == 1 else coefficient
        terms.append(substitute(sizes.of_monomial(monomial, 1), atoms) * step)
    return sizes.total(terms)


def _general_body(
    x: Scalar,
    stand: Callable[[Scalar], Scalar],
    limit: Callable[[int], Scalar],
    moved: Callable[[Dim], Dim],
) -> Scalar:
    """An expression with other loads and indices, and a symbol where an index ends.

    Args:
        x: It.
        stand: What is there for a load.
        limit: What is there for a number that an index is compared with.
        moved: What is there for an index.
    """
    if x.op == "load":
        return stand(x)
    if x.op == "size":
        return scalar.size(moved(x.dim))
    if x.op in COMPARE and [a.op for a in x.arguments] == ["size", "constant"]:
        index, end = x.arguments
        made = limit(int(end.payload)) if x.op == "lt" and end.payload > 1 else end
        return scalar.compare(x.op, scalar.size(moved(index.dim)), made)
    if not x.arguments:
        return x
    return remake(x, tuple(_general_body(a, stand, limit, moved) for a in x.arguments))
