"""Long Fourier transforms, in steps of short ones.

    X[k1 + N1 k2] = sum over n2 of W(N, n2 k1) W(N2, n2 k2) Y[n2, k1]
    Y[n2, k1] = sum over n1 of W(N1, n1 k1) x[N2 n1 + n2]

with W(N, m) = exp(-2 pi i m / N) and N = N1 N2 (J. Cooley and J. Tukey, An Algorithm for the
Machine Calculation of Complex Fourier Series, 1965): both sums are products with small tables,
between them every element is rotated by an angle. A length with a large prime factor becomes a
convolution with a chirp, of a length that has none (L. Bluestein, A Linear Filtering Approach to
the Computation of the Discrete Fourier Transform, 1970). Tables are computed in double, once.

Signals here are [..., 2, N]: real and imaginary parts one after the other, so that a step reads
runs of elements; [..., 1, N] where they are real.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Array, Constant
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, compute, matmul, pad, slice_axis, transpose
from sardonyx.tensor.scalar import Scalar

#: Up to this length a product with one table is as fast.
LONGEST_DIRECT = 512
#: The longest transform that a step does with one table.
_LONGEST_STEP = 256
#: What a further step costs for each element: as much as so many points of a table.
_STEP_COST = 80.0


@cache
def _plan(length: int) -> tuple[float, int]:
    """Cost for each point, and the length of the first step: 0 for one table, -1 for a chirp."""
    best = (float(length), 0) if length <= _LONGEST_STEP else (math.inf, -1)
    for first in range(2, min(_LONGEST_STEP, length // 2) + 1):
        if length % first == 0 and length // first > 1:
            cost = first + _STEP_COST + _plan(length // first)[0]
            best = min(best, (cost, first))
    if best[0] == math.inf or (best[1] > 0 and best[0] > 8 * math.sqrt(length) + 8 * _STEP_COST):
        padded = _chirp_length(length)
        if padded < length * 8:
            cost = padded / length * (2 * _plan(padded)[0] + 2 * _STEP_COST)
            best = min(best, (cost, -1))
    return best


def _chirp_length(length: int) -> int:
    """A power of two that a convolution of two signals of the length fits in."""
    return 1 << (2 * length - 2).bit_length()


def transform(x: Tensor, length: int, *, inverse: bool = False) -> Tensor:
    """The transform of [..., parts, length], real or complex: [..., 2, length]."""
    _, first = _plan(length)
    if first > 0:
        return _in_steps(x, length, first, inverse)
    return _by_table(x, length, inverse) if first == 0 else _by_chirp(x, length, inverse)


def _roots(numbers: Array, length: int, inverse: bool) -> Array:
    """exp(-2 pi i m / length), or its conjugate."""
    found: Array = np.exp((2j if inverse else -2j) * np.pi / length * (numbers % length))
    return found


def _constant(values: Array, dtype: DType) -> Tensor:
    return constant_tensor(Constant.from_array(values, dtype))


def _planes(values: Array, dtype: DType) -> Tensor:
    """[..., n, k] complex as [2, n, k]."""
    return _constant(np.stack([values.real, values.imag]), dtype)


def _table(length: int, parts: int, dtype: DType, inverse: bool) -> Tensor:
    """[parts * length, 2 * length]: rows are parts and points, columns parts and frequencies."""
    points = np.arange(length)
    w = _roots(np.multiply.outer(points, points), length, inverse) / (length if inverse else 1)
    rows = [[w.real, w.imag], [-w.imag, w.real]]  # i (a + b i) = -b + a i
    return _constant(np.block(rows[:parts]), dtype)


def _by_table(x: Tensor, length: int, inverse: bool) -> Tensor:
    *lead, parts, _ = x.shape
    assert isinstance(parts, int)  # noqa: S101 - signals are real or complex
    rows = x.reshape(*lead, parts * length)
    return matmul(rows, _table(length, parts, x.dtype, inverse)).reshape(*lead, 2, length)


def _in_steps(x: Tensor, length: int, first: int, inverse: bool) -> Tensor:
    *lead, parts, _ = x.shape
    rest, rank = length // first, len(lead)
    axes = list(range(rank))
    # [..., parts, n1, n2] -> [..., n2, parts, n1]
    split = transpose(x.reshape(*lead, parts, first, rest), [*axes, rank + 2, rank, rank + 1])
    short = transform(split, first, inverse=inverse)  # [..., n2, 2, k1]
    angles = _roots(np.multiply.outer(np.arange(rest), np.arange(first)), length, inverse)
    rotated = _product(short, _planes(angles, x.dtype))
    # [..., n2, 2, k1] -> [..., k1, 2, n2]
    across = transpose(rotated, [*axes, rank + 2, rank + 1, rank])
    last = transform(across, rest, inverse=inverse)  # [..., k1, 2, k2]
    # [..., k1, 2, k2] -> [..., 2, k2, k1]
    back = transpose(last, [*axes, rank + 1, rank + 2, rank])
    return back.reshape(*lead, 2, length)


def _product(x: Tensor, factors: Tensor) -> Tensor:
    """Complex [..., n, 2, k] times [2, n, k]."""

    def body(*at: Dim) -> Scalar:
        *lead, n, q, k = at
        a, b = (scalar.load(x, (*lead, n, p, k)) for p in (0, 1))
        c, s = (scalar.load(factors, (p, n, k)) for p in (0, 1))
        real = scalar.compare("eq", scalar.size(q), 0)
        return scalar.select(real, a * c - b * s, a * s + b * c)

    return compute(x.shape, body)


def _by_chirp(x: Tensor, length: int, inverse: bool) -> Tensor:
    """With n k = (n^2 + k^2 - (k - n)^2) / 2: a convolution between two products with a chirp."""
    *lead, parts, _ = x.shape
    zeros, padded = [0] * x.rank, _chirp_length(length)
    chirp = _roots(np.arange(length) ** 2, 2 * length, inverse)
    both_ways = np.zeros(padded, np.complex128)  # distances below zero lie at the end
    both_ways[:length] = chirp.conj()
    both_ways[padded - length + 1 :] = chirp[:0:-1].conj()
    own = _planes(chirp[None], x.dtype)
    spectrum = _planes(np.fft.fft(both_ways)[None], x.dtype)
    signal = x if parts == 2 else pad(x, zeros, [*zeros[2:], 1, 0])
    shifted = _product(signal.reshape(*lead, 1, 2, length), own).reshape(*lead, 2, length)
    filled = pad(shifted, zeros, [*zeros[1:], padded - length])
    found = transform(filled, padded).reshape(*lead, 1, 2, padded)
    convolved = transform(_product(found, spectrum).reshape(*lead, 2, padded), padded, inverse=True)
    cut = slice_axis(convolved, x.rank - 1, 0, length).reshape(*lead, 1, 2, length)
    result = _product(cut, own).reshape(*lead, 2, length)
    return result * (1.0 / length) if inverse else result
