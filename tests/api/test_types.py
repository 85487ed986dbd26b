"""Every element type in and out of a session, by each of the ways there are."""

import numpy as np
import pytest
from onnx import helper

import sardonyx
from sardonyx.base import dtypes, errors

NUMERIC = tuple(d for d in dtypes.ALL if d.kind != "s")


def session(dtype):
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
        "g",
        [helper.make_tensor_value_info("x", dtype.onnx_id, ["a", "b"])],
        [helper.make_tensor_value_info("y", dtype.onnx_id, ["b", "a"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    return sardonyx.InferenceSession(model.SerializeToString())


def numbers(dtype):
    return np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype.numpy)


def same(got, want):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("dtype", NUMERIC, ids=repr)
def test_arrays_lists_and_strided_views(dtype):
    x, run = numbers(dtype), session(dtype)
    assert run.get_inputs()[0].type == run.get_outputs()[0].type == f"tensor({dtype.name})"
    same(run.run(None, {"x": x})[0], x.T)
    same(run.run(None, {"x": [[0, 1, 1], [1, 0, 0]]})[0], x.T)
    same(run.run(None, {"x": x.T})[0], x)
    same(run.run(None, {"x": np.repeat(x, 2, axis=1)[:, ::2]})[0], x.T)


@pytest.mark.parametrize("dtype", NUMERIC, ids=repr)
def test_values_and_bindings(dtype):
    x, run = numbers(dtype), session(dtype)
    value = sardonyx.OrtValue.ortvalue_from_numpy(x)
    assert (value.data_type(), value.element_type()) == (f"tensor({dtype.name})", dtype.onnx_id)
    (result,) = run.run_with_ort_values(None, {"x": value})
    assert result.data_type() == f"tensor({dtype.name})"
    same(result.numpy(), x.T)
    binding = run.io_binding()
    out = np.zeros((3, 2), dtype.numpy)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, dtype.onnx_id, [3, 2], out.ctypes.data)
    run.run_with_iobinding(binding)
    same(out, x.T)
    binding = run.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    run.run_with_iobinding(binding)
    same(binding.copy_outputs_to_cpu()[0], x.T)
    empty = sardonyx.OrtValue.ortvalue_from_shape_and_type([2, 3], dtype.onnx_id)
    assert (empty.shape(), empty.element_type()) == ([2, 3], dtype.onnx_id)


@pytest.mark.parametrize("dtype", NUMERIC, ids=repr)
def test_another_type_of_the_same_size_is_refused(dtype):
    other = dtypes.INT8 if dtype.bits <= 8 else dtypes.INT16
    if other is dtype:
        other = dtypes.UINT8
    with pytest.raises(errors.InvalidArgument, match=rf"wrong element type.*{dtype.name}"):
        session(dtype).run(None, {"x": np.zeros((2, 3), other.numpy)})
