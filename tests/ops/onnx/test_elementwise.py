"""Elementwise operators and activations against onnx's reference."""

import ml_dtypes
import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op

RNG = np.random.default_rng(7)


def floats(*shape, dtype=np.float32, scale=3.0):
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def positive(*shape):
    return np.abs(floats(*shape)) + np.float32(0.1)


def unit(*shape):
    return np.tanh(floats(*shape)).astype(np.float32) * np.float32(0.99)


def integers(*shape, dtype=np.int64, low=-9, high=10):
    return RNG.integers(low, high, shape).astype(dtype)


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], np.float32)

UNARY_ANY = "Neg Abs Sign Exp Erf Tanh Sigmoid Floor Ceil Round Sin Cos Tan Atan Sinh Cosh Asinh"


@pytest.mark.parametrize("op_type", UNARY_ANY.split())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_unary(op_type, dtype):
    # The reference rounds Erf of doubles to float on the way.
    tolerance = "double: erf" if (op_type, dtype) == ("Erf", np.float64) else None
    check_op(op_type, [floats(2, 1, 5, dtype=dtype)], opset=13, tolerance=tolerance)


@pytest.mark.parametrize("op_type", "Sqrt Log Reciprocal".split())
def test_unary_positive(op_type):
    check_op(op_type, [positive(3, 4)])


@pytest.mark.parametrize("op_type", "Asin Acos Atanh".split())
def test_unary_unit(op_type):
    check_op(op_type, [unit(3, 4)])


def test_acosh():
    check_op("Acosh", [positive(3, 4) + 1])


@pytest.mark.parametrize("op_type", "Neg Abs Sign".split())
def test_unary_integers(op_type):
    check_op(op_type, [integers(2, 5, dtype=np.int32)])


@pytest.mark.parametrize("op_type", "Relu Sigmoid Abs Sqrt IsNaN IsInf Round".split())
def test_special_values(op_type):
    check_op(op_type, [SPECIAL], opset=20)


@pytest.mark.parametrize("op_type", "Add Sub Mul Div".split())
@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((), (2,)), ((0, 3), (1,))]
)
def test_arithmetic(op_type, a, b):
    check_op(op_type, [floats(*a), floats(*b)])


@pytest.mark.parametrize("op_type", "Add Sub Mul".split())
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integer_arithmetic_wraps(op_type, dtype):
    a, b = integers(20, dtype=dtype, low=0, high=120), integers(20, dtype=dtype, low=0, high=120)
    operation = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op_type]
    check_op(op_type, [a, b], expected=[operation(a, b)])


def test_integer_division_truncates():
    a, b = np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 3])
    check_op("Div", [a, b], expected=[np.array([3, -3, -3, 3, 0])])


def test_integer_division_by_zero_faults():
    with pytest.raises(RuntimeException, match="divided by 0"):
        check_op("Div", [np.array([1, 2]), np.array([1, 0])])


@pytest.mark.parametrize(("fmod", "expected"), [(0, [1, 2, -2, -1, 0]), (1, [1, -1, 1, -1, 0])])
def test_mod(fmod, expected):
    a, b = np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, 3])
    check_op("Mod", [a, b], {"fmod": fmod}, 13, expected=[np.array(expected)])


def test_mod_of_floats_and_unsigned():
    check_op("Mod", [floats(9), floats(9)], {"fmod": 1})
    check_op("Mod", [integers(9, dtype=np.uint8, low=0), np.full(9, 4, np.uint8)])


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (positive(3, 4), floats(4)),
        (floats(3), np.array(3.0, np.float32)),
        (floats(3), np.array(2, np.int64)),
        (integers(5, dtype=np.int32), np.array([2.0], np.float32)),
        (integers(5), integers(5, low=0, high=5)),
        (positive(3).astype(np.float64), integers(3, dtype=np.int32, low=-3)),
        (positive(3), floats(3, dtype=np.float64)),
        (positive(3).astype(np.float16), floats(3)),
    ],
)
def test_pow(base, exponent):
    for constants in ((), (1,)):
        check_op(
            "Pow", [base, exponent], constants=constants, opset=15, tolerance="half: functions"
        )


@pytest.mark.parametrize("op_type", "Min Max Sum Mean".split())
@pytest.mark.parametrize("count", [1, 2, 3])
def test_variadic(op_type, count):
    check_op(op_type, [floats(2, 3), floats(3), floats(2, 1)][:count], opset=13)


@pytest.mark.parametrize("op_type", "Min Max Sum Mean".split())
@pytest.mark.parametrize("count", [17, 300])
def test_many_inputs(op_type, count):
    check_op(op_type, [floats(3) for _ in range(count)], opset=13, tolerance="float: sums")


@pytest.mark.parametrize("op_type", "Min Max".split())
def test_extremes_give_nan_on(op_type):
    nan = np.float32(np.nan)
    a, b = np.array([1, nan, 3], np.float32), np.array([nan, 2, 4], np.float32)
    known = 3 if op_type == "Min" else 4
    check_op(op_type, [a, b], opset=13, expected=[np.array([nan, nan, known], np.float32)])


@pytest.mark.parametrize("op_type", "Equal Less LessOrEqual Greater GreaterOrEqual".split())
def test_compare(op_type):
    check_op(op_type, [integers(4, 5), integers(5)], opset=19)
    check_op(op_type, [SPECIAL, SPECIAL[::-1].copy()], opset=19)


def test_equal_of_bools():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    check_op("Equal", [a, b])


@pytest.mark.parametrize("op_type", "And Or Xor".split())
def test_logic(op_type):
    check_op(op_type, [integers(3, 4) > 0, integers(4) > 0])


@pytest.mark.parametrize("op_type", "BitwiseAnd BitwiseOr BitwiseXor".split())
def test_bits(op_type):
    check_op(op_type, [integers(3, 4, dtype=np.int32), integers(4, dtype=np.int32)])


def test_not():
    check_op("Not", [integers(5) > 0])
    check_op("BitwiseNot", [integers(5, dtype=np.uint8, low=0)])


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(direction):
    a = integers(6, dtype=np.uint8, low=0, high=255)
    b = np.array([0, 1, 3, 7, 8, 9], np.uint8)
    wide = a.astype(np.int64)
    moved = (wide << b) & 255 if direction == "LEFT" else wide >> b
    check_op("BitShift", [a, b], {"direction": direction}, expected=[moved.astype(np.uint8)])


def test_where():
    check_op("Where", [integers(3, 1) > 0, floats(3, 4), floats(4)], opset=16)


@pytest.mark.parametrize(
    "bounds",
    [(None, None), (np.float32(-1), None), (None, np.float32(1)), (np.float32(-1), np.float32(1))],
)
def test_clip(bounds):
    given = [None if b is None else np.array(b) for b in bounds]
    x = floats(3, 4)
    expected = np.clip(x, bounds[0] or -np.inf, bounds[1] or np.inf)
    for constants in ((), (1, 2)):
        check_op("Clip", [x, *given], opset=13, constants=constants, expected=[expected])


def test_clip_by_attributes():
    check_op("Clip", [floats(3, 4)], {"min": -0.5, "max": 1.0}, opset=6, expected=None)


def test_clip_of_crossed_bounds_gives_the_upper():
    x = floats(4)
    bounds = [np.array(2, np.float32), np.array(-1, np.float32)]
    check_op("Clip", [x, *bounds], opset=13, expected=[np.full(4, -1, np.float32)])


def test_is_inf_with_one_sign():
    for attributes in ({"detect_negative": 0}, {"detect_positive": 0}):
        check_op("IsInf", [SPECIAL], attributes, opset=20)


CAST_TYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("source", CAST_TYPES)
@pytest.mark.parametrize("target", CAST_TYPES)
def test_cast(source, target):
    x = np.array([0, 1, 2.5, 3.75, 7, 100]).astype(source)
    to = {np.float32: 1, np.float64: 11, np.float16: 10, np.int8: 3, np.int32: 6, np.int64: 7}
    number = {**to, np.uint8: 2, np.bool_: 9}[target]
    check_op("Cast", [x], {"to": number}, 13, expected=[x.astype(target)])


def test_cast_saturates_and_truncates():
    x = np.array([1e10, -1e10, np.nan, -2.9, 300], np.float32)
    check_op(
        "Cast", [x], {"to": 6}, 13, expected=[np.array([2**31 - 1, -(2**31), 0, -2, 300], "i4")]
    )
    check_op("Cast", [x], {"to": 2}, 13, expected=[np.array([255, 0, 0, 0, 255], np.uint8)])


def test_cast_of_floats_to_4_bits_keeps_the_low_bits():
    x = np.arange(-9, 16, dtype=np.float32)
    signed = ((x.astype(np.int64) + 8) % 16 - 8).astype(ml_dtypes.int4)
    check_op("Cast", [x], {"to": 22}, 21, expected=[signed])
    check_op("Cast", [x], {"to": 21}, 21, expected=[(x % 16).astype(ml_dtypes.uint4)])


def test_cast_to_bfloat16():
    x = floats(8)
    check_op("Cast", [x], {"to": 16}, 13, expected=[x.astype(ml_dtypes.bfloat16)])


def test_cast_like():
    check_op("CastLike", [floats(3), integers(1)], opset=19)


@pytest.mark.parametrize(
    ("op_type", "attributes", "opset"),
    [
        ("Relu", {}, 14),
        ("LeakyRelu", {}, 16),
        ("LeakyRelu", {"alpha": 0.3}, 6),
        ("Elu", {"alpha": 1.5}, 6),
        ("Selu", {}, 6),
        ("Celu", {"alpha": 0.7}, 12),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, 6),
        ("HardSwish", {}, 14),
        ("Softplus", {}, 1),
        ("Softsign", {}, 1),
        ("Gelu", {}, 20),
        ("Gelu", {"approximate": "tanh"}, 20),
        ("Mish", {}, 18),
        ("Swish", {"alpha": 1.5}, 24),
        ("ThresholdedRelu", {"alpha": 0.8}, 10),
        ("Shrink", {"bias": 0.2, "lambd": 0.6}, 9),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_activation(op_type, attributes, opset, dtype):
    check_op(op_type, [floats(3, 5, dtype=dtype)], attributes, opset, tolerance=None)


def test_softplus_does_not_overflow():
    x = np.array([-200, 0, 200], np.float32)
    check_op("Softplus", [x], expected=[np.array([0, np.log(2), 200], np.float32)])


def test_prelu():
    check_op("PRelu", [floats(2, 3, 4), floats(3, 1)], opset=16)


def test_dropout():
    x = floats(3, 4)
    check_op("Dropout", [x], opset=13, outputs=2, expected=[x, np.ones((3, 4), bool)])
    given = [x, np.float32(0.5), np.array(False)]
    check_op("Dropout", given, opset=13, outputs=2, constants=(1, 2), expected=[x, x == x])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("Add", [floats(2, 3), floats(4)], {}, r"do not fit.*float\[2, 3\], float\[4\]"),
        ("Add", [floats(2), integers(2)], {}, "differs from that of A. Expected float, got int64"),
        ("Relu", [floats(2)], {"alpha": 1.0}, "no attribute 'alpha'"),
        ("BitShift", [integers(2), integers(2)], {}, "'direction' is missing"),
        ("Relu", [floats(2), floats(2)], {}, "too many inputs"),
        ("Where", [floats(2), floats(2), floats(2)], {}, "Expected bool, got float"),
    ],
)
def test_errors(op_type, inputs, attributes, text):
    with pytest.raises(InvalidGraph, match=text) as error:
        check_op(op_type, inputs, attributes, expected=[], symbolic=False)
    assert op_type in str(error.value)


def test_unknown_operator():
    with pytest.raises(InvalidGraph, match="Nonsense of ai.onnx, version 13, is not supported"):
        check_op("Nonsense", [floats(2)], {}, 13, expected=[])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("attributes", [{}, {"bias": 1.5, "lambd": 1.5}])
def test_shrink_of_integers(dtype, attributes):
    bias, lambd = attributes.get("bias", 0.0), attributes.get("lambd", 0.5)
    x = np.array([3, 1, 0, 2, 9], dtype) if dtype is np.uint8 else np.array([-3, -1, 0, 2], dtype)
    wide = x.astype(np.float64)
    moved = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    check_op("Shrink", [x], attributes, 9, expected=[moved.astype(dtype)])


def test_defaults_of_attributes_are_floats_of_32_bits():
    x = np.array([-1.0, 2.0])
    expected = [np.array([-np.float64(np.float32(0.01)), 2.0])]
    check_op("LeakyRelu", [x], {}, 16, expected=expected, tolerance="double: functions")


def test_erf_of_integers():
    x = np.array([-9, -1, 0, 3, 9], np.int8)
    check_op("Erf", [x], {}, 13, expected=[np.array([-1, 0, 0, 0, 1], np.int8)])
