"""Codes of narrow floats, and words of complex numbers, on every instruction set there is here."""

import ml_dtypes
import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.kernel.expressions import complex_numbers, small_floats
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import F32, F64, PTR, U8, memory_type
from sardonyx.tensor.rounding import NEAREST, UNSATURATED
from tests.support.kernels import Kernels, targets
from tests.support.tolerances import assert_near

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

NARROW = tuple(small_floats.FORMATS)
LANES = (1, 4, 16)
ROUNDINGS = {"saturated": NEAREST, "unsaturated": UNSATURATED}


def elementwise(name, sources, body, count, lanes):
    """z[i] = body(loaded operands) for `count` elements, a multiple of the lanes."""
    names = "xy"[: len(sources)]
    b = Builder(name, [(n, PTR) for n in [*names, "z"]], kind="kernel")
    with b.parallel(), b.for_(0, count, lanes) as i:
        loaded = [
            b.load(t.with_lanes(lanes), b.parameter(n), i)
            for n, t in zip(names, sources, strict=True)
        ]
        b.store(body(b, *loaded), b.parameter("z"), i)
    return b.program


def numbers(dtype):
    """Every code's number, what lies between, beside and beyond, as f32."""
    known = np.arange(256 if dtype.bits == 8 else 1 << dtype.bits).astype(np.uint8)
    exact = known.view(dtype.numpy).astype(np.float32)
    exact = np.unique(np.abs(exact[np.isfinite(exact)]))
    middle = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(v, np.float32(w)) for v in (exact, middle) for w in (0, 1e30)]
    found = np.concatenate([exact, middle, *near, exact * 3, [np.inf, np.nan, 1e-42]])
    found = np.concatenate([found, -found]).astype(np.float32)
    return np.resize(found, -(-found.size // 16) * 16)


def all_programs(lanes):
    for dtype in (*NARROW, dtypes.FLOAT8E8M0):
        yield elementwise(
            f"decode_{dtype}_{lanes}", [U8],
            lambda b, x, d=dtype: small_floats.decode(b, x, d), 256, lanes,
        )  # fmt: skip
    for dtype in NARROW:
        for word, rounding in ROUNDINGS.items():
            yield elementwise(
                f"encode_{dtype}_{word}_{lanes}", [F32],
                lambda b, x, d=dtype, r=rounding: small_floats.encode(b, x, d, r),
                numbers(dtype).size, lanes,
            )  # fmt: skip
    for dtype, part in ((dtypes.COMPLEX64, F32), (dtypes.COMPLEX128, F64)):
        kind = memory_type(dtype)
        for op in ("add", "mul"):
            yield elementwise(
                f"{op}_{dtype}_{lanes}", [kind, kind],
                lambda b, x, y, d=dtype, op=op: complex_numbers.binary(b, op, x, y, d), 64, lanes,
            )  # fmt: skip
        yield elementwise(
            f"combine_{dtype}_{lanes}", [part, part],
            lambda b, x, y, d=dtype: complex_numbers.combine(b, x, y, d), 64, lanes,
        )  # fmt: skip


@pytest.fixture(scope="module", params=targets(), ids=lambda t: t.isa)
def kernels(request):
    return Kernels([p for lanes in LANES for p in all_programs(lanes)], request.param)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [*NARROW, dtypes.FLOAT8E8M0], ids=repr)
def test_every_code(kernels, dtype, lanes):
    codes = (np.arange(256) % (1 << dtype.bits)).astype(np.uint8)
    found = np.zeros(256, np.float32)
    kernels.run(f"decode_{dtype}_{lanes}", codes, found)
    want = codes.view(dtype.numpy).astype(np.float32)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("word", ROUNDINGS)
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_nearest_code(kernels, dtype, word, lanes):
    x = numbers(dtype)
    found = np.zeros(x.size, np.uint8)
    kernels.run(f"encode_{dtype}_{word}_{lanes}", x, found)
    limit = np.float32(ml_dtypes.finfo(dtype.numpy).max)
    with np.errstate(all="ignore"):
        bounded = np.clip(x, -limit, limit) if word == "saturated" else x
        want = bounded.astype(dtype.numpy).view(np.uint8)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [dtypes.COMPLEX64, dtypes.COMPLEX128], ids=repr)
def test_words_of_complex_numbers(kernels, dtype, lanes):
    rng = np.random.default_rng(0)
    x, y = (
        (rng.standard_normal(64) + 1j * rng.standard_normal(64)).astype(dtype.numpy) for _ in "xy"
    )
    for op, want in (("add", x + y), ("mul", x * y)):
        found = np.zeros_like(x)
        kernels.run(f"{op}_{dtype}_{lanes}", x, y, found)
        assert_near(found, want, "float: functions")
    found = np.zeros_like(x)
    kernels.run(f"combine_{dtype}_{lanes}", x.real.copy(), x.imag.copy(), found)
    np.testing.assert_array_equal(found, x)
