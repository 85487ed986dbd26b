"""Versions with attributes and rules of their own, against NumPy."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op, one_node_model

RNG = np.random.default_rng(16)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)


def floats(*shape):
    return (np.abs(RNG.standard_normal(shape)) + 0.5).astype(np.float32)


# -- `broadcast` and `axis` -------------------------------------------------------------------

ALIGNMENTS = [  # shape of the second operand, its attributes, its shape under NumPy's rules
    ((2, 3, 4, 5), {}, (2, 3, 4, 5)),
    ((), {"broadcast": 1}, ()),
    ((1, 1), {"broadcast": 1}, ()),
    ((5,), {"broadcast": 1}, (5,)),
    ((4, 5), {"broadcast": 1}, (4, 5)),
    ((3, 4), {"broadcast": 1, "axis": 1}, (3, 4, 1)),
    ((3,), {"broadcast": 1, "axis": 1}, (3, 1, 1)),
    ((2,), {"broadcast": 1, "axis": 0}, (2, 1, 1, 1)),
    ((4,), {"broadcast": 1, "axis": -2}, (4, 1)),
    ((2, 3, 4, 1), {"broadcast": 1}, (2, 3, 4, 1)),
]
ARITHMETIC = {
    "Add": (np.add, 6),
    "Sub": (np.subtract, 6),
    "Mul": (np.multiply, 6),
    "Div": (np.divide, 6),
    "Pow": (np.power, 1),
    "Less": (np.less, 1),
    "Greater": (np.greater, 1),
}


@pytest.mark.parametrize("op_type", ARITHMETIC)
@pytest.mark.parametrize("shape, attributes, numpys", ALIGNMENTS)
def test_alignment(op_type, shape, attributes, numpys):
    function, opset = ARITHMETIC[op_type]
    a, b = np.abs(X) + np.float32(0.1), floats(*shape)
    expected = [function(a, b.reshape(numpys))]
    check_op(op_type, [a, b], attributes, opset, expected=expected)


@pytest.mark.parametrize(
    "op_type, function",
    [
        ("And", np.logical_and),
        ("Or", np.logical_or),
        ("Xor", np.logical_xor),
        ("Equal", np.equal),
    ],
)
def test_alignment_of_bools(op_type, function):
    a, b = X > 0, floats(3) > 1
    attributes = {"broadcast": 1, "axis": 1}
    check_op(op_type, [a, b], attributes, 1, expected=[function(a, b.reshape(3, 1, 1))])


@pytest.mark.parametrize(
    "shape, attributes, text",
    [
        ((5,), {}, "wrong rank"),
        ((2, 3, 4, 1), {}, "wrong shape"),
        ((3,), {"broadcast": 1}, "wrong shape"),
        ((4, 5), {"broadcast": 1, "axis": 3}, "more axes"),
        ((3,), {"broadcast": 1, "axis": 4}, "no such axis"),
    ],
)
def test_bad_alignment(shape, attributes, text):
    with pytest.raises(InvalidGraph, match=text):
        check_op("Add", [X, floats(*shape)], attributes, 6, expected=[], symbolic=False)


@pytest.mark.parametrize("opset", [1, 6])
def test_gemm(opset):
    a, b, row = floats(4, 3), floats(5, 4), floats(5)
    attributes = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}
    wanted = 0.5 * a.T @ b.T + 2 * row
    full = np.broadcast_to(row, (3, 5)).copy()
    check_op("Gemm", [a, b, full], attributes, opset, expected=[wanted])
    check_op("Gemm", [a, b, row], {**attributes, "broadcast": 1}, opset, expected=[wanted])
    with pytest.raises(InvalidGraph, match="Without `broadcast`"):
        check_op("Gemm", [a, b, row], attributes, opset, expected=[])


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("slope, numpys", [((3,), (3, 1, 1)), ((1,), ()), ((), ())])
def test_prelu(opset, slope, numpys):
    factors = floats(*slope)
    expected = np.where(X < 0, X * factors.reshape(numpys), X)
    check_op("PRelu", [X, factors], {}, opset, expected=[expected])


# -- `consumed_inputs` ------------------------------------------------------------------------

ABSOLUTE = np.abs(X) + np.float32(0.1)


@pytest.mark.parametrize(
    "op_type, function",
    [
        ("Abs", np.abs),
        ("Ceil", np.ceil),
        ("Exp", np.exp),
        ("Floor", np.floor),
        ("Log", np.log),
        ("Neg", np.negative),
        ("Reciprocal", np.reciprocal),
        ("Relu", lambda x: np.maximum(x, 0)),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("Sqrt", np.sqrt),
        ("Tanh", np.tanh),
    ],
)
def test_consumed_inputs(op_type, function):
    attributes = {"consumed_inputs": [0]}
    check_op(op_type, [ABSOLUTE], attributes, 1, expected=[function(ABSOLUTE)])
    with pytest.raises(InvalidGraph, match="no attribute 'consumed_inputs'"):
        check_op(op_type, [ABSOLUTE], attributes, 6, expected=[])


@pytest.mark.parametrize(
    "op_type, attributes, function",
    [
        ("Elu", {"alpha": 2.0}, lambda x: np.where(x < 0, 2 * np.expm1(x), x)),
        ("LeakyRelu", {}, lambda x: np.where(x < 0, 0.01 * x, x)),
        ("Selu", {}, lambda x: 1.0507 * np.where(x <= 0, 1.6732 * np.expm1(x), x)),
        ("HardSigmoid", {"alpha": 0.3}, lambda x: np.clip(0.3 * x + 0.5, 0, 1)),
        ("Clip", {"min": -0.5}, lambda x: np.maximum(x, -0.5)),
        ("Dropout", {"is_test": 1}, lambda x: x),
        ("InstanceNormalization", None, None),
    ],
)
def test_consumed_inputs_and_others(op_type, attributes, function):
    if function is None:
        scale, bias = floats(3), floats(3)
        deviation = np.sqrt(X.var((2, 3), keepdims=True) + 1e-5)
        wanted = (X - X.mean((2, 3), keepdims=True)) / deviation
        wanted = wanted * scale.reshape(3, 1, 1) + bias.reshape(3, 1, 1)
        check_op(op_type, [X, scale, bias], {"consumed_inputs": [0]}, 1, expected=[wanted])
        return
    expected = [function(X).astype(np.float32)]
    check_op(op_type, [X], {"consumed_inputs": [0], **attributes}, 1, expected=expected)


@pytest.mark.parametrize(
    "op_type, function",
    [("Max", np.maximum), ("Min", np.minimum), ("Sum", np.add)],
)
def test_several(op_type, function):
    attributes = {"consumed_inputs": [0, 0]}
    check_op(op_type, [X, ABSOLUTE], attributes, 1, expected=[function(X, ABSOLUTE)])


# -- normalisation ----------------------------------------------------------------------------


@pytest.mark.parametrize("opset, spatial", [(1, 1), (6, 1), (7, 1), (9, 1), (6, 0), (7, 0)])
@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization(opset, spatial, training):
    axes, of = ((0, 2, 3), (3,)) if spatial else ((0,), (3, 4, 5))
    scale, bias, average, variance = (floats(*of) for _ in range(4))
    attributes = {"epsilon": 1e-3, "momentum": 0.7}
    if opset == 1:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    if opset < 7:
        attributes["is_test"] = int(not training)
    if not spatial:
        attributes["spatial"] = 0

    def along(values):
        return values.reshape(3, 1, 1) if spatial else values

    batch_mean, batch_variance = X.mean(axes), X.var(axes)
    mean, var = (batch_mean, batch_variance) if training else (average, variance)
    result = along(scale) * (X - along(mean)) / np.sqrt(along(var) + 1e-3) + along(bias)
    expected = [result]
    if training:
        expected += [0.7 * average + 0.3 * batch_mean, 0.7 * variance + 0.3 * batch_variance]
        expected += [batch_mean, batch_variance]
    inputs = [X, scale, bias, average, variance]
    check_op(
        "BatchNormalization", inputs, attributes, opset, outputs=len(expected),
        expected=[e.astype(np.float32) for e in expected],
    )  # fmt: skip


@pytest.mark.parametrize(
    "opset, mask", [(1, np.float32), (6, np.float32), (7, np.float32), (10, bool)]
)
def test_dropout(opset, mask):
    attributes = {"is_test": 1} if opset < 7 else {}
    expected = [X, np.ones(X.shape, mask)]
    check_op("Dropout", [X], attributes, opset, outputs=2, expected=expected)


def test_dropout_in_training():
    """Version 6 drops what is no test: about as many as asked, and the others grow."""
    model = one_node_model("Dropout", [X], {"ratio": 0.25}, 6, 2)
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = np.ones((2, 3, 4, 5), np.float32)
    total = 0.0
    for _ in range(40):
        result, mask = session.run(None, {"x0": x})
        assert mask.dtype == np.float32
        np.testing.assert_allclose(result, mask / np.float32(0.75))
        total += mask.mean() / 40
    assert abs(total - 0.75) < 0.03


# -- shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op_type, inputs, attributes, expected",
    [
        ("Reshape", [X], {"shape": [0, -1, 10]}, X.reshape(2, 6, 10)),
        ("Concat", [X, X], {}, np.concatenate([X, X], 1)),
        ("Concat", [X, X], {"axis": 3}, np.concatenate([X, X], 3)),
        (
            "Pad",
            [X],
            {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 3.0},
            np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=3),
        ),
        (
            "Upsample",
            [X],
            {"height_scale": 2.0, "width_scale": 3.0},
            X.repeat(2, 2).repeat(3, 3),
        ),
        ("Cast", [X], {"to": "INT32"}, X.astype(np.int32)),
        ("Cast", [X], {"to": "FLOAT16"}, X.astype(np.float16)),
        ("Slice", [X], {"starts": [1, -3], "ends": [9, -1], "axes": [2, 3]}, X[:, :, 1:, -3:-1]),
        ("TopK", [X], {"k": 2, "axis": 3}, -np.sort(-X, 3)[..., :2]),
        ("Softmax", [X], {"axis": 2}, None),
        ("LpPool", [X], {"kernel_shape": [4, 5], "p": 3.0}, None),
    ],
)
def test_shapes(op_type, inputs, attributes, expected):
    if op_type == "Softmax":
        e = np.exp(X)
        expected = e / e.sum((2, 3), keepdims=True)
    if op_type == "LpPool":
        expected = ((np.abs(X) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)).astype(np.float32)
    check_op(op_type, inputs, attributes, 1, expected=[expected])


def test_tile():
    counts = [np.array([n], np.float32) for n in (3, 2)]
    check_op("Tile", [X, *counts], {}, 1, constants=[1, 2], expected=[np.tile(X, (1, 1, 3, 1))])


@pytest.mark.parametrize("attributes", [{"axis": 2, "split": [1, 3]}, {"axis": 2}])
def test_split(attributes):
    lengths = attributes.get("split", [2, 2])
    parts = np.split(X, [lengths[0]], 2)
    check_op("Split", [X], attributes, 1, outputs=2, expected=parts, symbolic=False)
    given = np.array(lengths, np.float32)
    check_op("Split", [X, given], {"axis": 2}, 1, outputs=2, constants=[1], expected=parts)


@pytest.mark.parametrize("op_type, opset, gates", [("RNN", 1, 1), ("GRU", 3, 3), ("LSTM", 1, 4)])
def test_recurrent(op_type, opset, gates):
    """The same numbers as of the version that dropped `output_sequence`."""
    x, w, r = floats(4, 2, 3), floats(1, 5 * gates, 3) * 0.1, floats(1, 5 * gates, 5) * 0.1
    inputs = [x, w.astype(np.float32), r.astype(np.float32)]
    later = one_node_model(op_type, inputs, {"hidden_size": 5}, 14, 2)
    wanted = ReferenceEvaluator(later).run(None, {f"x{k}": a for k, a in enumerate(inputs)})
    attributes = {"hidden_size": 5, "output_sequence": 1}
    check_op(op_type, inputs, attributes, opset, outputs=2, expected=wanted, symbolic=False)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_tile_along_an_axis_that_a_run_names(axis, count):
    model = one_node_model("Tile", [X, np.float32(count), np.float32(axis)], {}, 1)
    session = sardonyx.InferenceSession(model.SerializeToString())
    feeds = {"x0": X, "x1": np.float32(count), "x2": np.float32(axis)}
    counts = [count if k == axis % 4 else 1 for k in range(4)]
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.tile(X, counts))
