"""Discrete Fourier transforms and windows: DFT, STFT, HannWindow ... (ONNX operator spec).

A transform of few points is a product with a table of sines and cosines, computed in double; for
the lengths of speech frames that is as fast as the memory. Longer ones whose length is known before
a run go in steps (`fourier`); those whose length only a run knows cost n * n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes, integer, interrupt
from sardonyx.base.dtypes import DOUBLE, INT64, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import DataDependent, contents, integers
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.chosen_axes import chosen_axes, in_a_row, stack
from sardonyx.ops.onnx.fourier import LONGEST_DIRECT, transform
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    compute,
    matmul,
    normalise_axis,
    pad,
    slice_axis,
    transpose,
)
from sardonyx.tensor.scalar import Scalar

#: What a chirp and its spectrum take for each point, and what is made on the way to them.
_TABLE_BYTES = 256


def fourier_table(
    length: Dim, frequencies: Dim, parts: int, dtype: DType, *, inverse: bool = False
) -> Tensor:
    """What a signal is multiplied with: [length * parts, frequencies * 2].

    Rows are points, each `parts` times (real, perhaps imaginary); columns are frequencies, real
    and imaginary. exp(-2 pi i k n / N), with a plus and divided by N for the inverse.
    """
    sign = 1.0 if inverse else -1.0

    def body(row: Dim, column: Dim) -> Scalar:
        n, component = integer.floordiv(row, parts), integer.modulo(row, parts)
        k, result = column // 2, column % 2
        points = scalar.size(length)
        turns = scalar.binary("rem", scalar.size(n) * scalar.size(k), points)
        count = scalar.cast(points, DOUBLE)
        angle = scalar.cast(turns, DOUBLE) * (2.0 * math.pi) / count
        even, odd = scalar.unary("cos", angle), scalar.unary("sin", angle) * sign
        real = scalar.compare("eq", scalar.size(result), 0)
        value = scalar.select(real, even, odd)
        if parts == 2:  # i * (a + b i) = -b + a i
            of_imaginary = scalar.select(real, odd * -1.0, even)
            first = scalar.compare("eq", scalar.size(component), 0)
            value = scalar.select(first, value, of_imaginary)
        return scalar.cast(value / count if inverse else value, dtype)

    return compute((length * parts, frequencies * 2), body, dtype)


def _signal_table(length: Dim, frequencies: Dim, parts: int, dtype: DType) -> Tensor:
    """What one side of a spectrum is multiplied with: [frequencies * parts, length].

    The other side is conjugate, so that all but the first and the middle frequency count twice,
    and the signal is real.
    """

    def body(row: Dim, n: Dim) -> Scalar:
        k, component = integer.floordiv(row, parts), integer.modulo(row, parts)
        points = scalar.size(length)
        turns = scalar.binary("rem", scalar.size(n) * scalar.size(k), points)
        count = scalar.cast(points, DOUBLE)
        angle = scalar.cast(turns, DOUBLE) * (2.0 * math.pi) / count
        first = scalar.compare("eq", scalar.size(k), 0)
        middle = scalar.compare("eq", scalar.size(k * 2), points)
        alone = first | middle
        even = scalar.unary("cos", angle) * scalar.select(
            alone, scalar.constant(1.0, DOUBLE), scalar.constant(2.0, DOUBLE)
        )
        odd = scalar.select(alone, scalar.constant(0.0, DOUBLE), scalar.unary("sin", angle) * -2.0)
        real = scalar.compare("eq", scalar.size(component), 0)
        return scalar.cast(scalar.select(real, even, odd) / count, dtype)

    return compute((frequencies * parts, length), body, dtype)


def _transformed(x: Tensor, axis: int, length: Dim, inverse: int, onesided: int) -> Tensor:
    if x.rank >= 2 and not isinstance(x.shape[-1], int):
        assume_equal(x.shape[-1], 2, "DFT", "The last axis holds no complex numbers")
        x = x.reshape(*x.shape[:-1], 2)
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        what = "The last axis must hold a real and perhaps an imaginary part"
        raise InvalidGraph(message("DFT", what, got=str(list(x.shape))))
    axis = normalise_axis(axis, x.rank, "DFT")
    if axis == x.rank - 1:
        raise InvalidGraph(message("DFT", "The last axis is that of the parts"))
    parts = 2 if x.shape[-1] == 2 else 1
    if onesided and not inverse and parts == 2:
        raise InvalidGraph(message("DFT", "Both sides of a complex signal's spectrum differ"))
    _claim_tables(length)
    side = length // 2 + 1
    x = _of_length(x, axis, side if inverse and onesided else length)
    order = [*(k for k in range(x.rank - 1) if k != axis), axis, x.rank - 1]
    moved = transpose(x, order)
    lead = moved.shape[:-2]
    back = [order.index(k) for k in range(x.rank)]
    if isinstance(length, int) and length > LONGEST_DIRECT:
        return transpose(_long(moved, length, inverse, onesided), back)
    rows = moved.reshape(*lead, moved.shape[-2] * parts)
    if inverse and onesided:
        table = _signal_table(length, side, parts, x.dtype)
        result = matmul(rows, table).reshape(*lead, length, 1)
    else:
        frequencies = side if onesided else length
        table = fourier_table(length, frequencies, parts, x.dtype, inverse=bool(inverse))
        result = matmul(rows, table).reshape(*lead, frequencies, 2)
    return transpose(result, back)


def _claim_tables(length: Dim) -> None:
    """Ask for the memory of what is computed when the model is loaded: chirps, and turns."""
    if isinstance(length, int):
        if length < 1:
            raise InvalidGraph(message("transform", "Bad length", expected="1 or more"))
        interrupt.claim(length * _TABLE_BYTES if length > LONGEST_DIRECT else 0)


def _long(x: Tensor, length: int, inverse: int, onesided: int) -> Tensor:
    """The transform of [..., points, parts] in steps."""
    rank = x.rank
    order = [*range(rank - 2), rank - 1, rank - 2]
    if inverse and onesided:
        x = _both_sides(x, length)
    found = transform(transpose(x, order), length, inverse=bool(inverse))
    if onesided and not inverse:
        found = slice_axis(found, rank - 1, 0, length // 2 + 1)
    elif onesided:
        found = slice_axis(found, rank - 2, 0, 1)
    return transpose(found, order)


def _both_sides(x: Tensor, length: int) -> Tensor:
    """All frequencies of a real signal, given one side of them: the other is conjugate."""
    parts = x.shape[-1]

    def body(*at: Dim) -> Scalar:
        *lead, k, p = at
        own = scalar.size(k) < length // 2 + 1
        here = integer.minimum(k, length // 2)
        there = integer.minimum(length - k, length // 2)
        other = scalar.load(x, (*lead, there, p))
        real = scalar.compare("eq", scalar.size(p), 0)
        conjugate = other if parts == 1 else scalar.select(real, other, other * -1.0)
        return scalar.select(own, scalar.load(x, (*lead, here, p)), conjugate)

    return compute((*x.shape[:-2], length, parts), body)


def _of_length(x: Tensor, axis: int, length: Dim) -> Tensor:
    """Cut, or filled up with zeros."""
    more = length - x.shape[axis]
    if more == 0:
        return x
    kept = slice_axis(x, axis, 0, integer.minimum(length, x.shape[axis]))
    after = [integer.maximum(more, 0) if k == axis else 0 for k in range(x.rank)]
    return pad(kept, [0] * x.rank, after)


@op("DFT", 17)
def dft_17(
    x: Tensor,
    dft_length: Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The discrete Fourier transform along an axis that an attribute gives."""
    length = _length(x, dft_length, axis, inverse and onesided)
    return _transformed(x, axis, length, inverse, onesided)


@op("DFT", 20)
def dft_20(
    x: Tensor,
    dft_length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The discrete Fourier transform along an axis that an input gives."""
    try:
        along = -2 if axis is None else integers(scalar_of(axis, "DFT"), "The axis")[0]
    except DataDependent as reason:
        return _transformed_in_run(x, dft_length, reason.tensor, inverse, onesided)
    length = _length(x, dft_length, along, inverse and onesided)
    return _transformed(x, along, length, inverse, onesided)


def _transformed_in_run(
    x: Tensor, given: Tensor | None, axis: Tensor, inverse: int, onesided: int
) -> Tensor:
    """The same along an axis that only a run knows: between what lies before it and after it."""
    if x.rank < 2:
        raise InvalidGraph(message("DFT", "The last axis must hold parts", got=str(list(x.shape))))
    row = in_a_row(axis, "DFT")
    flags = chosen_axes(row, x.rank, "DFT")
    assume_equal(flags[-1], 0, "DFT", "The last axis is that of the parts")
    around: list[Scalar] = [scalar.lift(1, INT64)] * 3
    passed: Dim = 0
    for flag, d in zip(flags[:-1], x.shape[:-1], strict=True):
        at = 2 * passed + flag  # 0: before the axis, 1: the axis, 2: after it
        for k in range(3):
            here = scalar.compare("eq", scalar.size(at), k)
            around[k] = scalar.select(here, around[k] * scalar.size(d), around[k])
        passed = passed + flag
    outer, extent, inner = contents(stack(around), "The sizes around the axis", 0)
    merged = x.reshape(outer, extent, inner, x.shape[-1])
    length = _length(merged, given, 1, inverse and onesided)
    result = _transformed(merged, 1, length, inverse, onesided)
    frequencies = result.shape[1]
    shape = [d + flag * (frequencies - d) for flag, d in zip(flags[:-1], x.shape[:-1], strict=True)]
    return result.reshape(*shape, result.shape[-1])


def _length(x: Tensor, given: Tensor | None, axis: int, of_side: int) -> Dim:
    """The length that is given, or that of the axis; `of_side`: which holds one side of it."""
    if given is not None:
        return contents(scalar_of(given, "DFT"), "The length", 1)[0]  # type: ignore[no-any-return]  # contents are numbers here
    extent = x.shape[normalise_axis(axis, x.rank, "DFT")]
    return (extent - 1) * 2 if of_side else extent


@op("STFT", 17)
def stft_17(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Transforms of frames of a signal: [batch, frame, frequency, 2]."""
    if signal.rank not in (2, 3) or (signal.rank == 3 and signal.shape[2] not in (1, 2)):
        raise InvalidGraph(message("STFT", f"A signal has no shape {list(signal.shape)}"))
    parts = 2 if signal.rank == 3 and signal.shape[2] == 2 else 1
    if parts == 2 and onesided:
        raise InvalidGraph(message("STFT", "Both sides of a complex signal differ"))
    (step,) = contents(scalar_of(frame_step, "STFT"), "The step", 1)
    if frame_length is not None:
        (length,) = contents(scalar_of(frame_length, "STFT"), "The frame's length", 1)
    elif window is not None:
        length = window.shape[0]
    else:
        raise InvalidGraph(message("STFT", "Neither a window nor a frame's length is given"))
    batch, samples = signal.shape[:2]
    flat = signal.reshape(batch, samples * parts)
    rest = samples - length
    count = integer.maximum(integer.floordiv(rest, step) + 1, 0)
    width = length * parts

    def frame(b: Dim, f: Dim, n: Dim) -> Scalar:
        start = f * (step * parts)
        return scalar.load(flat, (b, start + n))

    frames = compute((batch, count, width), frame, signal.dtype)
    frequencies = length // 2 + 1 if onesided else length
    weights = None if window is None else cast(window, signal.dtype)
    if window is not None:
        assume_equal(window.shape[0], length, "STFT", "The window is not as long as a frame")
    _claim_tables(length)
    if isinstance(length, int) and length > LONGEST_DIRECT:
        framed = frames.reshape(batch, count, length, parts)
        if weights is not None:
            framed = framed * weights.reshape(length, 1)
        return _long(framed, length, 0, onesided)
    table = fourier_table(length, frequencies, parts, signal.dtype)
    if weights is not None:

        def weighted(row: Dim, column: Dim) -> Scalar:
            n = integer.floordiv(row, parts)
            return scalar.load(table, (row, column)) * scalar.load(weights, (n,))

        table = compute(table.shape, weighted, signal.dtype)
    return matmul(frames, table).reshape(batch, count, frequencies, 2)


def _number_type(where: str, number: int) -> DType:
    found = dtypes.BY_ONNX_ID.get(number)
    if found is None or not (found.is_float or found.is_integer):
        raise InvalidGraph(message(where, f"There is no type of numbers {number}"))
    return found


def _window(size: Tensor, terms: Sequence[float], periodic: int, output_datatype: int) -> Tensor:
    """A sum of cosines: `terms[k] * cos(2 pi k n / N)`, N one less if it is symmetric."""
    (length,) = contents(scalar_of(size, "window"), "The size", 0)
    target = _number_type("window", output_datatype)
    period = length if periodic else length - 1

    def body(n: Dim) -> Scalar:
        points = scalar.cast(scalar.size(integer.maximum(period, 1)), DOUBLE)
        angle = scalar.cast(scalar.size(n), DOUBLE) * (2.0 * math.pi) / points
        value = scalar.constant(terms[0], DOUBLE)
        for k, term in enumerate(terms[1:], 1):
            value = value + scalar.unary("cos", angle * float(k)) * term
        return scalar.cast(value, target)

    return compute((length,), body, target)


@op("HannWindow", 17)
def hann_window_17(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """0.5 - 0.5 cos."""
    return _window(size, (0.5, -0.5), periodic, output_datatype)


@op("HammingWindow", 17)
def hamming_window_17(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """25 / 46 - 21 / 46 cos."""
    return _window(size, (25 / 46, -21 / 46), periodic, output_datatype)


@op("BlackmanWindow", 17)
def blackman_window_17(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle."""
    return _window(size, (0.42, -0.5, 0.08), periodic, output_datatype)


@op("MelWeightMatrix", 17)
def mel_weight_matrix_17(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """Triangles on the mel scale, as a matrix [frequencies, bins]."""
    (bins,) = contents(scalar_of(num_mel_bins, "MelWeightMatrix"), "The number of bins", 0)
    (length,) = contents(scalar_of(dft_length, "MelWeightMatrix"), "The length", 0)
    target = _number_type("MelWeightMatrix", output_datatype)
    rate, low, high = (
        cast(scalar_of(x, "MelWeightMatrix"), DOUBLE)
        for x in (sample_rate, lower_edge_hertz, upper_edge_hertz)
    )

    def mel(hertz: Scalar) -> Scalar:
        return scalar.unary("log", hertz / 700.0 + 1.0) * (2595.0 / math.log(10.0))

    def edge(number: Scalar) -> Scalar:
        first, last = mel(scalar.load(low, ())), mel(scalar.load(high, ()))
        step = (last - first) / scalar.cast(scalar.size(bins + 2), DOUBLE)
        hertz = (
            scalar.unary("exp", (number * step + first) * (math.log(10.0) / 2595.0)) - 1.0
        ) * 700.0
        points = scalar.cast(scalar.size(length + 1), DOUBLE)
        return scalar.unary("floor", points * hertz / scalar.load(rate, ()))

    def body(frequency: Dim, number: Dim) -> Scalar:
        at = scalar.cast(scalar.size(frequency), DOUBLE)
        left, centre, right = (edge(scalar.cast(scalar.size(number + k), DOUBLE)) for k in range(3))
        up = scalar.binary("max", centre - left, 1.0)
        down = scalar.binary("max", right - centre, 1.0)
        rising = (at - left) / up
        falling = (right - at) / down
        flat = scalar.compare("eq", left, centre)
        inside = (at >= left) & (at <= centre)
        after = (at > centre) & (at < right)
        value = scalar.select(after, falling, 0.0)
        value = scalar.select(inside, rising, value)
        peak = flat & scalar.compare("eq", at, centre)
        return scalar.cast(scalar.select(peak, 1.0, value), target)

    frequencies = length // 2 + 1
    return compute((frequencies, bins), body, target)
