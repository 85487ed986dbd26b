"""Errors in units of the last place against longdouble, and special values against NumPy."""

import math

import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import F32, F64, I64, PTR
from sardonyx.kernel.language.verify import verify
from sardonyx.llvm.math import FUNCTIONS, HELPERS, expansion
from tests.support.kernels import Kernels, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

L = np.longdouble
_erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


#: Where the inverses of hyperbolic functions become logarithms, on both sides; and far beyond.
_LARGE = [(1e4, 1e5), (1e8, 1e9), (1, 1e30)]
_INVERSE_RANGES = [(-10, 10), (-1e-3, 1e-3), *_LARGE, (-1e30, 1e30)]

#: operation -> reference, ranges, largest error (float32, float64) in ulp.
UNARY = {
    "exp": (np.exp, [(-104, 89), (-746, 710), (-1, 1)], 1, 1),
    "exp2": (np.exp2, [(-150, 129), (-1075, 1025), (-1, 1)], 1, 1),
    "expm1": (np.expm1, [(-50, 89), (-1, 1), (-1e-3, 1e-3), (80, 710), (-1e-38, 1e-38)], 2, 2),
    "log": (np.log, [(0, 2), (0, 1e38), (0.9, 1.1), (0, 1e-38)], 1, 1),
    "log2": (np.log2, [(0, 2), (0, 1e38), (0.9, 1.1), (0, 1e-38)], 1, 1),
    "log1p": (np.log1p, [(-1, 1), (-1e-3, 1e-3), (0, 1e30)], 1, 1),
    "sin": (np.sin, [(-4, 4), (-1e5, 1e5), (-1e30, 1e30)], 1, 3),
    "cos": (np.cos, [(-4, 4), (-1e5, 1e5), (-1e30, 1e30)], 1, 3),
    "tan": (np.tan, [(-4, 4), (-1e5, 1e5), (-1e30, 1e30)], 1, 4),
    "asin": (np.arcsin, [(-1, 1), (-1e-3, 1e-3)], 1, 1.5),
    "acos": (np.arccos, [(-1, 1), (0.99, 1)], 1, 1),
    "atan": (np.arctan, [(-10, 10), (-1e10, 1e10)], 1, 1),
    "sinh": (np.sinh, [(-89, 89), (-710, 710), (-1, 1)], 2.5, 3),
    "cosh": (np.cosh, [(-89, 89), (-710, 710), (-1, 1)], 1.5, 1.5),
    "tanh": (np.tanh, [(-10, 10), (-20, 20), (-1, 1), (-1e-3, 1e-3)], 2, 2.5),
    "asinh": (np.arcsinh, _INVERSE_RANGES, 2, 2),
    "acosh": (np.arccosh, [(1, 3), (1, 1.001), *_LARGE], 2, 3),
    "atanh": (np.arctanh, [(-1, 1), (-1e-3, 1e-3)], 2, 2),
    "sigmoid": (sigmoid, [(-90, 90), (-720, 40), (-1, 1)], 2, 2),
    "erf": (_erf, [(-6, 6), (-1, 1), (-1e-3, 1e-3)], 1.5, 1.5),
    "sqrt": (np.sqrt, [(0, 10)], 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [(0, 10)], 1.5, 1.5),
    "reciprocal": (lambda x: 1 / x, [(-10, 10)], 0.5, 0.5),
}
BINARY = {
    "pow": (
        np.power,
        [((0, 3), (-30, 30)), ((0, 1e20), (-2, 2)), ((0.99, 1.01), (-5e3, 5e3))],
        1,
        1.5,
    ),
    "atan2": (np.arctan2, [((-3, 3), (-3, 3)), ((-1e-5, 1e-5), (-1, 1))], 1, 2),
    "rem": (np.fmod, [((-30, 30), (-3, 3)), ((-1e30, 1e30), (-1, 1))], 0, 0),
}
COUNT = 1600
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40,
     1e-45, 88.9, -104.5, 700, 1e30, -1e30, 3e38, -3e38, 5e-324, 1e300, -1e300, 7e15, 4.0, -745.2]
)  # fmt: skip


def kernel(op, element, lanes, operands):
    b = Builder(f"{op}_{element}_{lanes}", [(n, PTR) for n in "xyz"] + [("n", I64)], kind="kernel")
    x, y, z, n = (b.parameter(p) for p in "xyzn")
    type = element.with_lanes(lanes)
    with b.parallel(), b.for_(0, n, lanes) as i:
        a = b.load(type, x, i, align_bytes=4)
        if operands == 1:
            result = b.unary(op, a)
        else:
            result = b.binary(op, a, b.load(type, y, i, align_bytes=4))
        b.store(result, z, i, align_bytes=4)
    return b.program


@pytest.fixture(scope="module", params=targets(), ids=lambda t: t.isa)
def kernels(request):
    vector = request.param.vector_bits
    programs = []
    for element in (F32, F64):
        for operands, table in ((1, UNARY), (2, BINARY)):
            for lanes in (1, vector // element.bits):
                programs += [kernel(op, element, lanes, operands) for op in table]
    programs += [kernel("erfc", e, lanes, 1) for e in (F32, F64) for lanes in (1, vector // e.bits)]
    found = Kernels(programs, request.param)
    found.vector = vector
    return found


def ulp_error(found, exact, dtype):
    """Distance in units of the last place of the exact value, which may be longdouble."""
    near = np.abs(exact).astype(dtype)
    unit = np.spacing(np.minimum(near, np.finfo(dtype).max)).astype(L)
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(L) - exact.astype(L)) / unit
    same = (found == exact.astype(dtype)) | (np.isnan(found) & np.isnan(exact))
    return np.where(same, 0, error)


def run(kernels, op, element, lanes, *operands):
    z = np.empty_like(operands[0])
    x, y = operands[0], operands[-1]
    kernels.run(f"{op}_{element}_{lanes}", x, y, z, x.size)
    return z


def cases(name):
    dtype = {"f32": np.float32, "f64": np.float64}[name]
    random = np.random.default_rng(7)
    for op, (reference, ranges, *limits) in (UNARY | BINARY).items():
        limit = limits[name == "f64"]
        operands = 2 if op in BINARY else 1
        columns = [[] for _ in range(operands)]
        for span in ranges:
            for column, (low, high) in zip(columns, span if operands == 2 else [span], strict=True):
                column.append(random.uniform(low, high, COUNT))
                column.append(random.uniform(low, high, 16) * 1e-12)
        with np.errstate(over="ignore"):
            inputs = [np.concatenate(column).astype(dtype) for column in columns]
        yield op, reference, limit, inputs


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_errors(kernels, name):
    dtype = {"f32": np.float32, "f64": np.float64}[name]
    worst = {}
    for op, reference, limit, inputs in cases(name):
        with np.errstate(all="ignore"):
            exact = reference(*(x.astype(L) for x in inputs))
        for lanes in (1, kernels.vector // (32 if name == "f32" else 64)):
            found = run(kernels, op, name, lanes, *inputs)
            error = ulp_error(found, np.asarray(exact), dtype)
            at = np.nanargmax(np.where(np.isnan(error), np.inf, error))
            if not error[at] <= limit:
                worst[op, lanes] = (
                    float(error[at]),
                    *(float(x[at]) for x in inputs),
                    float(found[at]),
                )
    assert not worst


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_special_values(kernels, name):
    dtype = {"f32": np.float32, "f64": np.float64}[name]
    lanes = kernels.vector // (32 if name == "f32" else 64)
    wrong = {}
    with np.errstate(all="ignore"):
        special = SPECIAL.astype(dtype)
        special = np.concatenate([special, np.ones(-special.size % 16, dtype)])
        left, right = (v.ravel() for v in np.meshgrid(special, special))
        for op, (reference, *_) in (UNARY | BINARY).items():
            inputs = [special] if op in UNARY else [left, right]
            exact = np.asarray(reference(*(x.astype(L) for x in inputs)))
            found = run(kernels, op, name, lanes, *inputs)
            error = ulp_error(found, exact, dtype)
            signs = np.signbit(found) != np.signbit(exact.astype(dtype))
            bad = ~(error <= 4) | (signs & ~np.isnan(found))
            if bad.any():
                i = np.flatnonzero(bad)[:3]
                wrong[op] = [
                    (*(float(x[k]) for x in inputs), float(found[k]), float(exact[k])) for k in i
                ]
    assert not wrong


@pytest.mark.parametrize(("name", "limit"), [("f32", 1.3e-7), ("f64", 4.5e-16)])
def test_erfc(kernels, name, limit):
    """Its errors are those of 1 - erf near 0 and below, and small against itself up to 4."""
    dtype = {"f32": np.float32, "f64": np.float64}[name]
    x = np.concatenate([np.linspace(-8, 30, 6400 - SPECIAL.size), SPECIAL])
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    exact = np.vectorize(math.erfc, otypes=[float])(x.astype(float))
    for lanes in (1, kernels.vector // (32 if name == "f32" else 64)):
        found = run(kernels, "erfc", name, lanes, x).astype(float)
        same = np.isnan(found) & np.isnan(exact)
        assert (np.where(same, 0, np.abs(found - exact)) <= limit).all()
        assert (found[x == 0] == 1).all()
        assert (found[x > 20] == 0).all() and (found[x < -7] == 2).all()
        if name == "f32":
            near = (x >= 0) & (x <= 4)
            assert (np.abs(found - exact)[near] <= 5e-6 * exact[near]).all()


def test_expansions_are_well_formed():
    for op in FUNCTIONS:
        for type in (F32, F64.with_lanes(4)):
            verify(expansion(op, type))
    for make in HELPERS.values():
        verify(make())
