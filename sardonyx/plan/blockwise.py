"""Contractions whose right factor is constant codes of at most 8 bits, with scales for blocks.

    right = scale[column, k // block] * (code[column, k] - zero[column, k // block])

Multiplying with integers needs a left factor of integers, too: numbers of a block become `digits`
of 8 bits, which have one scale. Three digits are as exact as float32 is next to the largest number
of the block. A left factor that is one digit and a scale already is taken as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import extent_of, nodes_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.roles import roles
from sardonyx.plan.weights import Weights, depends, weights_of, without_casts
from sardonyx.tensor import scalar
from sardonyx.tensor.language import absolute, compute, maximum, reduce
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor, buffer

#: Blocks that are looked for: sums of 8-bit products of a block fit in 32 bits.
_BLOCKS = (1024, 512, 256, 128, 64, 32, 16)
#: The largest whole number that balanced digits hold, less what rounding may add.
_DIGITS = 3
_LARGEST = 8_355_000
#: Below this a block's scale would not be a normal number: what is smaller has fewer digits.
_SMALLEST = 1e-31


@dataclass(frozen=True, slots=True)
class Blockwise:
    """A contraction with its factors as codes.

    Attributes:
        group: The contraction of one summed axis; its factors are loads of `digit` and `weight`,
            which nothing is ever written to.
        digit: Stands for the lowest digit: (rows..., blocks, block).
        weight: Stands for the codes: (columns, blocks * block).
        block: Elements of a block.
        bits: Of a code.
        column, number, inside: Variables of `code`, `scale` and `shift`: column, block, element.
        code: uint8 expression below `1 << bits`.
        scale: float32 expression over column and block.
        shift: What times the sum of the left factor over a block is added; None for nothing.
        left: The left factor over `rows`, `number` and `inside`.
        rows: Axes that only the left factor has.
        centre: What all codes are less: a part of the zero point.
        given: Digit and scale where the left factor has them already.
    """

    group: Contraction
    digit: Buffer
    weight: Buffer
    block: int
    bits: int
    column: Dim
    number: Dim
    inside: Dim
    code: Scalar
    scale: Scalar
    shift: Scalar | None
    left: Scalar
    rows: tuple[Dim, ...]
    centre: int
    given: tuple[Scalar, Scalar] | None

    @property
    def blocks(self) -> int:
        """How many blocks the summed axis has."""
        blocks = extent_of(self.number)
        assert isinstance(blocks, int)  # noqa: S101 - `in_blocks` looked
        return blocks


def in_blocks(group: Contraction) -> Blockwise | None:
    """The contraction with its factors as codes; None where the right one is not."""
    found = roles(group)
    if found is None or found[0] or group.accumulator is not dtypes.FLOAT:
        return None
    rows, columns = found[1], found[2]
    reduced = [v for v in group.reduced if v != 0]
    depth = sizes.product(map(extent_of, reduced))
    width = sizes.product(map(extent_of, columns))
    if not isinstance(depth, int) or not isinstance(width, int) or depth < _BLOCKS[-1]:
        return None
    if not any(x.dtype.is_integer and x.dtype.bits <= 8 for x in nodes_of(group.right)):
        return None
    if not _is_matrix(group.left, sizes.product(map(extent_of, rows)) * depth):
        return None
    axes = _Axes(rows, columns, reduced)
    column = sizes.numbered_index(width, 0, "column")
    best: Blockwise | None = None
    for block in _BLOCKS:
        blocks = -(-depth // block)
        if best is not None and blocks * block >= best.blocks * best.block:
            continue  # larger blocks with no more padding were found
        number = sizes.numbered_index(blocks, 0, "number")
        inside = sizes.numbered_index(block, 0, "inside")
        flat = number * block + inside
        atoms = _digits_of(flat, reduced) | _digits_of(column, columns)
        right = weights_of(rewrite(group.right, atoms=atoms), sizes.variable(inside))
        if right is None:
            continue
        left = rewrite(group.left, atoms=atoms)
        if blocks * block != depth:
            real = scalar.size(flat) < scalar.size(depth)
            left = scalar.select(real, left, 0)
        best = _blockwise(group, axes, (column, number, inside), right, left)
    return best


class _Axes(NamedTuple):
    """Axes of a matrix product."""

    rows: list[Dim]
    columns: list[Dim]
    reduced: list[Dim]


def _is_matrix(left: Scalar, count: Dim) -> bool:
    """Whether a left factor has each of its `count` elements once: digits of windows would not."""
    left = without_casts(left)
    if left.op != "load":
        return left.op != "select"
    return integer.known_equal(sizes.product(left.tensor.shape), count) is True


def _blockwise(
    group: Contraction,
    axes: _Axes,
    variables: tuple[Dim, Dim, Dim],
    right: Weights,
    left: Scalar,
) -> Blockwise:
    column, number, inside = variables
    rows, columns, reduced = axes
    blocks, block = extent_of(number), extent_of(inside)
    assert isinstance(blocks, int) and isinstance(block, int)  # noqa: S101, PT018 - the caller's
    centre, shift = _zero(right)
    depth = sizes.product(map(extent_of, reduced))
    k = sizes.numbered_index(depth, 0, "k")
    digit = buffer("digit", (*map(extent_of, rows), blocks, block), dtypes.INT8)
    weight = buffer("weight", (extent_of(column), blocks * block), dtypes.FLOAT)
    at = (integer.floordiv(k, block), integer.modulo(k, block))
    moved = replace(
        group, reduced=(k,), left=scalar.load(digit, (*rows, *at)),
        right=scalar.load(weight, (_flat(columns), k)),
    )  # fmt: skip
    given = _given(left, sizes.variable(inside))
    return Blockwise(
        moved, digit, weight, block, right.bits, column, number, inside, right.code, right.scale,
        shift, left, tuple(rows), centre, given,
    )  # fmt: skip


def _zero(right: Weights) -> tuple[int, Scalar | None]:
    """A whole number that is taken off all codes, and what is left to add for column and block."""
    zero, middle = right.zero, 1 << (right.bits - 1)
    if zero.op == "constant" and float(zero.payload).is_integer() and abs(zero.payload) < 256:
        return int(zero.payload), None
    return middle, right.scale * (float(middle) - zero)


def _given(left: Scalar, inside: Atom) -> tuple[Scalar, Scalar] | None:
    """Digit and scale of a left factor that is their product."""
    left = without_casts(left)
    if left.op != "mul":
        return None
    for value, scale in (left.arguments, left.arguments[::-1]):
        while value.op == "cast" and value.dtype is not dtypes.INT8:
            value = value.arguments[0]
        if value.op == "load" and value.dtype is dtypes.INT8 and not depends(scale, inside):
            return value, scale
    return None


@dataclass(frozen=True, slots=True)
class Digits:
    """A left factor as integers.

    Attributes:
        parts: Digits of (rows..., blocks, block), int8, lowest first.
        starts: Of each digit what its sums with codes start from, for the centre: (rows...,
            blocks), int32.
        scale: What one is worth: (rows..., blocks), float32.
        sums: The sum of the left factor over each block, where there are shifts.
    """

    parts: list[Tensor]
    starts: list[Tensor]
    scale: Tensor
    sums: Tensor | None

    @property
    def tensors(self) -> list[Tensor]:
        """All of them, in the order of a row's pointers."""
        return [*self.parts, *self.starts, self.scale, *([self.sums] if self.sums else [])]


def digits(blockwise: Blockwise) -> Digits:
    """What a kernel of its own makes of the left factor."""
    own = (*blockwise.rows, blockwise.number, blockwise.inside)
    if blockwise.given is not None:
        number = _over(blockwise.given[0], own)
        scale, parts = _over(blockwise.given[1], own[:-1]), [number]
    else:
        number, scale = _whole(_over(scalar.cast(blockwise.left, dtypes.FLOAT), own))
        parts = [
            compute(number.shape, lambda *at, k=k: _digit(_load(number, at), k))
            for k in range(_DIGITS)
        ]
    starts = [_total(part, dtypes.INT32, -blockwise.centre) for part in parts]
    if blockwise.shift is None:
        return Digits(parts, starts, scale, None)
    total = _total(number, dtypes.FLOAT, 1)
    sums = compute(total.shape, lambda *at: _load(total, at) * _load(scale, at))
    return Digits(parts, starts, scale, sums)


def _whole(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and what one of them is worth in each block."""
    largest = maximum(reduce("max", absolute(x), -1), _SMALLEST)

    def body(*at: Dim) -> Scalar:
        top = scalar.constant(_LARGEST, dtypes.FLOAT)
        unit = scalar.binary("div", top, _load(largest, at[:-1]))
        return scalar.cast(scalar.unary("round", _load(x, at) * unit), dtypes.INT32)

    return compute(x.shape, body), largest * (1.0 / _LARGEST)


def _total(number: Tensor, dtype: DType, factor: int) -> Tensor:
    """Sums over the last axis, times a factor."""
    values = compute(number.shape, lambda *at: scalar.cast(_load(number, at), dtype))
    return reduce("sum", values, -1) * factor


def _over(x: Scalar, variables: tuple[Dim, ...]) -> Tensor:
    """The tensor of an expression over some axes."""
    places = [(k, v) for k, v in enumerate(variables) if v != 0]
    return compute(
        tuple(map(extent_of, variables)),
        lambda *at: rewrite(x, atoms={sizes.variable(v): at[k] for k, v in places}),
    )


def _digit(number: Scalar, place: int) -> Scalar:
    """A balanced digit of 8 bits: what is left is rounded to nearest when it is shifted out."""
    half = sum(128 << (8 * k) for k in range(place))
    moved = number + half if half else number
    return scalar.cast(scalar.binary("shr", moved, 8 * place) if place else moved, dtypes.INT8)


def _load(x: Tensor, at: tuple[Dim, ...]) -> Scalar:
    return scalar.load(x, at)


def _flat(variables: list[Dim]) -> Dim:
    """The number of an element of row-major axes."""
    found: Dim = 0
    for v in variables:
        found = found * extent_of(v) + v
    return found


def _digits_of(flat: Dim, variables: list[Dim]) -> dict[Atom, Dim]:
    """Where element `flat` of row-major axes lies along each."""
    found: dict[Atom, Dim] = {}
    for k, v in enumerate(reversed(variables)):
        if v == 0:
            continue
        last = k == len(variables) - 1
        found[sizes.variable(v)] = flat if last else integer.modulo(flat, extent_of(v))
        flat = integer.floordiv(flat, extent_of(v))
    return found
