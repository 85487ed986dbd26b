"""Weights that are large, or lie far into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

X = np.float32([[1, -2, 3], [4, 5, -6]])


def external(name: str, shape: tuple[int, ...], offset: int, location: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=1, dims=shape, data_location=TensorProto.EXTERNAL)
    size = 4 * int(np.prod(shape))
    for key, value in (("location", location), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.mark.parametrize("location", ["big.bin", "./big.bin", "sub/big.bin", "sub\\big.bin"])
def test_weights_far_into_a_file(tmp_path: Path, location: str) -> None:
    """Weights beyond 2 GB and 4 GB; the file is a hole but for them."""
    offsets = [0, 2**31 - 4, 2**31, 2**32 - 8, 2**32 + 4096, 5 * 10**9]
    (tmp_path / "sub").mkdir()
    path = tmp_path / location.replace("\\", "/")
    names = [f"w{k}" for k in range(len(offsets))]
    values = np.random.default_rng(0).standard_normal((len(offsets), 1)).astype(np.float32)
    with open(path, "wb") as file:
        for offset, value in zip(offsets, values, strict=True):
            file.seek(offset)
            file.write(value.tobytes())
    if path.stat().st_blocks * 512 > 10**8:
        pytest.skip("the file system has no holes")
    model = model_of("g (float[n,3] x) => (float[n,3] y) { y = Sum(x, " + ", ".join(names) + ") }")
    model.graph.initializer.extend(
        external(n, (1,), at, location) for n, at in zip(names, offsets, strict=True)
    )
    onnx_path = tmp_path / "model.onnx"
    onnx_path.write_bytes(model.SerializeToString())
    for _ in range(2):  # the second time from the cache
        got = sardonyx.InferenceSession(onnx_path).run(None, {"x": X})[0]
        assert_near(got, X + values.sum(), "float: functions")


@pytest.mark.parametrize("in_file", [False, True])
def test_a_constant_of_100_megabytes(tmp_path: Path, in_file: bool) -> None:
    value = np.zeros((25_000_000,), np.float32)
    value[[0, 12_345_678, -1]] = 1, 2, 3
    model = model_of("g (int64[n] i) => (float[n] y) { c = Constant() y = Gather(c, i) }")
    model.graph.node[0].attribute.append(
        helper.make_attribute("value", numpy_helper.from_array(value))
    )
    data: Any = model.SerializeToString()
    if in_file:
        (tmp_path / "model.onnx").write_bytes(data)
        data = tmp_path / "model.onnx"
    session = sardonyx.InferenceSession(data)
    places = np.int64([0, 1, 12_345_678, 24_999_999])
    assert session.run(None, {"i": places})[0].tolist() == [1, 0, 2, 3]
