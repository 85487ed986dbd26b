"""Sums of four products of bytes, on every instruction set, against NumPy."""

import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import I8, I32, PTR, U8
from sardonyx.link.blob import build
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for
from tests.support.kernels import Kernels, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

LANES = (1, 2, 4, 8, 16, 32)


def program(lanes):
    """z[i] = z[i] + sum over j of x[4 i + j] * y[4 i + j]."""
    b = Builder(f"dot_{lanes}", [(n, PTR) for n in "xyz"], kind="kernel")
    with b.parallel(), b.for_(0, 64, lanes) as i:
        at = b.binary("mul", i, 4)
        x = b.load(U8.with_lanes(4 * lanes), b.parameter("x"), at)
        y = b.load(I8.with_lanes(4 * lanes), b.parameter("y"), at)
        z = b.load(I32.with_lanes(lanes), b.parameter("z"), i, align_bytes=4)
        b.store(b.dot(z, x, y), b.parameter("z"), i, align_bytes=4)
    return b.program


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize("fill", ["random", "extreme"])
def test_dot(target, lanes, fill):
    random = np.random.default_rng(lanes)
    x = random.integers(0, 255, 256, np.uint8, endpoint=True)
    y = random.integers(-128, 127, 256, np.int8, endpoint=True)
    z = random.integers(-(2**31), 2**31 - 1, 64, np.int32, endpoint=True)
    if fill == "extreme":  # where 16-bit sums of two products would saturate
        x[:], y[:] = 255, np.where(np.arange(256) // 4 % 2, 127, -128)
    products = x.astype(np.int32) * y.astype(np.int32)
    wanted = z + products.reshape(64, 4).sum(1, dtype=np.int32)
    Kernels([program(lanes)], target).run(f"dot_{lanes}", x, y, z)
    assert np.array_equal(z, wanted)


@pytest.mark.parametrize("flags", [frozenset(), frozenset({"asimddp"})], ids=["plain", "dotprod"])
def test_dot_assembles_for_aarch64(flags):
    target = target_for("neon", Machine("aarch64", flags, Caches()))
    assert build(emit_module([program(lanes) for lanes in LANES], target), target)
