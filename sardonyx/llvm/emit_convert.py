"""Conversions between number types. 16-bit floats are `i16` bits here; see emit_base."""

from __future__ import annotations

from sardonyx.kernel.language.types import F32, F64, I1, I32, U16, U32, Type
from sardonyx.llvm.emit_base import Emitter, llvm_type, suffix


def convert(e: Emitter, source: Type, target: Type, x: str) -> str:
    """`x` of type `source` as `target`: see `Builder.convert`."""
    if source == target:
        return x
    lanes = source.lanes
    single = F32.with_lanes(lanes)
    if source.scalar in ("f16", "bf16"):
        return convert(e, single, target, widen(e, source, x))
    if target.scalar in ("f16", "bf16"):
        if target.scalar == "bf16" and source.is_integer and source.bits >= 32:
            source, x = F64.with_lanes(lanes), _to_double(e, source, x)
        if source.scalar == "f64":
            return narrow(e, target, _round_to_odd(e, lanes, x))
        # f32 holds every whole number that does not overflow f16.
        return narrow(e, target, convert(e, source, single, x))
    if target.scalar == "i1":
        if source.is_float:
            return e.compare("une", source, x, e.lit(source, 0))
        return e.compare("ne", source, x, e.lit(source, 0))
    if source.is_float and target.is_float:
        return e.cast("fpext" if target.bits > source.bits else "fptrunc", source, x, target)
    if source.is_float:
        return _to_integer(e, source, target, x)
    if target.is_float:
        unsigned = source.is_unsigned or source.scalar == "i1"
        return e.cast("uitofp" if unsigned else "sitofp", source, x, target)
    return _between_integers(e, source, target, x)


def _between_integers(e: Emitter, source: Type, target: Type, x: str) -> str:
    if source.bits == target.bits:
        return x
    if source.bits > target.bits:
        return e.cast("trunc", source, x, target)
    unsigned = source.is_unsigned or source.scalar == "i1"
    return e.cast("zext" if unsigned else "sext", source, x, target)


def _to_integer(e: Emitter, source: Type, target: Type, x: str) -> str:
    """Saturates; NaN gives 0."""
    if target.bits >= 32 and e.target.arch == "aarch64":  # one instruction there
        name = "fptoui" if target.is_unsigned else "fptosi"
        return e.intrinsic(
            f"llvm.{name}.sat.{suffix(target)}.{suffix(source)}",
            llvm_type(target),
            [(llvm_type(source), x)],
        )
    bits = target.bits - (not target.is_unsigned)
    low, high = (0 if target.is_unsigned else -(1 << bits)), (1 << bits) - 1
    least, most = e.lit(source, low), e.lit(source, _float_below(high, source))
    # A comparison with NaN is false: it becomes the lower end.
    bounded = e.select(e.compare("ogt", source, x, least), source, x, least)
    bounded = e.select(e.compare("olt", source, bounded, most), source, bounded, most)
    wide = target if target.bits >= 32 else I32.with_lanes(source.lanes)
    whole = e.cast("fptoui" if wide.is_unsigned else "fptosi", source, bounded, wide)
    if _float_below(high, source) != high:
        whole = e.select(e.compare("ogt", source, x, most), wide, e.lit(wide, high), whole)
    if low:
        whole = e.select(e.compare("uno", source, x, x), wide, e.lit(wide, 0), whole)
    return whole if wide == target else e.cast("trunc", wide, whole, target)


def _float_below(whole: int, type: Type) -> float:
    """The largest number of a float type that is not above a whole number."""
    digits = 24 if type.scalar == "f32" else 53
    spare = max(0, whole.bit_length() - digits)
    return float(whole >> spare << spare)


def bitcast(e: Emitter, source: Type, target: Type, x: str) -> str:
    """The same bits; between pointers and integers too."""
    if llvm_type(source) == llvm_type(target):
        return x
    if source.scalar == "ptr":
        return e.cast("ptrtoint", source, x, target)
    if target.scalar == "ptr":
        return e.cast("inttoptr", source, x, target)
    return e.cast("bitcast", source, x, target)


# -- 16-bit floats ------------------------------------------------------------------------------


def _half_type(lanes: int) -> str:
    return "half" if lanes == 1 else f"<{lanes} x half>"


def widen(e: Emitter, source: Type, x: str) -> str:
    """`f16` or `bf16` bits to `f32`; exact."""
    lanes = source.lanes
    single, wide, narrow_bits = (t.with_lanes(lanes) for t in (F32, U32, U16))
    if source.scalar == "f16" and e.target.has_f16:
        half = e.pure(f"bitcast {llvm_type(source)} {x} to {_half_type(lanes)}")
        return e.pure(f"fpext {_half_type(lanes)} {half} to {llvm_type(single)}")
    bits = e.cast("zext", narrow_bits, x, wide)
    if source.scalar == "bf16":
        return bitcast(e, wide, single, e.binary("shl", wide, bits, e.lit(wide, 16)))
    # The exponent field lands too low by 112; a product puts it right, denormals included.
    moved = e.binary("shl", wide, e.binary("and", wide, bits, e.lit(wide, 0x7FFF)), e.lit(wide, 13))
    scaled = e.binary("fmul", single, bitcast(e, wide, single, moved), e.lit(single, 2.0**112))
    huge = e.compare("uge", wide, moved, e.lit(wide, 0x7C00 << 13))
    special = e.binary("or", wide, moved, e.lit(wide, 0x7F800000))
    number = e.select(huge, wide, special, bitcast(e, single, wide, scaled))
    sign = e.binary("shl", wide, e.binary("and", wide, bits, e.lit(wide, 0x8000)), e.lit(wide, 16))
    return bitcast(e, wide, single, e.binary("or", wide, number, sign))


def narrow(e: Emitter, target: Type, x: str) -> str:
    """`f32` to `f16` or `bf16` bits, to nearest, ties to even."""
    lanes = target.lanes
    single, wide, bits16 = (t.with_lanes(lanes) for t in (F32, U32, U16))
    if target.scalar == "f16" and e.target.has_f16:
        half = e.pure(f"fptrunc {llvm_type(single)} {x} to {_half_type(lanes)}")
        return e.pure(f"bitcast {_half_type(lanes)} {half} to {llvm_type(target)}")
    bits = bitcast(e, single, wide, x)
    if target.scalar == "bf16":
        result = _narrow_bf16(e, wide, single, x, bits)
    else:
        result = _narrow_f16(e, wide, single, bits)
    return e.cast("trunc", wide, result, bits16)


def _narrow_bf16(e: Emitter, wide: Type, single: Type, x: str, bits: str) -> str:
    odd = e.binary("and", wide, e.binary("lshr", wide, bits, e.lit(wide, 16)), e.lit(wide, 1))
    bias = e.binary("add", wide, odd, e.lit(wide, 0x7FFF))
    rounded = e.binary("add", wide, bits, bias)
    quiet = e.binary("or", wide, bits, e.lit(wide, 0x400000))
    chosen = e.select(e.compare("uno", single, x, x), wide, quiet, rounded)
    return e.binary("lshr", wide, chosen, e.lit(wide, 16))


def _narrow_f16(e: Emitter, wide: Type, single: Type, bits: str) -> str:
    sign = e.binary("and", wide, bits, e.lit(wide, 0x80000000))
    size = e.binary("xor", wide, bits, sign)
    odd = e.binary("and", wide, e.binary("lshr", wide, size, e.lit(wide, 13)), e.lit(wide, 1))
    rebased = e.binary("add", wide, size, e.lit(wide, 0xFFF - (112 << 23)))
    normal = e.binary("lshr", wide, e.binary("add", wide, rebased, odd), e.lit(wide, 13))
    # Below the smallest normal number, adding 0.5 lets the addition round at the right bit.
    half = e.lit(single, 0.5)
    tiny = bitcast(e, single, wide, e.binary("fadd", single, bitcast(e, wide, single, size), half))
    denormal = e.binary("sub", wide, tiny, e.lit(wide, 0x3F000000))
    result = e.select(e.compare("ult", wide, size, e.lit(wide, 113 << 23)), wide, denormal, normal)
    infinite = e.compare("uge", wide, size, e.lit(wide, 143 << 23))
    result = e.select(infinite, wide, e.lit(wide, 0x7C00), result)
    payload = e.binary("lshr", wide, size, e.lit(wide, 13))
    quiet = e.binary("or", wide, payload, e.lit(wide, 0x7E00))
    quiet = e.binary("and", wide, quiet, e.lit(wide, 0x7FFF))
    result = e.select(e.compare("ugt", wide, size, e.lit(wide, 0x7F800000)), wide, quiet, result)
    return e.binary("or", wide, result, e.binary("lshr", wide, sign, e.lit(wide, 16)))


def _to_double(e: Emitter, source: Type, x: str) -> str:
    """Whole numbers as `f64` such that rounding once more, to 24 bits or fewer, gives the nearest.

    Those that `f64` does not hold become one of their two neighbours there, the odd one.
    """
    double = F64.with_lanes(source.lanes)
    if source.bits < 64:
        return convert(e, source, double, x)
    spare = 64 - 53
    low = e.binary("and", source, x, e.lit(source, (1 << spare) - 1))
    inexact = e.compare("ne", source, low, e.lit(source, 0))
    high = e.binary("xor", source, x, low)
    odd = e.binary("or", source, high, e.lit(source, 1 << spare))
    limit = 1 << 53
    if source.is_unsigned:
        beyond = e.compare("ugt", source, x, e.lit(source, limit))
    else:
        moved = e.binary("add", source, x, e.lit(source, limit))
        beyond = e.compare("ugt", source, moved, e.lit(source, 2 * limit))
    chosen = e.select(e.binary("and", I1.with_lanes(source.lanes), beyond, inexact), source, odd, x)
    return convert(e, source, double, chosen)


def _round_to_odd(e: Emitter, lanes: int, x: str) -> str:
    """`f64` to `f32` such that rounding once more, to 16 bits, gives the nearest."""
    double, single, wide = (t.with_lanes(lanes) for t in (F64, F32, I32))
    near = e.cast("fptrunc", double, x, single)
    back = e.cast("fpext", single, near, double)
    bits = bitcast(e, single, wide, near)
    inexact = e.compare("one", double, back, x)
    even = e.compare("eq", wide, e.binary("and", wide, bits, e.lit(wide, 1)), e.lit(wide, 0))
    over = e.compare("ogt", double, e.math("fabs", double, back), e.math("fabs", double, x))
    step = e.select(over, wide, e.lit(wide, -1), e.lit(wide, 1))
    moved = e.binary("add", wide, bits, step)
    truth = I1.with_lanes(lanes)
    chosen = e.select(e.binary("and", truth, inexact, even), wide, moved, bits)
    return bitcast(e, wide, single, chosen)
