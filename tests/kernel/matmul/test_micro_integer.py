"""The micro-kernel of bytes, against NumPy."""

import ctypes

import numpy as np
import pytest

from sardonyx.kernel.language.types import I8, U8
from sardonyx.kernel.matmul.micro_integer import build_integer_micro, integer_micro_name
from tests.support.kernels import Kernels, dtype, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

POINTER = ctypes.c_void_p


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("element", [U8, I8], ids=str)
@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_tile(target, element, zeros):
    """Three rows of two taps, twelve steps deep, by two vectors of columns."""
    rows, taps, depth, vectors, lanes = 3, 2, 12, 2, target.lanes(32)
    width = vectors * lanes
    random = np.random.default_rng(1)
    limits = np.iinfo(dtype(element))
    a = random.integers(limits.min, limits.max, (taps, rows, depth), dtype(element), endpoint=True)
    w = random.integers(-128, 127, (taps, depth, width), np.int8, endpoint=True)
    start = random.integers(-(2**31), 2**31, width).astype(np.int32)
    points = random.integers(-300, 300, width).astype(np.int32)
    panel = np.ascontiguousarray(w.reshape(taps, depth // 4, 4, width).transpose(0, 1, 3, 2))
    table = np.array([r.ctypes.data for tap in a for r in tap], np.int64)
    tile = np.zeros((rows, width), np.int32)
    name = integer_micro_name(element, rows, vectors, lanes, zeros=zeros)
    kernels = Kernels([build_integer_micro(element, rows, vectors, lanes, zeros=zeros)], target)
    kinds = [POINTER, ctypes.c_int64, ctypes.c_int64, POINTER, POINTER, POINTER]
    operands = [table.ctypes.data, taps, depth // 4, panel.ctypes.data, tile.ctypes.data]
    operands += [start.ctypes.data, *([points.ctypes.data] if zeros else [])]
    kinds += [*([POINTER] if zeros else []), POINTER, ctypes.c_int64]
    # What is asked for need not be there.
    kernels.function(name, None, *kinds)(*operands, panel.ctypes.data + (1 << 40), 48)
    unsigned = a.astype(np.int64) + (128 if element == I8 else 0)
    wanted = np.einsum("trk,tkc->rc", unsigned, w.astype(np.int64)) + start
    if zeros:
        wanted -= unsigned.sum((0, 2))[:, None] * points
    assert np.array_equal(tile, wanted.astype(np.int32))
