"""Floats of 8 bits and fewer through whole sessions: every code, and the tables of ONNX's Cast."""

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base import dtypes, errors
from tests.support.session import check, model_of

NARROW = tuple(d for d in dtypes.ALL if d.is_narrow_float)
SIGNED = tuple(d for d in NARROW if d is not dtypes.FLOAT8E8M0)
EIGHT = tuple(d for d in SIGNED if d.bits == 8)
FNUZ = (dtypes.FLOAT8E4M3FNUZ, dtypes.FLOAT8E5M2FNUZ)
WIDE = (dtypes.FLOAT, dtypes.DOUBLE, dtypes.FLOAT16, dtypes.BFLOAT16)
SUB_BYTE = (dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2)


def session(op_type, source, target, opset=28, **attributes):
    """One node from a vector of `source` to one of `target`."""
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", source.onnx_id, ["n"])],
        [helper.make_tensor_value_info("y", target.onnx_id, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)
    return sardonyx.InferenceSession(model.SerializeToString())


def run(op_type, x, source, target, opset=28, **attributes):
    y = session(op_type, source, target, opset, **attributes).run(None, {"x": x})[0]
    assert y.dtype == target.numpy
    return y


def cast(x, source, target, opset=28, **attributes):
    return run("Cast", x, source, target, opset, to=target.onnx_id, **attributes)


def each(op_type, x, source, targets):
    """Target -> the result of a node of its own: all lie in one graph, since sessions take long."""
    targets = list(targets)
    nodes = [
        helper.make_node(op_type, ["x"], [f"y{k}"], to=target.onnx_id)
        for k, target in enumerate(targets)
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", source.onnx_id, ["n"])],
        [helper.make_tensor_value_info(f"y{k}", t.onnx_id, ["n"]) for k, t in enumerate(targets)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=13)
    found = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert [y.dtype for y in found] == [target.numpy for target in targets]
    return dict(zip(targets, found, strict=True))


def codes(dtype):
    count = 1 << dtype.bits
    if dtype.is_integer:
        low = -(count // 2) if dtype.kind == "i" else 0
        return np.arange(low, low + count).astype(dtype.numpy)
    return np.arange(count).astype(np.uint8).view(dtype.numpy)


def bits_of(x):
    return x.view(f"u{x.dtype.itemsize}")


def same(got, want):
    """Equal bits, but for which NaN it is."""
    nan = np.isnan(want.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
    np.testing.assert_array_equal(bits_of(got)[~nan], bits_of(want)[~nan])


def every_half(dtype):
    return np.arange(1 << 16).astype(np.uint16).view(dtype.numpy)


def edges(dtype):
    """Numbers around every number of a type and every middle of two, random ones, specials."""
    with np.errstate(all="ignore"):
        known = codes(dtype).astype(np.float64)
        known = np.unique(np.abs(known[np.isfinite(known)])).astype(np.float32)
        middles = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
        last = np.float32(known[-1])
        beyond = last + (last - known[-2]) * np.array([0.25, 0.5, 0.75, 1, 2, 1e4], np.float32)
    exact = np.concatenate([known, middles, beyond])
    near = [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(0))]
    random = np.random.default_rng(3).integers(0, 1 << 31, 20000).astype(np.uint32)
    special = np.array([np.inf, np.nan, 1e-45, 1e-40, 3.4e38], np.float32)
    positive = np.concatenate([*near, random.view(np.float32), special])
    return np.concatenate([positive, -positive])


def by_the_table(x, dtype, saturate):
    """What ONNX's Cast says; ml_dtypes rounds to nearest, the rest is in the table."""
    with np.errstate(all="ignore"):
        plain = x.astype(dtype.numpy)
        if not saturate:
            return plain
        limit = float(ml_dtypes.finfo(dtype.numpy).max)
        return np.clip(x.astype(np.float64), -limit, limit).astype(dtype.numpy)


@pytest.mark.parametrize("source", NARROW, ids=repr)
def test_every_code_becomes_the_number_it_stands_for(source):
    x = codes(source)
    wide = x.astype(np.float64)
    found = each("Cast", x, source, (d for d in (*WIDE, *SIGNED) if d is not source))
    for target, got in found.items():
        with np.errstate(all="ignore"):
            if target.is_narrow_float:
                want = by_the_table(wide, target, saturate=True)
            else:
                want = wide.astype(target.numpy)
        # Types of fewer bits have no NaN to give.
        given = ~np.isnan(wide) if target.bits < 8 else np.ones(x.size, bool)
        same(got[given], want[given])


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("target", SIGNED, ids=repr)
@pytest.mark.parametrize("source", [dtypes.FLOAT16, dtypes.BFLOAT16], ids=repr)
def test_every_half_is_rounded_to_the_nearest_code(source, target, saturate):
    x = every_half(source)
    got = cast(x, source, target, saturate=saturate)
    np.testing.assert_array_equal(bits_of(got), bits_of(by_the_table(x, target, saturate)))


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("target", SIGNED, ids=repr)
def test_floats_are_rounded_to_the_nearest_code(target, saturate):
    x = edges(target)
    got = cast(x, dtypes.FLOAT, target, saturate=saturate)
    np.testing.assert_array_equal(bits_of(got), bits_of(by_the_table(x, target, saturate)))


@pytest.mark.parametrize("target", SIGNED, ids=repr)
def test_doubles_are_rounded_once(target):
    """Not first to float, as ml_dtypes does."""
    known = codes(target).astype(np.float64)
    known = np.unique(known[np.isfinite(known)])
    x = np.concatenate([known, (known[1:] + known[:-1]) / 2])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), 1.5 * known])
    after = np.clip(np.searchsorted(known, x), 1, known.size - 1)
    low, high = known[after - 1], known[after]
    even = by_the_table(((low + high) / 2).astype(np.float32), target, saturate=True)
    want = np.where(x - low < high - x, low, np.where(x - low > high - x, high, even))
    np.testing.assert_array_equal(cast(x, dtypes.DOUBLE, target).astype(np.float64), want)


@pytest.mark.parametrize("target", FNUZ, ids=repr)
@pytest.mark.parametrize("opset", [19, 21, 23, 24, 28])
@pytest.mark.parametrize("saturate", [1, 0])
def test_infinities_of_types_without_them(target, opset, saturate):
    """The table of version 24: older ones have NaN, but onnx's reference and onnxruntime do not."""
    x = np.array([np.inf, -np.inf, 1e9], np.float32)
    got = cast(x, dtypes.FLOAT, target, opset, saturate=saturate)
    limit = float(ml_dtypes.finfo(target.numpy).max)
    want = [limit, -limit, limit] if saturate else [np.nan] * 3
    np.testing.assert_array_equal(got.astype(np.float32), np.array(want, np.float32))


def nearest_power(x, direction, saturate):
    """ONNX's table for float8e8m0, number by number, in whole numbers."""
    if np.isnan(x):
        return 255
    if not saturate and not 2.0**-127 <= x <= 2.0**127:
        return 255
    if x <= 2.0**-127 or np.isinf(x):
        return 0 if x <= 2.0**-127 else 254
    power = int(np.floor(np.log2(x)))
    power += int(2.0 ** (power + 1) <= x) - int(2.0**power > x)
    share = x / 2.0**power
    power += (direction == "up" and share > 1) or (direction == "nearest" and share >= 1.5)
    return min(power, 127) + 127


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("direction", ["up", "down", "nearest"])
def test_powers_of_two(direction, saturate):
    x = np.abs(edges(dtypes.FLOAT8E8M0)[:6000])
    x = np.concatenate([x, np.array([0.0], np.float32)])
    target = dtypes.FLOAT8E8M0
    got = cast(x, dtypes.FLOAT, target, saturate=saturate, round_mode=direction)
    want = [nearest_power(v, direction, saturate) for v in x.astype(np.float64)]
    np.testing.assert_array_equal(got.view(np.uint8), np.array(want, np.uint8))
    wide = cast(
        x.astype(np.float64), dtypes.DOUBLE, target, saturate=saturate, round_mode=direction
    )
    np.testing.assert_array_equal(wide.view(np.uint8), got.view(np.uint8))


def test_an_unknown_round_mode_is_refused():
    with pytest.raises(errors.InvalidGraph, match="round_mode.*up, down or nearest"):
        session("Cast", dtypes.FLOAT, dtypes.FLOAT8E8M0, to=24, round_mode="away")


NUMBERS = [dtypes.INT8, dtypes.UINT16, dtypes.INT64, dtypes.BOOL, *SUB_BYTE]


def numbers(dtype):
    if dtype is dtypes.BOOL:
        return np.array([True, False])
    if dtype in SUB_BYTE:
        return codes(dtype)
    x = np.array([0, 1, 3, 7, 9, 25, 96, *([] if dtype.kind == "u" else [-1, -9])])
    return x.astype(dtype.numpy)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_integers_become_codes(number):
    x = numbers(number)
    for target, got in each("Cast", x, number, SIGNED).items():
        same(got, by_the_table(x.astype(np.float64), target, saturate=True))


@pytest.mark.parametrize("source", SIGNED, ids=repr)
def test_codes_become_integers(source):
    whole = [by_the_table(numbers(d).astype(np.float64), source, saturate=True) for d in NUMBERS]
    x = np.concatenate(whole)
    ends = np.cumsum([part.size for part in whole])
    for (number, got), part, end in zip(
        each("Cast", x, source, NUMBERS).items(), whole, ends, strict=True
    ):
        back, want = got[end - part.size : end], part.astype(np.float32)
        if number is dtypes.BOOL:
            np.testing.assert_array_equal(back, want != 0)
        elif number not in SUB_BYTE:
            np.testing.assert_array_equal(back, want.astype(np.int64).astype(number.numpy))
        else:
            np.testing.assert_array_equal(
                back.astype(np.int64), want.astype(np.int64).astype(number.numpy).astype(np.int64)
            )


@pytest.mark.parametrize(("source", "target"), [*itertools.permutations(SUB_BYTE, 2)], ids=repr)
def test_small_integers_keep_their_low_bits(source, target):
    x = codes(source)
    low = x.astype(np.int64) & ((1 << target.bits) - 1)
    if target.kind == "i":
        low -= (low >> (target.bits - 1)) << target.bits
    np.testing.assert_array_equal(cast(x, source, target).astype(np.int64), low)


BITS = [d for d in dtypes.ALL if d.kind not in "scb"]


@pytest.mark.parametrize("source", BITS, ids=repr)
def test_bitcast_keeps_every_bit(source):
    if source.bits <= 8:
        x = codes(source)
    else:
        size = f"u{source.bits // 8}"
        x = np.random.default_rng(5).integers(0, 1 << 63, 500).astype(np.uint64).astype(size)
        specials = np.array([0x7C01, 0xFC01, 0x7F81, 0x7F800001], np.uint64)  # signalling NaN
        x = np.concatenate([x, specials.astype(size)]).view(source.numpy)
    others = (d for d in BITS if d is not source and d.bits == source.bits)
    mask = (1 << source.bits) - 1 if source.bits < 8 else -1
    for got in each("BitCast", x, source, others).values():
        a, b = (bits_of(v).astype(np.uint64) & np.uint64(mask % 2**64) for v in (got, x))
        np.testing.assert_array_equal(a, b)


def test_bitcast_between_sizes_is_refused():
    with pytest.raises(errors.InvalidGraph, match="differ in size.*a type of 32 bits"):
        session("BitCast", dtypes.FLOAT, dtypes.INT16, to=dtypes.INT16.onnx_id)


MOVES = [
    ("Identity", [], {}),
    ("Transpose", [], {"perm": [1, 0]}),
    ("Reshape", [np.array([-1])], {}),
    ("Flatten", [], {"axis": 0}),
    ("Unsqueeze", [np.array([0])], {}),
    ("Pad", [np.array([1, 0, 0, 2])], {}),
    ("Gather", [np.array([3, 0, -1])], {"axis": 1}),
    ("Slice", [np.array([6]), np.array([0]), np.array([1]), np.array([-2])], {}),
    ("Concat", ["x"], {"axis": 1}),
    ("Expand", [np.array([2, 1, 1])], {}),
    ("Tile", [np.array([1, 2])], {}),
]
SMALL = tuple(d for d in dtypes.ALL if d.bits < 16 and d.kind not in "bs")


@pytest.mark.parametrize("dtype", [*SMALL, dtypes.FLOAT16, dtypes.BFLOAT16], ids=repr)
def test_moving_keeps_every_code(dtype):
    x = codes(dtype) if dtype.bits < 16 else every_half(dtype)
    x = np.resize(x, (4, max(4, x.size // 4)))
    nodes, weights = [], []
    for op_type, more, attributes in MOVES:
        names = [v if isinstance(v, str) else f"{op_type}_{k}" for k, v in enumerate(more)]
        weights += [
            numpy_helper.from_array(v, n)
            for n, v in zip(names, more, strict=True)
            if not isinstance(v, str)
        ]
        nodes.append(helper.make_node(op_type, ["x", *names], [op_type], **attributes))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype.onnx_id, ["a", "b"])],
        [onnx.ValueInfoProto(name=op_type) for op_type, *_ in MOVES],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    found = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    shadow = onnx.ModelProto()
    shadow.CopyFrom(model)
    shadow.graph.input[0].type.tensor_type.elem_type = 4 if dtype.bits == 16 else 2
    wanted = onnx.reference.ReferenceEvaluator(shadow).run(None, {"x": bits_of(x)})
    for (op_type, *_), got, want in zip(MOVES, found, wanted, strict=True):
        assert got.dtype == dtype.numpy
        np.testing.assert_array_equal(bits_of(got), want, err_msg=op_type)


@pytest.mark.parametrize("dtype", EIGHT, ids=repr)
def test_questions_about_floats(dtype):
    x = codes(dtype)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(run("IsNaN", x, dtype, dtypes.BOOL, 20), np.isnan(wide))
    np.testing.assert_array_equal(run("IsInf", x, dtype, dtypes.BOOL, 20), np.isinf(wide))


def test_a_remainder_is_rounded_to_half_in_two_steps():
    """LLVM would make one conversion of the sign's operand, by a function that is not there."""
    text = """g (float16[N,M,2] x) => (float16[A,B,C] y) {
        s = Slice(x, from, to, axes, steps) y = Mod<fmod=1>(s, one) }"""
    weights = {
        "from": np.array([-4, -1]),
        "to": np.array([3, 1]),
        "axes": np.array([0, 2]),
        "steps": np.array([2, 1]),
        "one": np.ones((1, 1, 1), np.float16),
    }
    x = (np.arange(50).reshape(5, 5, 2) / 8 - 3).astype(np.float16)
    check(model_of(text, weights), [{"x": x}, {"x": x[:, :1]}])


@pytest.mark.parametrize("dtype", [*SIGNED, *SUB_BYTE], ids=repr)
def test_text(dtype):
    x = codes(dtype)
    with_nan = dtype.is_float and np.isnan(x.astype(np.float64)).any()
    texts = cast(x, dtype, dtypes.STRING)
    assert ("NaN" in texts) == with_nan
    back = cast(texts, dtypes.STRING, dtype)
    if dtype.is_float:
        same(back, by_the_table(x.astype(np.float64), dtype, saturate=True))
        large = np.array(["1e9", "-INF"], object)
        limit = float(ml_dtypes.finfo(dtype.numpy).max)
        got = cast(large, dtypes.STRING, dtype)
        np.testing.assert_array_equal(got.astype(np.float64), [limit, -limit])
    else:
        np.testing.assert_array_equal(back, x)


#: (type of codes, type of numbers, elements that share a scale, whether zero points are given):
#: blocks of scales as in the microscaling formats, and rows. Blocks and zero points place loads,
#: the type of numbers only says how they are rounded.
QUANTISED = [
    (target, *row)
    for target in (*SIGNED, *SUB_BYTE, dtypes.INT8, dtypes.UINT16)
    for row in (
        *((dtypes.FLOAT, block, with_zero) for block in (0, 4) for with_zero in (False, True)),
        (dtypes.FLOAT16, 4, True),
        (dtypes.BFLOAT16, 0, False),
    )
]


def quantised(op_type, x, scale, result, opset, zero=None, **attributes):
    names = ["x", "scale"] + (["zero"] if zero is not None else [])
    feeds = dict(zip(names, (x, scale, zero), strict=False))
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(n, dtypes.from_numpy(v.dtype).onnx_id, v.shape)
            for n, v in feeds.items()
        ],
        [helper.make_tensor_value_info("y", result.onnx_id, x.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)
    return sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


@pytest.mark.parametrize(("target", "source", "block", "with_zero"), QUANTISED, ids=repr)
def test_quantised(target, source, block, with_zero):
    """The quotient has the precision of the scale, as versions since 23 have it."""
    rng = np.random.default_rng(9)
    x = (rng.standard_normal((3, 10)) * 4).astype(source.numpy)
    shape = (3, 3) if block else (3,)
    scale = (2.0 ** rng.integers(-2, 2, shape)).astype(source.numpy) * source.numpy.type(0.75)
    zero = None
    if with_zero:
        zero = (rng.integers(0, 2, shape)).astype(target.numpy)
    axis = 1 if block else 0
    got = quantised(
        "QuantizeLinear", x, scale, target, 28, zero,
        axis=axis, block_size=block, output_dtype=target.onnx_id,
    )  # fmt: skip

    def spread(v):
        v = v.astype(np.float32)
        return np.repeat(v, 4, axis=1)[:, :10] if block else v[:, None]

    quotient = (x.astype(np.float32) / spread(scale)).astype(source.numpy).astype(np.float64)
    point = spread(zero) if with_zero else 0.0
    if target.is_float:
        want = by_the_table(quotient + point, target, saturate=True)
        np.testing.assert_array_equal(bits_of(got), bits_of(want))
    else:
        limits = ml_dtypes.iinfo(target.numpy)
        want = np.clip(np.rint(quotient) + point, limits.min, limits.max)
        np.testing.assert_array_equal(got.astype(np.float64), want)
    back = quantised("DequantizeLinear", got, scale, source, 28, zero, axis=axis, block_size=block)
    exact = (got.astype(np.float32) - point) * spread(scale)
    np.testing.assert_array_equal(back, exact.astype(source.numpy))


def test_scales_that_are_powers_of_two():
    """The microscaling format: float4 in blocks with float8e8m0 scales."""
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((4, 64)) * 4).astype(np.float32)
    scale = (2.0 ** rng.integers(-3, 3, (4, 2))).astype(dtypes.FLOAT8E8M0.numpy)
    four = dtypes.FLOAT4E2M1
    wide = np.repeat(scale.astype(np.float32), 32, axis=1)
    got = quantised(
        "QuantizeLinear", x, scale, four, 25, axis=1, block_size=32, output_dtype=four.onnx_id
    )
    np.testing.assert_array_equal(bits_of(got), bits_of(by_the_table(x / wide, four, True)))
    back = quantised(
        "DequantizeLinear", got, scale, dtypes.FLOAT, 25, axis=1, block_size=32, output_dtype=1
    )
    np.testing.assert_array_equal(back, got.astype(np.float32) * wide)


def test_precision_of_the_quotient_and_a_contradicting_type():
    x, scale = np.array([5.03], np.float32), np.array(0.01, np.float32)
    got = quantised(
        "QuantizeLinear", x, scale, dtypes.INT16, 23,
        output_dtype=dtypes.INT16.onnx_id, precision=dtypes.BFLOAT16.onnx_id,
    )  # fmt: skip
    assert got.tolist() == [504]  # 503 has nine bits, bfloat16 eight
    with pytest.raises(errors.InvalidGraph, match="output_dtype contradicts"):
        quantised(
            "QuantizeLinear", x, scale, dtypes.INT8, 23, np.array(0, np.int8),
            output_dtype=dtypes.INT16.onnx_id,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", EIGHT, ids=repr)
def test_product_of_codes(dtype):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(dtype.numpy) for s in ((5, 9), (9, 6)))
    zero, one = np.zeros((), dtype.numpy), np.float32(0.5)
    names = ["a", "scale", "zero", "b", "scale", "zero", "scale", "zero"]
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", names, ["y"])],
        "g",
        [helper.make_tensor_value_info(n, dtype.onnx_id, v.shape) for n, v in (("a", a), ("b", b))],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(zero, "zero"), numpy_helper.from_array(np.array(one), "scale")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})[0]
    exact = a.astype(np.float64) @ b.astype(np.float64) * 0.5
    want = by_the_table(exact, dtype, saturate=True).astype(np.float64)
    assert got.dtype == dtype.numpy
    step = 2.0 ** -(ml_dtypes.finfo(dtype.numpy).nmant)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=step)
    assert (got.astype(np.float64) == want).mean() > 0.9  # sums in float may cross a tie
