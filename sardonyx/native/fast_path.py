"""Native: runs that are like the last one of their frame, with little ado."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I32, I64, PTR
from sardonyx.native.layout import (
    DESCR_OFFSET,
    DIMS_OFFSET,
    FLAGS_OFFSET,
    FRAME,
    IMAGE,
    NEEDED_FLAGS,
    NOT_AGAIN,
    OUTPUT,
    RANK_OFFSET,
    TYPE_OFFSET,
    WORD,
    WRITEABLE_FLAG,
)


def fits() -> Program:
    """`i64 fits(frame, items, outputs)`: `bind`, and a look at the arrays for results.

    Both take addresses of array objects. Gives 0, or NOT_AGAIN if `bind` finds anything new, or an
    output of the first segment is not an array of the resolved shape and type, to be written to.
    """
    b = Builder("fits", [("frame", PTR), ("items", PTR), ("outputs", PTR)], result=I64)
    frame, outputs = b.parameter("frame"), b.parameter("outputs")
    state = b.call("bind", [frame, b.parameter("items")], I64)
    not_again = b.constant(I64, NOT_AGAIN)
    with b.if_(b.ne(state, 0)):
        b.return_(not_again)
    image, slots = FRAME.pointer(b, frame, "image"), FRAME.pointer(b, frame, "slots")
    array_type = IMAGE.read(b, image, "array_type")
    rows, shapes = IMAGE.pointer(b, image, "outputs"), IMAGE.pointer(b, image, "shapes")
    wanted_flags = NEEDED_FLAGS | WRITEABLE_FLAG
    with b.for_(0, IMAGE.read(b, image, "output_count")) as k:
        row = OUTPUT.at(b, rows, k)
        rank = OUTPUT.read(b, row, "rank")
        array = b.load(PTR, outputs, OUTPUT.read(b, row, "item"))
        with b.if_(b.ne(b.load(I64, array, TYPE_OFFSET // WORD), array_type)):
            b.return_(not_again)
        wrong = b.ne(b.load(I64, array, DESCR_OFFSET // WORD), OUTPUT.read(b, row, "descr"))
        found_rank = b.index_cast(b.load(I32, array, RANK_OFFSET // 4))
        wrong = wrong | b.ne(found_rank, rank)
        flags = b.load(I32, array, FLAGS_OFFSET // 4)
        wrong = wrong | b.ne(flags & wanted_flags, wanted_flags)
        with b.if_(wrong):
            b.return_(not_again)
        found = b.load(PTR, array, DIMS_OFFSET // WORD)
        known = b.offset(shapes, OUTPUT.read(b, row, "first_axis"), WORD)
        with b.for_(0, rank) as axis:
            size = b.load(I64, slots, b.load(I64, known, axis))
            with b.if_(b.ne(b.load(I64, found, axis), size)):
                b.return_(not_again)
    b.return_(b.constant(I64, 0))
    return b.program


def again() -> Program:
    """`i64 again(frame, items, outputs)`: `fits`, then `execute` on the caller's thread.

    Gives NOT_AGAIN if no kernel has run, else what `execute` gives.
    """
    b = Builder("again", [("frame", PTR), ("items", PTR), ("outputs", PTR)], result=I64)
    frame, outputs = b.parameter("frame"), b.parameter("outputs")
    code = b.call("fits", [frame, b.parameter("items"), outputs], I64)
    with b.if_(b.ne(code, 0)):
        b.return_(code)
    code = b.call("execute", [frame, outputs, b.constant(PTR, 0)], I64)
    b.return_(code)
    return b.program
