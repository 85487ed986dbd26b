"""Weights in blocks of few bits, each with a scale, of onnxruntime's own domain; and experts."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import errors, integer, sizes
from sardonyx.base.dtypes import (
    FLOAT,
    INT8,
    INT32,
    INT64,
    UINT2,
    UINT4,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import integers
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    absolute,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    compute,
    contract,
    equal,
    normalise_axis,
    reduce,
    reshape,
    round_even,
    where,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"


def packed_code(load: Callable[[Dim], Scalar], number: Dim, bits: int, count: Dim) -> Scalar:
    """Code `number` of those that lie in bytes one after the other, lower bits first.

    Its type is the narrowest one that holds it.

    Args:
        load: Loads a byte, uint8.
        number: Which code.
        bits: Of each, at most 8.
        count: How many bytes there are.
    """
    begin = number * bits
    byte, shift = begin // 8, begin % 8
    whole = scalar.cast(load(byte), UINT16)
    if 8 % bits:
        following = scalar.size(byte) < scalar.size(count - 1)
        behind = load(integer.minimum(byte + 1, count - 1))
        upper = scalar.select(following, scalar.cast(behind, UINT16), 0)
        whole = whole | scalar.binary("shl", upper, 8)
    moved = scalar.binary("shr", whole, scalar.cast(scalar.size(shift), UINT16))
    narrow = {2: UINT2, 4: UINT4}.get(bits, UINT8)
    return scalar.cast(moved & ((1 << bits) - 1), narrow)


#: Of a row's numbers: all but the last index, and the place along the last axis.
_Left = Callable[[tuple[Dim, ...], Dim], Scalar]


def _product(
    a: Tensor, columns: Dim, depth: Dim, left: _Left, weight: Callable[[Dim, Dim], Scalar]
) -> Tensor:
    """(..., columns): rows of numbers, as long as those of `a`, times weights (column, place)."""

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        return left(at[:-1], over[0]), weight(at[-1], over[0])

    return contract((*a.shape[:-1], columns), (depth,), body)


def _as_given(a: Tensor, wide: DType) -> _Left:
    """The numbers of a tensor."""
    return lambda row, k: scalar.cast(scalar.load(a, (*row, k)), wide)


def _in_eight_bits(a: Tensor, depth: int, block: int) -> _Left:
    """The same, rounded: a block's scale is the 127th part of its largest number."""
    blocks = -(-depth // block)

    def number(row: tuple[Dim, ...], group: Dim, inner: Dim) -> Scalar:
        k = group * block + inner
        value = scalar.cast(scalar.load(a, (*row, k)), FLOAT)
        if depth % block == 0:
            return value
        return scalar.select(scalar.size(k) < scalar.size(depth), value, 0.0)

    shape = (*a.shape[:-1], blocks, block)
    x = compute(shape, lambda *at: number(at[:-2], at[-2], at[-1]))
    largest = reduce("max", absolute(x), -1)
    scales = largest / 127.0
    units = where(equal(largest, 0.0), 0.0, 127.0 / largest)
    codes = cast(round_even(x * reshape(units, (*units.shape, 1))), INT8)

    def value(row: tuple[Dim, ...], k: Dim) -> Scalar:
        group, inner = integer.floordiv(k, block), integer.modulo(k, block)
        code = scalar.cast(scalar.load(codes, (*row, group, inner)), FLOAT)
        return code * scalar.load(scales, (*row, group))

    return value


# -- MatMulNBits ------------------------------------------------------------------------------


#: The `accuracy_level` that allows whole numbers of 8 bits.
_EIGHT_BITS = 4


@op("MatMulNBits", 1, domain=DOMAIN)
def mat_mul_n_bits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803 - the schema's name
    N: int,  # noqa: N803 - the schema's name
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Tensor:
    """A product with weights of few bits.

    At `accuracy_level` 4 the numbers of a block of `a` become whole ones of 8 bits with a scale, as
    in onnxruntime; other levels allow less accuracy than float32 has, and none is lost.
    """
    where = "MatMulNBits"
    if not 2 <= bits <= 8 or block_size < 16 or block_size & (block_size - 1):
        what = f"Weights of {bits} bits in blocks of {block_size} do not exist"
        raise InvalidGraph(message(where, what, expected="2 to 8 bits, a power of two from 16 on"))
    if weight_prepacked:
        what = "Weights packed for a GPU cannot be read"
        raise errors.NotImplemented(message(where, what, do="Use the model as it was before"))
    assume_equal(a.shape[-1], K, where, "The width of A is not K")
    blocks = -(-K // block_size)
    blob = block_size * bits // 8
    assume_equal(sizes.product(b.shape), N * blocks * blob, where, "The size of B")
    assume_equal(sizes.product(scales.shape), N * blocks, where, "The number of scales")
    packed, factors = reshape(b, (N, blocks, blob)), reshape(scales, (N, blocks))
    zero = _zero_point(where, zero_points, N, blocks, bits)
    wide = accumulator(a.dtype)

    def weight(n: Dim, k: Dim) -> Scalar:
        block, inner = integer.floordiv(k, block_size), integer.modulo(k, block_size)
        code = packed_code(lambda byte: scalar.load(packed, (n, block, byte)), inner, bits, blob)
        group = block
        if g_idx is not None:
            group = row_in(scalar.load(g_idx, (k,)), "g_idx", blocks)
        value = scalar.cast(code, wide) - scalar.cast(zero(n, group), wide)
        return value * scalar.cast(scalar.load(factors, (n, group)), wide)

    rounded = accuracy_level == _EIGHT_BITS and wide is FLOAT
    left = _in_eight_bits(a, K, block_size) if rounded else _as_given(a, wide)
    result = _product(a, N, K, left, weight)
    if bias is not None:
        assume_shape(bias.shape, (N,), where, "The bias")
        result = result + cast(bias, wide)
    return cast(result, a.dtype)


def _zero_point(
    where: str, given: Tensor | None, columns: int, blocks: int, bits: int
) -> Callable[[Dim, Dim], Scalar]:
    """What is subtracted from codes, by column and block: packed like them, or numbers."""
    if given is None:
        return lambda n, block: scalar.constant(1 << (bits - 1), INT32)
    if given.dtype is not UINT8:
        assume_equal(sizes.product(given.shape), columns * blocks, where, "zero_points")
        numbers = reshape(given, (columns, blocks))
        return lambda n, block: scalar.load(numbers, (n, block))
    width = -(-blocks * bits // 8)
    assume_equal(sizes.product(given.shape), columns * width, where, "zero_points")
    packed = reshape(given, (columns, width))

    def zero(n: Dim, block: Dim) -> Scalar:
        return packed_code(lambda byte: scalar.load(packed, (n, byte)), block, bits, width)

    return zero


# -- MatMulFpQ4 -------------------------------------------------------------------------------

_Q4, _Q4_BLOCK, _SCALE_BYTES = "MatMulFpQ4", 32, 4
#: Of `blk_quant_type`: how many bytes of a block its offset has.
_OFFSET_BYTES = {0: 0, 1: 1}


@op(_Q4, 1, domain=DOMAIN)
def mat_mul_fp_q4(a: Tensor, b: Tensor, shape: Tensor, *, blk_quant_type: int = 1) -> Tensor:
    """A product with weights of 4 bits in blocks of 32, each with its scale.

    The schema does not say how the blob is packed; onnxruntime's kernel for the CPU was seen to
    read it so: column by column, of each block a float32, with type 1 the offset (else it is 8),
    and 16 bytes whose lower bits are the first 16 codes, and whose upper bits the others.
    """
    more = _OFFSET_BYTES.get(blk_quant_type)
    if more is None:
        what = (
            "Only types 0 and 1 are supported: of type 2 the schema says blocks of 64 without "
            "offset, and onnxruntime's kernel wants the bytes of type 1"
        )
        raise errors.NotImplemented(message(_Q4, what, got=str(blk_quant_type)))
    extents = integers(shape, "B_shape")
    if len(extents) != 2 or min(extents) < 1:  # noqa: PLR2004 - rows and columns
        what = "B_shape must be the rows and columns of a matrix"
        raise InvalidGraph(message(_Q4, what, got=str(extents)))
    rows, columns = extents
    blocks, first = -(-rows // _Q4_BLOCK), _SCALE_BYTES + more
    each = first + _Q4_BLOCK // 2
    if b.rank != 1 or a.rank < 1:
        raise InvalidGraph(message(_Q4, "It needs a blob of one axis, and numbers of some"))
    assume_equal(a.shape[-1], rows, _Q4, "The width of A is not the number of B's rows")
    assume_equal(b.shape[0], columns * blocks * each, _Q4, "The size of B")
    packed = reshape(b, (columns, blocks, each))

    def weight(n: Dim, k: Dim) -> Scalar:
        block, inner = k // _Q4_BLOCK, k % _Q4_BLOCK

        def byte(place: Dim) -> Scalar:
            return scalar.load(packed, (n, block, place))

        bits = scalar.cast(byte(0), UINT32)
        for place in range(1, _SCALE_BYTES):
            bits = bits | scalar.binary("shl", scalar.cast(byte(place), UINT32), 8 * place)
        both = byte(integer.modulo(inner, _Q4_BLOCK // 2) + first)
        is_upper = scalar.size(inner) >= _Q4_BLOCK // 2
        code = scalar.select(is_upper, scalar.binary("shr", both, 4), both & 0xF)
        offset = scalar.cast(byte(_SCALE_BYTES), FLOAT) if more else scalar.constant(8.0, FLOAT)
        return (scalar.cast(code, FLOAT) - offset) * scalar.bitcast(bits, FLOAT)

    return _product(a, columns, rows, _as_given(a, FLOAT), weight)


# -- MatMulBnb4 -------------------------------------------------------------------------------

#: bitsandbytes' codes: FP4 (a sign, two bits of exponent, one of mantissa) and NF4 (Dettmers et
#: al., "QLoRA", 2023: quantiles of the normal distribution).
_FP4 = (0.0, 0.005208333, 0.6666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_BNB4 = (
    (*_FP4, *(-v for v in _FP4)),
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
)  # fmt: skip


@op("MatMulBnb4", 1, domain=DOMAIN)
def mat_mul_bnb4(
    a: Tensor,
    b: Tensor,
    absmax: Tensor,
    *,
    K: int,  # noqa: N803 - the schema's name
    N: int,  # noqa: N803 - the schema's name
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,  # noqa: N803 - the schema's name
) -> Tensor:
    """A product with weights in bitsandbytes' 4 bits: a code of a table times its block's scale."""
    where = "MatMulBnb4"
    if quant_type not in (0, 1) or block_size < 1:
        what = f"There is no quant_type {quant_type} with blocks of {block_size}"
        raise InvalidGraph(message(where, what, expected="0 (FP4) or 1 (NF4)"))
    if not transB:
        raise errors.NotImplemented(message(where, "transB = 0 is not supported"))
    assume_equal(a.shape[-1], K, where, "The width of A is not K")
    assume_equal(sizes.product(b.shape), (N * K + 1) // 2, where, "The size of B")
    assume_equal(sizes.product(absmax.shape), -(-N * K // block_size), where, "absmax")
    codes, scales = reshape(b, ((N * K + 1) // 2,)), reshape(absmax, (-(-N * K // block_size),))
    wide = accumulator(a.dtype)

    def weight(n: Dim, k: Dim) -> Scalar:
        place = n * K + k
        byte = scalar.load(codes, (place // 2,))
        first = scalar.compare("eq", scalar.size(place % 2), 0)
        code = scalar.select(first, scalar.binary("shr", byte, 4), byte & 15)
        value = scalar.constant(_BNB4[quant_type][15], wide)
        for number in range(14, -1, -1):
            here = scalar.compare("eq", code, number)
            value = scalar.select(here, _BNB4[quant_type][number], value)
        scale = scalar.load(scales, (integer.floordiv(place, block_size),))
        return value * scalar.cast(scale, wide)

    return cast(_product(a, N, K, _as_given(a, wide), weight), a.dtype)


# -- GatherBlockQuantized ---------------------------------------------------------------------


@op("GatherBlockQuantized", 1, domain=DOMAIN)
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    """Gather of a table in blocks with scales; 0 where an index is outside."""
    where = "GatherBlockQuantized"
    packed = data.dtype is UINT8
    if packed and bits not in (2, 4, 8):
        raise InvalidGraph(message(where, f"Codes of {bits} bits do not exist"))
    gathered = normalise_axis(gather_axis, data.rank, where)
    blocked = normalise_axis(quantize_axis, data.rank, where)
    each = 8 // bits if packed else 1
    table = (*data.shape[:-1], data.shape[-1] * each)
    block: Dim = block_size or table[blocked]
    last = data.rank - 1
    for axis, (got, extent) in enumerate(zip(scales.shape, table, strict=True)):
        wanted = integer.ceildiv(extent, block) if axis == blocked else extent
        if axis == blocked or got != 1:
            assume_equal(got, wanted, where, f"The scales have the wrong size along axis {axis}")
    shape = (*table[:gathered], *indices.shape, *table[gathered + 1 :])
    extent = table[gathered]
    default = (1 << (bits - 1)) if packed else 0

    def code(x: Tensor, at: tuple[Dim, ...]) -> Scalar:
        if not packed:
            return scalar.cast(scalar.load(x, at), INT32 if x.dtype.is_integer else FLOAT)
        row, count = at[:last], x.shape[last]
        found = packed_code(lambda byte: scalar.load(x, (*row, byte)), at[last], bits, count)
        return scalar.cast(found, INT32)

    def body(*at: Dim) -> Scalar:
        given = at[gathered : gathered + indices.rank]
        index = scalar.cast(scalar.load(indices, given), INT64)
        index = scalar.select(index < 0, index + scalar.size(extent), index)
        inside = (index >= 0) & (index < scalar.size(extent))
        chosen = scalar.as_index(index, extent)
        place = (*at[:gathered], chosen, *at[gathered + indices.rank :])
        scaled = tuple(
            0 if d == 1 else integer.floordiv(i, block) if axis == blocked else i
            for axis, (i, d) in enumerate(zip(place, scales.shape, strict=True))
        )
        value = code(data, place)
        if zero_points is not None:
            value = value - code(zero_points, scaled)
        elif default:
            value = value - default
        found = scalar.cast(value, scales.dtype) * scalar.load(scales, scaled)
        return scalar.select(inside, found, 0.0)

    return compute(shape, body)
