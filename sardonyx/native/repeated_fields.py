"""Native: elements of a repeated field that follow each other, see `loader.runs`."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I8, I32, I64, PTR, U8

#: Different texts of a run, at most.
MOST_TEXTS = 16

#: The bytes of a number that are looked at, each with its highest bit alone, and without it.
_LASTS, _DIGITS = 0x80808080, 0x7F7F7F7F

#: Bytes that are loaded for an element: its tag, and a word.
LOADED = 9


def read_integers() -> Program:
    """`i64 read_integers(data, size, tag, out, used)`: numbers of up to 28 bits, as int32.

    Gives how many there are; `used` gets the bytes that they take. Ends at another tag, at a longer
    number, and less than `LOADED` bytes before the end of the data.
    """
    b = Builder(
        "read_integers",
        [("data", PTR), ("size", I64), ("tag", I64), ("out", PTR), ("used", PTR)],
        result=I64,
    )
    data, out = b.parameter("data"), b.parameter("out")
    last = b.parameter("size") - LOADED
    position, count = b.variable(0, I64, "position"), b.variable(0, I64, "count")
    going = b.variable(1, I64, "going")

    def may_go() -> Operand:
        return b.ne(going.get(), 0) & (position.get() <= last)

    with b.while_(may_go):
        at = position.get()
        tag = b.index_cast(b.load(U8, data, at))
        word = b.load(I64, b.offset(data, at + 1), align_bytes=1)
        # One byte or two, told apart without a jump: which it is cannot be foreseen.
        more = (word >> 7) & 1
        high = (word >> 1) & (more * (0x7F << 7))
        value = b.variable((word & 0x7F) | high, name="value")
        step = b.variable(more + 2, name="step")
        good = b.variable(b.index_cast(b.eq(tag, b.parameter("tag"))), name="good")
        with b.if_(b.eq(word & 0x8080, 0x8080)):
            ends = b.unary("not", word) & _LASTS
            # There are 8 k - 1 bits below the last bit of byte number k, and the tag before all.
            below = (ends & (0 - ends)) - 1
            digits = word & below & _DIGITS
            value.set(digits & 0x7F)
            for k in range(1, 4):
                part = (digits >> k) & (0x7F << (7 * k))
                value.set(value.get() | part)
            step.set((b.unary("popcount", below) >> 3) + 2)
            good.set(good.get() & b.index_cast(b.ne(ends, 0)))
        b.store(b.convert(value.get(), I32), out, count.get())
        going.set(good.get())
        with b.if_(b.ne(good.get(), 0)):
            position.set(at + step.get())
            count.set(count.get() + 1)
    b.store(position.get(), b.parameter("used"))
    b.return_(count.get())
    return b.program


def read_texts() -> Program:
    """`i64 read_texts(data, size, tag, codes, table, used)`: texts of which few are different.

    Gives how many there are; codes (int8) get places in `table`, which gets the start and the
    length of each different text (two i64 each), and their number at the end; `used` gets the bytes
    that all take. Ends at another tag, a text of more than 127 bytes, or one too many.
    """
    b = Builder(
        "read_texts",
        [("data", PTR), ("size", I64), ("tag", I64), ("codes", PTR), ("table", PTR), ("used", PTR)],
        result=I64,
    )
    data, table, size = b.parameter("data"), b.parameter("table"), b.parameter("size")
    position, count = b.variable(0, I64, "position"), b.variable(0, I64, "count")
    known, going = b.variable(0, I64, "known"), b.variable(1, I64, "going")

    def may_go() -> Operand:
        left = size - position.get()
        return b.ne(going.get(), 0) & (left >= 2)

    with b.while_(may_go):
        at = position.get()
        tag = b.index_cast(b.load(U8, data, at))
        length = b.index_cast(b.load(U8, data, at + 1))
        start = at + 2
        after = start + length
        short = (length < 128) & (after <= size)
        going.set(0)
        with b.if_(b.eq(tag, b.parameter("tag")) & short):
            code = b.variable(known.get(), name="code")
            with b.for_(0, known.get()) as k:
                same = _is_same(b, data, start, length, table, k)
                code.set(b.select(same, k, code.get()))
            with b.if_(code.get() < MOST_TEXTS):
                with b.if_(b.eq(code.get(), known.get())):
                    row = code.get() * 2
                    b.store(start, table, row)
                    b.store(length, table, row + 1)
                    known.set(known.get() + 1)
                b.store(b.convert(code.get(), I8), b.parameter("codes"), count.get())
                count.set(count.get() + 1)
                position.set(after)
                going.set(1)
    b.store(known.get(), table, 2 * MOST_TEXTS)
    b.store(position.get(), b.parameter("used"))
    b.return_(count.get())
    return b.program


def _is_same(
    b: Builder, data: Operand, start: Operand, length: Operand, table: Operand, k: Operand
) -> Operand:
    """Whether a text is number `k` of the table."""
    row = k * 2
    other = b.load(I64, table, row)
    differs = b.variable(b.index_cast(b.ne(b.load(I64, table, row + 1), length)), name="differs")
    with b.if_(b.eq(differs.get(), 0)), b.for_(0, length) as j:
        mine = b.load(U8, data, start + j)
        its = b.load(U8, data, other + j)
        differs.set(differs.get() | b.index_cast(b.ne(mine, its)))
    return b.eq(differs.get(), 0)
