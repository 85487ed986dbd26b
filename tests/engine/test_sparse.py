"""Sparse tensors: as weights, as feeds and results, and in products."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import SparseTensor
from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, RuntimeException

SHAPE = (3, 4)
TYPES = [d for d in dtypes.ALL if d.kind != "s"]


def sparse(values, places, name, shape=SHAPE):
    proto = onnx.SparseTensorProto(dims=shape)
    proto.values.CopyFrom(numpy_helper.from_array(values, name))
    proto.indices.CopyFrom(numpy_helper.from_array(np.asarray(places), f"{name}_places"))
    return proto


def model_of(nodes, inputs=(), sparse_weights=(), outputs=("y",)):
    graph = helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs],
        sparse_initializer=sparse_weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 28), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=14)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("places", [[1, 6, 11], [[0, 1], [1, 2], [2, 3]]], ids=["flat", "pairs"])
def test_weights_and_constants_of_every_type(dtype, places):
    values = np.array([1, 1, 1]).astype(dtype.numpy)
    dense = np.zeros(12, np.int64)
    dense[[1, 6, 11]] = 1
    proto = sparse(values, places, "w")
    nodes = [
        helper.make_node("Identity", ["w"], ["y"]),
        helper.make_node("Constant", [], ["z"], sparse_value=proto),
    ]
    model = model_of(nodes, sparse_weights=[proto], outputs=("y", "z"))
    for found in sardonyx.InferenceSession(model.SerializeToString()).run(None, {}):
        assert found.dtype == dtype.numpy
        expected = dense.reshape(SHAPE).astype(np.complex128)
        if dtype is dtypes.FLOAT8E8M0:  # it has no zero; this is code 0
            expected = np.where(expected == 1, 1, 2.0**-127)
        np.testing.assert_array_equal(found.astype(np.complex128), expected)


def test_strings():
    proto = sparse(np.array(["a", "b"], object), [0, 11], "w")
    node = helper.make_node("Constant", [], ["y"], sparse_value=proto)
    (found,) = sardonyx.InferenceSession(model_of([node]).SerializeToString()).run(None, {})
    assert found.ravel().tolist() == ["a", *[""] * 10, "b"]


# -- products of sparse tensors ---------------------------------------------------------------


CPU = sardonyx.OrtDevice.make("cpu", 0)
NUMBERS = [np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64]


def some_of(shape, dtype, share=0.3, seed=0):
    """A matrix of small whole numbers, most of which are 0."""
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(dtype).kind == "u" else -4
    return (rng.integers(low, 5, shape) * (rng.random(shape) < share)).astype(dtype)


def flat(dense):
    places = np.flatnonzero(dense)
    return SparseTensor.sparse_coo_from_numpy(dense.shape, dense.ravel()[places], places, CPU)


def pairs(dense):
    at = np.ascontiguousarray(np.argwhere(dense))
    return SparseTensor.sparse_coo_from_numpy(dense.shape, dense[tuple(at.T)], at, CPU)


def shuffled(dense):
    at = np.random.default_rng(1).permutation(pairs(dense).as_coo_view().indices())
    return SparseTensor.sparse_coo_from_numpy(dense.shape, dense[tuple(at.T)], at, CPU)


def rows(dense):
    row, column = map(np.ascontiguousarray, np.nonzero(dense))
    outer = np.searchsorted(row, np.arange(len(dense) + 1))
    return SparseTensor.sparse_csr_from_numpy(dense.shape, dense[row, column], column, outer, CPU)


def all_rows(dense):
    """Zeros are given, too."""
    height, width = dense.shape
    inner, outer = np.tile(np.arange(width), height), np.arange(height + 1) * width
    return SparseTensor.sparse_csr_from_numpy(dense.shape, dense.ravel(), inner, outer, CPU)


FORMATS = [flat, pairs, shuffled, rows, all_rows]


def product_session(dtype=np.float32, shape=("m", "k"), dense=("k2", "n"), **attributes):
    node = helper.make_node(
        "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_sparse_tensor_value_info("a", kind, shape),
        helper.make_tensor_value_info("b", kind, dense),
    ]
    return sardonyx.InferenceSession(model_of([node], inputs).SerializeToString())


def expected_of(a, b, attributes):
    left = a.T if attributes.get("transA") else a
    right = b.T if attributes.get("transB") else b
    return (left @ right * attributes.get("alpha", 1)).astype(a.dtype)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    "attributes",
    [{}, {"alpha": 3.0}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1, "alpha": 2.0}],
    ids=str,
)
def test_products_of_every_format_at_many_sizes(dtype, attributes):
    session = product_session(dtype, **attributes)
    for m, k, n in ((3, 4, 5), (1, 1, 1), (40, 9, 70), (7, 30, 1), (0, 4, 3), (4, 0, 3), (4, 3, 0)):
        a = some_of((k, m) if attributes.get("transA") else (m, k), dtype)
        b = some_of((n, k) if attributes.get("transB") else (k, n), dtype, 1, 2)
        for made in FORMATS:
            (found,) = session.run(None, {"a": made(a), "b": b})
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected_of(a, b, attributes))


def test_wide_products_and_full_rows():
    session = product_session()
    a, b = some_of((19, 33), np.float32, 0.2), some_of((33, 1200), np.float32, 1, 3)
    a[5] = 2
    a[6:9] = 0
    np.testing.assert_array_equal(session.run(None, {"a": rows(a), "b": b})[0], a @ b)


def test_the_sparse_factor_is_never_made_dense():
    side = 1 << 40
    places = np.array([[5, side - 1], [7, 0]])
    a = SparseTensor.sparse_coo_from_numpy([9, side], np.float32([2, 3]), places, CPU)
    session = product_session(transB=1, dense=("n", "k2"))
    b = np.lib.stride_tricks.as_strided(np.float32([4]), (2, side), (0, 0))
    with pytest.raises(sardonyx.base.errors.OutOfMemory):  # the dense one is too large, itself
        session.run(None, {"a": a, "b": b})
    wide = SparseTensor.sparse_coo_from_numpy(
        [1 << 20, 1 << 20], np.float32([2, 3]), np.array([[5, (1 << 20) - 1], [7, 0]]), CPU
    )
    b = np.arange(1 << 20, dtype=np.float32)[:, None]
    (found,) = product_session().run(None, {"a": wide, "b": b})
    assert (found[5, 0], found[7, 0], np.count_nonzero(found)) == (2 * b[-1, 0], 0, 1)


@pytest.mark.parametrize("attributes", [{}, {"transA": 1}, {"transB": 1, "alpha": 2.0}], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_products_of_sparse_weights(dtype, attributes):
    a = some_of((6, 5), dtype)
    proto = sparse(a[np.nonzero(a)], np.flatnonzero(a), "a", a.shape)
    b = some_of((6, 7) if attributes.get("transA") else (5, 7), dtype, 1)
    b = np.ascontiguousarray(b.T) if attributes.get("transB") else b
    node = helper.make_node(
        "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("b", kind, ["m", "n"])]
    session = sardonyx.InferenceSession(model_of([node], inputs, [proto]).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"b": b})[0], expected_of(a, b, attributes))


@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_sparse_weight_that_may_be_fed_has_the_type_that_is_declared(is_sparse):
    a, other = some_of((6, 5), np.float32), some_of((6, 5), np.float32, seed=4)
    b = some_of((5, 7), np.float32, 1)
    proto = sparse(a[np.nonzero(a)], np.flatnonzero(a), "a", a.shape)
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft")
    declare = helper.make_sparse_tensor_value_info if is_sparse else helper.make_tensor_value_info
    inputs = [
        helper.make_tensor_value_info("b", TensorProto.FLOAT, ["k", "n"]),
        declare("a", TensorProto.FLOAT, [6, 5]),
    ]
    session = sardonyx.InferenceSession(model_of([node], inputs, [proto]).SerializeToString())
    (info,) = session.get_overridable_initializers()
    word = "sparse_tensor" if is_sparse else "tensor"
    assert (info.name, info.type, info.shape) == ("a", f"{word}(float)", [6, 5])
    np.testing.assert_array_equal(session.run(None, {"b": b})[0], a @ b)
    right, wrong = (pairs(other), other) if is_sparse else (other, pairs(other))
    np.testing.assert_array_equal(session.run(None, {"b": b, "a": right})[0], other @ b)
    with pytest.raises(sardonyx.base.errors.InvalidArgument, match="input a"):
        session.run(None, {"b": b, "a": wrong})


def test_a_large_sparse_weight_is_never_made_dense():
    side = 1 << 20
    proto = sparse(np.float32([2, 3]), [[5, side - 1], [7, 1]], "a", (side, side))
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft")
    inputs = [helper.make_tensor_value_info("b", TensorProto.FLOAT, [side, 1])]
    session = sardonyx.InferenceSession(model_of([node], inputs, [proto]).SerializeToString())
    b = np.arange(side, dtype=np.float32)[:, None]
    (found,) = session.run(None, {"b": b})
    assert (found[5, 0], found[7, 0], np.count_nonzero(found)) == (2 * b[-1, 0], 3, 2)


def test_values_and_bindings():
    session = product_session()
    a, b = some_of((3, 4), np.float32), some_of((4, 5), np.float32, 1)
    value = sardonyx.OrtValue.ort_value_from_sparse_tensor(pairs(a))
    dense = sardonyx.OrtValue.ortvalue_from_numpy(b)
    (found,) = session.run_with_ort_values(None, {"a": value, "b": dense})
    np.testing.assert_array_equal(found.numpy(), a @ b)
    np.testing.assert_array_equal(session.run(None, {"a": value, "b": b})[0], a @ b)
    binding = session.io_binding()
    binding.bind_ortvalue_input("a", value)
    binding.bind_cpu_input("b", b)
    binding.bind_output("y")
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], a @ b)


def test_products_inside_a_branch():
    then = helper.make_graph(
        [helper.make_node("SparseToDenseMatMul", ["a", "b"], ["t"], domain="com.microsoft")],
        "then", [], [onnx.ValueInfoProto(name="t")],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["e"])], "else", [], [onnx.ValueInfoProto(name="e")]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, ["m", "k"]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, ["k", "n"]),
    ]
    session = sardonyx.InferenceSession(model_of([node], inputs).SerializeToString())
    a, b = some_of((4, 4), np.float32), some_of((4, 5), np.float32, 1)
    for chosen, expected in ((True, a @ b), (False, -b)):
        (found,) = session.run(None, {"c": np.array(chosen), "a": rows(a), "b": b})
        np.testing.assert_array_equal(found, expected)


def test_indices_that_change_after_the_tensor_was_made_are_checked_again():
    session = product_session()
    b = some_of((4, 5), np.float32, 1)
    at, values = np.array([[0, 1], [2, 3]]), np.float32([1, 2])
    changed = SparseTensor.sparse_coo_from_numpy([3, 4], values, at, CPU)
    at[1, 1] = 1 << 40
    inner, outer = np.array([1, 3]), np.array([0, 1, 1, 2])
    first = SparseTensor.sparse_csr_from_numpy([3, 4], values, inner, outer, CPU)
    second = SparseTensor.sparse_csr_from_numpy([3, 4], values, inner.copy(), outer, CPU)
    inner[0] = -9
    with pytest.raises(RuntimeException, match="outside"):
        session.run(None, {"a": changed, "b": b})
    with pytest.raises(RuntimeException, match="outside"):
        session.run(None, {"a": first, "b": b})
    outer[1] = 1 << 40
    with pytest.raises(RuntimeException, match="rise from 0"):
        session.run(None, {"a": second, "b": b})


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (np.ones((3, 4), np.float32), np.ones((4, 2)), "expected.*sparse_tensor.*ndarray"),
        (pairs(np.ones((3, 4))), np.ones((4, 2)), "expected.*float.*got sparse_tensor.double"),
        (pairs(np.ones((3, 4), np.float32)), np.ones((5, 2)), "columns of A and the rows of B"),
        (flat(np.ones(4, np.float32)), np.ones((4, 2)), "another shape than the model says"),
        (flat(np.ones((3, 4, 2), np.float32)), np.ones((4, 2)), "another shape than the model"),
    ],
)
def test_feeds_that_do_not_fit(a, b, text):
    with pytest.raises(sardonyx.base.errors.SardonyxError, match=f"(?i){text}"):
        product_session().run(None, {"a": a, "b": b.astype(np.float32)})


@pytest.mark.parametrize(
    ("dtype", "alpha"), [(np.int64, 0.5), (np.uint32, -1.0), (np.int32, float("nan"))]
)
def test_a_factor_that_integers_do_not_have_is_refused(dtype, alpha):
    with pytest.raises(InvalidGraph, match=f"alpha is no number of its type {np.dtype(dtype)}"):
        product_session(dtype, alpha=alpha)


@pytest.mark.parametrize(
    ("shape", "dense", "text"),
    [((2, 3, 4), ("k2", "n"), "sparse tensor has the wrong rank"), (("m", "k"), (2, 3, 4), "B, ")],
)
def test_ranks_that_do_not_fit(shape, dense, text):
    with pytest.raises(InvalidGraph, match=f"SparseToDenseMatMul.*{text}"):
        product_session(shape=shape, dense=dense)


def test_declared_sizes_hold():
    session = product_session(shape=(3, "k"))
    (info, _) = session.get_inputs()
    assert (info.name, info.type, info.shape) == ("a", "sparse_tensor(float)", [3, "k"])
    a, b = some_of((3, 4), np.float32), some_of((4, 5), np.float32, 1)
    np.testing.assert_array_equal(session.run(None, {"a": pairs(a), "b": b})[0], a @ b)
    with pytest.raises(RuntimeException, match="another shape than the model says.*3, any"):
        session.run(None, {"a": pairs(a.T.copy()), "b": b})


@pytest.mark.parametrize("kind", ["Identity", "Add", "Transpose"])
def test_operators_that_take_dense_tensors_refuse_sparse_ones(kind):
    declared = helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    node = helper.make_node(kind, ["x"] * (2 if kind == "Add" else 1), ["y"])
    with pytest.raises(InvalidGraph, match=rf"{kind}.*sparse_tensor\(float\).*dense"):
        sardonyx.InferenceSession(model_of([node], [declared]).SerializeToString())


# -- results ----------------------------------------------------------------------------------


def outputs_of(nodes, name, kind, inputs=(), weights=()):
    """A session whose output is declared as sparse."""
    model = model_of(nodes, inputs, weights, ())
    model.graph.output.append(helper.make_sparse_tensor_value_info(name, kind, SHAPE))
    return sardonyx.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("dtype", [*NUMBERS, np.float16, np.bool_, "U1"])
@pytest.mark.parametrize("places", [[11, 1, 6], [[2, 3], [0, 1], [1, 2]]], ids=["flat", "pairs"])
def test_sparse_weights_and_constants_as_results(dtype, places):
    """As in onnxruntime: places in the flat tensor, ascending, and no zeros."""
    values = np.array([3, 1, 0]).astype(dtype)
    values = np.array(["3", "1", ""], object) if dtype == "U1" else values
    proto = sparse(values, places, "w")
    kind = proto.values.data_type
    constant = helper.make_node("Constant", [], ["w"], sparse_value=proto)
    for session in (
        outputs_of([], "w", kind, weights=[proto]),
        outputs_of([constant], "w", kind),
    ):
        (info,) = session.get_outputs()
        assert (info.name, info.shape) == ("w", [3, 4])
        (found,) = session.run(None, {})
        (value,) = session.run_with_ort_values(None, {})
        assert info.type == found.data_type() == value.data_type()
        for x in (found, value.as_sparse_tensor()):
            assert x.dense_shape() == [3, 4]
            assert x.values().tolist() == values[[1, 0]].tolist()
            assert x.values().dtype == values.dtype
            assert x.as_coo_view().indices().tolist() == [1, 11]


@pytest.mark.parametrize("make", FORMATS)
def test_a_feed_as_result(make):
    declared = helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    session = outputs_of([], "x", TensorProto.FLOAT, [declared])
    fed = make(some_of(SHAPE, np.float32))
    (found,) = session.run(["x"], {"x": fed})
    assert isinstance(found, SparseTensor)
    assert found.format() is fed.format()
    np.testing.assert_array_equal(found.values(), fed.values())


def test_strings_as_feed_and_result():
    declared = helper.make_sparse_tensor_value_info("x", TensorProto.STRING, SHAPE)
    session = outputs_of([], "x", TensorProto.STRING, [declared])
    texts = np.array(["a", "ö"])
    fed = SparseTensor.sparse_coo_from_numpy(SHAPE, texts, np.array([2, 1]), CPU)
    (found,) = session.run(None, {"x": fed})
    assert found.values().tolist() == ["a", "ö"]


def test_a_dense_result_is_not_declared_as_sparse():
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    node = helper.make_node("Neg", ["x"], ["y"])
    with pytest.raises(InvalidGraph, match=r"output y.*sparse_tensor\(float\).*tensor\(float\)"):
        outputs_of([node], "y", TensorProto.FLOAT, [declared])


def test_from_the_cache_too():
    """The second session reads types of feeds and results back from the disk."""
    a, b = some_of((3, 4), np.float32), some_of((4, 5), np.float32, 1)
    for _ in range(2):
        session = product_session(shape=(3, 4))
        np.testing.assert_array_equal(session.run(None, {"a": rows(a), "b": b})[0], a @ b)
        assert session.get_inputs()[0].type == "sparse_tensor(float)"


def test_equal_places_are_refused():
    proto = sparse(np.float32([1, 2]), [3, 3], "w")
    with pytest.raises(InvalidGraph, match="sparse tensor w.*same place"):
        sardonyx.InferenceSession(model_of([], (), [proto], ("w",)).SerializeToString())


def test_places_outside_are_refused():
    proto = sparse(np.float32([1]), [12], "w")
    node = helper.make_node("Constant", [], ["y"], sparse_value=proto)
    with pytest.raises(InvalidGraph, match="An index is outside"):
        sardonyx.InferenceSession(model_of([node]).SerializeToString())
