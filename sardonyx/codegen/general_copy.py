"""Copies of constants for any sizes: one kernel packs the weights of many layers, in any model.

Packing runs once, so nothing is lost where its kernel gets extents and strides as arguments. Here
`p[i0, i1, i2] = w[48 * i0 + i2, i1]` over (2, 16, 48), strides (16, 1), becomes the same over
(a, b, 48), strides (c, 1), called with a = 2, b = 16, c = 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.codegen.invocation import Invocation
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.inline import is_view
from sardonyx.plan.layout import row_major
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, Tensor, indices, make_map
from sardonyx.tensor.traverse import loads_of

#: Innermost axes of up to so many elements stay numbers: they are a few whole vectors.
_MOST_LANES = 128


@dataclass(frozen=True, slots=True)
class GeneralCopy:
    """A copy whose sizes are symbols.

    Attributes:
        contents: What is written.
        target: Stands for where it is written.
        strides: Of the sources' stand-ins.
        actual: What the stand-ins stand for.
        values: What the symbols stand for.
    """

    contents: Map
    target: Buffer
    strides: dict[Tensor, tuple[Dim, ...]]
    actual: dict[Buffer, Buffer]
    values: dict[Atom, Dim]

    def specific(self, made: Invocation) -> Invocation:
        """The invocation for the actual buffers and sizes, given that for the stand-ins."""

        buffers = tuple(self.actual[a] if isinstance(a, Buffer) else a for a in made.arguments)
        moved = replace(
            made, arguments=buffers,
            reads=tuple(self.actual[b] for b in made.reads),  # type: ignore[index]  # kernels read buffers alone
            writes=tuple(self.actual[b] for b in made.writes),
        )  # fmt: skip
        return with_values(moved, self.values)


def with_values(made: Invocation, values: Mapping[Atom, Dim]) -> Invocation:
    """An invocation with sizes in place of the symbols that stand for them."""

    def number(dim: Dim) -> Dim:
        return substitute(dim, values)

    kernel = replace(
        made.kernel, blocks=number(made.kernel.blocks), cost_ns=number(made.kernel.cost_ns),
        scratch_bytes=number(made.kernel.scratch_bytes),
    )  # fmt: skip
    arguments = tuple(a if isinstance(a, Buffer) else number(a) for a in made.arguments)
    return replace(made, kernel=kernel, arguments=arguments)


def general_copy(
    contents: Map, target: Buffer, strides: dict[Tensor, tuple[Dim, ...]]
) -> GeneralCopy | None:
    """A map of constants as a copy for any sizes; None if it is more than a copy.

    Args:
        contents: What is written.
        target: Where, row-major.
        strides: Of what it reads.
    """

    def strides_of(tensor: Tensor) -> tuple[Dim, ...]:
        return strides.get(tensor) or row_major(tensor.shape)

    read = list(dict.fromkeys(x.tensor for x in loads_of(contents.body)))
    known = all(isinstance(d, int) for t in read for d in (*t.shape, *strides_of(t)))
    if not read or not known or not is_view(contents.body):
        return None
    if not contents.shape or not all(isinstance(d, int) and d > 0 for d in contents.shape):
        return None
    values: dict[Atom, Dim] = {}

    def symbol(value: Dim) -> Dim:
        """A symbol in place of a number, unless the number makes things simpler."""
        if value in (0, 1):
            return value
        made = sizes.symbol(f"general {len(values)}")
        values[sizes.variable(made)] = value
        return made

    *outer, last = contents.shape
    shape = (*map(symbol, outer), last if int(last) <= _MOST_LANES else symbol(last))
    stand_ins: dict[Tensor, Buffer] = {}
    moved: dict[Tensor, tuple[Dim, ...]] = {}
    for number, tensor in enumerate(read):
        stand_in = placeholder(number, tuple(map(symbol, tensor.shape)), tensor.dtype)
        stand_ins[tensor] = stand_in
        moved[stand_in] = tuple(map(symbol, strides_of(tensor)))
    own = zip(indices(contents.shape), indices(shape), strict=True)
    atoms = {sizes.variable(a): b for a, b in own if a != 0}

    def stand(x: Scalar) -> Scalar:
        return load(stand_ins[x.tensor], x.at)

    body = rewrite(contents.body, stand, atoms)
    made = make_map(shape, body)
    place = placeholder(len(read), shape, contents.dtype)
    actual = {b: t for t, b in stand_ins.items()}
    return GeneralCopy(made, place, moved, {**actual, place: target}, values)  # type: ignore[dict-item]  # constants are buffers
