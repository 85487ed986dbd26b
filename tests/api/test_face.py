"""onnxruntime's names, as programs use them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx as ort
from sardonyx.api import named_memory
from sardonyx.base import errors
from sardonyx.runtime.storage import HOST
from tests.engine import networks
from tests.support.session import model_of


@pytest.fixture(scope="module")
def session() -> Any:
    return ort.InferenceSession(networks.perceptron().SerializeToString())


X = np.random.default_rng(0).standard_normal((2, 40)).astype(np.float32)


def test_sources_give_the_same(session: Any, tmp_path: Path) -> None:
    model = networks.perceptron()
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    want = session.run(None, {"x": X})[0]
    for source in (str(path), path, path.read_bytes(), model):
        made = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
        assert np.array_equal(made.run(None, {"x": X})[0], want)


@pytest.mark.usefixtures("no_gpu")
def test_what_a_session_says(session: Any) -> None:
    (given,), (wanted,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("x", "tensor(float)", ["N", 40])
    assert wanted.shape == ["N", 5]
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_modelmeta().graph_name == "net"
    assert ort.get_device() == "CPU"


FEEDS: list[Any] = [
    X.tolist(),
    np.asfortranarray(X),
    np.stack([X, X], -1)[..., 0],
    X.astype(">f4"),
    ort.OrtValue.ortvalue_from_numpy(X),
]


@pytest.mark.parametrize("feed", FEEDS, ids=["list", "fortran", "strided", "swapped", "ortvalue"])
def test_feeds(session: Any, feed: Any) -> None:
    want = session.run(None, {"x": X})[0]
    assert np.array_equal(session.run(None, {"x": feed})[0], want)


def test_named_outputs_and_calls(session: Any) -> None:
    name = session.get_outputs()[0].name
    want = session.run([name], {"x": X})[0]
    assert np.array_equal(session(X), want)
    assert np.array_equal(session(x=X), want)
    with pytest.raises(errors.InvalidArgument, match="no output 'nothing'"):
        session.run(["nothing"], {"x": X})


def test_binding(session: Any) -> None:
    want = session.run(None, {"x": X})[0]
    name = session.get_outputs()[0].name
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output(name)
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], want)
    held = np.empty((2, 5), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_output(name, "cpu", 0, np.float32, held.shape, held.ctypes.data)
    session.run_with_iobinding(binding)
    assert np.array_equal(held, want)
    assert binding.get_outputs()[0].data_ptr() == held.ctypes.data
    binding.clear_binding_inputs()
    with pytest.raises(ValueError, match="not bound"):
        session.run_with_iobinding(binding)


def test_values() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(int64)", 7)
    value.update_inplace(array + 1)
    assert array[0, 0] == 1
    assert np.array_equal(np.from_dlpack(value), array)
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32).shape() == [2]
    with pytest.raises(errors.InvalidArgument):
        value.update_inplace(np.zeros(3, np.int64))
    with pytest.raises(errors.NotImplemented):
        ort.OrtValue.ortvalue_from_numpy(array, "npu", 0)


@pytest.mark.parametrize("name", ["dml", "DML"])
def test_the_processor_stands_in_for_directml(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(named_memory, "_warned", set())
    session = ort.InferenceSession(model_of("g (float[N] x) => (float[N] y) { y = Neg(x) }"))
    x = np.ones(3, np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x, name, 1)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", name)
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert (value.device_name(), found.device_name()) == ("cpu", "cpu")
    assert ort.OrtDevice.make(name, 1).device_type() == 0
    assert ort.OrtDevice.make(name, 1, 0x1002).memory() is HOST
    there = ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, name, 1, 0x1002)
    assert there.device_name() == "cpu"
    np.testing.assert_array_equal(found.numpy(), -x)
    assert caplog.text.count(f"there is no device '{name}'") == 1


def test_options() -> None:
    options = ort.SessionOptions()
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert options.intra_op_num_threads == 0
    with pytest.raises(AttributeError, match="intra_op_num_threads"):
        options.intra_op_num_thread = 2
    with pytest.warns(UserWarning, match="allow_spinning"):
        options.add_session_config_entry("session.intra_op.allow_spining", "0")
    options.add_free_dimension_override_by_name("N", 3)
    fixed = ort.InferenceSession(networks.perceptron().SerializeToString(), options)
    with pytest.raises(errors.InvalidArgument, match="Expected 3, got 2"):
        fixed.run(None, {"x": X})


def test_terminate(session: Any) -> None:
    options = ort.RunOptions()
    session.run(None, {"x": X}, options)
    options.terminate = True
    with pytest.raises(errors.Fail):
        session.run(None, {"x": X}, options)
    options.terminate = False
    session.run(None, {"x": X}, options)


@pytest.mark.usefixtures("no_gpu")
def test_providers_that_are_not_there() -> None:
    model = networks.perceptron().SerializeToString()
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        made = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    assert made.get_providers() == ["CPUExecutionProvider"]


def test_pickle(session: Any) -> None:
    again = pickle.loads(pickle.dumps(session))
    assert np.array_equal(again.run(None, {"x": X})[0], session.run(None, {"x": X})[0])


def test_a_binding_that_runs_again(session: Any) -> None:
    (name,) = [v.name for v in session.get_outputs()]
    want = session.run(None, {"x": X})[0]
    feed, held = X.copy(), np.empty((2, 5), np.float32)
    bound, new = session.io_binding(), session.io_binding()
    for binding in (bound, new):
        binding.bind_cpu_input("x", feed)
    bound.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(held))
    new.bind_output(name)
    earlier = []
    for scale in (1, 1, 0):  # the first run of a binding prepares it
        feed[...] = X * scale
        expected = want if scale else session.run(None, {"x": X * 0})[0]
        for binding in (bound, new):
            session.run_with_iobinding(binding)
            (found,) = binding.copy_outputs_to_cpu()
            assert np.array_equal(found, expected)
        assert all(found is not before for before in earlier)
        earlier.append(found)
    other = np.empty((2, 5), np.float32)
    bound.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(other))
    held[...] = 0
    session.run_with_iobinding(bound)
    assert np.array_equal(other, expected) and not held.any()
    for stranger in (None, pickle.loads(pickle.dumps(session)).io_binding()):
        with pytest.raises(errors.InvalidArgument, match="not one of this session"):
            session.run_with_iobinding(stranger)


def test_values_again(session: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    want = session.run(None, {"x": X})[0]
    for _ in range(3):
        (found,) = session.run_with_ort_values(None, {"x": value})
        assert type(found) is ort.OrtValue and np.array_equal(found.numpy(), want)
    for feeds in ({"x": X}, {"y": value}, {}, [value], {"x": value, "y": value}):
        with pytest.raises(errors.InvalidArgument):
            session.run_with_ort_values(None, feeds)


#: Nodes that give y and z from x: (N,), and the sizes of y and z, which nothing declares.
COMPUTED: list[tuple[str, list[Any]]] = [
    ("y, z = Split<num_outputs=2>(x)", [["(N + 1) // 2"], ["N - ((N + 1) // 2)"]]),
    ("y = Concat<axis=0>(x, x) z = Neg(x)", [["2*N"], ["N"]]),
    (
        "two = Constant<value_ints=[2]>() c = Concat<axis=0>(x, two_floats)"
        " y = Identity(c) z = Tile(c, two)",
        [["N + 2"], ["2*N + 4"]],
    ),
]


@pytest.mark.parametrize(("nodes", "sizes"), COMPUTED, ids=[n.split("(")[0] for n, _ in COMPUTED])
def test_computed_sizes_are_written_out(nodes: str, sizes: list[Any]) -> None:
    text = f"g (float[N] x) => (float[Y] y, float[Z] z) {{ {nodes} }}"
    model = model_of(text, {"two_floats": np.float32([1, 2])}, opset=18)
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    session = ort.InferenceSession(model.SerializeToString())
    assert [info.shape for info in session.get_outputs()] == sizes


#: Type of x, nodes that give y, the sizes of y, which nothing declares.
UNDECLARED: list[tuple[str, str, list[Any]]] = [
    ("float[N]", "y = NonZero(x)", [1, None]),
    ("float[N]", "z = NonZero(x) w = Transpose(z) y = Concat<axis=0>(w, w)", [None, 1]),
    ("float[N]", "y = Tile(x, n)", [None]),
    ("float[N,M]", "y = Reshape(x, s)", [None, None]),
    ("float[N,M]", "o = Constant<value_ints=[0]>() y = Slice(x, o, n, o)", [None, "M"]),
    ("float[N,N]", "y = Concat<axis=0>(x, x)", ["2*N", "N"]),
    ("float[?,3]", "y = Neg(x)", [None, 3]),
]


@pytest.mark.parametrize(("kind", "nodes", "shape"), UNDECLARED)
def test_sizes_that_only_a_run_knows_have_no_name(kind: str, nodes: str, shape: list[Any]) -> None:
    text = f"g ({kind} x, int64[1] n, int64[2] s) => (float[Y] y) {{ {nodes} }}"
    model = model_of(text, opset=18)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if "NonZero" in nodes:
        model.graph.output[0].type.tensor_type.elem_type = 7
    session = ort.InferenceSession(model.SerializeToString())
    assert session.get_outputs()[0].shape == shape
