"""The same calls here and in onnxruntime: same values, or an error in both."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.base import errors
from tests.api import models
from tests.support.session import model_of

other = pytest.importorskip("onnxruntime")
CPU = ["CPUExecutionProvider"]
A = np.arange(6, dtype=np.float32).reshape(2, 3)
FEEDS = {"a": A, "b": A + 1}


def session(ort: Any, dtype: int = TensorProto.FLOAT, shape: Any = ("N", 3)) -> Any:
    return ort.InferenceSession(models.add(dtype, shape), providers=CPU)


def value(ort: Any, array: Any) -> Any:
    return ort.OrtValue.ortvalue_from_numpy(array)


def bound(ort: Any, *outputs: str, **memory: Any) -> Any:
    """A binding after a run; `memory` has values to write outputs to."""
    made = session(ort)
    binding = made.io_binding()
    binding.bind_cpu_input("a", A)
    binding.bind_ortvalue_input("b", value(ort, A + 1))
    for name in outputs:
        binding.bind_output(name)
    for name, array in memory.items():
        binding.bind_ortvalue_output(name, value(ort, array))
    binding.synchronize_inputs()
    made.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return binding


def updated(ort: Any, contents: Any) -> Any:
    made = value(ort, A.copy())
    made.update_inplace(contents)
    return made.numpy()


#: What is called, as text for the name of the test; every result is compared by value and type.
SAME = {
    "outputs None": lambda o: session(o).run(None, FEEDS),
    "outputs []": lambda o: session(o).run([], FEEDS),
    "outputs in another order, one twice": lambda o: session(o).run(["z", "y", "z"], FEEDS),
    "outputs as tuple": lambda o: session(o).run(("y",), FEEDS),
    "lists": lambda o: session(o).run(None, {n: a.tolist() for n, a in FEEDS.items()}),
    "lists of integers": lambda o: session(o).run(None, {"a": [[1, 2, 3]], "b": [[1, 2, 3]]}),
    "reversed": lambda o: session(o).run(None, {"a": A[:, ::-1], "b": A[::-1]}),
    "fortran": lambda o: session(o).run(None, {"a": np.asfortranarray(A), "b": A}),
    "empty": lambda o: session(o).run(None, {"a": A[:0], "b": A[:0]}),
    "masked": lambda o: session(o).run(None, {"a": np.ma.array(A), "b": A}),
    "a value": lambda o: session(o).run(None, {"a": value(o, A), "b": A}),
    "sizes that contradict a name": lambda o: session(o).run(["y"], {"a": A[:1], "b": A}),
    "0-d": lambda o: session(o, shape=()).run(None, {"a": A[0, 0], "b": np.array(2, np.float32)})
    if o is sardonyx
    else [A[0, 0] + np.float32(2), -A[0, 0]],
    "float16": lambda o: session(o, TensorProto.FLOAT16).run(
        ["y"], {n: a.astype(np.float16) for n, a in FEEDS.items()}
    ),
    "names": lambda o: [(v.name, v.type, v.shape, str(v)) for v in session(o).get_inputs()],
    "output names": lambda o: [(v.name, v.type, v.shape) for v in session(o).get_outputs()],
    "no name": lambda o: [v.shape for v in session(o, shape=(None, "?")).get_inputs()],
    "no name, outputs": lambda o: [v.shape for v in session(o, shape=(None, "?")).get_outputs()],
    "no axes": lambda o: [v.shape for v in session(o, shape=()).get_inputs()],
    "providers": lambda o: (session(o).get_providers(), session(o).get_provider_options()),
    "device": lambda o: (o.get_device(), o.has_collective_ops()),
    "ort values": lambda o: [
        v.numpy()
        for v in session(o).run_with_ort_values(
            ["z", "y"], {n: value(o, a) for n, a in FEEDS.items()}
        )
    ],
    "binding": lambda o: bound(o, "z", "y").copy_outputs_to_cpu(),
    "binding, values": lambda o: [v.numpy() for v in bound(o, "y").get_outputs()],
    "binding, vector": lambda o: len(bound(o, "y").get_outputs_as_ortvaluevector()),
    "binding, memory": lambda o: bound(o, y=np.empty_like(A)).get_outputs()[0].numpy(),
    "binding, cleared": lambda o: session(o).io_binding().get_outputs(),
    "value": lambda o: [
        getattr(value(o, A), n)()
        for n in (
            "shape", "data_type", "element_type", "device_name", "tensor_size_in_bytes",
            "has_value", "is_tensor", "is_sparse_tensor", "is_tensor_sequence", "__dlpack_device__",
        )
    ],
    "value, same memory": lambda o: value(o, A).data_ptr() == A.ctypes.data,
    "value, number of a type": lambda o: o.OrtValue.ortvalue_from_shape_and_type(
        [2, 3], 16
    ).data_type(),
    "value, another type": lambda o: o.OrtValue.ortvalue_from_numpy_with_onnx_type(
        np.zeros(2, np.uint16), 16
    ).data_type(),
    "value, array": lambda o: np.asarray(value(o, A)),
    "value, dlpack": lambda o: np.from_dlpack(value(o, A)),
    "value, from dlpack": lambda o: o.OrtValue.from_dlpack(A).numpy(),
    "value, from a capsule": lambda o: o.OrtValue.from_dlpack(A.__dlpack__()).shape(),
    "value, update": lambda o: updated(o, A + 1),
    "value, update with a value": lambda o: updated(o, value(o, A + 1)),
    "value, update with another shape": lambda o: updated(o, (A + 1).reshape(3, 2)),
    "value, update with another order": lambda o: updated(o, np.asfortranarray(A + 1)),
    "device of memory": lambda o: [
        getattr(o.OrtDevice.make("cpu", 0), n)()
        for n in ("device_id", "device_type", "device_vendor_id", "device_mem_type")
    ],
    "numbers of enumerations": lambda o: [
        (n, int(m))
        for e in ("ExecutionMode", "GraphOptimizationLevel", "OrtMemType", "OrtAllocatorType",
                  "OrtMemoryInfoDeviceType", "OrtExecutionProviderDevicePolicy")
        for n, m in sorted(getattr(o, e).__members__.items())
    ],
    "profile": lambda o: (session(o).end_profiling(), session(o).get_tuning_results()),
}  # fmt: skip


@pytest.mark.usefixtures("no_gpu")  # of which a wheel of onnxruntime for processors knows nothing
@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    ours, theirs = SAME[name](sardonyx), SAME[name](other)
    assert _plain(ours) == _plain(theirs)


def _plain(found: Any) -> Any:
    """Something that `==` compares by value, shape and type."""
    if isinstance(found, (list, tuple)):
        return [_plain(f) for f in found]
    if isinstance(found, (np.ndarray, np.generic)):
        return (str(found.dtype), found.shape, found.tolist())
    return found


#: Errors in both: the class here, by onnxruntime's name, and what its text must have.
REFUSED = {
    "missing": (lambda o: session(o).run(None, {"a": A}), ValueError, "['b']) are missing"),
    "other name": (lambda o: session(o).run(None, {"a": A, "c": A}), ValueError, "missing"),
    "too many": (lambda o: session(o).run(None, {**FEEDS, "c": A}), "InvalidArgument", "'c'"),
    "output": (lambda o: session(o).run(["q"], FEEDS), "InvalidArgument", "'q'"),
    "output as text": (lambda o: session(o).run("y", FEEDS), "InvalidArgument", "['y']"),
    "rank": (lambda o: session(o).run(None, {"a": A[0], "b": A}), "InvalidArgument", "rank"),
    "size": (lambda o: session(o).run(None, {"a": A[:, 1:], "b": A}), "InvalidArgument", "Axis 1"),
    "double": (
        lambda o: session(o).run(None, {"a": A.astype("f8"), "b": A}), "InvalidArgument", "double",
    ),
    "text": (lambda o: session(o).run(None, {"a": "x", "b": A}), "InvalidArgument", "input a"),
    "none": (lambda o: session(o).run(None, {"a": None, "b": A}), "InvalidArgument", "input a"),
    "ragged": (
        lambda o: session(o).run(None, {"a": [[1], [2, 3]], "b": A}), "InvalidArgument", "input a",
    ),
    "no dict": (lambda o: session(o).run(None, [A, A]), "InvalidArgument", "no dict"),
    "arrays, not values": (
        lambda o: session(o).run_with_ort_values(None, FEEDS), "InvalidArgument", "OrtValue",
    ),
    "no output bound": (lambda o: bound(o), "InvalidArgument", "No output"),
    "memory that is too small": (
        lambda o: bound(o, y=np.empty((1, 3), np.float32)), "InvalidArgument", "[1, 3]",
    ),
    "memory of another type": (
        lambda o: bound(o, y=np.empty((2, 3), np.float64)), "InvalidArgument", "float64",
    ),
    "binding of another session": (
        lambda o: session(o).run_with_iobinding(session(o).io_binding()),
        "InvalidArgument", "this session",
    ),
    "no such input to bind": (
        lambda o: session(o).io_binding().bind_cpu_input("q", A), "InvalidArgument", "'q'",
    ),
    "value of a list": (lambda o: value(o, [1, 2]), "InvalidArgument", "list"),
    "value of dates": (
        lambda o: value(o, np.array(["2020-01-01"], "M8[D]")), "InvalidArgument", "M8",
    ),
    "value of no type": (
        lambda o: o.OrtValue.ortvalue_from_shape_and_type([2], 999), "InvalidArgument", "999",
    ),
    "value of negative size": (
        lambda o: o.OrtValue.ortvalue_from_shape_and_type([-1], 1), "InvalidArgument", "[-1]",
    ),
    "value on a strange device": (
        lambda o: o.OrtValue.ortvalue_from_numpy(A, "npu", 0), "NotImplemented", "'npu'",
    ),
    "update of another size": (lambda o: updated(o, A[:1]), "InvalidArgument", "[1, 3]"),
    "no such file": (lambda o: o.InferenceSession("no.onnx"), "NoSuchFile", "no.onnx"),
    "no model": (lambda o: o.InferenceSession(b"abc"), "InvalidProtobuf", ""),
    "a number": (lambda o: o.InferenceSession(5), "InvalidArgument", "int"),
    "severity": (lambda o: o.set_default_logger_severity(9), "InvalidArgument", "0 to 4"),
    "seed": (lambda o: o.set_seed("a"), "InvalidArgument", "'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, kind, text = REFUSED[name]
    with pytest.raises(Exception):  # noqa: B017, PT011 - of whatever class
        call(other)
    with pytest.raises(getattr(errors, kind) if isinstance(kind, str) else kind) as raised:
        call(sardonyx)
    assert text in str(raised.value)


def test_metadata() -> None:
    import onnx

    model = onnx.load_from_string(models.add())
    model.producer_name, model.domain, model.doc_string, model.model_version = "p", "d", "m", 7
    onnx.helper.set_model_props(model, {"key": "value"})
    ours, theirs = (
        o.InferenceSession(model.SerializeToString(), providers=CPU).get_modelmeta()
        for o in (sardonyx, other)
    )
    for field in (
        "producer_name", "graph_name", "domain", "description", "graph_description", "version",
        "custom_metadata_map",
    ):  # fmt: skip
        assert getattr(ours, field) == getattr(theirs, field)


def test_where_onnxruntime_gives_nonsense_or_refuses() -> None:
    made = session(sardonyx)
    assert np.array_equal(made.run(["y"], {"a": A.astype(">f4"), "b": A})[0], A + A)
    assert np.array_equal(value(sardonyx, A.astype(">f4")).numpy(), A)
    bf16_products = {n: a.astype(ml_dtypes.bfloat16) for n, a in FEEDS.items()}
    found = session(sardonyx, TensorProto.BFLOAT16).run(["y"], bf16_products)[0]
    assert found.dtype == ml_dtypes.bfloat16
    assert np.array_equal(found.astype(np.float32), A + A + 1)
    assert np.array_equal(session(sardonyx, shape=()).run(["y"], {"a": 1.0, "b": 2})[0], 3)
    target = value(sardonyx, np.zeros_like(A))
    sardonyx.copy_tensors([value(sardonyx, A)], [target])
    assert np.array_equal(target.numpy(), A)
    with pytest.raises(errors.InvalidArgument, match="float64"):
        updated(sardonyx, A.astype(np.float64))


def test_text() -> None:
    from onnx import helper

    text = (TensorProto.STRING, ["N"])
    model = models.model([helper.make_node("Identity", ["a"], ["y"])], {"a": text}, {"y": text})
    fed = np.array(["a", "ß", ""])
    found = []
    for ort in (sardonyx, other):
        made = ort.InferenceSession(model, providers=CPU)
        found += [made.run(None, {"a": feed})[0] for feed in (fed, fed.astype(object))]
    # onnxruntime makes no values of text.
    (held,) = sardonyx.InferenceSession(model).run_with_ort_values(
        None, {"a": value(sardonyx, fed)}
    )
    assert held.data_type() == "tensor(string)"
    for array in (*found, held.numpy()):
        assert array.dtype == object
        assert array.tolist() == fed.tolist()


def test_sequences_as_values() -> None:
    text = "g (float[N,3] a) => (seq(float[N,1]) y) { y = SplitToSequence<axis=1>(a) }"
    model = model_of(text).SerializeToString()
    for ort in (sardonyx, other):
        made = ort.InferenceSession(model, providers=CPU)
        (held,) = made.run_with_ort_values(None, {"a": value(ort, A)})
        assert not held.is_tensor()
        assert held.is_tensor_sequence()
        assert held.data_type() == "seq(tensor(float))"
        with pytest.raises(Exception, match="(?i)tensor"):
            held.numpy()


def test_bound_memory_that_overlaps_a_feed() -> None:
    made = session(sardonyx)
    held = A.copy()
    binding = made.io_binding()
    binding.bind_cpu_input("a", held)
    binding.bind_cpu_input("b", A)
    binding.bind_ortvalue_output("y", value(sardonyx, held))
    binding.bind_ortvalue_output("z", value(sardonyx, np.empty_like(A)))
    made.run_with_iobinding(binding)
    assert np.array_equal(held, A + A)
    assert np.array_equal(binding.get_outputs()[1].numpy(), -A)


def test_a_binding_with_sizes_that_contradict_a_name() -> None:
    made = session(sardonyx)
    binding = made.io_binding()
    binding.bind_cpu_input("a", A[:1])
    binding.bind_cpu_input("b", A)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3])
    binding.bind_output("z", "cpu", 0, np.float32, [1, 3])
    made.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], A + A[:1])
