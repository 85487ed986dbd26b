"""Every operation of the Builder on every type that it takes, against NumPy."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
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

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F32, F64)
ALL = (*INTEGERS, F16, BF16, F32, F64, I1)
COUNT = 256


def truncating(op):
    """Division of integers as C does it, by zero 0."""

    def apply(x, y):
        a, b = x.astype(object), y.astype(object)
        results = []
        for p, q in zip(a, b, strict=True):
            quotient = 0 if q == 0 else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
            results.append(quotient if op == "div" else 0 if q == 0 else p - quotient * q)
        return np.array([wrap(r, x.dtype) for r in results], x.dtype)

    return apply


def wrap(value, kind):
    bits = 8 * kind.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind.kind == "i" and value >> bits - 1 else value


def shift(op):
    def apply(x, y):
        bits = 8 * x.dtype.itemsize
        pairs = zip(x.astype(object), y.astype(object), strict=True)
        shifted = []
        for p, q in pairs:
            amount = min(q & (1 << bits) - 1, 200)
            shifted.append(wrap(p << amount if op == "shl" else p >> amount, x.dtype))
        return np.array(shifted, x.dtype)

    return apply


def saturated(op):
    def apply(x, y):
        a, b = x.astype(object), y.astype(object)
        info = np.iinfo(x.dtype)
        exact = a + b if op == "add" else a - b
        return np.clip(exact, info.min, info.max).astype(x.dtype)

    return apply


def clz(x):
    bits = 8 * x.dtype.itemsize
    return np.array([bits - (int(v) & (1 << bits) - 1).bit_length() for v in x], x.dtype)


def popcount(x):
    bits = 8 * x.dtype.itemsize
    return np.array([(int(v) & (1 << bits) - 1).bit_count() for v in x], x.dtype)


#: operation -> NumPy, types.
BINARY = {
    "add": (np.add, INTEGERS + FLOATS),
    "sub": (np.subtract, INTEGERS + FLOATS),
    "mul": (np.multiply, INTEGERS + FLOATS),
    "min": (np.minimum, INTEGERS + FLOATS),
    "max": (np.maximum, INTEGERS + FLOATS),
    "and": (np.bitwise_and, (*INTEGERS, I1)),
    "or": (np.bitwise_or, (*INTEGERS, I1)),
    "xor": (np.bitwise_xor, (*INTEGERS, I1)),
    "copysign": (np.copysign, FLOATS),
}
NAMED = {"div": truncating, "rem": truncating, "shl": shift, "shr": shift}
BINARY |= {op: (make(op), INTEGERS) for op, make in NAMED.items()}
BINARY |= {f"{op}_sat": (saturated(op), INTEGERS) for op in ("add", "sub")}
FLOAT_DIVIDE = {"div": (np.divide, FLOATS)}
UNARY = {
    "neg": (np.negative, INTEGERS + FLOATS),
    "abs": (np.abs, INTEGERS + FLOATS),
    "sign": (np.sign, INTEGERS + FLOATS),
    "not": (np.invert, (*INTEGERS, I1)),
    "floor": (np.floor, FLOATS),
    "ceil": (np.ceil, FLOATS),
    "trunc": (np.trunc, FLOATS),
    "round": (np.rint, FLOATS),
    "sqrt": (np.sqrt, FLOATS),
    "popcount": (popcount, INTEGERS),
    "ctlz": (clz, INTEGERS),
}
COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
REDUCE = {
    "reduce_add": (np.add, INTEGERS + FLOATS),
    "reduce_mul": (np.multiply, (*INTEGERS, F64)),
    "reduce_min": (np.minimum, INTEGERS + FLOATS),
    "reduce_max": (np.maximum, INTEGERS + FLOATS),
    "reduce_and": (np.bitwise_and, (*INTEGERS, I1)),
    "reduce_or": (np.bitwise_or, (*INTEGERS, I1)),
}
CASES = [(op, *case) for op, case in [*BINARY.items(), *FLOAT_DIVIDE.items()]]


def values(type, seed=3):
    random = np.random.default_rng(seed)
    kind = dtype(type)
    if kind.kind == "b":
        return random.random(COUNT) < 0.5
    if type.is_integer:
        info = np.iinfo(kind)
        edges = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1]
        edges += [wrap(-1, kind), wrap(-2, kind)]
        rest = random.integers(info.min, info.max, COUNT, dtype=kind, endpoint=True)
        small = random.integers(0, 9, COUNT, dtype=kind)
        picked = np.where(random.random(COUNT) < 0.5, rest, small)
        picked[: len(edges) * 4] = np.repeat(np.array(edges, kind), 4)
        return random.permutation(picked)
    edges = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 65504]
    edges += [65519.9, 65520, 6e-8, 3e-8, 1e9, -1e9, 2147483648.0, 1e19, -1e19, 0.49999997]
    numbers = np.concatenate([edges, random.uniform(-300, 300, COUNT - len(edges))])
    return random.permutation(numbers).astype(kind)


def elementwise(name, sources, result, body, lanes):
    """z[i] = body(loaded operands) for COUNT elements."""
    names = "xyw"[: len(sources)]
    b = Builder(name, [(n, PTR) for n in [*names, "z"]], kind="kernel")
    with b.parallel(), b.for_(0, COUNT, lanes) as i:
        loaded = [
            b.load(t.with_lanes(lanes), b.parameter(n), i, align_bytes=1)
            for n, t in zip(names, sources, strict=True)
        ]
        out = body(b, *loaded)
        b.store(out, b.parameter("z"), i, align_bytes=1)
    return b.program


def all_programs(lanes):
    for op, _, types in CASES:
        for t in types:
            yield elementwise(
                f"{op}_{t}", (t, t), t, lambda b, x, y, op=op: b.binary(op, x, y), lanes
            )
    for op, (_, types) in UNARY.items():
        for t in types:
            yield elementwise(f"{op}_{t}", (t,), t, lambda b, x, op=op: b.unary(op, x), lanes)
    for op in COMPARE:
        for t in (*INTEGERS, *FLOATS):
            yield elementwise(
                f"{op}_{t}", (t, t), I1, lambda b, x, y, op=op: b.compare(op, x, y), lanes
            )
    for s in ALL:
        for t in ALL:
            if s != t:
                yield elementwise(
                    f"convert_{s}_{t}", (s,), t, lambda b, x, t=t: b.convert(x, t), lanes
                )
        yield elementwise(f"select_{s}", (I1, s, s), s, lambda b, c, x, y: b.select(c, x, y), lanes)
    for t in FLOATS:
        yield elementwise(f"fma_{t}", (t, t, t), t, lambda b, x, y, w: b.fma(x, y, w), lanes)
    if lanes > 1:
        for op, (_, types) in REDUCE.items():
            for t in types:
                yield elementwise(
                    f"{op}_{t}", (t,), t,
                    lambda b, x, op=op: b.splat(b.reduce(op, x), lanes), lanes,
                )  # fmt: skip


GROUPS = [(t, lanes) for t in targets() for lanes in (1, 8, 16)]


@pytest.fixture(scope="module", params=GROUPS, ids=lambda g: f"{g[0].isa}x{g[1]}")
def kernels(request):
    target, lanes = request.param
    if lanes == 16 and target.isa == "sse":
        pytest.skip("time: the other widths cover it")
    found = Kernels(list(all_programs(lanes)), target)
    found.lanes = lanes
    return found


def check(kernels, name, result, expected, *operands):
    z = np.zeros(COUNT, dtype(result))
    kernels.run(name, *operands, z)
    expected = np.asarray(expected).astype(z.dtype)
    if z.dtype.kind not in "fV":
        assert np.array_equal(z, expected), name
        return
    same = (z == expected) | (np.isnan(z) & np.isnan(expected))
    same &= (np.signbit(z) == np.signbit(expected)) | np.isnan(z) | name.startswith(("min", "max"))
    bad = np.flatnonzero(~same)
    assert not bad.size, (name, [(*(x[i] for x in operands), z[i], expected[i]) for i in bad[:4]])


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_binary(kernels):
    for op, reference, types in CASES:
        for t in types:
            x, y = values(t), values(t, 4)
            check(kernels, f"{op}_{t}", t, reference(x, y), x, y)


def test_unary(kernels):
    for op, (reference, types) in UNARY.items():
        for t in types:
            x = values(t)
            check(kernels, f"{op}_{t}", t, reference(x), x)


def test_compare_and_select(kernels):
    for t in (*INTEGERS, *FLOATS):
        x, y = values(t), values(t, 4)
        for op, reference in COMPARE.items():
            check(kernels, f"{op}_{t}", I1, reference(x, y), x, y)
    for t in ALL:
        c, x, y = values(I1), values(t), values(t, 4)
        check(kernels, f"select_{t}", t, np.where(c, x, y), c, x, y)


def convert_reference(x, source, target):
    kind = dtype(target)
    if target.scalar == "i1":
        return x != 0
    if not target.is_integer or not source.is_float:
        return x.astype(kind)
    wide = np.nan_to_num(x.astype(np.float64), nan=0, posinf=1e300, neginf=-1e300)
    info = np.iinfo(kind)
    return np.array([min(max(int(v), info.min), info.max) for v in wide], kind)


def test_convert(kernels):
    for s in ALL:
        x = values(s)
        for t in ALL:
            if s != t:
                name = f"convert_{s}_{t}"
                y = x.astype(np.float32) if t == BF16 and s != F64 else x
                check(kernels, name, t, convert_reference(y, s, t), x)


def test_fma_rounds_once(kernels):
    random = np.random.default_rng(1)
    for t in FLOATS:
        x, y = (random.uniform(-2, 2, COUNT).astype(dtype(t)) for _ in "xy")
        w = -(x * y)
        terms = zip(*(v.astype(float) for v in (x, y, w)), strict=True)
        exact = [float(Fraction(p) * Fraction(q) + Fraction(r)) for p, q, r in terms]
        check(kernels, f"fma_{t}", t, np.array(exact), x, y, w)


def pairwise(reference, x):
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = reference(x[..., :half], x[..., half:])
    return x[..., 0]


def test_reduce(kernels):
    if kernels.lanes == 1:
        return
    for op, (reference, types) in REDUCE.items():
        for t in types:
            x = values(t)
            if t.is_float:
                x = np.nan_to_num(x, posinf=5, neginf=-5)
            rows = pairwise(reference, x.reshape(-1, kernels.lanes))
            check(kernels, f"{op}_{t}", t, np.repeat(rows, kernels.lanes), x)


def test_programs_are_well_formed():
    for program in all_programs(4):
        verify(program)
