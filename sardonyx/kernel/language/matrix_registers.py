"""Registers that hold small matrices (AMX): sixteen rows of 64 bytes, eight of them.

    sums[i, j] += sum over k of left[i, k] * right[k, j]

`sums` has 16 x 16 numbers of 32 bits. A row of `left` has 32 bfloat16, or 64 bytes; a row of
`right` has, for each of 16 columns, the 2 (or 4) elements of `k` that follow each other. Intel's
Architecture Instruction Set Extensions, chapter 3.

What a thread has in these registers is its own. It says what shape they have before it uses them,
and that it needs them no more afterwards: else the system saves 8 KB for it at each switch.
"""

from __future__ import annotations

from sardonyx.kernel.language.instructions import InstructionBuilder
from sardonyx.kernel.language.program import Effect, Operand
from sardonyx.kernel.language.types import I64, PTR, Type

#: Rows of a register, and columns of sums.
SIDE = 16
ROW_BYTES = 64
REGISTERS = 8
#: What factors may be: bfloat16 with sums in f32, or unsigned by signed bytes with sums in i32.
HALVES, BYTES = "halves", "bytes"
#: Statements that work on them, and what their operands are.
EFFECTS: dict[str, tuple[Type, ...]] = {
    "matrix_shapes": (PTR,),
    "matrix_release": (),
    "matrix_zero": (),
    "matrix_load": (PTR, I64),
    "matrix_store": (PTR, I64),
    "matrix_products": (),
}
#: What `set_shapes` tells the processor, as 64-bit words: palette 1, then bytes of a row and rows
#: of each register.
SHAPES = (1, 0, *2 * [0x0040_0040_0040_0040], 0, 0, 0x1010_1010_1010_1010, 0)


def fault_of(statement: Effect) -> str:
    """What is wrong with the attributes of one of EFFECTS; "" if nothing is."""
    numbers = dict(statement.attributes)
    if numbers.pop("kind", HALVES) not in (HALVES, BYTES):
        return f"There are no products of {dict(statement.attributes)['kind']}"
    beyond = [name for name, number in numbers.items() if number not in range(REGISTERS)]
    return f"There are {REGISTERS} registers for matrices: {beyond}" if beyond else ""


def set_shapes(b: InstructionBuilder, memory: Operand) -> None:
    """Give all registers their full size; `memory` has room for 64 bytes."""
    for k, word in enumerate(SHAPES):
        b.store(b.constant(I64, word), memory, k)
    b.append(Effect("matrix_shapes", (memory,)))


def release(b: InstructionBuilder) -> None:
    """Say that they are needed no more."""
    b.append(Effect("matrix_release", ()))


def zero(b: InstructionBuilder, register: int) -> None:
    """All elements 0."""
    b.append(Effect("matrix_zero", (), (("register", register),)))


def load(b: InstructionBuilder, register: int, pointer: Operand, pitch_bytes: Operand) -> None:
    """Sixteen rows of 64 bytes, so far apart."""
    b.append(Effect("matrix_load", (pointer, pitch_bytes), (("register", register),)))


def store(b: InstructionBuilder, register: int, pointer: Operand, pitch_bytes: Operand) -> None:
    """The same to memory."""
    b.append(Effect("matrix_store", (pointer, pitch_bytes), (("register", register),)))


def add_products(b: InstructionBuilder, kind: str, sums: int, left: int, right: int) -> None:
    """See the module's text.

    Args:
        b: Writes the program.
        kind: HALVES or BYTES; sums of the latter wrap.
        sums, left, right: Numbers of registers.
    """
    numbers = (("sums", sums), ("left", left), ("right", right))
    b.append(Effect("matrix_products", (), (("kind", kind), *numbers)))
