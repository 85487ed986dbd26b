"""Col2Im, MaxUnpool, CenterCropPad, TensorScatter, DeformConv against onnx's reference."""

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op, one_node_model

RNG = np.random.default_rng(22)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


# -- Col2Im -----------------------------------------------------------------------------------

FOLDS = [  # image, block, attributes
    ((5, 5), (1, 5), {}),
    ((5, 5), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((6, 7), (2, 3), {"strides": [2, 1]}),
    ((9, 8), (2, 3), {"strides": [2, 2], "dilations": [3, 2], "pads": [1, 0, 2, 1]}),
    ((3, 4, 5), (2, 2, 3), {"strides": [1, 2, 1], "pads": [0, 0, 1, 0, 0, 1]}),
]


def blocks_of(image, block, attributes):
    """How many blocks lie along each axis."""
    rank = len(image)
    pads = attributes.get("pads", [0] * 2 * rank)
    found = []
    for k in range(rank):
        reach = attributes.get("dilations", [1] * rank)[k] * (block[k] - 1) + 1
        room = image[k] + pads[k] + pads[k + rank] - reach
        found.append(room // attributes.get("strides", [1] * rank)[k] + 1)
    return found


def folded(x, image, block, attributes):
    """Every element of every block is added where it lies."""
    rank = len(image)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    padded = [d + pads[k] + pads[k + rank] for k, d in enumerate(image)]
    blocks = blocks_of(image, block, attributes)
    columns = x.reshape(x.shape[0], -1, *block, *blocks)
    result = np.zeros((*columns.shape[:2], *padded), x.dtype)
    for tap in np.ndindex(*block):
        for o in np.ndindex(*blocks):
            place = tuple(o[k] * strides[k] + tap[k] * dilations[k] for k in range(rank))
            result[(slice(None), slice(None), *place)] += columns[
                (slice(None), slice(None), *tap, *o)
            ]
    inner = tuple(slice(pads[k], pads[k] + d) for k, d in enumerate(image))
    return result[(slice(None), slice(None), *inner)]


@pytest.mark.parametrize("image, block, attributes", FOLDS)
@pytest.mark.parametrize("constants", [(1, 2), ()])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_col2im(image, block, attributes, constants, dtype):
    taps = int(np.prod(block))
    x = (floats(2, 3 * taps, int(np.prod(blocks_of(image, block, attributes)))) * 8).astype(dtype)
    expected = folded(x, image, block, attributes)
    inputs = [x, np.array(image), np.array(block)]
    # Symbols stand for the lengths of inputs, too, which must be known.
    check_op(
        "Col2Im", inputs, attributes, 18, constants=constants, expected=[expected],
        symbolic=None if constants else False,
    )  # fmt: skip


def test_col2im_refusals():
    inputs = [floats(1, 9, 5), np.array([5, 5]), np.array([3, 3])]
    with pytest.raises(InvalidGraph, match="tensor of columns has the wrong shape"):
        check_op("Col2Im", inputs, {}, 18, constants=[1, 2], expected=[], symbolic=False)


# -- MaxUnpool --------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [9, 11, 22])
@pytest.mark.parametrize("shape", [None, (2, 3, 9, 6), (2, 3, 10, 9)])
def test_max_unpool(opset, shape):
    attributes = {"kernel_shape": [3, 2], "strides": [3, 2]}
    positions = np.stack([RNG.permutation(9 * 6)[:9] + k * 54 for k in range(6)])
    inputs = [floats(2, 3, 3, 3), positions.reshape(2, 3, 3, 3)]
    if shape is not None:
        inputs.append(np.array(shape))
    check_op("MaxUnpool", inputs, attributes, opset, symbolic=False)
    check_op("MaxUnpool", inputs, attributes, opset, constants=[2] if shape else [])


def test_max_unpool_inverts_pools_with_padding():
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}
    x = floats(1, 1, 3, 2)
    positions = np.array([[[[0, 3], [5, 6], [13, 14]]]])
    expected = np.zeros(16, np.float32)
    expected[positions.reshape(-1)] = x.reshape(-1)
    check_op("MaxUnpool", [x, positions], attributes, 11, expected=[expected.reshape(1, 1, 4, 4)])
    with pytest.raises(RuntimeException):
        model = one_node_model("MaxUnpool", [x, positions], attributes, 11)
        session = sardonyx.InferenceSession(model.SerializeToString())
        session.run(None, {"x0": x, "x1": positions + 3})


# -- CenterCropPad ----------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [(3, 4), (8, 9), (5, 6), (4, 11), (1, 1), (0, 7)])
@pytest.mark.parametrize("constants", [(1,), ()])
def test_center_crop_pad(wanted, constants):
    inputs = [floats(5, 6), np.array(wanted, np.int32)]
    check_op(
        "CenterCropPad", inputs, {}, 18, constants=constants, symbolic=None if constants else False
    )


@pytest.mark.parametrize("axes", [[1, 0], [-1, 0], [2]])
def test_center_crop_pad_of_axes(axes):
    inputs = [floats(5, 6, 3), np.array([4, 9][: len(axes)])]
    check_op("CenterCropPad", inputs, {"axes": axes}, 18, constants=[1])


# -- TensorScatter ----------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-2, 1, 2, -1])
@pytest.mark.parametrize("mode, starts", [("linear", (0, 3)), ("circular", (4, 9))])
@pytest.mark.parametrize("given", [True, False])
def test_tensor_scatter(axis, mode, starts, given):
    cache = floats(2, 6, 5, 7)
    shape = list(cache.shape)
    shape[axis] = 2
    inputs = [cache, floats(*shape), np.array(starts) if given else None]
    check_op("TensorScatter", inputs[: 2 + given], {"axis": axis, "mode": mode}, 24)


def test_tensor_scatter_refusals():
    cache, update = floats(2, 5, 3), floats(2, 2, 3)
    for inputs, attributes, text in (
        ([cache, update], {"axis": 0}, "not along axis 0"),
        ([cache, update], {"mode": "square"}, "no mode 'square'"),
        ([cache, floats(2, 6, 3)], {}, "longer than the cache"),
        ([cache, floats(2, 2, 4)], {}, "update has the wrong shape"),
    ):
        with pytest.raises(InvalidGraph, match=text):
            check_op("TensorScatter", inputs, attributes, 24, expected=[], symbolic=False)
    with pytest.raises(RuntimeException):
        check_op("TensorScatter", [cache, update, np.array([0, 4])], {}, 24, expected=[])


# -- DeformConv -------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "groups, offset_groups, attributes",
    [
        (1, 1, {}),
        (2, 1, {"pads": [1, 1, 1, 1]}),
        (1, 2, {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 1, 1]}),
        (4, 4, {"pads": [1, 0, 0, 1]}),
    ],
)
def test_deform_conv(masked, groups, offset_groups, attributes):
    x, w, bias = floats(2, 4, 7, 8), floats(8, 4 // groups, 3, 2), floats(8)
    strides, dilations = (attributes.get(k, [1, 1]) for k in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 4)
    space = [
        (x.shape[2 + k] + pads[k] + pads[k + 2] - dilations[k] * (w.shape[2 + k] - 1) - 1)
        // strides[k]
        + 1
        for k in range(2)
    ]
    offset = floats(2, offset_groups * 12, *space) * 1.5
    mask = floats(2, offset_groups * 6, *space) if masked else None
    inputs = [x, w, offset, bias, mask]
    attributes = {**attributes, "group": groups, "offset_group": offset_groups}
    expected = deformed(x, w, offset, bias, mask, strides, dilations, pads, groups, offset_groups)
    for opset in (19, 22):
        check_op("DeformConv", inputs[: 4 + masked], attributes, opset, expected=[expected],
                 tolerance="float: sums that cancel")  # fmt: skip


def deformed(x, w, offset, bias, mask, strides, dilations, pads, groups, offset_groups):
    """Dai 2017, Zhu 2018, tap by tap."""
    x = x.astype(np.float64)
    batch, channels = x.shape[:2]
    features, depth, *kernel = w.shape
    taps = int(np.prod(kernel))
    result = np.zeros((batch, features, *offset.shape[2:]))
    for n, m, *o in np.ndindex(*result.shape):
        total = float(bias[m])
        for c in range(depth):
            channel = m // (features // groups) * depth + c
            group = channel // (channels // offset_groups)
            for number, tap in enumerate(np.ndindex(*kernel)):
                row = group * taps + number
                at = [
                    o[k] * strides[k] - pads[k] + tap[k] * dilations[k]
                    + float(offset[(n, 2 * row + k, *o)])
                    for k in range(2)
                ]  # fmt: skip
                value = between(x[n, channel], *at) * w[(m, c, *tap)]
                total += value * (1 if mask is None else mask[(n, row, *o)])
        result[(n, m, *o)] = total
    return result.astype(np.float32)


def between(image, y, x):
    total = 0.0
    for row in (int(np.floor(y)), int(np.floor(y)) + 1):
        for column in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def test_deform_conv_of_lines_and_volumes():
    """Without offsets it is a convolution."""
    for space, taps in (((9,), (3,)), ((4, 5, 3), (2, 3, 1))):
        x, w = floats(1, 2, *space), floats(3, 2, *taps)
        outputs = [d - k + 1 for d, k in zip(space, taps, strict=True)]
        offset = np.zeros((1, int(np.prod(taps)) * len(taps), *outputs), np.float32)
        expected = np.zeros((1, 3, *outputs), np.float64)
        for o in np.ndindex(*outputs):
            piece = tuple(slice(i, i + k) for i, k in zip(o, taps, strict=True))
            part = x[(slice(None), slice(None), *piece)].astype(np.float64)
            axes = range(1, part.ndim)
            expected[(slice(None), slice(None), *o)] = np.tensordot(part, w, (axes, axes))
        check_op("DeformConv", [x, w, offset], {}, 22, expected=[expected.astype(np.float32)])


def test_deform_conv_refusals():
    x, w, offset = floats(1, 4, 5, 5), floats(2, 4, 3, 3), floats(1, 18, 3, 3)
    for inputs, attributes, text in (
        ([x, w, offset], {"offset_group": 3}, "no 3 equal groups"),
        ([x, w, offset[:, :9]], {}, "tensor of offsets has the wrong shape"),
        ([x, w, offset, None, floats(1, 18, 3, 3)], {}, "mask has the wrong shape"),
    ):
        with pytest.raises(InvalidGraph, match=text):
            check_op("DeformConv", inputs, attributes, 22, expected=[], symbolic=False)
