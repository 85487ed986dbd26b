"""Conversions between registers round once, on every target: vectors and single numbers."""

import ctypes

import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import BF16, F16, F32, F64, I32, I64, PTR, U32, U64
from sardonyx.link.blob import build
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for
from tests.support import exact, foreign
from tests.support.kernels import targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

LANES = 4
SOURCES = {dtypes.DOUBLE: F64, dtypes.INT32: I32, dtypes.UINT32: U32,
           dtypes.INT64: I64, dtypes.UINT64: U64}  # fmt: skip
RESULTS = {dtypes.FLOAT: F32, dtypes.FLOAT16: F16, dtypes.BFLOAT16: BF16}
#: Of each, the last whole vector is converted number by number.
PAIRS = [(s, r) for s in SOURCES for r in RESULTS]


def given(source, result):
    x = exact.numbers(source, result)
    return np.concatenate([x, x[:LANES], np.zeros(-x.size % LANES, x.dtype)])


def program():
    """All pairs: numbers lie one after the other in `x`, results in `y`, 8 bytes for each."""
    b = Builder("f", [("x", PTR), ("y", PTR)])
    begin = 0
    for source, result in PAIRS:
        x, y = (b.offset(b.parameter(p), begin, F64) for p in "xy")
        count = given(source, result).size
        with b.for_(0, count - LANES, LANES) as i:
            vector = b.load(SOURCES[source].with_lanes(LANES), x, i)
            b.store(b.convert(vector, RESULTS[result].with_lanes(LANES)), y, i)
        with b.for_(count - LANES, count) as i:
            b.store(b.convert(b.load(SOURCES[source], x, i), RESULTS[result]), y, i)
        begin += count
    b.return_()
    return b.program


def operands():
    words = []
    for source, result in PAIRS:
        x = given(source, result)
        words += [x.view(np.uint8), np.zeros(8 * x.size - x.nbytes, np.uint8)]
    return np.concatenate(words)


def check(y):
    begin = 0
    for source, target in PAIRS:
        x = given(source, target)
        results = y[8 * begin :].view(target.numpy)[: x.size]
        begin += x.size
        for number, have in zip(exact.of_array(x), exact.of_array(results), strict=True):
            want = exact.as_float(number, target)
            both_nan = have != have and want != want
            assert both_nan or have == want, (source, target, number, have, want)


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_on_this_machine(target):
    code = load_blob(build(emit_module([program()], target), target))
    x = operands()
    y = np.zeros_like(x)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("f"))
    call(x.ctypes.data, y.ctypes.data)
    check(y)


@pytest.mark.skipif(foreign.QEMU is None, reason="no qemu-aarch64")
def test_aarch64(tmp_path):
    target = target_for("neon", Machine("aarch64", frozenset(), Caches()))
    blob = build(emit_module([program()], target), target)
    x = operands()
    _, buffers = foreign.call(blob, "f", [x.tobytes(), bytes(x.nbytes)], tmp_path)
    check(np.frombuffer(buffers[1], np.uint8))
