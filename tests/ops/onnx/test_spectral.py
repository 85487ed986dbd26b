"""Fourier transforms and windows against NumPy's FFT and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.ops import check_op
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(12)


def _floats(*shape: int, dtype: Any = np.float32) -> Any:
    return _random.standard_normal(shape).astype(dtype)


def _parts(z: Any, dtype: Any = np.float32) -> Any:
    return np.stack([z.real, z.imag], -1).astype(dtype)


def _complex(x: Any) -> Any:
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _dft(x: Any, axis: int, length: int | None, inverse: int, onesided: int) -> Any:
    # The last axis holds the parts, so axes count from the front alone.
    axis = axis % x.ndim
    if inverse and onesided:
        return np.fft.irfft(_complex(x), n=length, axis=axis)[..., None].astype(x.dtype)
    function = np.fft.ifft if inverse else np.fft.fft
    found = function(_complex(x), n=length, axis=axis)
    if onesided:
        found = np.take(found, range(found.shape[axis] // 2 + 1), axis)
    return _parts(found, x.dtype)


#: Shape, axis, length, inverse, onesided.
TRANSFORMS = [
    ((2, 10, 1), 1, None, 0, 0),
    ((2, 10, 2), 1, None, 0, 0),
    ((2, 9, 2), 1, None, 1, 0),
    ((2, 10, 1), 1, None, 0, 1),
    ((2, 9, 1), 1, None, 0, 1),
    ((3, 4, 6, 1), 2, None, 0, 0),
    ((3, 4, 6, 2), 1, None, 0, 0),
    ((2, 10, 1), 1, 16, 0, 0),
    ((2, 10, 1), 1, 7, 0, 1),
    ((1, 400, 1), 1, None, 0, 1),
    ((2, 1, 1), 1, None, 0, 0),
    ((2, 6, 2), 1, None, 1, 1),
    ((2, 6, 2), 1, 11, 1, 1),
    ((2, 6, 2), 1, 7, 1, 1),
    ((2, 6, 2), 1, 16, 1, 1),
    ((3, 5, 2, 1), 1, None, 1, 1),
    # In steps: of even and odd lengths, with zeros added, along another axis.
    ((1, 1024, 1), 1, None, 0, 1),
    ((1, 693, 2), 1, None, 1, 0),
    ((1, 500, 1), 1, 768, 0, 0),
    ((600, 2, 2), 0, None, 0, 0),
    ((1, 301, 2), 1, None, 1, 1),
    # With a chirp: 601 is prime.
    ((1, 601, 1), 1, None, 0, 1),
    ((1, 601, 2), 1, None, 1, 0),
]


@pytest.mark.parametrize(
    ("shape", "axis", "length", "inverse", "onesided", "dtype", "opset"),
    [
        *((*row, dtype, 20) for row in TRANSFORMS for dtype in (np.float32, np.float64)),
        *((*row, np.float32, 17) for row in TRANSFORMS[::3]),  # the axis is an attribute there
    ],
)
def test_dft(shape, axis, length, inverse, onesided, dtype, opset):
    x = _floats(*shape, dtype=dtype)
    bound = None
    if x.size > 800:  # results are about 1, and errors parts of the largest
        x *= dtype(x.shape[axis] ** (0.5 if inverse else -0.5))
        bound = "float: transforms" if dtype is np.float32 else "double: transforms"
    size = None if length is None else np.array(length)
    attributes: dict[str, Any] = {"inverse": inverse, "onesided": onesided}
    inputs: list[Any] = [x, size]
    if opset == 17:
        attributes["axis"] = axis
    else:
        inputs.append(np.array(axis))
    want = _dft(x, axis, length, inverse, onesided)
    check_op("DFT", inputs, attributes, opset, constants=[1, 2], expected=[want], tolerance=bound)


@pytest.mark.parametrize("length", [4096, 16384, 30030, 2003, 10007])
@pytest.mark.parametrize("inverse", [0, 1])
def test_long_dft(length, inverse):
    text = (
        f"g (float[n, {length}, 2] x) => (float[n, m, 2] y) "
        f"{{ y = DFT<axis = 1, inverse = {inverse}>(x) }}"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    x = _floats(2, length, 2)
    (found,) = session.run(None, {"x": x})
    want = _dft(x.astype(np.float64), 1, None, inverse, 0)
    assert_near(found, want, "float: long transforms")


def _stft(x: Any, step: int, window: Any, onesided: int) -> Any:
    length = len(window)
    count = (x.shape[1] - length) // step + 1
    frames = np.stack([x[:, f * step : f * step + length] * window for f in range(count)], 1)
    found = np.fft.fft(frames.astype(np.float64))
    return _parts(found[..., : length // 2 + 1] if onesided else found)


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_of_signals_of_every_length(onesided):
    window = np.hanning(400).astype(np.float32)
    text = (
        "g (float[B,N,1] x) => (float[A,C,D,E] y)"
        f" {{ y = STFT <onesided = {onesided}> (x, step, window) }}"
    )
    model = model_of(text, {"step": np.array(160), "window": window})
    session = sardonyx.InferenceSession(model.SerializeToString())
    for batch, samples in ((1, 400), (2, 16000), (1, 559), (3, 1000)):
        x = _floats(batch, samples, 1)
        (got,) = session.run(None, {"x": x})
        want = _stft(x[..., 0], 160, window, onesided)
        assert got.shape == want.shape
        assert_near(got, want, "float: spectra")


def test_a_signal_shorter_than_a_frame_has_no_frames():
    text = "g (float[B,N,1] x) => (float[A,C,D,E] y) { y = STFT (x, step, window) }"
    model = model_of(text, {"step": np.array(16), "window": np.ones(40, np.float32)})
    session = sardonyx.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {"x": _floats(1, 20, 1)})
    assert got.shape == (1, 0, 21, 2)


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [1, 10, 401])
def test_windows(op_type, periodic, size):
    name = {"HannWindow": "hanning", "HammingWindow": "", "BlackmanWindow": "blackman"}[op_type]
    count = size + periodic
    if name:
        want = getattr(np, name)(count)
    else:
        n = np.arange(count)
        want = 25 / 46 - 21 / 46 * np.cos(2 * np.pi * n / max(count - 1, 1))
    if count == 1:
        want = {"HannWindow": [0.0], "HammingWindow": [4 / 46], "BlackmanWindow": [0.0]}[op_type]
    want = np.asarray(want)[:size].astype(np.float32)
    inputs = [np.array(size)]
    check_op(op_type, inputs, {"periodic": periodic}, 17, constants=[0], expected=[want])


def test_mel_weights():
    inputs = [np.array(8), np.array(16), np.array(8192), np.float32(0), np.float32(4096)]
    check_op("MelWeightMatrix", inputs, {}, 17, constants=[0, 1, 2, 3, 4])
