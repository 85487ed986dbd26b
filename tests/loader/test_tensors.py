import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.base import dtypes
from sardonyx.base.errors import Fail, InvalidGraph, NoSuchFile
from sardonyx.loader.load import load
from sardonyx.loader.writer import write


def model_with(tensor):
    """A model that gives out one initializer."""
    output = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
    graph = helper.make_graph([], "g", [], [output], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=13)


def constant_of(tensor, **options):
    return load(model_with(tensor), **options).value(tensor.name).constant


NUMBERS = [0, 1, -1, 3, -2, 1, 2]


def array_of(dtype):
    numbers = np.array(NUMBERS if dtype.kind != "u" else np.abs(NUMBERS))
    if dtype.bits == 2:
        numbers = np.clip(numbers, -2 if dtype.kind == "i" else 0, 1 if dtype.kind == "i" else 3)
    if dtype.kind == "c":
        numbers = numbers + 2j * numbers
    if dtype.kind == "s":
        return np.array([str(n) for n in numbers], object)
    if dtype is dtypes.FLOAT8E8M0:
        numbers = 2.0 ** np.abs(numbers)
    return numbers.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
@pytest.mark.parametrize("raw", [True, False])
def test_all_dtypes_as_onnx_writes_them_and_back(dtype, raw):
    expected = array_of(dtype)
    if raw or dtype.kind == "s":
        tensor = numpy_helper.from_array(expected, "t")
    elif dtype.bits in (2, 4):
        packed = numpy_helper.from_array(expected, "t")
        tensor = TensorProto(name="t", data_type=dtype.onnx_id, dims=packed.dims)
        tensor.int32_data.extend(packed.raw_data)
    elif dtype is dtypes.FLOAT8E8M0 or dtype.bits == 6:
        tensor = TensorProto(name="t", data_type=dtype.onnx_id, dims=[len(expected)])
        tensor.int32_data.extend(expected.view(np.uint8).tolist())
    else:
        tensor = helper.make_tensor("t", dtype.onnx_id, [len(expected)], expected.tolist())
    assert tensor.data_type == dtype.onnx_id
    graph = load(model_with(tensor))
    constant = graph.value("t").constant
    again = load(write(graph)).value("t").constant
    for found in (constant, again):
        values = found.array()
        assert (found.dtype, found.shape, values.dtype) == (dtype, (7,), dtype.numpy)
        assert values.tolist() == expected.tolist()
        assert not values.flags.writeable
        assert found.size_bytes == 7 * dtype.size_bytes
    assert again.digest() == constant.digest()


@pytest.mark.parametrize("dims", [[], [0], [2, 0, 3], [1, 1, 7], [7]])
def test_shapes(dims):
    expected = np.arange(np.prod(dims, dtype=int), dtype=np.float32).reshape(dims)
    values = constant_of(numpy_helper.from_array(expected, "t")).array()
    assert values.shape == tuple(dims)
    assert values.tolist() == expected.tolist()


def test_strings_that_are_not_text():
    tensor = TensorProto(name="t", data_type=TensorProto.STRING, dims=[2])
    tensor.string_data.extend([b"\xff", "\u00e9".encode()])
    assert constant_of(tensor).array().tolist() == [b"\xff", "\u00e9"]


def test_bool_bytes_are_made_zero_or_one():
    tensor = TensorProto(name="t", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x02\xff")
    assert constant_of(tensor).array().view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dims": [-1], "data_type": 1}, "negative size"),
        ({"dims": [2**40, 2**40], "data_type": 1}, "too many elements"),
        ({"dims": [2**40, 0, 2**40], "data_type": 1}, "too many elements"),
        ({"dims": [1] * 65, "data_type": 1}, "rank 65"),
        ({"dims": [2], "data_type": 99}, "no element type 99"),
        ({"dims": [2], "data_type": 0}, "no element type 0"),
        ({"dims": [2], "data_type": 1, "raw_data": bytes(7)}, "Expected 8 bytes, got 7"),
        ({"dims": [3], "data_type": 22, "raw_data": bytes(3)}, "Expected 2 bytes, got 3"),
        ({"dims": [2], "data_type": 1, "float_data": [1.0]}, "float_data.*2 numbers, got 1"),
        ({"dims": [2], "data_type": 7, "int64_data": [1, 2, 3]}, "2 numbers, got 3"),
        ({"dims": [2], "data_type": 7, "float_data": [1.0, 2.0]}, "2 numbers, got 0"),
        ({"dims": [1], "data_type": 14, "float_data": [1.0]}, "2 numbers, got 1"),
        ({"dims": [2], "data_type": 8, "string_data": [b"a"]}, "strings.*Expected 2, got 1"),
        ({"dims": [10**9], "data_type": 1}, "1000000000 numbers, got 0"),
    ],
)
def test_sizes_that_do_not_fit(fields, text):
    tensor = TensorProto(name="bad", **fields)
    with pytest.raises(InvalidGraph, match=f"tensor bad.*{text}"):
        constant_of(tensor)


def test_segments_are_refused():
    tensor = numpy_helper.from_array(np.zeros(2, np.float32), "bad")
    tensor.segment.begin = 0
    with pytest.raises(InvalidGraph, match="tensor bad.*segments"):
        constant_of(tensor)


def test_missing_data_when_allowed():
    constant = constant_of(TensorProto(name="t", data_type=1, dims=[3]), allow_missing_data=True)
    assert (constant.has_data, constant.size_bytes, repr(constant)) == (False, 12, "float[3]{...}")
    with pytest.raises(InvalidGraph, match="tensor t.*no data"):
        constant.array()


def sparse_model(indices, index_dims, dims=(2, 3)):
    values = helper.make_tensor("t", TensorProto.FLOAT, [2], [5.0, 6.0])
    places = helper.make_tensor("i", TensorProto.INT64, index_dims, indices)
    model = model_with(numpy_helper.from_array(np.zeros(1, np.float32), "t"))
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, dims))
    return model


@pytest.mark.parametrize(("indices", "dims"), [([1, 5], [2]), ([0, 1, 1, 2], [2, 2])])
def test_sparse_initializers_become_dense(indices, dims):
    constant = load(sparse_model(indices, dims)).value("t").constant
    assert constant.array().tolist() == [[0, 5, 0], [0, 0, 6]]


@pytest.mark.parametrize(
    ("indices", "index_dims", "dims", "text"),
    [
        ([0, 6], [2], (2, 3), "outside the shape"),
        ([-1, 0], [2], (2, 3), "outside the shape"),
        ([0, 0, 0, 3], [2, 2], (2, 3), "outside the shape"),
        ([0, 1, 2], [3], (2, 3), "shape of the indices"),
        ([5, 5], [2], (2, 3), "same place"),
        ([0, 1, 0, 1], [2, 2], (2, 3), "same place"),
    ],
)
def test_bad_sparse_initializers(indices, index_dims, dims, text):
    with pytest.raises(InvalidGraph, match=f"sparse tensor t.*{text}"):
        load(sparse_model(indices, index_dims, dims))


def test_a_large_sparse_initializer_is_refused_where_it_is_made_dense():
    constant = load(sparse_model([7, 1 << 39], [2], (2**20, 2**20))).value("t").constant
    values, places = constant.parts()
    assert (values.tolist(), places.tolist()) == ([5, 6], [7, 1 << 39])
    with pytest.raises(InvalidGraph, match=r"sparse tensor t.*too large when dense"):
        constant.array()


# Data in files


@pytest.fixture
def big(tmp_path):
    """A model file with one tensor at an odd offset, and the tensor's values."""
    values = np.arange(50_000, dtype=np.float32)
    path = tmp_path / "m.onnx"
    model = model_with(numpy_helper.from_array(values, "t"))
    model.producer_name = "odd"
    onnx.save(model, path)
    return path, values


def test_big_data_stays_in_the_file_until_detached(big):
    path, values = big
    graph = load(path)
    constant = graph.value("t").constant
    assert constant.is_borrowed
    first, second = constant.array(), constant.array()
    assert not np.shares_memory(first, second)
    assert (first == values).all()
    assert (second == values).all()
    digest = constant.digest()
    del first, second
    graph.detach()
    assert not constant.is_borrowed
    path.write_bytes(b"")
    assert (constant.array() == values).all()
    assert load(write(graph)).value("t").constant.digest() == digest


@pytest.mark.parametrize("use", ["array", "detach"])
@pytest.mark.parametrize("change", ["truncate", "overwrite"])
def test_a_file_that_changes_is_noticed(big, use, change):
    path, _ = big
    constant = load(path).value("t").constant
    if change == "truncate":
        os.truncate(path, 100)
    else:
        with open(path, "r+b") as file:
            file.write(b"x" * 100)
        os.utime(path, ns=(1, 1))
    with pytest.raises(Fail, match="The file was (changed|truncated)"):
        getattr(constant, use)()


def test_a_model_may_be_written_over_its_own_file(big):
    path, values = big
    graph = load(path)
    write(graph, path)
    assert (load(path).value("t").constant.array() == values).all()
    assert (graph.value("t").constant.array() == values).all()


def test_memory_of_others_is_copied_by_detach():
    data = bytearray(model_with(numpy_helper.from_array(np.ones(2000), "t")).SerializeToString())
    graph = load(data)
    graph.detach()
    data[:] = bytes(len(data))
    assert graph.value("t").constant.array().sum() == 2000


def external(location="w.bin", dims=(4,), data_type=1, **entries):
    tensor = TensorProto(name="t", data_type=data_type, dims=dims, data_location=1)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model_with(tensor)


def save(model, folder):
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("entries", [{}, {"offset": 3}, {"offset": 3, "length": 16}])
@pytest.mark.parametrize("location", ["w.bin", "sub/w.bin", "./w.bin", "link.bin"])
def test_external_data(tmp_path, location, entries):
    values = np.array([1, 2, 3, 4], np.float32)
    data = bytes(entries.get("offset", 0)) + values.tobytes() + b"rest"
    (tmp_path / "sub").mkdir()
    for name in ("w.bin", "sub/w.bin"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    constant = load(save(external(location, **entries), tmp_path)).value("t").constant
    assert constant.array().tolist() == [1, 2, 3, 4]
    assert constant.is_borrowed


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (external("../w.bin"), "location.*not allowed"),
        (external("sub/../../w.bin"), "location.*not allowed"),
        (external("sub\\..\\w.bin"), "location.*not allowed"),
        (external("/etc/passwd"), "location.*not allowed"),
        (external("C:\\w.bin"), "location.*not allowed"),
        (external("c:w.bin"), "location.*not allowed"),
        (external(""), "location.*not allowed"),
        (external("w\0.bin"), "location.*not allowed"),
        (external("."), "not a regular file"),
        (external("x" * 5000), "cannot be read"),
        (external(offset=-1), "offset.*not a number"),
        (external(offset="1e3"), "offset.*not a number"),
        (external(length="\u0661"), "length.*not a number"),
        (external(offset=1), "after the end.*1 . 16 bytes, got 16"),
        (external(offset=10**18), "after the end"),
        (external(dims=(5,)), "after the end"),
        (external(dims=(2**60,)), "after the end"),
        (external(length=15), "Expected 16 bytes, got 15"),
        (external(data_type=8), "Strings cannot"),
    ],
)
def test_external_data_that_is_refused(tmp_path, model, text):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(InvalidGraph, match=f"tensor t.*{text}"):
        load(save(model, tmp_path))


def test_external_data_that_is_missing(tmp_path):
    with pytest.raises(NoSuchFile, match=r"w\.bin.*no such file"):
        load(save(external(), tmp_path))
    with pytest.raises(InvalidGraph, match="given without a path"):
        load(external())


def test_external_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(InvalidGraph, match="not a regular file"):
        load(save(external(), tmp_path))
