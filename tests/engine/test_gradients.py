"""Gradient and the optimisers: against differences, NumPy, and the standard's text."""

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.ops import check_op
from tests.support.tolerances import assert_near

TRAINING = "ai.onnx.preview.training"
HEAD = f'<ir_version: 8, opset_import: ["" : 18, "{TRAINING}" : 1]>'


def session_of(text):
    return sardonyx.InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString())


def gradient_model(body, shapes, kinds=None, extra=""):
    """A model that gives y and its gradient by every input of type double."""
    kinds = {"x": "double"} | {n: "double" for n in shapes} | (kinds or {})
    declared = ", ".join(
        f"{kinds[n]}[{','.join(map(str, s))}] {n}" if s else f"{kinds[n]} {n}"
        for n, s in shapes.items()
    )
    by = [n for n in shapes if kinds[n] == "double"]
    others = [n for n in shapes if n not in by]
    names = ", ".join(f'"{n}"' for n in by)
    zs = ", zs = [" + ", ".join(f'"{n}"' for n in others) + "]" if others else ""
    outputs = ", ".join(f"double[] d{n}" for n in by)
    grads = ", ".join(f"d{n}" for n in by)
    return session_of(
        f"g ({declared}) => (double[] y, {outputs}) {{ {body} {extra}"
        f'{grads} = {TRAINING}.Gradient<xs = [{names}]{zs}, y = "y">'
        f"({', '.join([*by, *others])}) }}"
    )


def check_gradients(body, shapes, feeds, kinds=None, extra=""):
    session = gradient_model(body, shapes, kinds, extra)
    y, *found = session.run(None, feeds)
    by = [n for n in shapes if feeds[n].dtype == np.float64]
    step = 1e-5
    for name, gradient in zip(by, found, strict=True):
        x = feeds[name]
        assert gradient.shape == x.shape
        expected = np.empty(x.shape)
        for at in np.ndindex(*x.shape):
            sums = []
            for sign in (step, -step):
                moved = x.copy()
                moved[at] += sign
                sums.append(session.run(["y"], {**feeds, name: moved})[0].sum())
            expected[at] = (sums[0] - sums[1]) / (2 * step)
        assert_near(gradient, expected, "float: derivatives", err_msg=name)


SMOOTH = (
    "Neg Abs Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Atanh Erf"
    " Sigmoid Relu Elu Selu Softplus Softsign HardSigmoid HardSwish LeakyRelu Celu Mish Floor Round"
    " Sign ThresholdedRelu"
).split()


@pytest.mark.parametrize("op_type", SMOOTH)
def test_functions_of_one_number(op_type):
    x = np.random.default_rng(1).uniform(0.1, 0.9, (3, 4))
    if op_type not in ("Sqrt", "Log", "Acosh"):
        x[::2] *= -1
    check_gradients(f"v = {op_type}(x) w = Mul(v, x) y = Mul(w, w)", {"x": x.shape}, {"x": x})


def test_acosh():
    x = np.linspace(1.2, 3, 6)
    check_gradients("y = Acosh(x)", {"x": x.shape}, {"x": x})


@pytest.mark.parametrize(
    "op_type", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "PRelu"]
)
@pytest.mark.parametrize("other", [(2, 3, 4), (4,), (2, 1, 4), (1,)])
def test_functions_of_two(op_type, other):
    rng = np.random.default_rng(2)
    feeds = {"x": rng.uniform(0.5, 2, (2, 3, 4)), "z": rng.uniform(0.6, 1.9, other)}
    attributes = "<fmod = 1>" if op_type == "Mod" else ""
    if op_type == "PRelu":
        feeds["x"][0] *= -1
    body = f"v = {op_type}{attributes}(x, z) y = Mul(v, x)"
    check_gradients(body, {n: f.shape for n, f in feeds.items()}, feeds)


#: What is computed, and the shapes of its inputs.
FORMS = {
    "product": ("y = MatMul(x, z)", {"x": (3, 4), "z": (4, 5)}),
    "batched product": ("v = MatMul(x, z) y = Tanh(v)", {"x": (2, 1, 3, 4), "z": (5, 4, 2)}),
    "product with a vector": ("y = MatMul(x, z)", {"x": (2, 3, 4), "z": (4,)}),
    "gemm": (
        "v = Gemm<alpha = 0.5, beta = 2.0, transA = 1, transB = 1>(x, z, b) y = Sin(v)",
        {"x": (4, 3), "z": (5, 4), "b": (5,)},
    ),
    "einsum": ('y = Einsum<equation = "bij,bkj->bik">(x, z)', {"x": (2, 3, 4), "z": (2, 5, 4)}),
    "convolution": (
        "v = Conv<pads = [1,1,1,1], strides = [2,1]>(x, z, b) y = Tanh(v)",
        {"x": (2, 3, 5, 6), "z": (4, 3, 3, 2), "b": (4,)},
    ),
    "dilated convolution in groups": (
        "v = Conv<group = 2, dilations = [2], pads = [1,2]>(x, z) y = Mul(v, v)",
        {"x": (1, 4, 7), "z": (6, 2, 3)},
    ),
    "depthwise convolution": (
        "y = Conv<group = 3, strides = [3]>(x, z)",
        {"x": (2, 3, 8), "z": (3, 1, 2)},
    ),
    "transposed convolution": (
        "v = ConvTranspose<strides = [2]>(x, z) y = Mul(v, v)",
        {"x": (1, 2, 4), "z": (2, 3, 3)},
    ),
    "largest of windows": (
        "v = MaxPool<kernel_shape = [2], strides = [2]>(x) y = Mul(v, v)",
        {"x": (1, 2, 7)},
    ),
    "overlapping windows": (
        "v = MaxPool<kernel_shape = [3], pads = [1,1]>(x) y = Exp(v)",
        {"x": (1, 2, 7)},
    ),
    "mean of windows": (
        "v = AveragePool<kernel_shape = [3], pads = [1,1]>(x) y = Mul(v, v)",
        {"x": (1, 2, 7)},
    ),
    "whole mean": ("v = GlobalAveragePool(x) y = Exp(v)", {"x": (2, 3, 4)}),
    "softmax": ("v = Softmax(x) y = Mul(v, z)", {"x": (3, 5), "z": (3, 5)}),
    "logarithm of softmax": (
        "v = LogSoftmax<axis = 0>(x) y = Mul(v, z)",
        {"x": (3, 5), "z": (3, 5)},
    ),
    "layer normalisation": (
        "v = LayerNormalization(x, z, b) y = Sin(v)",
        {"x": (3, 5), "z": (5,), "b": (5,)},
    ),
    "instance normalisation": (
        "v = InstanceNormalization(x, z, b) y = Sin(v)",
        {"x": (2, 3, 4), "z": (3,), "b": (3,)},
    ),
    "batch normalisation": (
        "q = Mul(s, s) v = BatchNormalization(x, z, b, m, q) y = Sin(v)",
        {"x": (2, 3, 4), "z": (3,), "b": (3,), "m": (3,), "s": (3,)},
    ),
    "sum": ("v = ReduceSum<keepdims = 0>(x) y = Sin(v)", {"x": (3, 4)}),
    "squares": ("v = ReduceSumSquare<keepdims = 0>(x) y = Sqrt(v)", {"x": (3, 4)}),
    "norm": ("y = ReduceL2(x)", {"x": (3, 4)}),
    "logarithm of sums": ("y = ReduceLogSumExp<keepdims = 0>(x)", {"x": (3, 4)}),
    "product of all": ("v = ReduceProd<keepdims = 0>(x) y = Mul(v, v)", {"x": (5,)}),
    "largest": ("v = ReduceMax<keepdims = 0>(x) y = Mul(v, v)", {"x": (3, 4)}),
    "smallest": ("v = ReduceMin(x) y = Mul(v, x)", {"x": (3, 4)}),
    "mean": ("v = ReduceMean(x) w = Sub(x, v) y = Mul(w, w)", {"x": (3, 4)}),
    "transposition": (
        "v = Transpose<perm = [2,0,1]>(x) y = Mul(v, z)",
        {"x": (2, 3, 4), "z": (4, 2, 3)},
    ),
    "reshape": (
        "s = Constant<value_ints = [4, -1]>() v = Reshape(x, s) w = Sin(v) y = Mul(w, z)",
        {"x": (2, 3, 4), "z": (4, 6)},
    ),
    "heads": (
        "s = Constant<value_ints = [2, 3, 2, 2]>() v = Reshape(x, s)"
        " w = Transpose<perm = [0,2,1,3]>(v) y = Mul(w, z)",
        {"x": (2, 3, 4), "z": (2, 2, 3, 2)},
    ),
    "slices": (
        "a = Constant<value_ints = [3, 0]>() b = Constant<value_ints = [-9, 4]>()"
        " c = Constant<value_ints = [0, 1]>() d = Constant<value_ints = [-2, 3]>()"
        " v = Slice(x, a, b, c, d) y = Mul(v, v)",
        {"x": (5, 7)},
    ),
    "concatenation": ("v = Concat<axis = 1>(x, z, x) y = Mul(v, v)", {"x": (2, 3), "z": (2, 1)}),
    "parts": ("v, w = Split<num_outputs = 2>(x) y = Mul(v, w)", {"x": (4, 3)}),
    "padding": (
        "p = Constant<value_ints = [1, 2, 0, -1]>() v = Pad(x, p) y = Mul(v, v)",
        {"x": (3, 4)},
    ),
    "reflected padding": (
        'p = Constant<value_ints = [1, 2, 2, 1]>() v = Pad<mode = "reflect">(x, p) y = Mul(v, v)',
        {"x": (3, 4)},
    ),
    "repetition": (
        "r = Constant<value_ints = [2, 3]>() v = Tile(x, r) w = Mul(v, z) y = Sin(w)",
        {"x": (2, 3), "z": (4, 9)},
    ),
    "expansion": (
        "s = Constant<value_ints = [2, 3, 4]>() v = Expand(x, s) y = Mul(v, z)",
        {"x": (3, 1), "z": (2, 3, 4)},
    ),
    "running sum": (
        "a = Constant<value_int = 1>() v = CumSum<exclusive = 1>(x, a) y = Mul(v, v)",
        {"x": (2, 5)},
    ),
    "choice": ("c = Less(x, z) e = Exp(x) y = Where(c, e, z)", {"x": (3, 4), "z": (3, 4)}),
    "bounds": (
        "a = Constant<value = double {-0.5}>() b = Constant<value = double {0.5}>()"
        " v = Clip(x, a, b) y = Mul(v, x)",
        {"x": (3, 4)},
    ),
    "the largest ones": (
        "k = Constant<value_ints = [2]>() v, p = TopK(x, k) y = Mul(v, v)",
        {"x": (3, 5)},
    ),
    "triangle": ("v = Trilu(x) y = Mul(v, v)", {"x": (3, 4)}),
    "space to depth": (
        "v = SpaceToDepth<blocksize = 2>(x) y = Mul(v, z)",
        {"x": (1, 2, 4, 4), "z": (1, 8, 2, 2)},
    ),
    "attention": (
        "t = Transpose<perm = [0,2,1]>(z) s = MatMul(x, t) p = Softmax(s) y = MatMul(p, b)",
        {"x": (2, 3, 4), "z": (2, 5, 4), "b": (2, 5, 3)},
    ),
    "resize": (
        "e = Constant<value_floats = [1.0, 1.0, 1.5]>()"
        ' v = Resize<mode = "linear">(x, , e) y = Mul(v, v)',
        {"x": (1, 1, 4)},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    body, shapes = FORMS[name]
    rng = np.random.default_rng(3)
    check_gradients(body, shapes, {n: rng.standard_normal(s) for n, s in shapes.items()})


SCATTERS = {
    "elements": (
        "v = ScatterElements<axis = 1>(x, i, z)", (2, 4), (2, 3), np.array([[0, 2, -1], [3, 1, 1]])
    ),
    "added elements": (
        'v = ScatterElements<axis = 0, reduction = "add">(x, i, z)', (3, 2), (3, 2),
        np.array([[0, 0], [0, -1], [1, 2]]),
    ),
    "tuples": ("v = ScatterND(x, i, z)", (3, 4), (3,), np.array([[0, 1], [2, -1], [0, 1]])),
    "added rows": (
        'v = ScatterND<reduction = "add">(x, i, z)', (3, 2), (3, 2), np.array([[1], [1], [-1]])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERS)
def test_places_from_data(name):
    body, shape, updates, at = SCATTERS[name]
    rng = np.random.default_rng(7)
    feeds = {"x": rng.standard_normal(shape), "z": rng.standard_normal(updates), "i": at}
    shapes = {"x": shape, "z": updates, "i": at.shape}
    check_gradients(f"{body} y = Mul(v, v)", shapes, feeds, {"i": "int64"})


GATHERS = {
    "rows": ("v = Gather(x, i)", (5, 3), np.array([[1, 1], [-1, 0]])),
    "elements": ("v = GatherElements<axis = 1>(x, i)", (2, 4), np.array([[0, 0, 3], [1, -2, 1]])),
    "tuples": ("v = GatherND(x, i)", (3, 4), np.array([[0, 1], [2, 3], [0, 1]])),
}


@pytest.mark.parametrize("name", GATHERS)
def test_indices_from_data(name):
    body, shape, at = GATHERS[name]
    feeds = {"x": np.random.default_rng(4).standard_normal(shape), "i": at}
    shapes = {"x": shape, "i": at.shape}
    check_gradients(f"{body} y = Mul(v, v)", shapes, feeds, {"i": "int64"})


def test_zeros_among_factors():
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 1.0], [2.0, 4.0, 5.0]])
    body = "a = Constant<value_ints = [1]>() y = ReduceProd<keepdims = 0>(x, a)"
    check_gradients(body, {"x": x.shape}, {"x": x})


def test_equal_extremes_share():
    session = gradient_model("y = ReduceMax<keepdims = 0>(x)", {"x": (4,)})
    _, found = session.run(None, {"x": np.array([1.0, 3.0, 3.0, 2.0])})
    np.testing.assert_array_equal(found, [0, 0.5, 0.5, 0])
    session = gradient_model("y = Relu(x)", {"x": (3,)})
    _, found = session.run(None, {"x": np.array([-1.0, 0.0, 1.0])})
    np.testing.assert_array_equal(found, [0, 0, 1])


def test_what_is_not_chosen_brings_no_infinity():
    session = gradient_model("y = Elu(x)", {"x": (2,)})
    _, found = session.run(None, {"x": np.array([800.0, -1.0])})
    np.testing.assert_allclose(found, [1, np.exp(-1)])


def test_sizes_that_only_a_run_knows():
    session = gradient_model("v = MatMul(x, z) y = Tanh(v)", {"x": ("n", 4), "z": (4, 5)})
    z = np.random.default_rng(5).standard_normal((4, 5))
    for rows in (1, 3, 9):
        x = np.random.default_rng(6).standard_normal((rows, 4))
        slope = 1 - np.tanh(x @ z) ** 2
        _, dx, dz = session.run(None, {"x": x, "z": z})
        assert_near(dx, slope @ z.T, "double: derivatives")
        assert_near(dz, x.T @ slope, "double: derivatives")


def test_the_second_derivative_at_another_place():
    session = session_of(
        f"""g (float[n] x, float[n] other) => (float[n] first, float[n] second)
        {{ q = Mul(x, x) y = Mul(q, x)
           first = {TRAINING}.Gradient<xs = ["x"], y = "y">(other)
           d = {TRAINING}.Gradient<xs = ["x"], y = "y">(x)
           second = {TRAINING}.Gradient<xs = ["x"], y = "d">(x) }}"""
    )
    x, other = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    first, second = session.run(None, {"x": x, "other": other})
    np.testing.assert_allclose(first, 3 * other**2)
    np.testing.assert_allclose(second, 6 * x)


def test_a_value_on_the_way_is_independent_if_it_is_named():
    session = session_of(
        f"""g (float[n] x) => (float[n] dh, float[n] dx)
        {{ h = Exp(x) y = Mul(h, x)
           dh, dx = {TRAINING}.Gradient<xs = ["h", "x"], y = "y">(h, x) }}"""
    )
    x = np.array([0.5, 2], np.float32)
    dh, dx = session.run(None, {"x": x})
    np.testing.assert_allclose(dh, x)
    assert_near(dx, np.exp(x), "float: one operation")


X = np.array([0.5, 2, 3], np.float32)
LOOP = (
    "d = Loop(k, , x) <body = b (int64 i, bool c, float[n] s) => (bool on, float[n] d1)"
    " {{ on = Identity(c) {} }}>"
)
IF = (
    "d = If(k) <then_branch = t () => (float[n] a) {{ {} }},"
    " else_branch = e () => (float[n] b) {{ b = Neg(x) }}>"
)
#: What is in a graph of inputs x and k, k, and the result d. A Gradient in a graph of its own
#: differentiates what lies outside, too.
PLACES = {
    "a z on the way": (
        "z = Exp(x) y = Mul(x, z) d = {T}.Gradient<xs = ['x'], zs = ['z'], y = 'y'>(x, k)",
        X + 7, X + 7,
    ),
    "an initializer": ("y = Mul(x, w) d = {T}.Gradient<xs = ['w'], y = 'y'>(w)", X, X),
    "an initializer at another value": (
        "q = Mul(w, w) y = Mul(x, q) d = {T}.Gradient<xs = ['w'], zs = ['x'], y = 'y'>(k, x)",
        X + 1, 2 * X * (X + 1),
    ),
    "one of two equal initializers": (
        "y = Mul(w, u) d = {T}.Gradient<xs = ['w'], y = 'y'>(x)", X, np.array([1, 2, 3])
    ),
    "a constant of one element": (
        "c = Constant<value = float[1] {{2}}>() q = Mul(c, c) y = Mul(x, q)"
        " v = {T}.Gradient<xs = ['c'], y = 'y'>(c) d = Expand(v, n)",
        X, np.full(3, 4 * X.sum()),
    ),
    "in a branch": (
        "y = Exp(x) " + IF.format("a = {T}.Gradient<xs = ['x'], y = 'y'>(x)"),
        np.array(True), np.exp(X),
    ),
    "in a branch, by what is outside of what is inside": (
        "h = Exp(x) " + IF.format("y = Mul(h, x) a = {T}.Gradient<xs = ['x'], y = 'y'>(x)"),
        np.array(True), np.exp(X) * (1 + X),
    ),
    "in a loop": (
        LOOP.format("y = Mul(s, s) q = {T}.Gradient<xs = ['s'], y = 'y'>(s) d1 = Add(q, x)"),
        np.array(2), (X * 2 + X) * 2 + X,
    ),
    "in a loop, of what is outside": (
        "h = Mul(x, x) y = Mul(h, x) "
        + LOOP.format("d1 = {T}.Gradient<xs = ['x'], y = 'y'>(s)"),
        np.array(2), 3 * (3 * X**2) ** 2,
    ),
    "in a function": ("d = own.slope(x)", X, 2 * X),
    "in a function, twice": ("h = own.slope(x) d = own.slope(h)", X, 4 * X),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_places_of_what_is_named(place):
    body, k, expected = PLACES[place]
    kind = {"b": "bool", "i": "int64"}.get(k.dtype.kind, "float[n]")
    body = body.replace("{T}", TRAINING).replace("'", '"').replace("{{", "{").replace("}}", "}")
    function = f"""<domain: "own", opset_import: ["": 18, "{TRAINING}": 1]>
        slope (a) => (b) {{ q = Mul(a, a) b = {TRAINING}.Gradient<xs = ["a"], y = "q">(a) }}"""
    head = HEAD.replace("]", ', "own" : 1]')
    model = onnx.parser.parse_model(
        f"{head} g (float[n] x, {kind} k) => (float[n] d) <float[3] w = {{1, 2, 3}},"
        f" float[3] u = {{1, 2, 3}}, int64[1] n = {{3}}> {{ {body} }} {function}"
    )
    (found,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": X, "k": k})
    assert_near(found, expected, "float: functions")


def test_half_floats():
    session = session_of(
        f"""g (float16[2, 3] x, float16[3, 2] w) => (float16[2, 3] dx, float16[3, 2] dw)
        {{ v = MatMul(x, w) y = Softmax(v) q = Mul(y, y)
           dx, dw = {TRAINING}.Gradient<xs = ["x", "w"], y = "q">(x, w) }}"""
    )
    rng = np.random.default_rng(8)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((2, 3), (3, 2)))
    dx, dw = session.run(None, {"x": x, "w": w})
    e = np.exp(x.astype(float) @ w.astype(float))
    p = e / e.sum(1, keepdims=True)
    dv = p * (2 * p - (2 * p * p).sum(1, keepdims=True))
    assert_near(dx.astype(float), dv @ w.T.astype(float), "half: differences")
    assert_near(dw.astype(float), x.T.astype(float) @ dv, "half: differences")


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ('dx = {T}.Gradient<xs = ["x"], y = "nowhere">(x)', InvalidGraph, "'nowhere'"),
        (
            'dx = {T}.Gradient<xs = ["x"], zs = ["y"], y = "y">(x)',
            InvalidGraph,
            "one input for each",
        ),
        ('i = Cast<to = 7>(x) dx = {T}.Gradient<xs = ["x"], y = "i">(x)', InvalidGraph, "int64"),
        (
            'i = Cast<to = 7>(x) s = ScatterElements<reduction = "max">(x, i, x)'
            ' dx = {T}.Gradient<xs = ["x"], y = "s">(x)',
            NotImplemented,
            "scatter_elements computes with the reduction max",
        ),
        (
            'dx = {T}.Gradient<xs = ["x"], zs = ["x"], y = "y">(x, c)',
            NotImplemented,
            "the same tensor",
        ),
        (
            "t = Constant<value = bool {1}>() v = If(t) <then_branch = a () => (float[3] h)"
            " { h = Exp(x) }, else_branch = b () => (float[3] k) { k = Neg(x) }>"
            ' dx = {T}.Gradient<xs = ["h"], y = "y">(x)',
            InvalidGraph,
            "'h', which does not exist here",
        ),
    ],
)
def test_refusals(text, error, match):
    whole = (
        "g (float[3] x) => (float[3] y, float[3] dx) "
        "{ c = Constant<value = float[3] {1, 2, 3}>() y = Mul(x, c) "
        + text.replace("{T}", TRAINING)
        + " }"
    )
    with pytest.raises(error, match=match):
        session_of(whole)


def floats(*shape):
    return np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape).astype(np.float32)


def optimiser(op_type, inputs, attributes, expected, count=3):
    """Compare a step."""
    wanted = [np.asarray(e, np.float32) for e in expected]
    given = [np.float32(0.1), np.int64(count), *inputs]
    check_op(
        op_type, given, attributes, 18, domain=TRAINING, outputs=len(wanted), expected=wanted,
        symbolic=False,
    )  # fmt: skip


TENSORS = [(3,), (2, 2)]


def test_adagrad():
    xs, gs, hs = ([floats(*s) * scale for s in TENSORS] for scale in (1, 2, 0.5))
    facts = {"decay_factor": 0.2, "epsilon": 1e-3, "norm_coefficient": 0.5}
    new, kept = [], []
    for x, g, h in zip(xs, gs, hs, strict=True):
        whole = x * 0.5 + g
        kept.append(h + whole**2)
        new.append(x - 0.1 / 1.6 * whole / (np.sqrt(kept[-1]) + 1e-3))
    optimiser("Adagrad", [*xs, *gs, *hs], facts, new + kept)


@pytest.mark.parametrize("count", [0, 3])
def test_adam(count):
    xs, gs, vs, hs = ([floats(*s) * scale for s in TENSORS] for scale in (1, 2, 0.5, 3))
    facts = {"alpha": 0.8, "beta": 0.9, "epsilon": 1e-3, "norm_coefficient": 0.5,
             "norm_coefficient_post": 0.25}  # fmt: skip
    new, means, squares = [], [], []
    rate = 0.1 * np.sqrt(1 - 0.9**count) / (1 - 0.8**count) if count else 0.1
    for x, g, v, h in zip(xs, gs, vs, hs, strict=True):
        whole = x * 0.5 + g
        means.append(0.8 * v + 0.2 * whole)
        squares.append(0.9 * h + 0.1 * whole**2)
        new.append(0.75 * (x - rate * means[-1] / (np.sqrt(squares[-1]) + 1e-3)))
    optimiser("Adam", [*xs, *gs, *vs, *hs], facts, new + means + squares, count)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("count", [0, 3])
def test_momentum(mode, count):
    xs, gs, vs = ([floats(*s) * scale for s in TENSORS] for scale in (1, 2, 0.5))
    facts = {"alpha": 0.8, "beta": 0.7, "norm_coefficient": 0.5, "mode": mode}
    new, kept = [], []
    for x, g, v in zip(xs, gs, vs, strict=True):
        whole = x * 0.5 + g
        kept.append(0.8 * v + (0.7 if count else 1) * whole)
        new.append(x - 0.1 * (kept[-1] if mode == "standard" else whole + 0.8 * kept[-1]))
    optimiser("Momentum", [*xs, *gs, *vs], facts, new + kept, count)
