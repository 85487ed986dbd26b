"""The micro-kernel of floats, against NumPy, of numbers whose sums are exact."""

import ctypes
from itertools import product

import numpy as np
import pytest

from sardonyx.kernel.language.types import F32, F64
from sardonyx.kernel.matmul.long_sums import LONG_RUN
from sardonyx.kernel.matmul.micro import PART, build_micro, micro_name, vectors_at_once
from tests.support.kernels import Kernels, dtype, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

#: Rows and vectors: tiles that are stored at once, and row by row.
TILES = [(1, 4), (3, 4), (4, 4), (6, 2), (6, 4)]
#: Taps and depths: around the steps that go by rows, and the sums that are added up in parts.
SUMS = [
    *((1, depth) for depth in (0, 1, 2, 3, 4, 7, 255, 256, 257, 258, 259, 384, 512, 600)),
    (2, 1), (2, 3), (3, 100), (9, 2), (9, 40), (3, 257),
]  # fmt: skip
#: Products that are summed in registers.
RUNS = (PART, LONG_RUN)


def aligned(array):
    """A copy that begins at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


@pytest.mark.parametrize(
    "rows, vectors, registers, wanted",
    [
        (6, 4, 32, 4), (6, 4, 16, 2), (6, 3, 16, 2), (6, 2, 16, 2), (4, 4, 16, 2), (3, 4, 16, 2),
        (2, 4, 16, 4), (1, 4, 16, 4), (6, 4, 4, 1),
    ],
)  # fmt: skip
def test_how_many_vectors_registers_hold(rows, vectors, registers, wanted):
    assert vectors_at_once(rows, vectors, registers) == wanted


@pytest.mark.parametrize("at_once", [None, 2, 3])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("element", [F32, F64], ids=str)
@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_tiles(target, element, apart, at_once):
    lanes, kind = target.lanes(element.bits), dtype(element)
    programs = [build_micro(element, r, v, lanes, apart=apart, at_once=at_once) for r, v in TILES]
    kernels = Kernels(programs, target)
    random = np.random.default_rng(2)
    for rows, vectors in TILES:
        width = vectors * lanes
        pitch = width + lanes if apart else width
        name = micro_name(element, rows, vectors, lanes, apart=apart, at_once=at_once)
        pointers = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 2]
        more = [ctypes.c_int64] if apart else [ctypes.c_void_p, ctypes.c_int64]
        multiply = kernels.function(name, None, *pointers, ctypes.c_int64, *more)
        for (taps, depth), run in product(SUMS, RUNS):
            a = random.integers(-9, 9, (taps, rows, depth)).astype(kind)
            w = aligned(random.integers(-9, 9, (taps, depth, width)).astype(kind))
            table = np.array([line.ctypes.data for tap in a for line in tap], np.int64)
            tile = aligned(np.full((rows + 1) * pitch, 77, kind))
            operands = [table.ctypes.data, taps, depth, w.ctypes.data, tile.ctypes.data]
            # What is asked for need not be there.
            multiply(*operands, run, *([pitch] if apart else [w.ctypes.data + (1 << 40), 48]))
            found = tile.reshape(rows + 1, pitch)
            wanted = np.einsum("trk,tkc->rc", a, w)
            case = (rows, vectors, taps, depth, run)
            assert np.array_equal(found[:rows, :width], wanted), case
            assert (found[:rows, width:] == 77).all() and (found[rows] == 77).all(), case
