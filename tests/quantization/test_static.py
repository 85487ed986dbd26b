"""What is written is right by the standard's own reference, runs here, and stays close."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx import quantization as q
from sardonyx.base import errors
from sardonyx.quantization.calibration_data import ListReader
from tests.quantization.nets import NETS, convolutions, pictures, sentences, transformer
from tests.support.session import model_of
from tests.support.tolerances import assert_near

U8, I8 = q.QuantType.QUInt8, q.QuantType.QInt8
U16, I4 = q.QuantType.QUInt16, q.QuantType.QInt4


def static(model: Any, feeds: Any, path: Path, **options: Any) -> onnx.ModelProto:
    q.quantize_static(model, path, ListReader(feeds), **options)
    made = onnx.load(path)
    onnx.checker.check_model(made)
    return made


def outputs(model: onnx.ModelProto, feeds: Any) -> list[list[Any]]:
    session = sardonyx.InferenceSession(model.SerializeToString())
    return [session.run(None, feed) for feed in feeds]


def distance(got: list[list[Any]], want: list[list[Any]]) -> float:
    a = np.concatenate([x.reshape(-1) for row in got for x in row])
    b = np.concatenate([x.reshape(-1) for row in want for x in row])
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


#: Options, and how far results may be from those of floats.
_OF_ALL_NETS: list[tuple[dict[str, Any], float]] = [
    ({"activation_type": U8}, 0.06),
    ({"activation_type": I8, "per_channel": True}, 0.06),
    ({"activation_type": U8, "weight_type": I4}, 0.35),
    ({"activation_type": U8, "calibrate_method": q.CalibrationMethod.Entropy}, 0.06),
    ({"extra_options": {"ActivationSymmetric": True}}, 0.08),
    ({"extra_options": {"AddQDQPairToWeight": True}}, 0.06),
    ({"extra_options": {"DedicatedQDQPair": True}}, 0.06),
    ({"extra_options": {"ForceQuantizeNoInputCheck": True}}, 0.06),
]
#: What scales and types are, not where they are put; and what is only of convolutions.
_OF_ONE_NET: list[tuple[dict[str, Any], float]] = [
    ({"activation_type": U8, "reduce_range": True}, 0.06),
    ({"activation_type": U16}, 0.04),
    ({"activation_type": U8, "calibrate_method": q.CalibrationMethod.Percentile}, 0.06),
    ({"extra_options": {"QDQKeepRemovableActivations": True}}, 0.06),
    ({"extra_options": {"QuantizeBias": False}}, 0.06),
    ({"extra_options": {"CalibMovingAverage": True}}, 0.06),
    ({"extra_options": {"UseQDQContribOps": True}}, 0.06),
]


@cache
def float_outputs(net: str, version: int, feeds: int) -> list[list[Any]]:
    make, feeds_of = NETS[net]
    return outputs(make(version), feeds_of(feeds, seed=9))


@pytest.mark.parametrize(
    ("options", "error", "net"),
    [
        *((*row, net) for row in _OF_ALL_NETS for net in NETS),
        *((*row, "convolutions") for row in _OF_ONE_NET),
    ],
)
def test_floats_between_codes(net: str, options: Any, error: float, tmp_path: Path) -> None:
    make, feeds = NETS[net]
    # ONNX's reference has DequantizeLinear from version 19 on.
    float_model, test = make(21), feeds(4, seed=9)
    made = static(float_model, feeds(6), tmp_path / "q.onnx", **options)
    got = outputs(made, test)
    assert distance(got, float_outputs(net, 21, 4)) < error
    if not any(node.domain for node in made.graph.node):
        reference = ReferenceEvaluator(made)
        want = [reference.run(None, feed) for feed in test]
        # One step of a code, here and there, where a number lies in the middle of two.
        assert distance(got, want) < 0.01


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_operators_on_codes(net: str, per_channel: bool, tmp_path: Path) -> None:
    make, feeds = NETS[net]
    float_model, test = make(), feeds(4, seed=9)
    options = {"quant_format": q.QuantFormat.QOperator, "activation_type": U8}
    made = static(float_model, feeds(6), tmp_path / "q.onnx", per_channel=per_channel, **options)
    kinds = Counter(node.op_type for node in made.graph.node)
    if net == "convolutions":
        assert kinds == {
            "QuantizeLinear": 1, "QLinearConv": 3, "MaxPool": 1, "QLinearAdd": 1,
            "QLinearConcat": 1, "QLinearSigmoid": 1, "QLinearMul": 1,
            "QLinearGlobalAveragePool": 1, "Flatten": 1, "QGemm": 1, "DequantizeLinear": 1,
        }  # fmt: skip
    else:
        assert kinds["QLinearMatMul"] == 6 and kinds["QLinearSoftmax"] == 1
        assert not kinds["MatMul"] and kinds["LayerNormalization"] == 2
    assert distance(outputs(made, test), outputs(float_model, test)) < 0.07


def test_what_the_range_of_codes_does_already_is_removed(tmp_path: Path) -> None:
    made = static(convolutions(), pictures(2), tmp_path / "q.onnx")
    kinds = Counter(node.op_type for node in made.graph.node)
    assert not kinds["Relu"] and not kinds["Clip"] and not kinds["BatchNormalization"]
    kept = static(
        convolutions(), pictures(2), tmp_path / "k.onnx",
        extra_options={"QDQKeepRemovableActivations": True},
    )  # fmt: skip
    kinds = Counter(node.op_type for node in kept.graph.node)
    assert kinds["Relu"] == 2 and kinds["Clip"] == 1
    assert [n.name for n in kept.graph.node if n.op_type == "Conv"][0] == "Conv_c0"


def test_nodes_and_operators_are_chosen(tmp_path: Path) -> None:
    def quantised(**options: Any) -> list[str]:
        made = static(convolutions(), pictures(2), tmp_path / "q.onnx", **options)
        weights = {i.name for i in made.graph.initializer if i.name.startswith("w")}
        return sorted(n for n in weights if n.endswith("_quantized"))

    assert quantised(op_types_to_quantize=["Gemm"]) == ["w3_quantized"]
    assert quantised(nodes_to_quantize=["Conv_c2"]) == ["w2_quantized"]
    got = quantised(op_types_to_quantize=["Conv"], nodes_to_exclude=["Conv_c1"])
    # The first convolution has taken up the batch normalisation.
    assert len(got) == 1 and got[0] == "w2_quantized" or len(got) == 2


def test_blocks_of_weights(tmp_path: Path) -> None:
    made = static(
        transformer(), sentences(3), tmp_path / "q.onnx", op_types_to_quantize=["MatMul"],
        weight_type=q.QuantType.QInt4, extra_options={"BlockSize": 16},
    )  # fmt: skip
    assert made.opset_import[0].version == 21
    (scale,) = (i for i in made.graph.initializer if i.name == "wq_scale")
    assert list(scale.dims) == [2, 32]
    test = sentences(2, seed=9)
    assert distance(outputs(made, test), outputs(transformer(), test)) < 0.2


def test_overrides(tmp_path: Path) -> None:
    given = {
        "c2": [{"scale": 0.5, "zero_point": 7}],
        "w2": [{"axis": 0, "quant_type": I8}],
        "x": [{"rmin": -10.0, "rmax": 10.0}],
        "w3": [{"symmetric": False}],
    }
    made = static(
        convolutions(), pictures(2), tmp_path / "q.onnx", activation_type=U8,
        extra_options={"TensorQuantOverrides": given},
    )  # fmt: skip
    held = {i.name: onnx.numpy_helper.to_array(i) for i in made.graph.initializer}
    assert held["c2_scale"] == 0.5 and held["c2_zero_point"] == 7
    assert held["w2_scale"].shape == (16,)
    assert_near(held["x_scale"], 20 / 255, "float: one operation")
    assert held["w3_zero_point"] != 0


def test_float16(tmp_path: Path) -> None:
    text = "net (float16[N, 8] x) => (float16[N, 4] y) { m = MatMul(x, w) y = Relu(m) }"
    random = np.random.default_rng(0)
    model = model_of(text, {"w": random.standard_normal((8, 4)).astype(np.float16)})
    feeds = [{"x": random.standard_normal((5, 8)).astype(np.float16)}]
    made = static(model, feeds, tmp_path / "q.onnx")
    assert made.opset_import[0].version == 19
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.03


def test_masks_stay_floats(tmp_path: Path) -> None:
    """One number that says `never` would leave one code for all others."""
    text = """net (float[N, 8] x, bool[8] keep) => (float[N, 8] y) {
        s = MatMul(x, w) m = Where(keep, zero, never) a = Add(s, m) y = Softmax(a) }"""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((8, 8)).astype(np.float32),
        "zero": np.float32(0),
        "never": np.finfo(np.float32).min,
    }
    model = model_of(text, weights)
    feeds = [{"x": random.standard_normal((3, 8)).astype(np.float32), "keep": np.arange(8) < 6}]
    made = static(model, feeds, tmp_path / "q.onnx")
    assert distance(outputs(made, feeds), outputs(model, feeds)) < 0.05


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"weight_type": U8}, errors.InvalidArgument, "Take QInt8 weights"),
        (
            {"weight_type": U16, "quant_format": q.QuantFormat.QOperator},
            errors.InvalidArgument,
            "Take QuantFormat.QDQ",
        ),
        ({"weight_type": q.QuantType.QFLOAT8E4M3FN}, errors.NotImplemented, "8-bit floats"),
        ({"weight_type": "QInt8"}, errors.InvalidArgument, "no QuantType"),
        ({"extra_options": {"WeightSymetric": 1}}, errors.InvalidArgument, "WeightSymmetric"),
        ({"extra_options": {"WeightSymmetric": 1}}, errors.InvalidArgument, "bool or None"),
        ({"extra_options": {"SmoothQuant": True}}, errors.NotImplemented, "SmoothQuant"),
        ({"extra_options": {"EnableSubgraph": True}}, errors.NotImplemented, "quantize_dynamic"),
        ({"extra_options": {"CalibStridedMinMax": 2}}, errors.InvalidArgument, "strides"),
        (
            {"extra_options": {"TensorQuantOverrides": {"none": [{}]}}},
            errors.InvalidArgument,
            "no tensor of that name",
        ),
        (
            {"extra_options": {"TensorQuantOverrides": {"c2": [{"convert": {}}]}}},
            errors.NotImplemented,
            "Conversion",
        ),
        (
            {"extra_options": {"TensorQuantOverrides": {"c2": [{"scale": 1.0}]}}},
            errors.InvalidArgument,
            "only go together",
        ),
    ],
)
def test_what_is_refused(options: Any, kind: Any, text: str, tmp_path: Path) -> None:
    target = tmp_path / "q.onnx"
    with pytest.raises(kind, match=text):
        q.quantize_static(convolutions(), target, ListReader(pictures(3)), **options)
    assert not list(tmp_path.iterdir())


def test_no_data_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="gave nothing"):
        q.quantize_static(convolutions(), tmp_path / "q.onnx", ListReader([]))
    with pytest.raises(errors.InvalidArgument, match="neither calibration data"):
        q.quantize_static(convolutions(), tmp_path / "q.onnx")
    with pytest.raises(errors.NotFound, match="no such folder"):
        q.quantize_static(convolutions(), tmp_path / "a" / "q.onnx", ListReader(pictures(1)))
    assert not list(tmp_path.iterdir())
