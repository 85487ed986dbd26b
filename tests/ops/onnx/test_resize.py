"""Resize, GridSample and AffineGrid against onnx's reference."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph, NotImplemented
from sardonyx.loader.load import load
from sardonyx.ops.onnx.resize import resize_11
from sardonyx.passes.infer import infer
from sardonyx.tensor.tensor import buffer
from tests.support.ops import check_op
from tests.support.session import check, model_of

RNG = np.random.default_rng(4)
X = RNG.standard_normal((2, 2, 4, 8)).astype(np.float32)


def floats(*values):
    return np.array(values, np.float32)


def integers(*values):
    return np.array(values, np.int64)


def check_scales(scales, attributes, opset=19):
    inputs = [X, None, floats(1, 1, *scales)]
    check_op("Resize", inputs, attributes, opset, constants=[2], tolerance="float: interpolation")


def check_sizes(wanted, attributes, opset=19):
    inputs = [X, None, None, integers(2, 2, *wanted)]
    check_op("Resize", inputs, attributes, opset, constants=[3], tolerance="float: interpolation")


COORDINATES = "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()
# The last ones give lengths that are not whole.
SCALES = [(2, 3), (0.5, 0.375), (1.75, 0.625), (4, 1), (0.6, 1.35), (2.7, 0.45)]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scales", [(2, 4), (0.5, 0.25), (1.75, 0.625), (4, 1)])
def test_nearest(coordinates, rounding, scales):
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    check_scales(scales, attributes)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", SCALES)
def test_interpolation(coordinates, mode, scales):
    attributes = {"coordinate_transformation_mode": coordinates, "mode": mode}
    check_scales(scales, attributes)
    if mode == "cubic":
        check_scales(scales, {**attributes, "exclude_outside": 1, "cubic_coeff_a": -0.5})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("wanted", [(10, 14), (3, 4), (1, 1), (5, 9)])
def test_sizes(mode, wanted):
    check_sizes(wanted, {"mode": mode})
    check_sizes(wanted, {"mode": mode, "coordinate_transformation_mode": "align_corners"}, 13)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop(mode):
    attributes = {
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "mode": mode,
        "extrapolation_value": 5.0,
    }
    region = floats(0, 0, 0.2, 0.1, 1, 1, 0.8, 1.3)
    inputs = [X, region, None, integers(2, 2, 4, 6)]
    check_op("Resize", inputs, attributes, 13, constants=[1, 3], tolerance="float: interpolation")
    check_op("Resize", inputs, attributes, 13, constants=[3], tolerance="float: interpolation")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(0.5, 0.375), (0.75, 1.75)])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(mode, scales, exclude):
    check_scales(scales, {"mode": mode, "antialias": 1, "exclude_outside": exclude})


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("wanted", [(7, 9), (3, 3), (10, 20)])
def test_aspect_ratio(policy, wanted):
    attributes = {"keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    inputs = [X, None, None, integers(*wanted)]
    check_op("Resize", inputs, attributes, 18, constants=[3])


#: How an empty list is there, and which of both it is.
EMPTY = {
    "a constant": "<float[0] e = {}, int64[0] n = {}>",
    "a node": "<int64[0] n = {}, float[0] c = {}> { e = Identity(c)",
    "made of others":
        "<int64[0] n = {}, float[4] c = {1, 1, 2, 2}, int64[1] o = {0}> { e = Slice(c, o, o)",
}  # fmt: skip


@pytest.mark.parametrize("how", EMPTY)
@pytest.mark.parametrize("opset", [11, 13, 18, 19])
@pytest.mark.parametrize("given", ["scales", "sizes"])
def test_an_empty_list_is_none(how, opset, given):
    """As quantisers and exporters of opset 11 write models; also as a result beside the other."""
    values, _, nodes = EMPTY[how].partition("{ e")
    values = values if how == "a constant" else EMPTY[how].partition("> {")[0] + ">"
    nodes = "" if how == "a constant" else EMPTY[how].partition("> {")[2]
    values = values[:-1] + ", int64[4] w = {1, 1, 4, 6}, float[4] f = {1, 1, 2, 3}>"
    lists = "f, n" if given == "scales" else "e, w"
    text = f"""g (float[1,1,2,2] x) => (float[1,1,P,Q] y, float[0] e) {values} {{
        {nodes} y = Resize<mode = "nearest">(x, e, {lists}) }}"""
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    session = sardonyx.InferenceSession(model_of(text, opset=opset).SerializeToString())
    y, empty = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(3, 3))
    assert empty.shape == (0,)


def test_former_versions():
    up = np.repeat(np.repeat(X, 2, 2), 3, 3)
    scales = floats(1, 1, 2, 3)
    check_op("Resize", [X, scales], {}, 10, constants=[1], expected=[up])
    check_op("Upsample", [X, scales], {}, 9, constants=[1], expected=[up])
    check_op("Upsample", [X], {"scales": [1.0, 1.0, 2.0, 3.0]}, 7, expected=[up])


def test_bytes():
    x = RNG.integers(0, 255, (1, 2, 5, 7)).astype(np.uint8)
    scales = floats(1, 1, 2, 2)
    check_op("Resize", [x, None, scales], {}, 13, constants=[2])


@pytest.mark.parametrize("mode", [{}, {"coordinate_transformation_mode": "asymmetric",
                                       "nearest_mode": "floor"}])  # fmt: skip
def test_whole_factors_are_index_maps(mode):
    h, w = sizes.symbol("h"), sizes.symbol("w")
    x = buffer("x", (1, 3, h, w), FLOAT)
    scales = buffer("scales", (4,), FLOAT, known=(1.0, 1.0, 2.0, 4.0))
    result = resize_11(x, None, scales, **mode)
    assert result.shape == (1, 3, 2 * h, 4 * w)
    assert result.body.op == "load"
    assert not any(sizes.atoms_of(i, "opaque") for i in result.body.at)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_known_in_part(mode):
    """A batch and channels that stay are left alone, though a run says how large an image gets."""
    model = model_of(
        "g (float[n,2,h,w] x, float[2] s) => (float[n,2,a,b] y) {"
        " one = Constant<value_floats = [1.0, 1.0]>() scales = Concat<axis = 0>(one, s)"
        f' y = Resize<mode = "{mode}">(x, , scales) }}',
        opset=19,
    )
    graph = load(model)
    assert not infer(graph)
    assert [sizes.is_measured(d) for d in graph.outputs[0].shape] == [False, False, True, True]
    feeds = [{"x": X, "s": floats(*s)} for s in SCALES]
    check(model, feeds, tolerance="float: interpolation")


def test_errors():
    inputs = [X, None, floats(1, 1, 2, 2)]
    for attributes, text in (
        ({"mode": "lanczos"}, "no such mode"),
        ({"mode": "linear", "coordinate_transformation_mode": "x"}, "no such coordinate"),
    ):
        with pytest.raises(InvalidGraph, match=text):
            check_op("Resize", inputs, attributes, 18, constants=[2], expected=[])
    with pytest.raises(InvalidGraph, match="do not fit the axes"):
        check_op("Resize", [X, None, floats(2, 2)], {}, 18, constants=[2], expected=[])


# -- sampling ---------------------------------------------------------------------------------


def keys(d, a=-0.75):
    """Keys' cubic kernel."""
    d = abs(d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0


def cubic_with_borders(x, grid, align_corners):
    """Every tap beyond the edge reads it, as in PyTorch; onnx's reference moves the position."""
    result = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for n, row, column in np.ndindex(*grid.shape[:3]):
        sides = []
        for place, length in zip(
            grid[n, row, column][::-1].astype(float), x.shape[2:], strict=True
        ):
            at = (place + 1) / 2 * (length - 1) if align_corners else ((place + 1) * length - 1) / 2
            taps = [int(np.floor(at)) + step for step in range(-1, 3)]
            sides.append([(min(max(k, 0), length - 1), keys(at - k)) for k in taps])
        for i, by_row in sides[0]:
            for j, by_column in sides[1]:
                result[n, :, row, column] += x[n, :, i, j] * by_row * by_column
    return result.astype(np.float32)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(mode, padding, align_corners):
    grid = (RNG.random((2, 4, 3, 2)) * 2.6 - 1.3).astype(np.float32)
    expected = None
    if (mode, padding) == ("cubic", "border"):
        expected = [cubic_with_borders(X, grid, align_corners)]
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    check_op(
        "GridSample", [X, grid], attributes, 20, tolerance="float: interpolation", expected=expected
    )


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample_of_volumes(mode):
    x = RNG.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    grid = (RNG.random((1, 2, 3, 2, 3)) * 2.4 - 1.2).astype(np.float32)
    check_op("GridSample", [x, grid], {"mode": mode}, 20, tolerance="float: interpolation")


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_affine_grid(align_corners, size):
    rank = len(size) - 2
    theta = RNG.standard_normal((2, rank, rank + 1)).astype(np.float32)
    inputs = [theta, integers(*size)]
    check_op("AffineGrid", inputs, {"align_corners": align_corners}, 20, constants=[1])


# -- types that are not computed with ---------------------------------------------------------


def strings(*words):
    return np.array(words, object).reshape(1, 1, 2, 2)


GRID = floats(-0.5, -0.5, 0.5, -0.5, 9, 9).reshape(1, 1, 3, 2)


@pytest.mark.parametrize(
    "op_type, opset, inputs, expected",
    [
        ("Resize", 19, [None, floats(1, 1, 1, 2)], [["a", "a", "b", "b"], ["c", "c", "d", "d"]]),
        ("Upsample", 9, [floats(1, 1, 1, 2)], [["a", "a", "b", "b"], ["c", "c", "d", "d"]]),
        ("GridSample", 22, [GRID], [["a", "b", ""]]),
    ],
)
def test_strings(op_type, opset, inputs, expected):
    names = ["x", *(f"i{k}" if x is not None else "" for k, x in enumerate(inputs))]
    given = {f"i{k}": x for k, x in enumerate(inputs) if x is not None}

    def session(mode):
        node = helper.make_node(op_type, names, ["y"], mode=mode)
        declared = [helper.make_tensor_value_info("x", TensorProto.STRING, [1, 1, 2, 2])]
        declared += [helper.make_tensor_value_info(n, 1, x.shape) for n, x in given.items()]
        wanted = [helper.make_empty_tensor_value_info("y")]
        graph = helper.make_graph([node], "words", declared, wanted)
        imports = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return sardonyx.InferenceSession(model.SerializeToString())

    (got,) = session("nearest").run(None, {"x": strings(*"abcd"), **given})
    assert got.tolist() == [[expected]]
    with pytest.raises(NotImplemented, match="Strings are only taken to the nearest"):
        session("linear")


def test_large_integers_are_sampled_exactly():
    x = np.array([2**53 + 1, 2**60 + 3, 5, 7]).reshape(1, 1, 2, 2)
    expected = np.array([2**53 + 1, 2**60 + 3, 0]).reshape(1, 1, 1, 3)
    check_op("GridSample", [x, GRID], {"mode": "nearest"}, 22, expected=[expected])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_places_and_weights_are_worked_out_once(mode: str) -> None:
    """Where the result is no whole number of times longer, and all sizes are known."""
    model = model_of(
        f"g (float[2, 3, 16, 21] x) => (float[2, 3, 40, 64] y) {{ y = Resize"
        f'<mode="{mode}", coordinate_transformation_mode="align_corners"> (x, , , s) }}',
        {"s": np.array([2, 3, 40, 64])},
    )
    session = check(model, [{"x": np.random.default_rng(1).random((2, 3, 16, 21), np.float32)}])
    last = session.explain(verbose=True).split("estimated")[-1]
    assert "constant" in last
