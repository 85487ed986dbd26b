"""Random operators: distributions, seeds, and that nothing is drawn twice."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base.errors import InvalidGraph
from sardonyx.host import random as host_random
from tests.support.tolerances import assert_near

#: A deviation that a right generator shows once in about ten million tests.
SIGMAS = 5.3
COUNT = 40_000


def session_of(nodes, inputs=(), outputs=("y",), opset=22, options=None):
    declared = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", declared, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def drawn(op_type, attributes, feed=None, outputs=1, opset=22):
    """What a node without seed, or with one, gives in one run."""
    names = [f"y{k}" for k in range(outputs)]
    inputs, feeds, given = [], {}, []
    for k, x in enumerate([] if feed is None else feed):
        given.append(f"x{k}")
        inputs.append((f"x{k}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
        feeds[f"x{k}"] = x
    node = helper.make_node(op_type, given, names, name="draw", **attributes)
    return session_of([node], inputs, names, opset).run(None, feeds)


def distance(sample, distribution):
    """The largest distance between the distributions, times the root of the count (Kolmogorov)."""
    ordered = np.sort(sample.astype(np.float64).reshape(-1))
    count = len(ordered)
    expected = distribution(ordered)
    steps = np.arange(count + 1) / count
    gap = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    return gap * math.sqrt(count)


def normal(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize(
    ("op_type", "attributes", "distribution", "mean", "deviation"),
    [
        ("RandomUniform", {"low": -2.0, "high": 6.0}, lambda x: (x + 2) / 8, 2, 8 / math.sqrt(12)),
        ("RandomNormal", {"mean": 1.5, "scale": 3.0}, lambda x: normal((x - 1.5) / 3), 1.5, 3),
    ],
)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_distribution(op_type, attributes, distribution, mean, deviation, dtype):
    shape = [COUNT // 100, 100]
    (y,) = drawn(op_type, {**attributes, "shape": shape, "dtype": dtype, "seed": 7.0})
    assert y.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    assert y.shape == tuple(shape)
    assert len(np.unique(y)) > COUNT * 0.99
    assert abs(y.mean(dtype=np.float64) - mean) < SIGMAS * deviation / math.sqrt(COUNT)
    assert abs(y.var(dtype=np.float64) / deviation**2 - 1) < SIGMAS * math.sqrt(2 / COUNT)
    assert distance(y, distribution) < 2.8  # Kolmogorov: more has a chance of 3e-7
    # Neighbours in memory, lanes of a vector, rows and columns: no two of them go together.
    z = (y.astype(np.float64).reshape(-1) - mean) / deviation
    for lag in (1, 2, 3, 4, 5, 7, 8, 16, 32, 100, 128, 4096):
        correlation = np.mean(z[:-lag] * z[lag:])
        squares = np.corrcoef(z[:-lag] ** 2, z[lag:] ** 2)[0, 1]
        assert abs(correlation) < SIGMAS / math.sqrt(COUNT - lag)
        assert abs(squares) < SIGMAS / math.sqrt(COUNT - lag)


def test_bits_are_even():
    (y,) = drawn("RandomUniform", {"shape": [COUNT], "seed": 3.0})
    bits = (y * 2**24).astype(np.uint32)[:, None] >> np.arange(24) & 1
    assert np.all(np.abs(bits.mean(0) - 0.5) < SIGMAS * 0.5 / math.sqrt(COUNT))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_bounds(dtype):
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    facts = {"shape": [COUNT], "dtype": number, "low": 1.0, "high": 2.0}
    (y,) = drawn("RandomUniform", facts)
    assert y.dtype == dtype
    wide = y.astype(np.float64)
    assert wide.min() >= 1
    assert wide.max() < 2
    assert abs(wide.mean() - 1.5) < 0.02
    (y,) = drawn("RandomUniform", {**facts, "low": 2.0})
    assert np.all(y == dtype(2))


def test_tails_reach_far():
    (y,) = drawn("RandomNormal", {"shape": [1_500_000], "seed": 1.0})
    for limit in (3.0, 4.0):
        chance = math.erfc(limit / math.sqrt(2))
        expected = chance * y.size
        assert abs(np.sum(np.abs(y) > limit) - expected) < SIGMAS * math.sqrt(expected)


@pytest.mark.parametrize("op_type", ["RandomUniformLike", "RandomNormalLike"])
def test_like(op_type):
    (y,) = drawn(op_type, {}, [np.zeros((3, 5), np.float16)])
    assert (y.shape, y.dtype) == ((3, 5), np.float16)
    (y,) = drawn(op_type, {"dtype": TensorProto.DOUBLE}, [np.zeros((2, 4), np.int32)])
    assert (y.shape, y.dtype) == ((2, 4), np.float64)
    with pytest.raises(InvalidGraph, match="cannot be drawn"):
        drawn(op_type, {}, [np.zeros((3, 5), np.int32)])


@pytest.mark.parametrize("dtype", [None, TensorProto.INT64, TensorProto.BOOL])
def test_bernoulli(dtype):
    chances = np.linspace(0, 1, 5, dtype=np.float64)[:, None].repeat(COUNT, 1)
    (y,) = drawn("Bernoulli", {} if dtype is None else {"dtype": dtype}, [chances])
    assert y.dtype == (np.float64 if dtype is None else helper.tensor_dtype_to_np_dtype(dtype))
    rows = y.astype(np.float64).mean(1)
    bound = SIGMAS * np.sqrt(chances[:, 0] * (1 - chances[:, 0]) / COUNT)
    assert np.all(np.abs(rows - chances[:, 0]) <= bound)


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_multinomial(dtype):
    chances = np.array([[0.1, 0.0, 0.6, 0.3], [0.0, 0.25, 0.25, 0.5]])
    with np.errstate(divide="ignore"):
        logarithms = (np.log(chances) + np.array([[5.0], [-3.0]])).astype(np.float32)
    facts = {"sample_size": COUNT, "dtype": dtype}
    (y,) = drawn("Multinomial", facts, [logarithms])
    assert y.shape == (2, COUNT)
    assert y.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    for row, expected in zip(y, chances, strict=True):
        found = np.bincount(row, minlength=4) / COUNT
        bound = SIGMAS * np.sqrt(expected * (1 - expected) / COUNT)
        assert np.all(np.abs(found - expected) <= bound)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.9])
def test_dropout(ratio):
    x = np.linspace(1, 2, COUNT, dtype=np.float32)
    given = [x, np.float32(ratio).reshape(()), np.array(True)]
    y, mask = drawn("Dropout", {}, given, outputs=2)
    np.testing.assert_array_equal(y != 0, mask)
    assert_near(y[mask], x[mask] / np.float32(1 - ratio), "float: one operation")
    assert abs(mask.mean() - (1 - ratio)) <= SIGMAS * math.sqrt(ratio * (1 - ratio) / COUNT)
    given[2] = np.array(False)
    y, mask = drawn("Dropout", {}, given, outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()


def node(name, seed=None, op_type="RandomUniform", shape=(64,)):
    facts = {} if seed is None else {"seed": seed}
    return helper.make_node(op_type, [], [name], name=f"node_{name}", shape=list(shape), **facts)


def test_no_two_draws_are_alike():
    nodes = [node("a"), node("b"), node("c", 5.0), node("d", 5.0), node("e", 6.0)]
    session = session_of(nodes, outputs="abcde")
    first, second = session.run(None, {}), session.run(None, {})
    everything = np.concatenate([*first, *second])
    # 640 of 2^24 numbers: a few pairs may be alike, two draws may not.
    assert len(np.unique(everything)) > 630


def test_a_seed_repeats_from_session_to_session_and_advances_from_run_to_run():
    def runs():
        session = session_of([node("y", 5.0)])
        return [session.run(None, {})[0] for _ in range(3)]

    first, again = runs(), runs()
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.concatenate(first))) > 180
    without = [session_of([node("y")]).run(None, {})[0] for _ in range(2)]
    assert not np.any(without[0] == without[1])


@pytest.fixture
def unseeded():
    yield
    host_random._current = None


def test_set_seed(unseeded):
    session = session_of([node("y"), node("z", 5.0)], outputs="yz")
    sardonyx.set_seed(11)
    first = [session.run(None, {}) for _ in range(2)]
    other = session_of([node("y"), node("z", 5.0)], outputs="yz")
    sardonyx.set_seed(11)
    second = [session.run(None, {}) for _ in range(2)]
    new = [other.run(None, {}) for _ in range(2)]
    for a, b, c in zip(first, second, new, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[0], c[0])
        assert not np.any(a[1] == b[1])  # the node's own seed goes on
        np.testing.assert_array_equal(a[1], c[1])
    sardonyx.set_seed(12)
    assert not np.any(session.run(None, {})[0] == first[0][0])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_nothing(threads):
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    session = session_of([node("y", 5.0, "RandomNormal", (300, 301))], options=options)
    alone = session_of([node("y", 5.0, "RandomNormal", (300, 301))])
    np.testing.assert_array_equal(session.run(None, {})[0], alone.run(None, {})[0])


LOOP = """<ir_version: 10, opset_import: ["" : 22]>
g (int64 n, float[4] x) => (float[m, 4] inside, float[k, 4] outside)
{ once = RandomUniformLike(x)
  yes = Constant<value_int = 1>()
  go = Cast<to = 9>(yes)
  inside, outside = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[4] v, float[4] w)
    { d = Identity(c)  v = RandomUniformLike(x)  zero = Sub(x, x)  w = Add(once, zero) }> }"""


def test_every_iteration_draws_anew_and_what_is_outside_stays():
    session = sardonyx.InferenceSession(onnx.parser.parse_model(LOOP).SerializeToString())
    feeds = {"n": np.array(20), "x": np.ones(4, np.float32)}
    inside, outside = session.run(None, feeds)
    assert len(np.unique(inside)) == 80
    assert np.all(outside == outside[0])
    assert not np.any(inside == outside)


def test_a_value_read_twice_is_drawn_once():
    nodes = [
        node("a"),
        helper.make_node("Sub", ["a", "a"], ["y"]),
        helper.make_node("ReduceMax", ["a"], ["top"]),
        helper.make_node("Sub", ["a", "top"], ["z"]),
    ]
    y, z = session_of(nodes, outputs="yz").run(None, {})
    assert np.all(y == 0)
    assert z.max() == 0


def test_a_random_matrix_is_drawn_in_every_run():
    nodes = [node("w", None, "RandomNormal", (8, 8)), helper.make_node("MatMul", ["x", "w"], ["y"])]
    session = session_of(nodes, [("x", TensorProto.FLOAT, ["n", 8])], ["y", "w"])
    x = np.eye(8, dtype=np.float32)
    (first, w), (second, v) = session.run(None, {"x": x}), session.run(None, {"x": x})
    np.testing.assert_allclose(first, w)
    np.testing.assert_allclose(second, v)
    assert not np.any(first == second)
