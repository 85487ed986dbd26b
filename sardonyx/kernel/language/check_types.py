"""Type rules of operations: which operands each takes and what it gives."""

from __future__ import annotations

from typing import cast

from sardonyx.kernel.language.check_threads import BLOCK_LETS, let_fault
from sardonyx.kernel.language.operations import BINARY, COMPARE, REDUCE, UNARY
from sardonyx.kernel.language.program import Let
from sardonyx.kernel.language.types import BF16, F32, I1, I64, PTR, Type

_ANY_NUMBER = frozenset("neg abs sign".split())
_INTEGER_UNARY = frozenset("popcount ctlz".split())
_INTEGER_BINARY = frozenset("shl shr add_sat sub_sat".split())
_FLOAT_BINARY = frozenset("pow atan2 copysign".split())
_BITWISE = frozenset("and or xor".split())


def type_fault(let: Let) -> str:
    """What is wrong with the types of a statement, or nothing."""
    op, result = let.op, let.result.type
    operands = [x.type for x in let.operands]
    if op in UNARY:
        return _same(op, [result, *operands], 2) or _unary(op, result)
    if op in BINARY:
        return _same(op, [result, *operands], 3) or _binary(op, result)
    if op in COMPARE:
        if result != I1.with_lanes(operands[0].lanes):
            return f"{op} gives {I1.with_lanes(operands[0].lanes)}, not {result}"
        return _same(op, operands, 2) or _no_small_floats(op, operands[0])
    if op in ("fma", "scale"):
        fault = _same(op, [result, *operands], 4 if op == "fma" else 3)
        return fault or ("" if result.scalar in ("f32", "f64") else f"{op} does not take {result}")
    if op in REDUCE:
        return _reduce(op, result, operands[0])
    return _other(let, op, result, operands)


def _same(op: str, types: list[Type], count: int) -> str:
    if len(types) != count:
        return f"{op} has {len(types)} types, not {count}"
    if len(set(types)) > 1:
        return f"{op} mixes {', '.join(str(t) for t in types)}"
    return ""


def _no_small_floats(op: str, type: Type) -> str:
    if type.scalar in ("f16", "bf16"):
        return f"{op} does not take {type}: compute in f32"
    return ""


def _unary(op: str, type: Type) -> str:
    if op == "not":
        fits = type.is_integer or type.scalar == "i1"
    elif op in _INTEGER_UNARY:
        fits = type.is_integer
    else:
        fits = type.scalar in ("f32", "f64") or (op in _ANY_NUMBER and type.is_integer)
    return "" if fits else _no_small_floats(op, type) or f"{op} does not take {type}"


def _binary(op: str, type: Type) -> str:
    if op in _BITWISE:
        fits = type.is_integer or type.scalar == "i1"
    elif op in _INTEGER_BINARY:
        fits = type.is_integer
    elif op in _FLOAT_BINARY:
        fits = type.scalar in ("f32", "f64")
    else:
        truth = op in ("min", "max") and type.scalar == "i1"
        fits = type.is_integer or type.scalar in ("f32", "f64") or truth
    return "" if fits else _no_small_floats(op, type) or f"{op} does not take {type}"


def _reduce(op: str, result: Type, operand: Type) -> str:
    if result != operand.element:
        return f"{op} of {operand} gives {operand.element}, not {result}"
    if operand.lanes & (operand.lanes - 1):
        return f"{op} needs a power of two of lanes, not {operand.lanes}"
    if op in ("reduce_and", "reduce_or") and operand.is_float:
        return f"{op} does not take {operand}"
    return _no_small_floats(op, operand)


def _other(let: Let, op: str, result: Type, operands: list[Type]) -> str:
    match op:
        case "select":
            if operands[0] not in (I1, I1.with_lanes(result.lanes)):
                return f"The condition of a select of {result} is {operands[0]}"
            return _same(op, [result, *operands[1:]], 3)
        case "convert":
            lanes = result.lanes == operands[0].lanes
            number = "ptr" not in (result.scalar, operands[0].scalar)
            return "" if lanes and number else f"{operands[0]} does not convert to {result}"
        case "dot_halves":
            factor = BF16.with_lanes(2 * result.lanes)
            good = operands == [result, factor, factor] and result.scalar == "f32"
            return "" if good else f"dot_halves of {operands} does not give {result}"
        case "round_to_half":
            good = operands == [F32.with_lanes(result.lanes)] and result.scalar == "bf16"
            return "" if good else f"round_to_half of {operands} does not give {result}"
        case "dot":
            factors = [Type(kind, 4 * result.lanes) for kind in ("u8", "i8")]
            good = result.scalar == "i32" and operands == [result, *factors]
            return "" if good else f"dot of {operands[1:]} does not give {result}"
        case "bitcast":
            equal = result.bits * result.lanes == operands[0].bits * operands[0].lanes
            return "" if equal else f"{operands[0]} and {result} differ in size"
        case "splat":
            same = operands[0] == result.element
            return "" if same else f"splat of {operands[0]} does not give {result}"
        case "extract" | "insert":
            lane = cast(int, let.attribute("lane"))
            inside = 0 <= lane < operands[0].lanes
            return "" if inside else f"{operands[0]} has no lane {lane}"
        case "shuffle":
            picked = cast(tuple[int, ...], let.attribute("lanes"))
            total = 2 * operands[0].lanes
            if operands[0] != operands[1] or len(picked) != result.lanes:
                return f"shuffle of {operands[0]} and {operands[1]} does not give {result}"
            bad = [lane for lane in picked if not 0 <= lane < total]
            return f"shuffle picks lane {bad[0]} of {total}" if bad else ""
        case "tail_mask":
            return "" if operands == [I64] else f"tail_mask counts with i64, not {operands}"
        case "load":
            return _load(result, operands)
        case "offset":
            good = operands[0] == PTR and operands[1].is_integer and operands[1].lanes == 1
            return "" if good else f"offset does not take {operands}"
        case "atomic" | "compare_exchange":
            good = operands[0] == PTR and set(operands[1:]) == {result} and result.lanes == 1
            return "" if good else f"{op} of {result} does not take {operands}"
        case (
            "iota"
            | "constant"
            | "local"
            | "table"
            | "context"
            | "call"
            | "address_of"
            | "clock"
            | "float_mode"
        ):
            return ""
    if op in BLOCK_LETS:
        return let_fault(let)
    return f"Unknown operation {op!r}"


def _load(result: Type, operands: list[Type]) -> str:
    pointer, index, *mask = operands
    if pointer != PTR:
        return f"The address of a load is {pointer}"
    if not index.is_integer:
        return f"An index is an integer, not {index}"
    if index.lanes not in (1, result.lanes):
        return f"{index.lanes} indices for {result.lanes} lanes"
    if mask and mask[0] != I1.with_lanes(result.lanes):
        return f"The mask of a load of {result} is {mask[0]}"
    return ""
