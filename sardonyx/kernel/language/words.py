"""Values that move between threads: by words of 32 bits, which is what moves."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.kernel.language.instructions import InstructionBuilder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I32, I64


def by_words(b: InstructionBuilder, x: Operand, move: Callable[[Operand], Operand]) -> Operand:
    """What `move`, which takes and gives an i32, makes of a value of any type with one lane."""
    kind = x.type
    if kind.scalar == "i1" or (kind.is_integer and kind.bits < 32):
        return b.convert(by_words(b, b.convert(x, I32), move), kind)
    if kind == I32:
        return move(x)
    if kind.bits == 32:
        return b.bitcast(move(b.bitcast(x, I32)), kind)
    if kind.bits == 16:
        return b.convert(by_words(b, b.convert(x, F32), move), kind)
    whole = x if kind == I64 else b.bitcast(x, I64)
    low, high = (move(b.convert(p, I32)) for p in (whole, whole >> 32))
    wide = b.convert(low, I64) & 0xFFFFFFFF
    joined = wide | (b.convert(high, I64) << 32)
    return joined if kind == I64 else b.bitcast(joined, kind)
