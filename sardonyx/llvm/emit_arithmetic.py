"""Arithmetic, comparisons and selection of the kernel language in LLVM IR."""

from __future__ import annotations

import struct
from collections.abc import Callable

from sardonyx.kernel.language.program import Let, Literal
from sardonyx.kernel.language.types import F32, F64, I1, I64, Type
from sardonyx.llvm.emit_base import Emitter, llvm_type, suffix
from sardonyx.llvm.emit_convert import bitcast

_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "eq": "eq", "ne": "ne"}
_FLOAT = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def compare(e: Emitter, op: str, type: Type, a: str, b: str) -> str:
    """`i1` lanes; comparisons with NaN are false but `ne`."""
    if type.is_float:
        return e.compare(_FLOAT[op], type, a, b)
    signed = type.is_integer and not type.is_unsigned
    return e.compare((_SIGNED if signed else _UNSIGNED)[op], type, a, b)


def extreme(e: Emitter, op: str, type: Type, a: str, b: str) -> str:
    """`min` or `max`; of floats NaN wins."""
    if type.is_integer:
        return e.math(f"{'u' if type.is_unsigned else 's'}{op}", type, a, b)
    if type.scalar == "i1":
        return e.binary("and" if op == "min" else "or", type, a, b)
    if e.target.arch == "aarch64" or (e.target.isa == "ptx" and type.bits == 32):
        return e.math("minimum" if op == "min" else "maximum", type, a, b)
    # minps and maxps give the second operand when either is NaN
    first = e.compare("olt" if op == "min" else "ogt", type, a, b)
    chosen = e.select(first, type, a, b)
    return e.select(e.compare("uno", type, a, a), type, a, chosen)


def _divide_by_size(e: Emitter, type: Type, a: str, b: str) -> str:
    """Truncating, by what is not negative; what a division by 0 gives is of no use to anybody."""
    safe = e.select(e.compare("eq", type, b, e.lit(type, 0)), type, e.lit(type, 1), b)
    return e.binary("sdiv", type, a, safe)


def _divide(e: Emitter, op: str, type: Type, a: str, b: str, divisor: object) -> str:
    """Truncating; by zero gives 0, and the most negative number by -1 wraps, without a trap."""
    known = divisor.value if isinstance(divisor, Literal) else 0
    is_safe = known not in (0, -1)
    one, zero = e.lit(type, 1), e.lit(type, 0)
    by_zero, safe = "", b
    if not is_safe:
        by_zero = unsafe = e.compare("eq", type, b, zero)
        if not type.is_unsigned:
            lowest = e.compare("eq", type, a, e.lit(type, 1 << type.bits - 1))
            minus = e.compare("eq", type, b, e.lit(type, -1))
            wraps = e.binary("and", I1.with_lanes(type.lanes), lowest, minus)
            unsafe = e.binary("or", I1.with_lanes(type.lanes), by_zero, wraps)
        safe = e.select(unsafe, type, one, b)
    if type.lanes > 1 and type.bits <= 32 and not is_safe:
        quotient = _divide_through_floats(e, type, a, safe)
    else:
        quotient = e.binary("udiv" if type.is_unsigned else "sdiv", type, a, safe)
    if op == "rem":
        return e.binary("sub", type, a, e.binary("mul", type, quotient, safe))
    return quotient if is_safe else e.select(by_zero, type, zero, quotient)


def _divide_through_floats(e: Emitter, type: Type, a: str, b: str) -> str:
    """Exact: the quotient's rounding error is below its distance to the next integer."""
    wide = (F32 if type.bits <= 8 else F64).with_lanes(type.lanes)
    sign = "u" if type.is_unsigned else "s"
    x, y = (e.cast(f"{sign}itofp", type, v, wide) for v in (a, b))
    return e.cast(f"fpto{sign}i", wide, e.binary("fdiv", wide, x, y), type)


def _shift(e: Emitter, op: str, type: Type, a: str, b: str, amount: object) -> str:
    """Amounts are unsigned; by the width or more gives 0, or the sign."""
    arithmetic = op == "shr" and not type.is_unsigned
    name = "shl" if op == "shl" else "ashr" if arithmetic else "lshr"
    if isinstance(amount, Literal) and 0 <= amount.value < type.bits:
        return e.binary(name, type, a, b)
    if arithmetic:
        return e.binary(name, type, a, e.math("umin", type, b, e.lit(type, type.bits - 1)))
    fits = e.compare("ult", type, b, e.lit(type, type.bits))
    kept = e.binary(name, type, a, e.select(fits, type, b, e.lit(type, 0)))
    return e.select(fits, type, kept, e.lit(type, 0))


def fused(e: Emitter, type: Type, a: str, b: str, c: str) -> str:
    """`a * b + c` rounded once; without the instruction, with more precision or in two parts."""
    if e.target.has_fma:
        return e.math("fma", type, a, b, c)
    if type.scalar == "f32":
        wide = F64.with_lanes(type.lanes)
        x, y, z = (e.cast("fpext", type, v, wide) for v in (a, b, c))
        total = e.binary("fadd", wide, e.binary("fmul", wide, x, y), z)
        return e.cast("fptrunc", wide, total, type)
    return _fused_in_parts(e, type, a, b, c)


def _fused_in_parts(e: Emitter, type: Type, a: str, b: str, c: str) -> str:
    """Dekker's product and Knuth's sum; where splitting overflows, the plain result."""

    def f(op: str, x: str, y: str) -> str:
        return e.binary(f"f{op}", type, x, y)

    def split(x: str) -> tuple[str, str]:
        scaled = f("mul", x, e.lit(type, 2**27 + 1))
        high = f("sub", scaled, f("sub", scaled, x))
        return high, f("sub", x, high)

    (ah, al), (bh, bl) = split(a), split(b)
    product = f("mul", a, b)
    rest = f("sub", f("mul", ah, bh), product)
    rest = f("add", f("add", rest, f("mul", ah, bl)), f("mul", al, bh))
    rest = f("add", rest, f("mul", al, bl))
    total = f("add", product, c)
    part = f("sub", total, product)
    error = f("add", f("sub", product, f("sub", total, part)), f("sub", c, part))
    exact = f("add", total, f("add", error, rest))
    finite = e.compare("ord", type, f("sub", exact, exact), e.lit(type, 0))
    return e.select(finite, type, exact, total)


def scale(e: Emitter, type: Type, x: str, n: str) -> str:
    """`x * 2^n` of integral n, rounded once."""
    if e.target.isa == "avx512":
        return _scalef(e, type, x, n)
    # in two steps, so that neither factor leaves the normal numbers
    bits, bias = (23, 127) if type.scalar == "f32" else (52, 1023)
    word = Type(f"i{type.bits}", type.lanes)

    def power(exponent: str) -> str:
        shifted = e.binary("fadd", type, exponent, e.lit(type, 1.5 * 2.0**bits + bias))
        raw = e.cast("bitcast", type, shifted, word)
        return e.cast("bitcast", word, e.binary("shl", word, raw, e.lit(word, bits)), type)

    half = _round(e, "round", type, e.binary("fmul", type, n, e.lit(type, 0.5)))
    rest = e.binary("fsub", type, n, half)
    return e.binary("fmul", type, e.binary("fmul", type, x, power(half)), power(rest))


def _scalef(e: Emitter, type: Type, x: str, n: str) -> str:
    """AVX-512's instruction, on whole registers."""
    widths = [w for w in (512, 256, 128) if type.bits * type.lanes >= w]
    width = widths[0] if widths else 128
    full = type.with_lanes(width // type.bits)
    letter = "s" if type.scalar == "f32" else "d"

    def once(a: str, b: str) -> str:
        mask = f"i{max(8, full.lanes)}"
        kind = llvm_type(full)
        operands = [(kind, a), (kind, b), (kind, "zeroinitializer"), (mask, "-1")]
        if width == 512:
            operands.append(("i32", "4"))
        return e.intrinsic(f"llvm.x86.avx512.mask.scalef.p{letter}.{width}", kind, operands)

    if full.lanes == type.lanes:
        return once(x, n)
    if full.lanes > type.lanes:
        filled = once(e.widened(type, full, x), e.widened(type, full, n))
        return e.narrowed(full, type, filled)
    parts = []
    for first in range(0, type.lanes, full.lanes):
        chosen = tuple(range(first, first + full.lanes))
        parts.append(once(*(e.shuffled(type, v, "poison", chosen) for v in (x, n))))
    while len(parts) > 1:
        joined = tuple(range(2 * full.lanes))
        parts = [
            e.shuffled(full, a, b, joined) for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        full = full.with_lanes(2 * full.lanes)
    return parts[0]


def _round(e: Emitter, op: str, type: Type, x: str) -> str:
    """`floor`, `ceil`, `trunc` and `round` (half to even)."""
    if e.target.arch == "aarch64" or e.target.cpu != "x86-64":
        return e.math("roundeven" if op == "round" else op, type, x)
    # SSE2 has no rounding instruction, and LLVM would call libm
    size = e.math("fabs", type, x)
    big = e.lit(type, 2.0**23 if type.scalar == "f32" else 2.0**52)
    near = e.binary("fsub", type, e.binary("fadd", type, size, big), big)
    one, zero = e.lit(type, 1), e.lit(type, 0)
    if op in ("floor", "ceil"):
        near = e.math("copysign", type, near, x)
        off = e.compare("ogt" if op == "floor" else "olt", type, near, x)
        step = e.select(off, type, one, zero)
        near = e.binary("fsub" if op == "floor" else "fadd", type, near, step)
    elif op == "trunc":
        off = e.compare("ogt", type, near, size)
        near = e.binary("fsub", type, near, e.select(off, type, one, zero))
    near = e.math("copysign", type, near, x)
    return e.select(e.compare("olt", type, size, big), type, near, x)


def _sign(e: Emitter, op: str, type: Type, x: str) -> str:
    zero, one, minus = e.lit(type, 0), e.lit(type, 1), e.lit(type, -1)
    # NaN stays, and -0 becomes 0 as NumPy has it
    rest = e.binary("fadd", type, x, zero) if type.is_float else zero
    if not type.is_unsigned:
        rest = e.select(compare(e, "lt", type, x, zero), type, minus, rest)
    return e.select(compare(e, "gt", type, x, zero), type, one, rest)


def _negate(e: Emitter, op: str, type: Type, x: str) -> str:
    if type.is_float:
        return e.pure(f"fneg {llvm_type(type)} {x}")
    return e.binary("sub", type, e.lit(type, 0), x)


def _absolute(e: Emitter, op: str, type: Type, x: str) -> str:
    if type.is_unsigned:
        return x
    return e.math("fabs", type, x) if type.is_float else _with_flag(e, "abs", type, x)


def _with_flag(e: Emitter, op: str, type: Type, x: str) -> str:
    """Intrinsics with a flag that a special operand is undefined: never."""
    kind = llvm_type(type)
    return e.intrinsic(f"llvm.{op}.{suffix(type)}", kind, [(kind, x), ("i1", "false")])


def _not(e: Emitter, op: str, type: Type, x: str) -> str:
    return e.binary("xor", type, x, e.lit(type, 1 if type.scalar == "i1" else -1))


def _divide_into(e: Emitter, op: str, type: Type, x: str) -> str:
    """`reciprocal` and `rsqrt`, by division: at most 1 ulp, and the same on every machine."""
    y = x if op == "reciprocal" else e.math("sqrt", type, x)
    return e.binary("fdiv", type, e.lit(type, 1), y)


#: Operation of one operand -> its emitter.
UNARY: dict[str, Callable[[Emitter, str, Type, str], str]] = {
    "neg": _negate, "abs": _absolute, "sign": _sign, "not": _not,
    "sqrt": lambda e, op, type, x: e.math("sqrt", type, x),
    "rsqrt": _divide_into, "reciprocal": _divide_into,
    "floor": _round, "ceil": _round, "trunc": _round, "round": _round,
    "popcount": lambda e, op, type, x: e.math("ctpop", type, x),
    "ctlz": _with_flag,
}  # fmt: skip
#: The most frequent operations, each one instruction or a few.
PLAIN = frozenset("add sub mul div and or xor".split())


def _divide_by_known(e: Emitter, type: Type, a: str, divisor: float) -> str:
    """A quotient by a constant, rounded as a division rounds it, without a division's branch.

    (Markstein 1990: a reciprocal that is rounded correctly, and one correction.) Where the
    correction is NaN, `a` is not finite or the quotient overflows: the first guess is right.
    """
    (divisor,) = struct.unpack("<f", struct.pack("<f", divisor))
    inverse, minus = e.lit(type, 1 / divisor), e.lit(type, -divisor)
    guess = e.binary("fmul", type, a, inverse)
    rest = e.math("fma", type, guess, minus, a)
    better = e.math("fma", type, rest, inverse, guess)
    return e.select(e.compare("uno", type, better, better), type, guess, better)


def _copysign(e: Emitter, type: Type, a: str, b: str) -> str:
    if type != F64:
        return e.math("copysign", type, a, b)
    # Of a result that is rounded to f16 in two steps, LLVM would round the sign's operand in one,
    # and call a function for it.
    signs = e.lit(I64, -(1 << 63))
    size = e.math("fabs", type, a)
    sign = e.binary("and", I64, bitcast(e, F64, I64, b), signs)
    return bitcast(e, I64, F64, e.binary("or", I64, bitcast(e, F64, I64, size), sign))


def binary(e: Emitter, op: str, let: Let, a: str, b: str) -> str:
    """Any operation of two operands that LLVM has."""
    type = let.result.type
    if op in ("min", "max"):
        return extreme(e, op, type, a, b)
    if op in ("shl", "shr"):
        return _shift(e, op, type, a, b, let.operands[1])
    if op in ("add_sat", "sub_sat"):
        return e.math(f"{'u' if type.is_unsigned else 's'}{op[:3]}.sat", type, a, b)
    if op == "copysign":
        return _copysign(e, type, a, b)
    if op == "div" and let.attribute("by_size"):
        return _divide_by_size(e, type, a, b)
    if op in ("div", "rem") and not type.is_float:
        return _divide(e, op, type, a, b, let.operands[1])
    if op == "div" and type.element == F32 and e.target.isa == "ptx":
        known = let.operands[1]
        if isinstance(known, Literal) and 2.0**-60 < abs(float(known.value)) < 2.0**60:
            return _divide_by_known(e, type, a, float(known.value))
    if op in PLAIN:
        return e.binary(f"f{op}" if type.is_float else op, type, a, b)
    raise KeyError(op)
