"""Casts of all pairs of types where a model is loaded, number by number against exact rounding.

The evaluator, constants of expressions, and what is known of small tensors.
"""

import math

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.base import conversion, dtypes
from sardonyx.kernel.expressions.small_floats import constant_code
from sardonyx.kernel.language.builder import Builder
from sardonyx.llvm.emit_base import bfloat16_bits, float16_bits
from sardonyx.tensor import arithmetic, scalar, symbolic
from sardonyx.tensor.rounding import Rounding
from tests.support import exact

pytestmark = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")

TYPES = tuple(d for d in dtypes.ALL if d.kind not in "sco")
SHORT = tuple(d for d in dtypes.ALL if d.is_float and d.bits < 32)


def is_open(x, target, saturate):
    """Whether others decide what becomes of a number: an infinity in types without one."""
    return target.name.endswith("fnuz") and saturate and isinstance(x, float) and math.isinf(x)


def same(got, want):
    if isinstance(want, (bool, int)):
        return bool(got == want)
    if math.isnan(want):
        return math.isnan(got)
    return float(got) == float(want) and math.copysign(1, got) == math.copysign(1, want)


def check(got, given, target, saturate, wants, where):
    plain = got.astype(np.float64) if target.is_float else got.astype(object)
    for x, have, want in zip(given, plain.tolist(), wants, strict=True):
        if not is_open(x, target, saturate) and not (
            target.bits < 8 and target.is_float and want == 0 and have == 0
        ):
            assert same(have, want), (where, x, have, want)


@pytest.mark.parametrize("source", TYPES, ids=repr)
def test_all_pairs_are_rounded_once(source):
    for target in TYPES:
        if target is source:
            continue
        x = exact.numbers(source, target)
        given = exact.of_array(x)
        for saturate in (True, False) if target.is_narrow_float else (True,):
            direction = "nearest" if target is dtypes.FLOAT8E8M0 else "up"
            wants = [exact.cast(n, source, target, saturate, direction) for n in given]
            how = Rounding(saturate)
            with np.errstate(all="ignore"):
                if not (source.is_float and target.is_integer and target.bits < 8):
                    got = arithmetic.cast(x, source, target, target.numpy, how)
                    check(got, given, target, saturate, wants, ("evaluated", source, target))
            if target.is_integer and source.is_float:
                continue  # left to a kernel
            folded = []
            for value in x.tolist():
                made = scalar.cast(scalar.constant(value, source), target, how)
                assert made.op == "constant"
                folded.append(made.payload)
            kind = np.float64 if target.is_float else object
            check(
                np.array(folded, kind), given, target, saturate, wants, ("folded", source, target)
            )


@pytest.mark.parametrize("source", TYPES, ids=repr)
def test_what_is_known_of_small_tensors_is_rounded_once(source):
    for target in TYPES:
        if target is source or target.is_narrow_float:
            continue
        x = exact.numbers(source, target)
        for value, number in zip(x.tolist(), exact.of_array(x), strict=True):
            if target.is_integer and source.is_float and not math.isfinite(number):
                continue
            if target.bits < 8 and source.is_float:
                continue  # a lowering goes through int32
            got = symbolic._cast(value, source, target)
            assert same(got, exact.cast(number, source, target)), (source, target, value)


@pytest.mark.parametrize("target", SHORT, ids=repr)
def test_literals_of_kernels_are_rounded_once(target):
    if target is dtypes.FLOAT8E8M0:
        return
    x = exact.numbers(dtypes.DOUBLE, target)
    for value, number in zip(x.tolist(), exact.of_array(x), strict=True):
        if is_open(number, target, True) or target.bits < 8 and not math.isfinite(value):
            continue
        if target is dtypes.BFLOAT16 or target is dtypes.FLOAT16:
            code = (bfloat16_bits if target is dtypes.BFLOAT16 else float16_bits)(value)
            code = np.array(code, np.uint16)
        else:
            code = np.array(constant_code(Builder("f"), value, target).value, np.uint8)
        want = exact.as_float(number, target, saturate=math.isfinite(value))
        assert same(float(code.view(target.numpy)), want), (target, value)


@pytest.mark.parametrize("target", [*SHORT, dtypes.FLOAT, dtypes.DOUBLE], ids=repr)
@pytest.mark.parametrize("source", [dtypes.DOUBLE, dtypes.INT64, dtypes.UINT64], ids=repr)
def test_lists_and_arrays_are_rounded_once(source, target):
    if target is dtypes.FLOAT8E8M0 or target is source:
        return
    x = exact.numbers(source, target)
    wants = [exact.as_float(n, target, saturate=False) for n in exact.of_array(x)]
    with np.errstate(all="ignore"):
        one_by_one = [conversion.as_rounded([v], target.numpy) for v in x.tolist()]
        found = (conversion.rounded(x, target.numpy), np.concatenate(one_by_one))
    for got in found:
        for have, want in zip(got.astype(np.float64).tolist(), wants, strict=True):
            if abs(want) == math.inf or math.isnan(want) or target.bits < 8:
                continue  # what ml_dtypes makes of numbers out of range
            assert same(have, want)


TIE = "1.00390625"  # halfway between 1 and the next bfloat16
NEARLY = "1.062500000000000000000001"
TEXTS = [
    (dtypes.BFLOAT16, [TIE, TIE + "0" * 30 + "1", "-" + TIE], [1, 1.0078125, -1]),
    (dtypes.BFLOAT16, ["1.0039062499999999999999"], [1]),
    (dtypes.FLOAT16, ["1.00048828125", " 1.0004882812500000000000001 "], [1, 1 + 2**-10]),
    (dtypes.FLOAT, [f"{1 + 2**-24:.30f}1", f"{1 + 2**-24:.30f}"], [1 + 2**-23, 1]),
    (dtypes.FLOAT8E4M3FN, ["1.0625", NEARLY, "1e-400", "nan"], [1, 1.125, 0, np.nan]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "texts", "want"), TEXTS, ids=lambda v: repr(v)[:14])
def test_text_is_rounded_once(target, texts, want):
    node = helper.make_node("Cast", ["x"], ["y"], to=target.onnx_id)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", dtypes.STRING.onnx_id, ["n"])],
        [helper.make_tensor_value_info("y", target.onnx_id, ["n"])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    session = sardonyx.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {"x": np.array(texts, object)})
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_lists_that_are_fed_are_rounded_once():
    graph = helper.make_graph(
        [helper.make_node("Identity", [a], [b]) for a, b in ("ab", "cd")], "g",
        [helper.make_tensor_value_info("a", dtypes.BFLOAT16.onnx_id, ["n"]),
         helper.make_tensor_value_info("c", dtypes.FLOAT.onnx_id, ["n"])],
        [onnx.ValueInfoProto(name="b"), onnx.ValueInfoProto(name="d")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    session = sardonyx.InferenceSession(model.SerializeToString())
    feeds = {"a": [1 + 2**-8 + 2**-40], "c": [2**61 + 2**37 + 1]}
    b, d = session.run(None, feeds)
    assert [float(b[0]), float(d[0])] == [1.0078125, 2.0**61 + 2**38]
