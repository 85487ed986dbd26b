"""Native: read the feeds' fields, note addresses and dimensions."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I32, I64, PTR
from sardonyx.native.layout import (
    DATA_OFFSET,
    DESCR_OFFSET,
    DIMS_OFFSET,
    FLAGS_OFFSET,
    FRAME,
    IMAGE,
    INPUT,
    NEEDED_FLAGS,
    RANK_OFFSET,
    STATE,
    TYPE_OFFSET,
    WORD,
)


def bind() -> Program:
    """`i64 bind(frame, items)`: `items` are addresses of array objects, one per input.

    Gives 0 if all dimensions are those of the last resolved run, 1 if not, and -1 - k if feed k is
    not an array of the plain kind: exact type, expected dtype and rank, contiguous, aligned.
    """
    b = Builder("bind", [("frame", PTR), ("items", PTR)], result=I64)
    frame, items = b.parameter("frame"), b.parameter("items")
    image = FRAME.pointer(b, frame, "image")
    FRAME.write(b, frame, "fault", 0)
    for name in ("cancel_word", "command", "block", "together"):
        FRAME.write(b, frame, name, 0)
    states = FRAME.pointer(b, frame, "states")
    with b.for_(0, IMAGE.read(b, image, "segment_count")) as k:
        STATE.write(b, STATE.at(b, states, k), "given", 0)
    unresolved = b.eq(FRAME.read(b, frame, "valid"), 0)
    changed = b.variable(b.convert(unresolved, I64))
    array_type = IMAGE.read(b, image, "array_type")
    inputs = IMAGE.pointer(b, image, "inputs")
    all_dims = FRAME.pointer(b, frame, "dims")
    bases = FRAME.pointer(b, frame, "bases")
    with b.for_(0, IMAGE.read(b, image, "input_count")) as i:
        record = INPUT.at(b, inputs, i)
        array = b.load(PTR, items, i)
        rank = INPUT.read(b, record, "rank")
        with b.if_(b.ne(b.load(I64, array, TYPE_OFFSET // WORD), array_type)):
            b.return_(-1 - i)
        wrong = b.ne(b.load(I64, array, DESCR_OFFSET // WORD), INPUT.read(b, record, "descr"))
        found_rank = b.index_cast(b.load(I32, array, RANK_OFFSET // 4))
        wrong = wrong | b.ne(found_rank, rank)
        flags = b.load(I32, array, FLAGS_OFFSET // 4)
        wrong = wrong | b.ne(flags & NEEDED_FLAGS, NEEDED_FLAGS)
        with b.if_(wrong):
            b.return_(-1 - i)
        b.store(b.load(I64, array, DATA_OFFSET // WORD), bases, INPUT.read(b, record, "buffer"))
        found = b.load(PTR, array, DIMS_OFFSET // WORD)
        known = b.offset(all_dims, INPUT.read(b, record, "first_axis"), WORD)
        with b.for_(0, rank) as axis:
            size = b.load(I64, found, axis)
            with b.if_(b.ne(size, b.load(I64, known, axis))):
                b.store(size, known, axis)
                FRAME.write(b, frame, "valid", 0)
                changed.set(1)
    b.return_(changed.get())
    return b.program
