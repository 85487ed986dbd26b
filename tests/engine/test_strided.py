"""Elements a few places apart along the lanes: out of vectors side by side, up to the last one."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

_random = np.random.default_rng(31)
_TYPES = {"float": np.float32, "double": np.float64, "uint8": np.uint8, "float16": np.float16}


def _session(text: str) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model_of(f"graph {text}", None, 17).SerializeToString())


@pytest.mark.parametrize("name", _TYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_every_few_elements(name: str, step: int) -> None:
    bounds = (
        f"int64[1] s = {{1}}, int64[1] e = {{99999}}, int64[1] a = {{1}}, int64[1] t = {{{step}}}"
    )
    session = _session(
        f"({name}[3,N] x) => ({name}[3,M] y) <{bounds}> {{ y = Slice(x, s, e, a, t) }}"
    )
    for length in (2, 17, 33, 16 * step + 1, 16 * step + 2, 70, 257):
        x = (_random.standard_normal((3, length)) * 50).astype(_TYPES[name])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x[:, 1::step])


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_windows_without_borders(stride: int) -> None:
    session = _session(
        f"(float[1,2,H,W] x) => (float[1,2,P,Q] y) {{"
        f" y = MaxPool<kernel_shape = [1, {stride}], strides = [1, {stride}]>(x) }}"
    )
    for width in (stride, 16 * stride, 16 * stride + 1, 40 * stride + stride - 1):
        x = _random.standard_normal((1, 2, 3, width)).astype(np.float32)
        count = width // stride
        want = x[..., : count * stride].reshape(1, 2, 3, count, stride).max(-1)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("pads", [(1, 1), (0, 1), (2, 0)], ids=str)
def test_windows_with_borders(stride: int, pads: tuple[int, int]) -> None:
    session = _session(
        f"(float[1,2,H,W] x) => (float[1,2,P,Q] y) {{"
        f" y = MaxPool<kernel_shape = [1, 3], strides = [1, {stride}],"
        f" pads = [0, {pads[0]}, 0, {pads[1]}]>(x) }}"
    )
    for width in (3, 16 * stride, 16 * stride + 1, 33 * stride, 40 * stride + stride - 1):
        x = _random.standard_normal((1, 2, 3, width)).astype(np.float32)
        padded = np.pad(x, [(0, 0)] * 3 + [pads], constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, 3)
        want = windows[..., ::stride, :].max(-1)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("name", _TYPES)
@pytest.mark.parametrize("factor", [2, 3, 4, 5, 9])
def test_elements_repeated(name: str, factor: int) -> None:
    mode = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    scales = f"float[4] s = {{1, 1, 2, {factor}}}"
    session = _session(
        f"({name}[2,3,H,W] x) => ({name}[2,3,P,Q] y) <{scales}> {{ y = Resize<{mode}>(x, , s) }}"
    )
    for width in (0, 1, 15, 16, 17, 40, 64):
        x = (_random.standard_normal((2, 3, 2, width)) * 50).astype(_TYPES[name])
        want = x.repeat(2, 2).repeat(factor, 3)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("block", [2, 3, 4])
def test_channels_become_pixels(block: int) -> None:
    session = _session(
        f"(float[1,C,H,W] x) => (float[1,D,P,Q] y) {{"
        f" r = Relu(x) y = DepthToSpace<blocksize = {block}>(r) }}"
    )
    for width in (1, 7, 16, 33):
        x = _random.standard_normal((1, 2 * block**2, 3, width)).astype(np.float32)
        parts = np.maximum(x, 0).reshape(1, block, block, 2, 3, width)
        want = parts.transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 3 * block, width * block)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
