"""Sums of four products of bytes: one instruction where the target has it, else a few.

And of two products of bfloat16, where the target has them at all.
"""

from __future__ import annotations

from sardonyx.kernel.language.program import Let
from sardonyx.kernel.language.types import F32, I8, I16, I32, U8, Type
from sardonyx.llvm.emit_base import Emitter, llvm_type

#: Bits of a vector -> x86's sum of two products of 16-bit integers.
_PAIRS = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}


def dot(e: Emitter, let: Let) -> str:
    """`sum[i]` and four products `a[4 i + j] * b[4 i + j]`: see `InstructionBuilder.dot`."""
    return _dot(e, let.result.type, *(e.use(x) for x in let.operands))


def _dot(e: Emitter, type: Type, total: str, a: str, b: str) -> str:
    """`a` unsigned bytes, `b` signed ones, sums of type `type`."""
    bits, x86 = type.lanes * 32, e.target.arch == "x86_64"
    if bits > e.target.vector_bits:
        return _in_halves(e, type, total, a, b)
    if x86 and e.target.has_vnni and bits in _PAIRS:
        words = llvm_type(type)
        operands = [total, *(_as(e, x, U8.with_lanes(4 * type.lanes), type) for x in (a, b))]
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        return e.intrinsic(name, words, [(words, x) for x in operands])
    if not x86 and e.target.has_vnni and type.lanes in (2, 4):
        return _both_signed(e, type, total, a, b)
    if x86 and bits in _PAIRS:
        return _in_pairs(e, type, f"llvm.x86.{_PAIRS[bits]}", total, a, b)
    return _one_by_one(e, type, total, a, b)


def _as(e: Emitter, x: str, source: Type, target: Type) -> str:
    return e.cast("bitcast", source, x, target)


def _in_halves(e: Emitter, type: Type, total: str, a: str, b: str) -> str:
    """Intrinsics come for registers only, while LLVM splits other operations by itself."""
    half, factors = type.with_lanes(type.lanes // 2), U8.with_lanes(4 * type.lanes)
    found = []
    for first in (0, half.lanes):
        lanes = range(first, first + half.lanes)
        wide = range(4 * first, 4 * (first + half.lanes))
        parts = [e.shuffled(factors, x, "poison", wide) for x in (a, b)]
        found.append(_dot(e, half, e.shuffled(type, total, "poison", lanes), *parts))
    return e.shuffled(half, found[0], found[1], range(type.lanes))


def _both_signed(e: Emitter, type: Type, total: str, a: str, b: str) -> str:
    """With `sdot`, that takes two signed factors: a b = (a - 128) b + 2 (64 b).

    The second part is the same for all `a`, and computed once where a kernel has several.
    """
    factors = I8.with_lanes(4 * type.lanes)
    name = f"llvm.aarch64.neon.sdot.v{type.lanes}i32.v{factors.lanes}i8"
    words, bytes_ = llvm_type(type), llvm_type(factors)

    def sdot(start: str, x: str) -> str:
        return e.intrinsic(name, words, [(words, start), (bytes_, x), (bytes_, b)])

    half = sdot(e.lit(type, 0), e.lit(factors, 64))
    moved = sdot(total, e.binary("xor", factors, a, e.lit(factors, -128)))
    return e.binary("add", type, moved, e.binary("shl", type, half, e.lit(type, 1)))


def _in_pairs(e: Emitter, type: Type, name: str, total: str, a: str, b: str) -> str:
    """Bytes 0 and 2, and bytes 1 and 3, of each word as 16-bit integers.

    `pmaddubsw` would multiply bytes, but its sums of two products saturate.
    """
    factors, pairs = U8.with_lanes(4 * type.lanes), I16.with_lanes(2 * type.lanes)
    x, y = (_as(e, v, factors, pairs) for v in (a, b))
    eight = e.lit(pairs, 8)
    even = (
        e.binary("and", pairs, x, e.lit(pairs, 255)),
        e.binary("ashr", pairs, e.binary("shl", pairs, y, eight), eight),
    )
    odd = e.binary("lshr", pairs, x, eight), e.binary("ashr", pairs, y, eight)
    for first, second in (even, odd):
        kind = llvm_type(pairs)
        product = e.intrinsic(name, llvm_type(type), [(kind, first), (kind, second)])
        total = e.binary("add", type, total, product)
    return total


def _one_by_one(e: Emitter, type: Type, total: str, a: str, b: str) -> str:
    factors, words = U8.with_lanes(4 * type.lanes), I32.with_lanes(type.lanes)
    x, y = (_as(e, v, factors, words) for v in (a, b))
    for j in range(4):
        first = e.binary("lshr", words, x, e.lit(words, 8 * j))
        first = e.binary("and", words, first, e.lit(words, 255))
        second = e.binary("shl", words, y, e.lit(words, 24 - 8 * j))
        second = e.binary("ashr", words, second, e.lit(words, 24))
        total = e.binary("add", type, total, e.binary("mul", words, first, second))
    return total


# -- bfloat16 -------------------------------------------------------------------------------------


def _halves(lanes: int) -> str:
    return f"<{lanes} x bfloat>"


def dot_halves(e: Emitter, let: Let) -> str:
    """`sum[i]` and two products `a[2 i + j] * b[2 i + j]`: see `InstructionBuilder.dot_halves`."""
    type, (_, a, _) = let.result.type, let.operands
    total, *factors = (e.use(x) for x in let.operands)
    kind, wide = llvm_type(type), _halves(2 * type.lanes)
    x, y = (e.pure(f"bitcast {llvm_type(a.type)} {v} to {wide}") for v in factors)
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * type.lanes}"
    return e.intrinsic(name, kind, [(kind, total), (wide, x), (wide, y)])


def round_to_half(e: Emitter, let: Let) -> str:
    """To bfloat16, a register at a time; a single number in a register of its own."""
    (value,) = let.operands
    return _round_to_half(e, value.type.lanes, e.use(value))


def _round_to_half(e: Emitter, lanes: int, x: str) -> str:
    most = e.target.vector_bits // 32
    if lanes > most:
        half = lanes // 2
        source, bits = F32.with_lanes(lanes), I16.with_lanes(half)
        parts = [
            _round_to_half(e, half, e.shuffled(source, x, "poison", range(first, first + half)))
            for first in (0, half)
        ]
        return e.shuffled(bits, parts[0], parts[1], range(lanes))
    source, full = F32.with_lanes(lanes), F32.with_lanes(most)
    wide = x if lanes == most else e.widened(source, full, x)
    name, bits = "llvm.x86.avx512bf16.cvtneps2bf16.512", I16.with_lanes(most)
    found = e.intrinsic(name, _halves(most), [(llvm_type(full), wide)])
    found = e.pure(f"bitcast {_halves(most)} {found} to {llvm_type(bits)}")
    return found if lanes == most else e.narrowed(bits, I16.with_lanes(lanes), found)
