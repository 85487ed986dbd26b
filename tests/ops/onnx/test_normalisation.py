"""Normalisations and softmax against onnx's reference."""

import numpy as np
import pytest

from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph
from sardonyx.ops.onnx.normalisation import layer_norm, softmax_over
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.inline import find_roots
from sardonyx.tensor.tensor import buffer
from tests.support.ops import check_op

EPSILON = float(np.float32(1e-4))  # as the file holds it
RNG = np.random.default_rng(11)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_layer_normalization(axis, dtype):
    x = floats(2, 3, 8, dtype=dtype)
    shape = x.shape[axis:]
    attributes = {"axis": axis, "epsilon": EPSILON}
    inputs = [x, floats(*shape, dtype=dtype), floats(*shape, dtype=dtype)]
    wide = x.astype(np.float64)
    axes = tuple(range(axis % 3, 3))
    deviation = np.sqrt(wide.var(axes, keepdims=True) + EPSILON)
    expected = (wide - wide.mean(axes, keepdims=True)) / deviation * inputs[1] + inputs[2]
    check_op("LayerNormalization", inputs, attributes, 17, expected=[expected.astype(dtype)])


@pytest.mark.parametrize("op_type", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize(("dtype", "of_scale"), [("f4", "f4"), ("f2", "f2"), ("f2", "f4")])
def test_layers_as_onnxruntime_has_them_before_version_17(op_type, dtype, of_scale):
    x, scale = floats(3, 8, dtype=dtype), floats(8, dtype=of_scale)
    wide = x.astype(np.float64)
    if op_type == "LayerNormalization":
        wide -= wide.mean(-1, keepdims=True)
    deviation = np.sqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)
    expected = (wide / deviation * scale).astype(of_scale)
    check_op(op_type, [x, scale], {"epsilon": EPSILON}, 11, expected=[expected])


def test_layer_normalization_gives_statistics():
    x = floats(4, 6)
    check_op("LayerNormalization", [x, floats(6)], {}, 17, outputs=3)


def test_two_pass_variance_survives_a_large_mean():
    x = floats(4, 64) + np.float32(3e4)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    check_op(
        "LayerNormalization",
        [x, np.ones(64, np.float32)],
        {},
        17,
        expected=[expected.astype(np.float32)],
        tolerance="half: functions",  # the mean itself is rounded to float
    )


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset):
    statistics = [floats(3), floats(3), floats(3), np.abs(floats(3)) + 0.1]
    x = floats(2, 3, 4, 5)
    scale, bias, mean, variance = (s.reshape(1, 3, 1, 1).astype(np.float64) for s in statistics)
    expected = ((x - mean) / np.sqrt(variance + 1e-3) * scale + bias).astype(np.float32)
    attributes = {"epsilon": 1e-3}
    check_op("BatchNormalization", [x, *statistics], attributes, opset, expected=[expected])


def test_batch_normalization_in_training_mode():
    inputs = [floats(4, 3, 5), floats(3), floats(3), floats(3), np.abs(floats(3))]
    check_op("BatchNormalization", inputs, {"training_mode": 1, "momentum": 0.8}, 15, outputs=3)


def test_instance_normalization():
    check_op("InstanceNormalization", [floats(2, 3, 4, 5), floats(3), floats(3)], {}, 17)


@pytest.mark.parametrize(("opset", "parameters"), [(18, 3), (21, 6)])
def test_group_normalization(opset, parameters):
    inputs = [floats(2, 6, 4, 5), floats(parameters), floats(parameters)]
    check_op("GroupNormalization", inputs, {"num_groups": 3}, opset)


def test_group_normalization_wants_equal_groups():
    inputs = [floats(2, 5, 4), floats(2), floats(2)]
    with pytest.raises(InvalidGraph, match="5 channels in 2 groups"):
        check_op("GroupNormalization", inputs, {"num_groups": 2}, 18, expected=[], symbolic=False)


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(axis):
    x = floats(2, 3, 8)
    check_op("RMSNormalization", [x, floats(*x.shape[axis:])], {"axis": axis}, 23)


@pytest.mark.parametrize(("p", "axis"), [(1, 1), (2, -1)])
def test_lp_normalization(p, axis):
    x = np.abs(floats(2, 3, 4))
    x[0, :, 0] = x[0, 0] = 0
    check_op("LpNormalization", [x], {"p": p, "axis": axis}, 22)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_local_response(size):
    # The reference takes the number of images for that of channels.
    check_op("LRN", [floats(7, 7, 3, 4)], {"size": size, "alpha": 0.3, "bias": 1.5}, 13)


def test_mean_variance_normalization():
    x = floats(2, 3, 4, 5)
    check_op("MeanVarianceNormalization", [x], {}, 13)
    check_op("MeanVarianceNormalization", [x], {"axes": [1, 3]}, 13)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(op_type, axis):
    check_op(op_type, [floats(2, 3, 5)], {"axis": axis}, 13)
    flat = floats(2, 3, 5)
    rows = flat.reshape(int(np.prod(flat.shape[: axis % 3])), -1)
    e = np.exp(rows - rows.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    if op_type == "LogSoftmax":
        expected = np.log(expected)
    if op_type == "Hardmax":
        expected = np.eye(rows.shape[1], dtype=np.float32)[rows.argmax(1)]
    check_op(op_type, [flat], {"axis": axis}, 11, expected=[expected.reshape(flat.shape)])


def test_softmax_of_half_floats_does_not_overflow():
    x = np.full((2, 40000), 5.0, np.float16)
    expected = np.full(x.shape, 1 / 40000, np.float16)
    check_op("Softmax", [x], {}, 13, expected=[expected], tolerance="float: tables")


@pytest.mark.parametrize("symbolic", [False, True])
def test_each_is_one_row_kernel(symbolic):
    rows, width = (sizes.symbol("rows"), sizes.symbol("width")) if symbolic else (6, 64)
    x = buffer("x", (2, rows, width), FLOAT)
    weight = buffer("w", (width,), FLOAT)
    for result in (
        softmax_over(x, (2,)),
        layer_norm(x, weight, weight, -1, 1e-5, 1)[0],
    ):
        assert len(make_groups(find_roots([result]))) == 1


def test_statistics_have_the_type_of_stash_type_and_results_that_of_the_scale():
    x, scale = floats(3, 4).astype(np.float64), np.ones(4)
    mean, deviation = x.mean(1, keepdims=True), x.std(1, keepdims=True)
    normal = (x - mean) / np.sqrt(deviation**2 + 1e-5)
    expected = [normal, mean.astype(np.float32), (1 / np.sqrt(deviation**2 + 1e-5)).astype("f4")]
    check_op(
        "LayerNormalization",
        [x, scale],
        {},
        17,
        outputs=3,
        expected=expected,
        tolerance="float: one operation near zero",
    )
    half = floats(3, 4).astype(np.float16)
    wide = half.astype(np.float32)
    expected = [wide / np.sqrt(np.square(wide).mean(1, keepdims=True) + 1e-5)]
    ones = np.ones(4, np.float32)
    check_op(
        "RMSNormalization",
        [half, ones],
        {},
        23,
        expected=expected,
        tolerance="float: rounded weights",
    )


def test_running_statistics_of_doubles_are_doubles():
    x, ones, old = floats(4, 2, 3), np.ones(2, np.float32), np.array([0.1, 0.7])
    own = [x.mean((0, 2), dtype=np.float64), x.var((0, 2), dtype=np.float64)]
    running = [old * 0.75 + new * 0.25 for new in own]
    y = (x - own[0].reshape(-1, 1)) / np.sqrt(own[1].reshape(-1, 1) + np.float32(1e-5))
    attributes = {"training_mode": 1, "momentum": 0.75}
    inputs = [x, ones, 0 * ones, old, old]
    expected = [y.astype(np.float32), *running]
    check_op("BatchNormalization", inputs, attributes, 15, outputs=3, expected=expected,
             tolerance="float: one operation near zero")  # fmt: skip
