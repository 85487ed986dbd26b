"""Beside onnxruntime's quantiser: the same codes from the same ranges, in files that run there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx import quantization as q
from sardonyx.quantization.blocks import blocks_of, pack
from sardonyx.quantization.calibration_data import ListReader
from tests.quantization.nets import NETS
from tests.support import peer
from tests.support.tolerances import assert_near

other = peer.onnxruntime()
if other is None:
    pytest.skip("needs a newer onnxruntime", allow_module_level=True)
theirs = pytest.importorskip("onnxruntime.quantization")

STATIC: list[dict[str, Any]] = [
    {"activation_type": "QUInt8"},
    {"activation_type": "QInt8", "per_channel": True},
    {"activation_type": "QUInt8", "reduce_range": True, "per_channel": True},
    {"activation_type": "QUInt16"},
    {"activation_type": "QUInt8", "weight_type": "QInt4"},
    {"activation_type": "QUInt8", "quant_format": "QOperator"},
    {"activation_type": "QUInt8", "quant_format": "QOperator", "per_channel": True},
    {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}},
    {"extra_options": {"AddQDQPairToWeight": True}},
    {"extra_options": {"DedicatedQDQPair": True}},
    {"extra_options": {"ForceQuantizeNoInputCheck": True}},
    {"extra_options": {"QDQKeepRemovableActivations": True}},
    {"extra_options": {"OpTypesToExcludeOutputQuantization": ["Conv", "MatMul"]}},
    {"extra_options": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}, "per_channel": True},
    {"extra_options": {"MinimumRealRange": 5.0}},
    {"op_types_to_quantize": ["Conv", "Gemm", "MatMul"]},
]
DYNAMIC: list[dict[str, Any]] = [
    {"weight_type": "QInt8", "op_types_to_quantize": ["MatMul"]},
    {"weight_type": "QUInt8", "op_types_to_quantize": ["MatMul", "Conv"]},
    {"per_channel": True, "op_types_to_quantize": ["MatMul"]},
]


def arguments(given: dict[str, Any], module: Any) -> dict[str, Any]:
    kinds = {
        "activation_type": module.QuantType,
        "weight_type": module.QuantType,
        "quant_format": module.QuantFormat,
    }
    return {k: kinds[k][v] if k in kinds else v for k, v in given.items()}


def outputs(path: Path, feeds: Any) -> list[Any]:
    options = other.SessionOptions()
    options.graph_optimization_level = other.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = other.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [array for feed in feeds for array in session.run(None, feed)]


def prepared(net: str, folder: Path) -> tuple[Path, Any]:
    make, feeds = NETS[net]
    onnx.save(make(), folder / "m.onnx")
    q.quant_pre_process(folder / "m.onnx", folder / "p.onnx")
    return folder / "p.onnx", feeds


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("given", STATIC, ids=str)
def test_static(net: str, given: dict[str, Any], tmp_path: Path) -> None:
    model, feeds = prepared(net, tmp_path)
    given = {"activation_type": "QUInt8", **given}
    ranges = tmp_path / "ranges.json"
    theirs.quantize_static(
        model, tmp_path / "theirs.onnx", theirs_reader(feeds(4)),
        calibration_cache_path=ranges, **arguments(given, theirs),
    )  # fmt: skip
    q.quantize_static(
        model, tmp_path / "ours.onnx", calibration_cache_path=ranges, **arguments(given, q)
    )
    want, got = (outputs(tmp_path / f"{w}.onnx", feeds(3, seed=7)) for w in ("theirs", "ours"))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


def theirs_reader(feeds: Any) -> Any:
    class Reader(theirs.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter(feeds)

        def get_next(self) -> Any:
            return next(self._rest, None)

    return Reader()


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_ranges(net: str, method: str, tmp_path: Path) -> None:
    model, feeds = prepared(net, tmp_path)
    found = []
    for module, reader in ((theirs, theirs_reader), (q, ListReader)):
        calibrator = module.create_calibrator(
            model if module is theirs else str(model),
            sorted(q.rules.STATIC_OPERATORS),
            augmented_model_path=str(tmp_path / "augmented.onnx"),
            calibrate_method=module.CalibrationMethod[method],
        )
        calibrator.collect_data(reader(feeds(5)))
        found.append(calibrator.compute_data())
    want, got = found
    assert set(want.keys()) == set(got.keys())
    for name, data in want.items():
        width = float(np.max(data.range_value) - np.min(data.range_value))
        # Theirs begins the histogram of sizes at the smallest, ours at 0: a bin of 2048.
        slack = width / 1000 if method == "Percentile" else width * 1e-5
        np.testing.assert_allclose(
            np.ravel(got[name].range_value), np.ravel(data.range_value), atol=slack
        )


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("given", DYNAMIC, ids=str)
def test_dynamic(net: str, given: dict[str, Any], tmp_path: Path) -> None:
    model, feeds = prepared(net, tmp_path)
    theirs.quantize_dynamic(model, tmp_path / "theirs.onnx", **arguments(given, theirs))
    q.quantize_dynamic(model, tmp_path / "ours.onnx", **arguments(given, q))
    want, got = (outputs(tmp_path / f"{w}.onnx", feeds(3, seed=7)) for w in ("theirs", "ours"))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks(bits: int, symmetric: bool) -> None:
    from onnxruntime.capi import _pybind_state as state

    weights = np.random.default_rng(0).standard_normal((128, 24)).astype(np.float32)
    codes = np.zeros((24, 4, 32 * bits // 8), np.uint8)
    zeros = np.zeros((24, -(-4 * bits // 8)), np.uint8)
    scales = np.zeros((24, 4), np.float32)
    function = getattr(state, f"quantize_matmul_{bits}bits")
    function(codes, weights, scales, zeros, 32, 24, 128, symmetric)
    ours = blocks_of(weights, bits, 32, symmetric=symmetric)
    np.testing.assert_array_equal(pack(ours[0], bits), codes)
    np.testing.assert_array_equal(ours[1], scales)
    if ours[2] is not None:
        np.testing.assert_array_equal(pack(ours[2], bits), zeros)


@pytest.mark.parametrize("given", [{}, {"bits": 8}, {"quant_format": q.QuantFormat.QDQ}], ids=str)
def test_blocks_run_there(given: Any, tmp_path: Path) -> None:
    import sardonyx

    model, feeds = prepared("transformer", tmp_path)
    quantizer = q.MatMulNBitsQuantizer(str(model), block_size=16, **given)
    quantizer.process()
    quantizer.model.save_model_to_file(tmp_path / "ours.onnx")
    test = feeds(2, seed=7)
    session = sardonyx.InferenceSession(tmp_path / "ours.onnx")
    got = [array for feed in test for array in session.run(None, feed)]
    for a, b in zip(outputs(tmp_path / "ours.onnx", test), got, strict=True):
        assert_near(a, b, "float: which result it is")
