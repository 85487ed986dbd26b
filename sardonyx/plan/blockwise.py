"""Contractions whose right factor is constant codes of at most 8 bits, with scales for blocks.

    right = scale[column, k // block] * (code[column, k] - zero[column, k // block])

Multiplying with integers needs a left factor of integers, too: numbers of a block become `digits`
of 8 bits, which have one scale. Three digits are as exact as float32 is next to the largest number
of the block. A left factor that is one digit and a scale already is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import dims_of, extent_of, nodes_of
from sardonyx.plan.groups import Product
from sardonyx.plan.roles import roles
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
#: Below this a block's scale would not be a normal number.
_SMALLEST = 1e-30


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

    group: Product
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
    centre: float
    given: tuple[Scalar, Scalar] | None

    @property
    def blocks(self) -> int:
        """How many blocks the summed axis has."""
        blocks = extent_of(self.number)
        assert isinstance(blocks, int)  # noqa: S101 - `in_blocks` looked
        return blocks


def in_blocks(group: Product) -> Blockwise | None:
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
    column = sizes.numbered_index(width, 0, "column")
    best: Blockwise | None = None
    for block in _BLOCKS:
        blocks = -(-depth // block)
        number = sizes.numbered_index(blocks, 0, "number")
        inside = sizes.numbered_index(block, 0, "inside")
        flat = sizes.add(sizes.multiply(number, block), inside)
        atoms = _digits_of(flat, reduced) | _digits_of(column, columns)
        right = _factors(rewrite(group.right, atoms=atoms), sizes.variable(inside))
        if right is None or (best is not None and blocks * block >= best.blocks * best.block):
            continue
        left = rewrite(group.left, atoms=atoms)
        if blocks * block != depth:
            real = scalar.compare("lt", scalar.size(flat), scalar.size(depth))
            left = scalar.select(real, left, 0)
        best = _blockwise(group, rows, columns, reduced, (column, number, inside), right, left)
    return best


@dataclass(frozen=True, slots=True)
class _Factors:
    code: Scalar
    bits: int
    scale: Scalar
    zero: Scalar


def _factors(right: Scalar, inside: Atom) -> _Factors | None:
    """The parts of a right factor: only the code may change inside a block."""
    right = _without_casts(right)
    if right.op != "mul":
        return None
    for value, scale in (right.arguments, right.arguments[::-1]):
        value = _without_casts(value)
        if _depends(scale, inside):
            continue
        zero = scalar.constant(0.0, dtypes.FLOAT)
        if value.op == "sub":
            value, zero = value.arguments
        while value.op == "cast" and not _is_code(value):
            value = value.arguments[0]
        if not _is_code(value) or _depends(zero, inside):
            continue
        zero = scalar.cast(zero, dtypes.FLOAT)
        if value.dtype.kind == "i":
            half = 1 << (value.dtype.bits - 1)
            value = scalar.cast(scalar.cast(value, dtypes.INT32) + half, dtypes.UINT8)
            bits, zero = half.bit_length(), zero + float(half)
        else:
            bits, value = value.dtype.bits, scalar.cast(value, dtypes.UINT8)
        return _Factors(value, bits, scalar.cast(scale, dtypes.FLOAT), zero)
    return None


def _is_code(x: Scalar) -> bool:
    return x.dtype.is_integer and x.dtype.bits in (2, 4, 8)


def _without_casts(x: Scalar) -> Scalar:
    """An expression in floats, without what only makes it wider."""
    while x.op == "cast" and x.dtype is dtypes.FLOAT and x.arguments[0].dtype.is_float:
        x = x.arguments[0]
    return x


def _blockwise(
    group: Product,
    rows: list[Dim],
    columns: list[Dim],
    reduced: list[Dim],
    variables: tuple[Dim, Dim, Dim],
    right: _Factors,
    left: Scalar,
) -> Blockwise:
    column, number, inside = variables
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


def _zero(right: _Factors) -> tuple[float, Scalar | None]:
    """A number that is taken off all codes, and what is left to add for each column and block."""
    if right.zero.op == "constant":
        return float(right.zero.payload), None
    return 0.0, right.scale * (0.0 - right.zero)


def _given(left: Scalar, inside: Atom) -> tuple[Scalar, Scalar] | None:
    """Digit and scale of a left factor that is their product."""
    left = _without_casts(left)
    if left.op != "mul":
        return None
    for value, scale in (left.arguments, left.arguments[::-1]):
        while value.op == "cast" and value.dtype is not dtypes.INT8:
            value = value.arguments[0]
        if value.op == "load" and value.dtype is dtypes.INT8 and not _depends(scale, inside):
            return value, scale
    return None


def digits(blockwise: Blockwise) -> tuple[list[Tensor], Tensor, Tensor]:
    """The left factor as integers: its digits, lowest first, their scales, and sums.

    Returns:
        Digits of (rows..., blocks, block), int8; scales of (rows..., blocks), float32; sums of the
        left factor over each block times minus the centre, or times 1 where there is none.
    """
    own = (*blockwise.rows, blockwise.number, blockwise.inside)
    factor = -blockwise.centre if blockwise.shift is None else 1.0
    if blockwise.given is not None:
        code, scale = _over(blockwise.given[0], own), _over(blockwise.given[1], own[:-1])
        return [code], scale, _sums(code, scale, factor)
    x = _over(scalar.cast(blockwise.left, dtypes.FLOAT), own)
    largest = maximum(reduce("max", absolute(x), -1), _SMALLEST)
    scale = largest * (1.0 / _LARGEST)

    def whole(*at: Dim) -> Scalar:
        unit = scalar.binary(
            "div", scalar.constant(_LARGEST, dtypes.FLOAT), _load(largest, at[:-1])
        )
        return scalar.cast(scalar.unary("round", _load(x, at) * unit), dtypes.INT32)

    number = compute(x.shape, whole)
    found = [
        compute(x.shape, lambda *at, place=place: _digit(_load(number, at), place))
        for place in range(_DIGITS)
    ]
    return found, scale, _sums(number, scale, factor)


def _over(x: Scalar, variables: tuple[Dim, ...]) -> Tensor:
    """The tensor of an expression over some axes."""
    places = [(k, v) for k, v in enumerate(variables) if v != 0]
    return compute(
        tuple(map(extent_of, variables)),
        lambda *at: rewrite(x, atoms={sizes.variable(v): at[k] for k, v in places}),
    )


def _sums(number: Tensor, scale: Tensor, factor: float) -> Tensor:
    """Sums of whole numbers over the last axis, times their scales and a factor."""
    values = compute(number.shape, lambda *at: scalar.cast(_load(number, at), dtypes.FLOAT))
    total = reduce("sum", values, -1)
    return compute(total.shape, lambda *at: _load(total, at) * _load(scale, at) * factor)


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
        found = sizes.add(sizes.multiply(found, extent_of(v)), v)
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


def _depends(x: Scalar, atom: Atom) -> bool:
    return any(atom in sizes.atoms_of(dim) for dim in dims_of(x))
