"""RoiAlign against onnx's reference, MaxRoiPool against its definition."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op, one_node_model
from tests.support.session import check, model_of

RNG = np.random.default_rng(21)
X = RNG.standard_normal((2, 3, 9, 12)).astype(np.float32)
ROIS = np.array(
    [[1, 2, 7, 6], [0, 0, 11, 8], [-3, -2, 20, 15], [4.3, 4.1, 4.4, 4.2], [9, 7, 3, 2]], np.float32
)
IMAGES = np.array([0, 1, 1, 0, 1])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel", None])
def test_roi_align(mode, ratio, coordinates):
    attributes = {
        "mode": mode,
        "output_height": 3,
        "output_width": 2,
        "sampling_ratio": ratio,
        "spatial_scale": 0.75,
    }
    rois = ROIS
    if mode == "max":
        # The reference starts the maximum of a bin without samples with what lay there before.
        rois = ROIS[:4]
    inputs = [X, rois, IMAGES[: len(rois)]]
    if coordinates is None:
        # Before version 16 there was no choice.
        attributes["coordinate_transformation_mode"] = "output_half_pixel"
        model = one_node_model("RoiAlign", inputs, attributes, 16)
        expected = ReferenceEvaluator(model).run(None, {f"x{k}": x for k, x in enumerate(inputs)})
        del attributes["coordinate_transformation_mode"]
        check_op("RoiAlign", inputs, attributes, 10, expected=expected)
        return
    check_op("RoiAlign", inputs, {"coordinate_transformation_mode": coordinates, **attributes}, 22)


def test_number_of_samples_is_measured():
    """The same session with regions that need few samples, many, and none at all."""
    model = model_of(
        "g (float[2,3,9,12] x, float[n,4] r, int64[n] i) => (float[n,3,2,2] y)"
        " { y = RoiAlign<output_height=2, output_width=2>(x, r, i) }",
        opset=22,
    )
    feeds = [
        {"x": X, "r": (ROIS * scale)[:count], "i": IMAGES[:count]}
        for scale, count in ((1, 5), (0.1, 2), (3, 4), (1, 0))
    ]
    check(model, [{**f, "r": f["r"].astype(np.float32)} for f in feeds])


def pooled(x, rois, shape, scale):
    """Girshick 2015; halves are rounded away from zero."""
    result = np.zeros((len(rois), x.shape[1], *shape), x.dtype)
    space = x.shape[2:]
    for n, (image, *corners) in enumerate(rois):
        left, top, right, bottom = (
            int(np.floor(abs(c * scale) + 0.5) * np.sign(c)) for c in corners
        )
        begins, ends = (top, left), (bottom, right)
        for at in np.ndindex(*shape):
            piece = []
            for k in range(2):
                step = max(ends[k] - begins[k] + 1, 1) / shape[k]
                low = int(np.floor(at[k] * step)) + begins[k]
                high = int(np.ceil((at[k] + 1) * step)) + begins[k]
                piece.append(slice(min(max(low, 0), space[k]), min(max(high, 0), space[k])))
            part = x[(int(image), slice(None), *piece)]
            if part.size:
                result[(n, slice(None), *at)] = part.max((1, 2))
    return result


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 5)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(shape, scale):
    rois = np.concatenate([IMAGES[:, None], np.round(ROIS)], 1).astype(np.float32)
    attributes = {"pooled_shape": list(shape), "spatial_scale": scale}
    expected = [pooled(X, rois, shape, scale)]
    for opset in (1, 22):
        check_op("MaxRoiPool", [X, rois], attributes, opset, expected=expected)


def test_half_floats():
    x, rois = X.astype(np.float16), ROIS[:3].astype(np.float16)
    inputs = [x, rois, IMAGES[:3]]
    attributes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    check_op("RoiAlign", inputs, attributes, 22)


def test_refusals():
    inputs = [X, ROIS, IMAGES]
    for change, attributes, text in (
        ({}, {"mode": "min"}, "no mode 'min'"),
        ({}, {"coordinate_transformation_mode": "x"}, "no such coordinate_transformation_mode"),
        ({1: ROIS[:, :3]}, {}, "region has the wrong shape"),
        ({2: IMAGES[:2]}, {}, "batch indices has the wrong shape"),
        ({0: X[0]}, {}, "Images and rows"),
    ):
        given = [change.get(k, x) for k, x in enumerate(inputs)]
        with pytest.raises(InvalidGraph, match=text):
            check_op("RoiAlign", given, attributes, 22, expected=[], symbolic=False)
    with pytest.raises(RuntimeException):
        check_op("RoiAlign", [X, ROIS, IMAGES + 1], {}, 22, expected=[])
