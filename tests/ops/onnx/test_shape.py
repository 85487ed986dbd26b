"""Operators that change shapes, against onnx's reference."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op, one_node_model

RNG = np.random.default_rng(11)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def longs(*values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("attributes", [{}, {"start": 1}, {"start": -2, "end": -1}, {"end": 9}])
def test_shape(attributes):
    check_op("Shape", [floats(2, 3, 4)], attributes, 15)


def test_shape_of_a_scalar():
    check_op("Shape", [np.float32(1)], opset=13)


def test_size():
    check_op("Size", [floats(2, 3, 4)], opset=13)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((2, 3, 4), (6, 4)),
        ((2, 3, 4), (0, -1)),
        ((2, 3, 4), (2, 12)),
        ((2, 3, 4), (-1,)),
        ((2, 3, 4), (4, 3, 2)),
        ((2, 6), (3, 4)),
        ((24,), (2, 3, 4)),
        ((2, 12), (2, 3, 4)),
        ((1, 2, 1, 3), (3, 2, 1)),
        ((4, 1), (2, 1, 2)),
        ((1,), ()),
        ((), (1, 1)),
        ((0, 3), (3, 0)),
        ((2, 0), (0, 0, 5)),
    ],
)
def test_reshape(shape, target):
    attributes = {"allowzero": 1} if 0 in shape and len(target) > 1 else {}
    wanted = target if not attributes else tuple(target)
    x = floats(*shape)
    check_op("Reshape", [x, longs(*wanted)], attributes, 14, constants=(1,), symbolic=False)
    if 0 not in shape and -1 in target:
        check_op("Reshape", [x, longs(*wanted)], opset=14, constants=(1,), symbolic=True)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ((5,), "not as many elements"),
        ((-1, -1), "several -1"),
        ((-2,), "no meaning"),
        ((6, 0, 0, 0, 0), "copies axis 3"),
    ],
)
def test_reshape_errors(target, text):
    with pytest.raises(InvalidGraph, match=text):
        check_op("Reshape", [floats(2, 3, 4), longs(*target)], constants=(1,), expected=[])


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis):
    check_op("Flatten", [floats(2, 3, 4)], {"axis": axis}, 13)


def test_squeeze():
    x = floats(1, 3, 1, 2)
    check_op("Squeeze", [x], opset=13)
    check_op("Squeeze", [x, longs(-2)], opset=13, constants=(1,))
    check_op("Squeeze", [x], {"axes": [0]}, 11)
    with pytest.raises(InvalidGraph, match="Axis 1 of"):
        check_op("Squeeze", [x, longs(1)], constants=(1,), expected=[], symbolic=False)


def test_unsqueeze():
    x = floats(3, 2)
    check_op("Unsqueeze", [x, longs(0, -1)], opset=13, constants=(1,))
    check_op("Unsqueeze", [x], {"axes": [1, 3]}, 11)


def test_transpose():
    x = floats(2, 3, 4)
    check_op("Transpose", [x], {"perm": [2, 0, 1]})
    check_op("Transpose", [x])
    with pytest.raises(InvalidGraph, match="no order"):
        check_op("Transpose", [x], {"perm": [0, 0, 1]}, expected=[])


@pytest.mark.parametrize("target", [(2, 3, 4), (3, 1), (1,), (5, 2, 3, 4)])
def test_expand(target):
    x = floats(3, 1) if len(target) < 4 else floats(2, 1, 4)
    check_op("Expand", [x, longs(*target)], constants=(1,))


def test_tile():
    check_op("Tile", [floats(2, 3, 1), longs(2, 1, 4)], constants=(1,))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode):
    check_op("DepthToSpace", [floats(2, 8, 2, 3)], {"blocksize": 2, "mode": mode}, symbolic=False)


def test_space_to_depth():
    x = floats(2, 3, 4, 6)
    blocks = x.reshape(2, 3, 2, 2, 3, 2)
    dcr = blocks.transpose(0, 3, 5, 1, 2, 4).reshape(2, 12, 2, 3)
    crd = blocks.transpose(0, 1, 3, 5, 2, 4).reshape(2, 12, 2, 3)
    check_op("SpaceToDepth", [x], {"blocksize": 2}, expected=[dcr], symbolic=False)
    for mode, expected in (("DCR", dcr), ("CRD", crd)):
        attributes = {"blocksize": 2, "mode": mode}
        check_op("SpaceToDepth", [x], attributes, 28, expected=[expected], symbolic=False)


def test_constant_of_shape():
    import onnx

    value = onnx.numpy_helper.from_array(np.array([7], np.int64))
    check_op("ConstantOfShape", [longs(2, 3)], {"value": value}, constants=(0,))
    check_op("ConstantOfShape", [longs(2, 0)], constants=(0,))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis):
    shape = [2, 3, 4]
    parts = []
    for size in (1, 3, 0, 2):
        shape[axis] = size
        parts.append(floats(*shape))
    check_op("Concat", parts, {"axis": axis}, symbolic=False)
    check_op("Concat", [p for p in parts if p.size], {"axis": axis}, symbolic=True)


def test_concat_of_different_sizes():
    with pytest.raises(InvalidGraph, match="sizes of axis 1 differ"):
        check_op("Concat", [floats(2, 3), floats(2, 4)], {"axis": 0}, expected=[], symbolic=False)


@pytest.mark.parametrize(
    ("opset", "outputs", "split", "attributes"),
    [
        (11, 3, None, {"axis": 1}),
        (11, 2, None, {"axis": 1, "split": [2, 4]}),
        (13, 3, None, {"axis": 1}),
        (13, 2, (5, 1), {"axis": -1}),
        (18, 4, None, {"axis": 1, "num_outputs": 4}),
        (18, 2, (1, 5), {"axis": 1}),
    ],
)
def test_split(opset, outputs, split, attributes):
    inputs = [floats(2, 6)] + ([] if split is None else [longs(*split)])
    expected = None
    if attributes.get("num_outputs") == 4:
        expected = np.split(inputs[0], [2, 4, 6], axis=1)
    check_op(
        "Split", inputs, attributes, opset, outputs=outputs, constants=(1,), expected=expected,
        symbolic=None if not split else False,
    )  # fmt: skip


SLICES = [
    ((1,), (3,), (0,), (1,)),
    ((0, -3), (10, -1), (0, 1), (1, 1)),
    ((5,), (0,), (1,), (-2,)),
    ((-1,), (-(2**63),), (1,), (-1,)),
    ((1,), (2**63 - 1,), (1,), (3,)),
    ((4,), (1,), (1,), (1,)),
    ((100,), (200,), (1,), (1,)),
    ((-100,), (2,), (1,), (1,)),
    ((-1,), (2**31 - 1,), (1,), (1,)),
    ((0,), (-1,), (1,), (1,)),
    ((0,), (1,), (1,), (1,)),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
def test_slice(starts, ends, axes, steps):
    x = floats(4, 6)
    inputs = [x, longs(*starts), longs(*ends), longs(*axes), longs(*steps)]
    check_op("Slice", inputs, opset=13, constants=(1, 2, 3, 4))


def test_slice_without_axes_and_by_attributes():
    check_op("Slice", [floats(4, 6), longs(1, 2), longs(3, 4)], constants=(1, 2), opset=13)
    x = floats(4, 6)
    attributes = {"starts": [1], "ends": [-1], "axes": [1]}
    check_op("Slice", [x], attributes, 9, expected=[x[:, 1:-1]])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(1, 2, 0, 1), (0, 0, 3, 2), (0, -1, 0, 0), (-1, 1, 0, -2)])
def test_pad(mode, pads):
    x = floats(4, 5)
    padded = [(max(b, 0), max(a, 0)) for b, a in zip(pads[:2], pads[2:], strict=True)]
    cut = [
        slice(max(-b, 0), n - max(-a, 0))
        for b, a, n in zip(pads[:2], pads[2:], x.shape, strict=True)
    ]
    if mode == "constant" or all(p >= 0 for p in pads):
        expected = np.pad(x[tuple(cut)], padded, mode=mode)
        check_op("Pad", [x, longs(*pads)], {"mode": mode}, 19, constants=(1,), expected=[expected])


def test_pad_far_beyond_the_edge():
    x = floats(3)
    for mode in ("reflect", "wrap"):
        expected = np.pad(x, (7, 8), mode=mode)
        check_op("Pad", [x, longs(7, 8)], {"mode": mode}, 19, constants=(1,), expected=[expected])


def test_pad_with_value_and_axes():
    x, value = floats(2, 3), np.float32(9)
    expected = np.pad(x, ((0, 0), (1, 2)), constant_values=9)
    inputs = [x, longs(1, 2), value, longs(-1)]
    for constants in ((1, 3), (1, 2, 3)):
        check_op("Pad", inputs, opset=18, constants=constants, expected=[expected])
    check_op("Pad", [x], {"pads": [0, 1, 0, 2], "value": 9.0}, 2, expected=[expected])
    whole = np.arange(6).reshape(2, 3)
    check_op(
        "Pad",
        [whole, longs(0, 1, 0, 0)],
        opset=13,
        constants=(1,),
        expected=[np.pad(whole, ((0, 0), (1, 0)))],
    )


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 5, 1), (3, 10, 3), (10, 0, -3), (5, 5, 1), (5, 2, 1)]
)
def test_range(start, limit, delta):
    check_op("Range", [np.int64(start), np.int64(limit), np.int64(delta)], constants=(0, 1, 2))
    check_op(
        "Range", [np.float32(start), np.float32(limit), np.float32(delta)], constants=(0, 1, 2)
    )


@pytest.mark.parametrize("constants", [(), (0, 1, 2)])
@pytest.mark.parametrize("shapes", [((1,), (), (1, 1)), ((), (1,), ()), ((1,), (1,), (1,))])
def test_range_of_bounds_with_axes_of_size_1(shapes, constants):
    bounds = [np.full(s, v, np.int64) for s, v in zip(shapes, (2, 9, 3), strict=True)]
    check_op("Range", bounds, constants=constants, expected=[longs(2, 5, 8)])


def test_expand_to_a_single_number():
    x = floats(3, 1)
    check_op("Expand", [x, np.int64(4)], constants=(1,), expected=[np.repeat(x, 4, 1)])


def test_range_of_half_floats():
    bounds = [np.float16(0.1), np.float16(2.1), np.float16(0.3)]
    wide = np.float32(bounds[0]) + np.arange(7, dtype=np.float32) * np.float32(bounds[2])
    check_op("Range", bounds, opset=27, constants=(0, 1, 2), expected=[wide.astype(np.float16)])


def test_eye_like():
    check_op("EyeLike", [floats(3, 4)], {"k": 1})
    check_op("EyeLike", [floats(3, 4)], {"k": -1, "dtype": 7})


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 9])
def test_trilu(upper, k):
    x = floats(2, 3, 4)
    inputs = [x] if k is None else [x, np.array(k)]
    for constants in ((), (1,)):
        check_op("Trilu", inputs, {"upper": upper}, constants=constants)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_gather(axis, shape):
    positions = RNG.integers(-3, 3, shape)
    check_op("Gather", [floats(3, 4, 5), positions], {"axis": axis})
    check_op("Gather", [floats(3, 4, 5), positions], {"axis": axis}, constants=(1,))


def test_gather_outside_faults():
    with pytest.raises(RuntimeException, match="index 3 is outside of an axis of 3"):
        check_op("Gather", [floats(3, 4), longs(0, 3)], expected=[])


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (-11, -18, -2, [0]),  # a walk backward starts in the axis, says ONNX; NumPy's is empty
        (-4, -9, -1, [0]),
        (9, -9, -2, [2, 0]),
        (2, 0, -1, [2, 1]),
        (-9, 9, 2, [0, 2]),
        (3, 9, 1, []),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_slice_beyond_the_ends(start, end, step, expected, symbolic):
    inputs = [longs(0, 1, 2), longs(start), longs(end), longs(0), longs(step)]
    check_op(
        "Slice", inputs, opset=13, constants=(1, 2, 3, 4), expected=[longs(*expected)],
        symbolic=symbolic,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect", "constant"])
@pytest.mark.parametrize("pads", [(5, -1), (-1, 4), (-2, -1), (2, 0)])
def test_pad_that_takes_away_and_adds(mode, pads):
    x = np.arange(7, dtype=np.int64)
    left = x[max(-pads[0], 0) : len(x) - max(-pads[1], 0)]
    expected = np.pad(left, (max(pads[0], 0), max(pads[1], 0)), mode)
    inputs = [x, longs(*pads)]
    check_op("Pad", inputs, {"mode": mode}, 19, constants=(1,), expected=[expected])


def test_depth_to_space_of_unknown_depth():
    check_op("DepthToSpace", [floats(1, 8, 2, 3)], {"blocksize": 2}, 13, symbolic=True)


def test_squeeze_of_an_axis_that_may_be_1():
    model = one_node_model("Squeeze", [floats(2, 1, 3)], {}, 13, symbolic=True)
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((2, 1, 3), (1, 1, 3), (4, 1, 1), (1, 1, 1)):
        wanted = tuple(d for d in shape if d != 1)
        assert session.run(None, {"x0": floats(*shape)})[0].shape == wanted


@pytest.mark.parametrize("between", ["Identity", "Neg", "Transpose"])
def test_nodes_that_change_nothing_for_some_sizes_alone_stay(between):
    """Expand gives its input back if the sizes are equal, which a run decides."""
    nodes = [
        helper.make_node(between, ["x"], ["a"]),
        helper.make_node("Shape", ["like"], ["shape"]),
        helper.make_node("Expand", ["a", "shape"], ["b"]),
        helper.make_node(between, ["b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    sizes = {"x": ["N", "M"], "like": ["P", "Q"]}
    feeds = [helper.make_tensor_value_info(n, 1, shape) for n, shape in sizes.items()]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in "yz"]
    graph = helper.make_graph(nodes, "expanded", feeds, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = sardonyx.InferenceSession(model.SerializeToString())
    turn = np.transpose if between == "Transpose" else np.asarray
    for small, large in (((2, 3), (2, 3)), ((1, 3), (4, 3)), ((1, 1), (5, 6)), ((2, 3), (2, 3))):
        x, like = floats(*small), np.zeros(turn(np.zeros(large)).shape, np.float32)
        y, _ = session.run(None, {"x": x, "like": like})
        np.testing.assert_array_equal(y, np.maximum(np.broadcast_to(x, large), 0))


def test_slices_of_an_axis_that_a_run_finds_empty():
    inputs = [floats(4, 3), longs(1), longs(9), longs(0)]
    model = one_node_model("Slice", inputs, {}, 13, constants=(1, 2, 3), symbolic=True)
    session = sardonyx.InferenceSession(model.SerializeToString())
    for rows in (4, 1, 0):
        assert session.run(None, {"x0": floats(rows, 3)})[0].shape == (max(rows - 1, 0), 3)


def test_slices_without_elements_keep_the_condition_on_their_other_axis():
    bounds = {"a": [30], "b": [29], "c": [0], "d": [-1], "e": [0, 4], "f": [1, 5], "g": [0, 1]}
    bounds["h"] = [1, -1]
    nodes = [
        helper.make_node("Slice", ["x", "a", "b", "c", "d"], ["part"]),
        helper.make_node("Slice", ["part", "e", "f", "g", "h"], ["y"]),
    ]
    held = [numpy_helper.from_array(longs(*values), name) for name, values in bounds.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 9])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
    session = sardonyx.InferenceSession(model.SerializeToString())
    for rows, left in ((31, 1), (30, 0), (1, 0)):
        assert session.run(None, {"x": floats(rows, 9)})[0].shape == (left, 0)
