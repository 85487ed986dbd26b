"""Native: checksums of large memory, at the speed of memory."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR, U64

#: A chunk has a state of its own, so chunks may be summed in any order, by any thread.
CHUNK_BYTES = 2**18
#: Words of a state. Their number, and so every checksum, is the same on all processors.
LANES = 32
_VECTORS, _VECTOR_LANES = 4, 8
_STEP_BYTES = 8 * LANES
#: An odd number, so that a word that differs makes a state that differs: 2^64 over the golden
#: ratio, and how far a product is turned, so that its high bits reach the low ones.
_FACTOR, _TURN = 0x9E3779B97F4A7C15, 29


def checksum() -> Program:
    """`i64 checksum(data, count, states, next, most)`: the states of chunks, as many as are left.

    Callers share `next`, the number of the first chunk that nobody has taken. Each takes up to
    `most` chunks, one after the other, and writes their states to `states`. Gives how many chunks
    it took; less than `most` if none is left.
    """
    b = Builder(
        "checksum",
        [("data", PTR), ("count", I64), ("states", PTR), ("next", PTR), ("most", I64)],
        result=I64,
    )
    vector = U64.with_lanes(_VECTOR_LANES)
    count, done = b.parameter("count"), b.variable(0, I64, "done")
    going = b.variable(1, I64, "going")
    with b.while_(lambda: b.ne(going.get(), 0)):
        number = b.atomic("add", b.parameter("next"), b.constant(I64, 1))
        with b.if_(number < count):
            data = b.offset(b.parameter("data"), number, CHUNK_BYTES)
            first = b.iota(vector)
            states = [b.variable(first + _VECTOR_LANES * k, name="state") for k in range(_VECTORS)]
            with b.for_(0, CHUNK_BYTES // _STEP_BYTES) as step:
                for k, state in enumerate(states):
                    at = step * LANES + _VECTOR_LANES * k
                    word = b.load(vector, data, at, align_bytes=1)
                    mixed = (state.get() ^ word) * _FACTOR
                    high, low = mixed << _TURN, mixed >> (64 - _TURN)
                    state.set(high | low)
            for k, state in enumerate(states):
                b.store(state.get(), b.parameter("states"), number * LANES + _VECTOR_LANES * k)
            done.set(done.get() + 1)
            going.set(b.index_cast(done.get() < b.parameter("most")))
        with b.else_():
            going.set(0)
    b.return_(done.get())
    return b.program
