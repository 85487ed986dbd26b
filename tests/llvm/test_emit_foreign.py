"""AArch64 code, run by qemu, and code for the oldest x86-64, give the bits that the host gives."""

import ctypes

import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import BF16, F16, F32, F64, I8, I32, I64, PTR
from sardonyx.link.blob import build
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import host_target, target_for
from tests.llvm.test_math import BINARY, UNARY
from tests.support import foreign
from tests.support.kernels import MACHINE

COUNT = 64
ARM = target_for("neon", Machine("aarch64", frozenset(), Caches()))
OLDEST = target_for("sse", Machine("x86_64", frozenset(), Caches()))


def everything(type):
    """z[k] = k-th operation of x and y, for all elementwise mathematics."""
    b = Builder("f", [("x", PTR), ("y", PTR), ("z", PTR)])
    x, y, z = (b.parameter(p) for p in "xyz")
    lanes = 4
    with b.for_(0, COUNT, lanes) as i:
        p, q = (b.load(type.with_lanes(lanes), v, i) for v in (x, y))
        results = [b.unary(op, p) for op in (*UNARY, "floor", "ceil", "trunc", "round")]
        results += [b.binary(op, p, q) for op in (*BINARY, "min", "max", "div")]
        results.append(b.fma(p, q, p))
        for t in (F16, BF16, I8, I32, I64):
            results.append(b.convert(b.convert(p, t), type))
        for k, result in enumerate(results):
            b.store(result, b.offset(z, k * COUNT, type), i)
    b.return_()
    return b.program, len(results)


def operands(kind):
    random = np.random.default_rng(11)
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 1e12, -1e30]
    with np.errstate(over="ignore"):
        x = np.concatenate([special, random.uniform(-9, 9, COUNT - 12)]).astype(kind)
        return x, random.uniform(-9, 9, COUNT).astype(kind)


@pytest.fixture(scope="module", params=[F32, F64], ids=str)
def host(request):
    type = request.param
    program, count = everything(type)
    x, y = operands(np.dtype(type.scalar.replace("32", "4").replace("64", "8")))
    return type, program, x, y, on_this_machine(host_target(), program, x, y, count)


def on_this_machine(target, program, x, y, count):
    code = load_blob(build(emit_module([program], target), target))
    z = np.zeros((count, COUNT), x.dtype)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("f"))
    call(x.ctypes.data, y.ctypes.data, z.ctypes.data)
    return z


def check(found, expected):
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    assert not np.argwhere(~same).tolist()


@pytest.mark.skipif(foreign.QEMU is None, reason="no qemu-aarch64")
def test_aarch64(host, tmp_path):
    _, program, x, y, expected = host
    blob = build(emit_module([program], ARM), ARM)
    given = [x.tobytes(), y.tobytes(), bytes(expected.nbytes)]
    _, buffers = foreign.call(blob, "f", given, tmp_path)
    check(np.frombuffer(buffers[2], x.dtype).reshape(expected.shape), expected)


@pytest.mark.skipif(MACHINE.arch != "x86_64", reason="runs x86-64 code")
def test_oldest_x86(host):
    type, program, x, y, expected = host
    found = on_this_machine(OLDEST, program, x, y, len(expected))
    check(found, expected)
