"""Moving lanes about, masks and reductions."""

from __future__ import annotations

from typing import cast

from sardonyx.kernel.language.program import Let
from sardonyx.kernel.language.types import I64, Type
from sardonyx.llvm.emit_arithmetic import extreme
from sardonyx.llvm.emit_base import Emitter, llvm_type, scalar_literal, suffix


def splat(e: Emitter, let: Let) -> str:
    """A scalar in all lanes."""
    return e.splat(let.result.type, e.use(let.operands[0]))


def iota_literal(type: Type) -> str:
    """The vector 0, 1, 2 ..."""
    if type.lanes == 1:
        return scalar_literal(type, 0)
    one = llvm_type(type.element)
    return f"<{', '.join(f'{one} {scalar_literal(type, i)}' for i in range(type.lanes))}>"


def extract(e: Emitter, let: Let) -> str:
    """One lane."""
    (x,) = let.operands
    if x.type.lanes == 1:
        return e.use(x)
    return e.pure(f"extractelement {llvm_type(x.type)} {e.use(x)}, i64 {let.attribute('lane')}")


def insert(e: Emitter, let: Let) -> str:
    """One lane replaced."""
    x, value = let.operands
    if x.type.lanes == 1:
        return e.use(value)
    one = llvm_type(value.type)
    return e.pure(
        f"insertelement {llvm_type(x.type)} {e.use(x)}, {one} {e.use(value)},"
        f" i64 {let.attribute('lane')}"
    )


def shuffle(e: Emitter, let: Let) -> str:
    """Lanes picked from two vectors."""
    a, b = let.operands
    lanes = cast(tuple[int, ...], let.attribute("lanes"))
    first, second = e.use(a), e.use(b)
    vector = a.type
    if vector.lanes == 1:  # LLVM shuffles vectors only
        pair = vector.with_lanes(2)
        one = llvm_type(vector)
        first = e.pure(f"insertelement {llvm_type(pair)} poison, {one} {first}, i64 0")
        first = e.pure(f"insertelement {llvm_type(pair)} {first}, {one} {second}, i64 1")
        vector, second = pair, "poison"
    picked = e.shuffled(vector, first, second, lanes)
    if len(lanes) > 1:
        return picked
    return e.pure(f"extractelement {llvm_type(vector.with_lanes(1))} {picked}, i64 0")


def reduce(e: Emitter, let: Let) -> str:
    """A vector to a scalar; floats by halves, so that the order is the same on every machine."""
    op = let.op.removeprefix("reduce_")
    (operand,) = let.operands
    type, x = operand.type, e.use(operand)
    if type.lanes == 1:
        return x
    if not type.is_float:
        sign = ("u" if type.is_unsigned or type.scalar == "i1" else "s") if op[0] == "m" else ""
        name = f"llvm.vector.reduce.{op if op == 'mul' else sign + op}.{suffix(type)}"
        return e.intrinsic(name, llvm_type(type.element), [(llvm_type(type), x)])
    while type.lanes > 1:
        half = type.with_lanes(type.lanes // 2)
        low, high = (
            e.shuffled(type, x, "poison", tuple(range(first, first + half.lanes)))
            for first in (0, half.lanes)
        )
        if half.lanes == 1:
            low, high = (
                e.pure(f"extractelement {llvm_type(type)} {x}, i64 {lane}") for lane in (0, 1)
            )
        if op in ("min", "max"):
            x = extreme(e, op, half, low, high)
        else:
            x = e.binary(f"f{op}", half, low, high)
        type = half
    return x


def tail_mask(e: Emitter, let: Let) -> str:
    """True in the first `count` lanes."""
    lanes, count = let.result.type.lanes, e.use(let.operands[0])
    if lanes == 1:
        return e.compare("sgt", I64, count, e.lit(I64, 0))
    bounded = e.math("smin", I64, count, e.lit(I64, lanes))
    bounded = e.math("smax", I64, bounded, e.lit(I64, 0))
    if e.target.isa == "avx512" and lanes in (8, 16, 32):
        # bzhi and kmov instead of a comparison of vectors
        ones = e.binary("shl", I64, e.lit(I64, -1), bounded)
        word = Type(f"i{lanes}")
        bits = e.binary("xor", word, e.cast("trunc", I64, ones, word), e.lit(word, -1))
        return e.pure(f"bitcast i{lanes} {bits} to {llvm_type(let.result.type)}")
    bits_per_lane = min(64, max(8, e.target.vector_bits // lanes))
    lane = Type(f"i{bits_per_lane}", lanes)
    narrow = e.cast("trunc", I64, bounded, lane.element) if bits_per_lane < 64 else bounded
    return e.compare("slt", lane, iota_literal(lane), e.splat(lane, narrow))
