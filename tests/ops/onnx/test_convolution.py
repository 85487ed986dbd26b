"""Convolutions and their transposes against onnx's reference."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph
from sardonyx.ops.onnx.convolution import conv
from sardonyx.ops.onnx.convolution_transposed import conv_transpose
from sardonyx.tensor.tensor import Contract, Map, buffer
from tests.support.ops import check_op
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(3)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def codes(*shape, dtype=np.uint8):
    low, high = (-100, 100) if dtype is np.int8 else (0, 255)
    return np.asarray(RNG.integers(low, high, shape), dtype)


CONVOLUTIONS = [
    ((2, 3, 8, 9), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 8, 9), (4, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
    ((1, 3, 8, 9), (4, 3, 2, 3), {"dilations": [2, 3], "pads": [1, 2, 3, 0]}),
    ((1, 3, 8, 9), (4, 3, 3, 2), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((1, 3, 8, 9), (4, 3, 3, 2), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((1, 3, 8, 9), (4, 3, 3, 2), {"strides": [2, 3], "auto_pad": "VALID"}),
    ((2, 4, 5, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((2, 4, 5, 6), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((2, 4, 5, 6), (8, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
    ((2, 4, 8), (6, 4, 3), {"pads": [1, 1]}),
    ((2, 4, 8), (6, 4, 1), {}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
    # Taps that meet only padding: in front, behind, both, along one axis, with steps, in groups.
    ((2, 20, 6, 7), (18, 20, 3, 3), {"dilations": [8, 9], "pads": [8, 9, 8, 9]}),
    ((2, 3, 6, 7), (4, 3, 3, 3), {"dilations": [8, 2], "pads": [8, 2, 8, 2]}),
    ((1, 3, 6, 7), (4, 3, 5, 3), {"dilations": [3, 9], "pads": [6, 12, 6, 15]}),
    ((1, 3, 6, 7), (4, 3, 4, 4), {"dilations": [7, 7], "pads": [14, 0, 9, 22]}),
    ((1, 3, 9, 9), (4, 3, 3, 3), {"dilations": [9, 8], "strides": [2, 3], "pads": [9, 8, 9, 8]}),
    ((1, 3, 2, 9), (4, 3, 3, 3), {"strides": [4, 5], "pads": [4, 9, 2, 9]}),
    ((2, 4, 5, 6), (6, 2, 3, 3), {"group": 2, "dilations": [6, 6], "pads": [6, 6, 6, 6]}),
    ((2, 4, 5, 6), (4, 1, 3, 3), {"group": 4, "dilations": [6, 6], "pads": [6, 6, 6, 6]}),
    ((2, 4, 8), (6, 4, 3), {"dilations": [9], "pads": [18, 2]}),
    ((1, 3, 6, 7), (4, 3, 3, 3), {"dilations": [9, 9], "pads": [20, 9, 0, 9]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(x, w, attributes, bias):
    inputs = [floats(*x), floats(*w)] + ([floats(w[0])] if bias else [])
    check_op(
        "Conv", inputs, attributes, 11, symbolic=False, expected=[plain(*inputs, **attributes)]
    )
    check_op("Conv", inputs, attributes, 22, constants=[1], symbolic=True,
             expected=[plain(*inputs, **attributes)])  # fmt: skip


def plain(x, w, bias=None, *, pads=None, strides=None, dilations=None, group=1, auto_pad=""):
    """Convolution by the definition, in double."""
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    taps = w.shape[2:]
    low, high = (pads or [0] * 2 * rank)[:rank], (pads or [0] * 2 * rank)[rank:]
    if auto_pad.startswith("SAME"):
        full = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, s, k, d in zip(x.shape[2:], strides, taps, dilations, strict=True)
        ]
        half, rest = [t // 2 for t in full], [t - t // 2 for t in full]
        low, high = (half, rest) if auto_pad == "SAME_UPPER" else (rest, half)
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(low, high, strict=True)])
    out = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(wide.shape[2:], taps, dilations, strides, strict=True)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    depth, features = w.shape[1], w.shape[0] // group
    for tap in np.ndindex(*taps):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
        )
        part = wide[(slice(None), slice(None), *window)]
        for g in range(group):
            mine = slice(g * features, (g + 1) * features)
            image = part[:, g * depth : (g + 1) * depth]
            result[:, mine] += np.einsum("nc...,mc->nm...", image, w[(mine, slice(None), *tap)])
    if bias is not None:
        result += bias.reshape(-1, *[1] * rank)
    return result.astype(x.dtype)


def test_half_floats_are_summed_in_float():
    x, w = np.full((1, 600, 3), 0.1, np.float16), np.full((1, 600, 3), 0.1, np.float16)
    check_op("Conv", [x, w], {}, 22, expected=[plain(x, w)], tolerance="half: layers")


TRANSPOSED = [
    ((2, 4, 5, 6), (4, 3, 3, 3), {}),
    ((2, 4, 5, 6), (4, 3, 2, 2), {"strides": [2, 2]}),
    ((2, 4, 5, 6), (4, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2]}),
    ((2, 4, 5, 6), (4, 3, 3, 2), {"strides": [3, 2], "pads": [1, 0, 0, 1]}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"strides": [4, 4], "output_padding": [1, 3]}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 3], "dilations": [2, 2]}),
    ((2, 4, 5, 6), (4, 3, 3, 3), {"dilations": [2, 1]}),
    ((2, 4, 5, 6), (4, 2, 2, 4), {"strides": [2, 2], "group": 2}),
    ((2, 4, 5), (4, 1, 3), {"strides": [2], "group": 4}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
def test_conv_transpose(x, w, attributes):
    group = attributes.get("group", 1)
    inputs = [floats(*x), floats(*w), floats(w[1] * group)]
    expected = [plain_transposed(*inputs, **attributes)]
    check_op("ConvTranspose", inputs, attributes, 11, symbolic=False, expected=expected)
    check_op("ConvTranspose", inputs, attributes, 22, constants=[1], expected=expected,
             symbolic=True)  # fmt: skip


@pytest.mark.parametrize(("x", "w", "attributes"), [TRANSPOSED[k] for k in (0, 4, 7, 10)])
@pytest.mark.parametrize("which", [0, 1])
def test_infinities_meet_only_what_there_is(x, w, attributes, which):
    group = attributes.get("group", 1)
    inputs = [floats(*x), floats(*w), floats(w[1] * group)]
    for end in (0, -1):
        inputs[which][(0, 0, *[end] * (len(x) - 2))] = np.inf
    with np.errstate(invalid="ignore"):
        expected = [plain_transposed(*inputs, **attributes)]
    assert not np.isfinite(expected[0]).all()
    check_op("ConvTranspose", inputs, attributes, 11, constants=[1], expected=expected)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)],
            "transposed",
            [helper.make_tensor_value_info("x", 1, x)],
            [helper.make_tensor_value_info("y", 1, None)],
            [numpy_helper.from_array(a, n) for a, n in zip(inputs[1:], "wb", strict=True)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {"x": inputs[0]})
    assert_near(got, expected[0], "float: products")


def plain_transposed(
    x, w, bias, *, strides=None, pads=None, dilations=None, output_padding=None, group=1
):
    """Every input element adds its multiple of the window, in double."""
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads, extra = pads or [0] * 2 * rank, output_padding or [0] * rank
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], strides, w.shape[2:], dilations, extra, strict=True)
    ]
    result = np.zeros((x.shape[0], w.shape[1] * group, *full))
    depth, features = x.shape[1] // group, w.shape[1]
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
        )
        for g in range(group):
            mine = slice(g * depth, (g + 1) * depth)
            part = np.einsum("nc...,cm->nm...", x[:, mine], w[(mine, slice(None), *tap)])
            result[(slice(None), slice(g * features, (g + 1) * features), *window)] += part
    cut = tuple(slice(pads[k], full[k] - pads[rank + k]) for k in range(rank))
    result = result[(slice(None), slice(None), *cut)] + bias.reshape(-1, *[1] * rank)
    return result.astype(x.dtype)


@pytest.mark.parametrize(
    "attributes",
    [{"output_shape": [9, 11]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}],
)
def test_conv_transpose_chooses_padding(attributes):
    attributes = {"strides": [2, 2], **attributes}
    inputs = [floats(1, 2, 5, 6), floats(2, 3, 3, 3), floats(3)]
    length = attributes.get("output_shape", [10, 12])
    total = [(n - 1) * 2 + 3 - o for n, o in zip((5, 6), length, strict=True)]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    upper = attributes.get("auto_pad") == "SAME_UPPER"
    pads = small + large if upper else large + small
    expected = plain_transposed(*inputs, strides=[2, 2], pads=pads)
    check_op("ConvTranspose", inputs, attributes, 11, constants=[1], expected=[expected])


def test_integers():
    x, w = codes(1, 3, 6, 6), codes(4, 3, 3, 3, dtype=np.int8)
    zero, per_channel = codes(), codes(4, dtype=np.int8)
    wide = x.astype(np.int64) - int(zero)
    expected = plain(wide, w.astype(np.int64), pads=[1, 1, 1, 1]).astype(np.int32)
    attributes = {"pads": [1, 1, 1, 1]}
    check_op("ConvInteger", [x, w, zero], attributes, 10, expected=[expected], symbolic=False)
    check_op("ConvInteger", [x, w, zero], attributes, 10, expected=[expected], constants=[1])
    shifted = w.astype(np.int64) - per_channel.reshape(-1, 1, 1, 1)
    expected = plain(wide, shifted, pads=[1, 1, 1, 1]).astype(np.int32)
    inputs = [x, w, zero, per_channel]
    check_op("ConvInteger", inputs, attributes, 10, expected=[expected], constants=[1])


# -- structure --------------------------------------------------------------------------------


def image(*shape):
    return buffer("x", shape, FLOAT)


def weight(*shape):
    return buffer("w", shape, FLOAT)


def test_without_padding_nothing_is_selected():
    n, h, w = (sizes.symbol(s) for s in "nhw")
    result = conv(image(n, 3, h, w), weight(8, 3, 3, 3), strides=[2, 2])
    assert isinstance(result, Contract)
    assert (result.left.op, result.right.op) == ("load", "load")
    assert result.extents == (3, 3, 3)
    padded = conv(image(n, 3, h, w), weight(8, 3, 3, 3), pads=[1, 1, 1, 1])
    assert isinstance(padded, Contract)
    assert padded.left.op == "select"


@pytest.mark.parametrize(
    ("size", "attributes", "extents", "is_padded"),
    [
        ((10, 10), {"dilations": [12, 12], "pads": [12, 12, 12, 12]}, (1, 1, 3), False),
        ((10, 13), {"dilations": [12, 12], "pads": [12, 12, 12, 12]}, (1, 3, 3), True),
        ((10, 10), {"dilations": [5, 12], "pads": [12, 12, 12, 12]}, (3, 1, 3), True),
        ((4, 4), {"pads": [4, 0, 0, 4]}, (3, 3, 3), True),
        ((4, 4), {"strides": [4, 4], "pads": [2, 0, 0, 0]}, (1, 3, 3), False),
        ((9, 8), {"strides": [4, 1], "dilations": [5, 1], "pads": [3, 1, 0, 1]}, (3, 3, 3), True),
        ((1, 9), {"pads": [1, 1, 1, 1]}, (1, 3, 3), True),
    ],
)
def test_taps_that_meet_only_padding_are_left_out(size, attributes, extents, is_padded):
    result = conv(image(1, 3, *size), weight(8, 3, 3, 3), **attributes)
    assert isinstance(result, Contract)
    assert result.extents == extents
    assert (result.left.op == "select") == is_padded


def test_where_sizes_are_not_known_all_taps_stay():
    h = sizes.symbol("h")
    result = conv(image(1, 3, h, 10), weight(8, 3, 3, 3), dilations=[12, 12], pads=[12] * 4)
    assert result.extents == (3, 1, 3)


def test_integers_with_taps_that_meet_only_padding():
    x, w = codes(1, 3, 6, 6), codes(4, 3, 3, 3, dtype=np.int8)
    attributes = {"dilations": [7, 6], "pads": [7, 6, 7, 6]}
    wide = x.astype(np.int64) - 100
    expected = plain(wide, w.astype(np.int64), **attributes).astype(np.int32)
    inputs = [x, w, np.array(100, np.uint8)]
    check_op("ConvInteger", inputs, attributes, 10, expected=[expected], symbolic=False)


def test_depthwise_sums_taps_only():
    result = conv(image(1, 8, 6, 6), weight(8, 1, 3, 3), group=8)
    assert isinstance(result, Contract)
    assert result.extents == (3, 3)


def test_transposed_with_kernel_like_stride_is_a_product_of_channels():
    n, h, w = (sizes.symbol(s) for s in "nhw")
    result = conv_transpose(image(n, 16, h, w), weight(16, 8, 2, 2), strides=[2, 2])
    assert isinstance(result, Map)
    product = result.body.tensor
    assert isinstance(product, Contract)
    assert product.shape == (n, 8, h, 2, w, 2)
    assert product.extents == (1, 1, 16)
    assert (product.left.op, product.right.op) == ("load", "load")


@pytest.mark.parametrize(
    ("x", "w", "attributes", "text"),
    [
        ((1, 3, 4), (2, 2, 3), {}, "channels"),
        ((1, 3, 4), (2, 3, 5), {}, "larger than the padded size"),
        ((1, 4, 4), (3, 2, 1), {"group": 2}, "equal groups"),
        ((1, 3, 4), (2, 3, 1), {"pads": [1]}, "pads do not fit"),
        ((1, 3, 4), (2, 3, 1), {"auto_pad": "SAME"}, "no such auto_pad"),
        ((1, 3, 4), (2, 3, 1), {"strides": [0]}, "positive"),
        ((1, 3, 4), (2, 3, 1, 1), {}, "do not fit"),
    ],
)
def test_errors(x, w, attributes, text):
    with pytest.raises(InvalidGraph, match=text):
        check_op("Conv", [floats(*x), floats(*w)], attributes, expected=[], symbolic=False)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [({"strides": [2]}, "strides do not fit"), ({"pads": [1]}, "pads do not fit"),
     ({"group": 2}, "channels"), ({"output_padding": [-1, 0]}, "output_padding")],
)  # fmt: skip
def test_transposed_errors(attributes, text):
    inputs = [floats(1, 3, 4, 4), floats(3, 2, 2, 2)]
    with pytest.raises(InvalidGraph, match=text):
        check_op("ConvTranspose", inputs, attributes, expected=[], symbolic=False)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_transposed_windows_shorter_than_their_strides(auto_pad):
    """Padding cannot be negative, so the output ends where the last window does."""
    x, w = floats(1, 2, 5), floats(2, 3, 2)
    expected = np.zeros((1, 3, 14), np.float32)
    for position in range(5):
        taps = np.einsum("c,cmk->mk", x[0, :, position], w)
        expected[0, :, 3 * position : 3 * position + 2] += taps
    check_op("ConvTranspose", [x, w], {"strides": [3], "auto_pad": auto_pad}, expected=[expected])
