"""Native: what others call when they let go of memory, whatever error is on its way meanwhile.

Python raises where a function of its own returns while there is an error, and that error is lost:
so it is set aside first.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I32, PTR
from sardonyx.native.layout import (
    CAPSULE_CONTEXT_OFFSET,
    LETTING_GO,
    MANAGED_CONTEXT_OFFSET,
    VERSIONED_CONTEXT_OFFSET,
    WORD,
)

_ERROR = ("kind", "value", "trace")


def let_go() -> Program:
    """`void let_go(record, what)`: call `work` with the interpreter's lock and without an error."""
    b = Builder("let_go", [("record", PTR), ("what", PTR)])
    record = b.parameter("record")

    def call(name: str, given: list[Operand]) -> None:
        b.call(LETTING_GO.pointer(b, record, name), given)

    state = b.call(LETTING_GO.pointer(b, record, "lock"), [], I32)
    call("fetch", [LETTING_GO.place(b, record, name) for name in _ERROR])
    # What is called may let go of more, with the same record.
    error: list[Operand] = [LETTING_GO.pointer(b, record, name) for name in _ERROR]
    call("work", [b.parameter("what")])
    call("restore", error)
    call("unlock", [state])
    return b.program


def letting_go() -> list[Program]:
    """`void f(what)`, for each place where the address of the record is: a capsule, or DLPack's."""
    places = {
        "let_go_of_capsule": CAPSULE_CONTEXT_OFFSET,
        "let_go_of_managed": MANAGED_CONTEXT_OFFSET,
        "let_go_of_versioned": VERSIONED_CONTEXT_OFFSET,
    }
    found = []
    for name, offset in places.items():
        b = Builder(name, [("what", PTR)])
        what = b.parameter("what")
        b.call("let_go", [b.load(PTR, what, offset // WORD), what])
        found.append(b.program)
    return found
