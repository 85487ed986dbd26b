"""Complex tensors through whole sessions: moved as they are, computed with in their parts."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.base import errors
from tests.support.oracle import Oracle
from tests.support.session import model_of
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(11)
BOTH = (np.complex64, np.complex128)


def numbers(*shape):
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def ints(*values):
    return np.array(values, np.int64)


def floats(*values):
    return np.array(values, np.float32)


def one_node(op_type, inputs, constants, attributes, opset, outputs=1):
    """A model of one node whose sizes are symbols, and its feeds."""
    names = [f"x{k}" if x is not None else "" for k, x in enumerate(inputs)]
    fed = [k for k, x in enumerate(inputs) if x is not None and k not in constants]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(
                names[k],
                helper.np_dtype_to_tensor_dtype(inputs[k].dtype),
                [f"d{k}_{a}" for a in range(inputs[k].ndim)],
            )
            for k in fed
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(inputs[k], names[k]) for k in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model, {names[k]: inputs[k] for k in fed}


X = numbers(4, 6)
CASES = [
    ("Identity", [X], (), {}),
    ("Transpose", [X], (), {"perm": [1, 0]}),
    ("Reshape", [X, ints(3, 8)], (1,), {}),
    ("Flatten", [numbers(2, 3, 4)], (), {}),
    ("Unsqueeze", [X, ints(0)], (1,), {}),
    ("Squeeze", [numbers(1, 5, 1), ints(0)], (1,), {}),
    ("Concat", [X, numbers(4, 3)], (), {"axis": 1}),
    ("Split", [X, ints(2, 4)], (1,), {"axis": 1}),
    ("Slice", [X, ints(1), ints(5), ints(1), ints(2)], (1, 2, 3, 4), {}),
    ("Pad", [X, ints(1, 0, 0, 2)], (1,), {}),
    ("Pad", [X, ints(1, 0, 0, 2), np.array(2 + 3j)], (1,), {}),
    ("Pad", [X, ints(1, 0, 0, 2)], (1,), {"mode": "reflect"}),
    ("Expand", [numbers(1, 3), ints(2, 3)], (1,), {}),
    ("Tile", [X, ints(2, 1)], (1,), {}),
    ("Where", [np.array([[True], [False], [True], [False]]), X, numbers(6)], (), {}),
    ("Trilu", [X], (), {}),
    ("Gather", [X, ints(2, 0, -1)], (), {"axis": 1}),
    ("GatherElements", [X, np.array([[0, 1, 2, 3, 1, 0]])], (), {"axis": 0}),
    ("GatherND", [X, np.array([[0, 1], [2, 3]])], (1,), {}),
    ("ScatterElements", [X, np.array([[0, 1], [2, 3]]), numbers(2, 2)], (), {"axis": 0}),
    ("ScatterND", [X, np.array([[0], [2]]), numbers(2, 6)], (1,), {}),
    ("Compress", [X, np.array([True, False, True])], (), {"axis": 0}),
    ("DepthToSpace", [numbers(1, 8, 2, 3)], (), {"blocksize": 2}),
    ("SpaceToDepth", [numbers(1, 2, 4, 6)], (), {"blocksize": 2}),
    ("ReverseSequence", [X, ints(1, 2, 3, 4, 2, 1)], (), {"time_axis": 0, "batch_axis": 1}),
    ("OneHot", [ints(1, 0, 2), np.array(3), numbers(2)], (1,), {}),
    ("Shape", [X], (), {}),
    ("Size", [X], (), {}),
    ("NonZero", [np.array([[0, 1j], [1, 0]])], (), {}),
    ("Unique", [np.array([1 + 2j, 3, 1 + 1j, 1 + 2j, 0])], (), {}),
    *(
        ("ScatterElements", [X, np.array([[0, 1], [0, 3]]), numbers(2, 2)], (),
         {"axis": 0, "reduction": kind})
        for kind in ("add", "mul")
    ),
    ("ScatterND", [X, np.array([[0], [0]]), numbers(2, 6)], (1,), {"reduction": "add"}),
]  # fmt: skip
OUTPUTS = {"Split": 2, "Unique": 4}


def typed(inputs, dtype):
    return [x.astype(dtype) if x is not None and x.dtype == np.complex128 else x for x in inputs]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[3]}")
def test_operators_that_take_complex_tensors(case, dtype):
    op_type, inputs, constants, attributes = case
    outputs = OUTPUTS.get(op_type, 1)
    model, feeds = one_node(op_type, typed(inputs, dtype), constants, attributes, 21, outputs)
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    want = ReferenceEvaluator(model).run(None, feeds)
    for mine, theirs, oracle in zip(got, want, Oracle(model).run(feeds), strict=True):
        assert mine.dtype == np.asarray(theirs).dtype
        assert_near(mine, theirs, "float: one operation")
        assert_near(mine, oracle, "float: one operation")


IMAGE = numbers(1, 1, 4, 5)
LINEAR = [
    *(
        ("Resize", [IMAGE, None, floats(1, 1, 2, 1.5)], (2,), {"mode": mode}, 19)
        for mode in ("nearest", "linear", "cubic")
    ),
    *(
        ("GridSample", [IMAGE, RNG.random((1, 2, 3, 2), np.float32)], (), {"mode": mode}, 20)
        for mode in ("nearest", "linear", "cubic")
    ),
    ("Col2Im", [numbers(1, 9, 9), ints(5, 5), ints(3, 3)], (1, 2), {}, 18),
]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("case", LINEAR, ids=lambda c: f"{c[0]}-{c[3]}")
def test_linear_operators_treat_the_parts_alike(case, dtype):
    """The reference drops the imaginary part, or computes it wrongly."""
    op_type, inputs, constants, attributes, opset = case
    model, feeds = one_node(op_type, typed(inputs, dtype), constants, attributes, opset)
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    assert got.dtype == dtype
    parts = []
    for part in (inputs[0].real, inputs[0].imag):
        plain, fed = one_node(op_type, [part, *inputs[1:]], constants, attributes, opset)
        parts.append(ReferenceEvaluator(plain).run(None, fed)[0])
    assert_near(got, parts[0] + 1j * parts[1], "float: sums")


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("unaligned", [False, True])
def test_feeds_at_any_address_and_weights(dtype, unaligned):
    kind = "complex64" if dtype is np.complex64 else "complex128"
    model = model_of(
        f"g ({kind}[n] x) => ({kind}[m] y) {{ y = Concat<axis = 0>(x, w) }}",
        {"w": numbers(3).astype(dtype)},
    )
    weight = numpy_helper.to_array(model.graph.initializer[0])
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert session.get_inputs()[0].type == f"tensor({kind})"
    for count in (0, 1, 7, 33):
        x = numbers(count).astype(dtype)
        if unaligned:  # as far as the parts' alignment allows
            step = x.itemsize // 2
            memory = np.zeros(count * x.itemsize + 64, np.uint8)
            start = (-memory.ctypes.data) % 64 + step
            moved = memory[start : start + count * x.itemsize].view(dtype)
            moved[:] = x
            x = moved
        got = session.run(None, {"x": x})[0]
        np.testing.assert_array_equal(got, np.concatenate([x, weight]))


def test_loops_branches_and_sequences_carry_them():
    model = model_of(
        """g (complex64[n] x, bool c, int64 k) => (complex64[n] y, complex64[r, n] rows,
            complex64[m] joined) {
            y, rows = Loop(k, , x) <body = b (int64 i, bool on, complex64[n] s)
                => (bool go, complex64[n] s2, complex64[n] row) {
                go = Identity(on)
                s2 = If(c) <then_branch = t () => (complex64[n] a) { a = Where(c, s, x) },
                    else_branch = e () => (complex64[n] d) { d = Slice(s, st, en, ax, sp) }>
                row = Identity(s2)
            }>
            q = SequenceConstruct(x, y)
            joined = ConcatFromSequence<axis = 0>(q)
        }""",
        {"st": ints(-1), "en": ints(-100), "ax": ints(0), "sp": ints(-1)},
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = numbers(5).astype(np.complex64)
    for c, k in ((True, 2), (False, 3)):
        y, rows, joined = session.run(None, {"x": x, "c": np.array(c), "k": np.array(k)})
        turned = [x if c or i % 2 == 0 else x[::-1] for i in range(1, k + 1)]
        np.testing.assert_array_equal(y, turned[-1])
        np.testing.assert_array_equal(rows, np.stack(turned))
        np.testing.assert_array_equal(joined, np.concatenate([x, y]))


@pytest.mark.parametrize(
    "text",
    ["y = ReduceSum(x)", "y = MatMul(x, x)", "y = Exp(x)", "y = Less(x, x)", "y = Max(x, x)"],
)
def test_what_complex_numbers_do_not_have_is_refused(text):
    model = model_of(f"g (complex64[n, n] x) => (y) {{ {text} }}")
    with pytest.raises(errors.InvalidGraph, match="got complex64"):
        sardonyx.InferenceSession(model.SerializeToString())
