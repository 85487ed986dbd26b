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
