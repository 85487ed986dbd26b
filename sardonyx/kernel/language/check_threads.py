"""Type rules of what only programs of kind `block` have (threads.py)."""

from __future__ import annotations

from typing import cast

from sardonyx.kernel.language.program import Effect, Let
from sardonyx.kernel.language.types import F32, I1, I32, I64, PTR, Type

#: Operations with a result -> types of the operands and of the result.
_SIGNATURES: dict[str, tuple[list[Type], Type]] = {
    "thread": ([], I64),
    "warp_of_block": ([], I64),
    "shared_by_block": ([], PTR),
    "load_matrix": ([PTR], I32.with_lanes(4)),
    "multiply_matrices": ([*[I32] * 6, F32.with_lanes(4)], F32.with_lanes(4)),
    "to_tf32": ([F32], I32),
    "power_of_two": ([F32], F32),
    "shuffle_across": ([I32], I32),
}
BLOCK_LETS = frozenset(_SIGNATURES)
#: Statements without a result -> types of the operands.
_EFFECTS: dict[str, list[Type]] = {
    "barrier": [], "copy_async": [PTR, PTR, I1], "commit_copies": [], "wait_copies": [],
}  # fmt: skip
BLOCK_EFFECTS = frozenset(_EFFECTS)
#: Kinds of `multiply_matrices`.
KINDS = ("f16", "bf16", "tf32")


def let_fault(let: Let) -> str:
    """What is wrong with an operation that has a result, or nothing."""
    operands, result = _SIGNATURES[let.op]
    given = [x.type for x in let.operands]
    if given != operands or let.result.type != result:
        return f"{let.op} takes {operands} and gives {result}, not {given} and {let.result.type}"
    if let.op == "multiply_matrices" and let.attribute("kind") not in KINDS:
        return f"There are no matrices of kind {let.attribute('kind')!r}"
    if let.op == "shared_by_block" and cast(int, let.attribute("size_bytes")) <= 0:
        return "Shared memory without bytes"
    return ""


def effect_fault(effect: Effect) -> str:
    """What is wrong with a statement without a result, or nothing."""
    given = [x.type for x in effect.operands]
    if given != _EFFECTS[effect.op]:
        return f"{effect.op} takes {_EFFECTS[effect.op]}, not {given}"
    if effect.op == "copy_async" and effect.attribute("size_bytes") not in (4, 8, 16):
        return f"copy_async moves 4, 8 or 16 bytes, not {effect.attribute('size_bytes')}"
    return ""
