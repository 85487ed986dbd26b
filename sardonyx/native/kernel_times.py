"""Native: how long kernels take.

A plan is recorded by an image that has `record` in the place of every kernel. Nothing else of a run
differs, and runs that are not recorded have no part in it.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import FIELDS
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.native.layout import FRAME, JOB, RECORDER, SPAN, TRACK, WORD


def record() -> Program:
    """`void record(arguments, begin, end, context)`: the command's kernel, and a note of it.

    Has the form of a kernel. The context says which command it is, of which frame (its record of
    faults is in there), and in which thread.
    """
    parameters = [("arguments", PTR), ("begin", I64), ("end", I64), ("context", PTR)]
    b = Builder("record", parameters)
    arguments, begin, end, context = (b.parameter(name) for name, _ in parameters)
    fault = b.load(PTR, context, FIELDS["fault"] // WORD)
    frame = b.offset(fault, -FRAME["fault"], WORD)
    number = b.load(I64, context, FIELDS["command"] // WORD)
    recorder = FRAME.pointer(b, frame, "recorder")
    kernel = b.load(PTR, RECORDER.pointer(b, recorder, "kernels"), number)
    started = b.clock()
    b.call(kernel, [arguments, begin, end, context])
    ended = b.clock()
    tracks = b.offset(recorder, RECORDER.words, WORD)
    track = TRACK.at(b, tracks, b.load(I64, context, FIELDS["thread"] // WORD))
    count = TRACK.read(b, track, "count")
    TRACK.write(b, track, "count", count + 1)
    with b.if_(count < RECORDER.read(b, recorder, "capacity")):
        span = SPAN.at(b, TRACK.pointer(b, track, "rows"), count)
        job = JOB.at(b, FRAME.pointer(b, frame, "jobs"), number)
        values = (number, begin, end, JOB.read(b, job, "blocks"), started, ended)
        for name, value in zip(SPAN.names, values, strict=True):
            SPAN.write(b, span, name, value)
    b.return_()
    return b.program


def clock() -> Program:
    """`i64 clock()`: what `record` notes as time."""
    b = Builder("clock", [], result=I64)
    b.return_(b.clock())
    return b.program
