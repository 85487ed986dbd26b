"""Memory, lanes, calls and the thread context."""

import ctypes

import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import FIELDS
from sardonyx.kernel.language.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PTR,
    U8,
    U16,
    U32,
    U64,
)
from sardonyx.kernel.language.verify import verify
from tests.support.kernels import Kernels, dtype, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

TYPES = (I8, U16, I32, I64, F16, BF16, F32, F64, I1)


def masked(type, lanes):
    """y[5:5+n] = x[3:3+n] under a mask, unaligned."""
    b = Builder(f"masked_{type}_{lanes}", [("x", PTR), ("y", PTR), ("n", I64)], kind="kernel")
    x, y, n = (b.parameter(p) for p in "xyn")
    with b.parallel(), b.for_(0, n, lanes) as i:
        mask = b.tail_mask(n - i, lanes)
        value = b.load(type.with_lanes(lanes), x, i + 3, mask=mask, align_bytes=1)
        b.store(value, y, i + 5, mask=mask, align_bytes=1)
    return b.program


def moved(type, index, lanes=8):
    """y[j[i]] = x[j[i]] by gather and scatter, masked by c."""
    names = [(n, PTR) for n in "xyjc"]
    b = Builder(f"moved_{type}_{index}", names, kind="kernel")
    x, y, j, c = (b.parameter(p) for p in "xyjc")
    with b.parallel():
        at, mask = b.load(index.with_lanes(lanes), j), b.load(I1.with_lanes(lanes), c)
        value = b.load(type.with_lanes(lanes), x, at, mask=mask)
        b.store(value, y, at, mask=mask)
    return b.program


def lanes_program():
    b = Builder("lanes", [("x", PTR), ("y", PTR)], kind="kernel")
    x, y = b.parameter("x"), b.parameter("y")
    four = F32.with_lanes(4)
    with b.parallel():
        v = b.load(four, x)
        rows = [
            b.shuffle(v, v * 10.0, (7, 0, 5, 2)),
            b.insert(v, 2, b.extract(v, 0)),
            b.iota(four),
            b.splat(b.extract(v, 3), 4),
            b.convert(b.lane_indices(b.constant(I64, 5), 3, 4), F32),
            b.bitcast(b.bitcast(v, U8.with_lanes(16)), four),
            b.load(four, b.table(F32, (3, 1, 4, 1.5))),
            b.select(b.extract(v, 1) > 0.0, v, -v),
            b.scale(v, b.iota(four) * -2.0),
        ]
        bits = b.bitcast(b.shuffle(v, v, (0, 1, 2, 3, 0, 1, 2, 3)) > 1.5, U8)
        rows.append(b.splat(b.convert(bits, F32), 4))
        for i, row in enumerate(rows):
            b.store(row, y, 4 * i, align_bytes=4)
    return b.program


def atomics():
    b = Builder("atomics", [("p", PTR), ("old", PTR)], kind="kernel")
    p, old = b.parameter("p"), b.parameter("old")
    with b.parallel() as i:
        b.store(b.atomic("add", p, i), old, 0)
        b.store(b.atomic("max", b.offset(p, 1, I64), b.constant(I64, 50)), old, 1)
        b.store(b.atomic("exchange", b.offset(p, 2, I64), i, "acquire"), old, 2)
        b.store(b.compare_exchange(b.offset(p, 3, I64), b.constant(I64, 9), i), old, 3)
        b.store(b.load(I64, p, 4, ordering="acquire"), p, 5, ordering="release")
        b.fence()
        b.pause()
        b.prefetch(p, i, I64)
        unsigned = b.constant(U64, 2**63)
        b.atomic("max", b.offset(p, 6, I64), unsigned)
    return b.program


def calls():
    triple = Builder("triple", [("x", I64), ("small", I8)], result=I64)
    x, small = (triple.parameter(p) for p in ("x", "small"))
    triple.return_(x * 3 + triple.convert(small, I64))
    inline = Builder("inline", [("p", PTR), ("v", I64)], always_inline=True)
    inline.store(inline.parameter("v"), inline.parameter("p"))
    b = Builder("calls", [("printer", PTR), ("text", PTR), ("y", PTR)], kind="kernel")
    printer, text, y = (b.parameter(p) for p in ("printer", "text", "y"))
    with b.parallel() as i:
        minus = b.constant(I8, -2)
        b.store(b.call("triple", [i, minus], I64), y, 0)
        b.store(b.call(b.address_of("triple"), [i, minus], I64), y, 1)
        # snprintf: the third and later are variadic
        given = [b.offset(y, 24), b.constant(I64, 8), text, i, b.constant(F64, 2.5)]
        b.store(b.convert(b.call(printer, given, I32, fixed=3), I64), y, 2)
        b.call("inline", [b.offset(y, 4, I64), i])
        b.store(b.context("thread"), y, 5)
        scratch = b.context("scratch")
        b.store(i, scratch)
        area = b.local(I64, 4)
        with b.for_(0, 4) as k:
            b.store(k * k, area, k)
        b.store(b.load(I64, area, 3), y, 6)
    return [triple.program, inline.program, b.program]


PROGRAMS = [
    *(masked(t, lanes) for t in TYPES for lanes in (1, 4, 16, 32)),
    *(moved(t, index) for t in TYPES for index in (I32, U32, I64)),
    lanes_program(),
    atomics(),
    *calls(),
]


@pytest.fixture(scope="module", params=targets(), ids=lambda t: t.isa)
def kernels(request):
    return Kernels(PROGRAMS, request.param)


def test_programs_are_well_formed():
    for program in PROGRAMS:
        verify(program)


def sample(type, count=64):
    random = np.random.default_rng(5)
    if type == I1:
        return random.random(count) < 0.5
    return random.integers(0, 100, count).astype(dtype(type))


def test_masked(kernels):
    for type in TYPES:
        for lanes in (1, 4, 16, 32):
            for n in (0, 1, 5, 16, 31, 33):
                x, y = sample(type), np.zeros(64, dtype(type))
                kernels.run(f"masked_{type}_{lanes}", x, y, n)
                expected = np.zeros_like(y)
                expected[5 : 5 + n] = x[3 : 3 + n]
                assert y.tobytes() == expected.tobytes(), (type, lanes, n)


def test_gather_and_scatter(kernels):
    mask = np.array([1, 1, 0, 1, 0, 1, 1, 1], bool)
    for type in TYPES:
        for index in (I32, U32, I64):
            x, y = sample(type), np.zeros(64, dtype(type))
            at = np.array([4, 60, 7, 0, 9, 33, 12, 5], dtype(index))
            kernels.run(f"moved_{type}_{index}", x, y, at, mask)
            expected = np.zeros_like(y)
            expected[at[mask]] = x[at[mask]]
            assert y.tobytes() == expected.tobytes(), (type, index)


def test_lanes(kernels):
    x, y = np.array([1, 2, 3, 4], np.float32), np.zeros((10, 4), np.float32)
    kernels.run("lanes", x, y)
    assert y.tolist() == [
        [40, 1, 20, 3],
        [1, 2, 1, 4],
        [0, 1, 2, 3],
        [4, 4, 4, 4],
        [5, 8, 11, 14],
        [1, 2, 3, 4],
        [3, 1, 4, 1.5],
        [1, 2, 3, 4],
        [1, 0.5, 0.1875, 0.0625],
        [238] * 4,
    ]


def test_atomics(kernels):
    p, old = np.array([10, 20, 30, 9, 77, 0, 5], np.int64), np.zeros(4, np.int64)
    kernels.run("atomics", p, old, begin=6, end=7)
    assert p.tolist() == [16, 50, 6, 6, 77, 77, -(2**63)]
    assert old.tolist() == [10, 20, 30, 9]


def test_calls_and_context(kernels):
    text, y = np.frombuffer(b"%ld:%.1f\0", np.uint8), np.zeros(8, np.int64)
    scratch = np.zeros(8, np.int64)
    kernels.context[FIELDS["scratch"] // 8] = scratch.ctypes.data
    kernels.context[FIELDS["thread"] // 8] = 11
    printer = ctypes.cast(ctypes.CDLL(None).snprintf, ctypes.c_void_p).value
    kernels.run("calls", printer, text, y, begin=5, end=6)
    assert y.tolist()[:3] == [13, 13, 5]
    assert y[3:4].tobytes()[:6] == b"5:2.5\0"
    assert y.tolist()[4:7] == [5, 11, 9]
    assert scratch[0] == 5
