"""The thread context that every kernel call gets: offsets of its 64-bit fields.

`context` is the fourth argument of a compiled CPU kernel `(args, begin, end, context)`.
"""

from __future__ import annotations

from sardonyx.base.ranged import RANGED_NAMES

#: Field name -> byte offset.
FIELDS: dict[str, int] = {
    "fault": 0,  # address of the frame's fault record: i64 code, command, a, b, c
    "scratch": 8,  # address of memory of this thread alone, 64-byte aligned
    "scratch_bytes": 16,
    "thread": 24,  # 0 is the caller
    "functions": 32,  # table of addresses of shared functions (micro-kernels)
    "command": 40,  # number of the command that runs, written into the fault record
    "cancel": 48,  # address of the run's cancel flag, which long loops look at
    "tickets": 56,  # on a GPU: address of TICKETS words of 32 bits, zero before and after kernels
}
SIZE_BYTES = 64
#: How many counters the thread blocks of a kernel have to tell which of them is the last.
TICKETS = 1024
#: On a GPU, bytes from the tickets to a word that is 1 once the fault record is written, else 0.
FAULT_LOCK = 4 * TICKETS

#: Fault codes -> what they mean; {a} and {b} are the first two integers of the record.
FAULTS: dict[int, str] = {
    1: "index {a} is out of range for an axis of size {b}",
    2: "integer division by zero",
    3: "a size computed from the data is {a}, which is negative or too large",
    4: "cancelled",
    5: "broadcast of sizes {a} and {b} is impossible",
    6: "dimension is {a} where the model needs {b}",
}
#: The code of the first of `RANGED_NAMES`: a number in the data is out of its range. The three
#: integers are the number, the smallest and the largest that are allowed.
_FIRST_RANGE = 16


def code_of_range(name: str) -> int:
    """The fault code for a number out of its range, by the name of the number."""
    return _FIRST_RANGE + RANGED_NAMES.index(name)


def name_of_range(code: int) -> str | None:
    """The name behind the fault code of a number out of its range; None for other codes."""
    number = code - _FIRST_RANGE
    return RANGED_NAMES[number] if 0 <= number < len(RANGED_NAMES) else None
