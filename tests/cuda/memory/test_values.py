"""Values in memory of a device: made, copied, shared."""

from __future__ import annotations

import copy
import ctypes
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.interop import exchange, lending
from sardonyx.cuda.memory.values import CudaArray
from sardonyx.native import functions
from sardonyx.native.layout import LETTING_GO
from tests.support.session import model_of

pytestmark = pytest.mark.usefixtures("gpu")

TYPES = [np.float32, np.int64, np.bool_, np.float16, np.complex64, ml_dtypes.bfloat16,
         ml_dtypes.float8_e4m3fn]  # fmt: skip
_random = np.random.default_rng(5)


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array), "cuda", 0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 5), (300, 700)])
def test_from_numpy_and_back(dtype: Any, shape: tuple[int, ...]) -> None:
    array = _random.integers(0, 2, shape).astype(dtype)
    value = _value(array)
    assert value.device_name() == "cuda"
    assert (value.shape(), value.is_tensor()) == (list(shape), True)
    assert value.data_type() == ort.OrtValue.ortvalue_from_numpy(array).data_type()
    assert value.tensor_size_in_bytes() == array.nbytes
    found = value.numpy()
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def test_large_arrays_come_piece_by_piece() -> None:
    array = _random.integers(0, 255, 41_000_001).astype(np.uint8)
    assert np.array_equal(_value(array).numpy(), array)


def test_update_in_place_keeps_the_address() -> None:
    value = _value(np.zeros((2, 3), np.float32))
    address, new = value.data_ptr(), np.arange(6, dtype=np.float32).reshape(2, 3)
    value.update_inplace(new)
    assert np.array_equal(value.numpy(), new)
    value.update_inplace(_value(new + 1))
    assert np.array_equal(value.numpy(), new + 1)
    value.update_inplace(np.asfortranarray(new))
    assert np.array_equal(value.numpy(), new)
    assert value.data_ptr() == address
    host = ort.OrtValue.ortvalue_from_numpy(np.empty((2, 3), np.float32))
    host.update_inplace(value)
    assert np.array_equal(host.numpy(), new)
    with pytest.raises(errors.InvalidArgument, match="do not fit"):
        value.update_inplace(np.zeros(7, np.float32))
    with pytest.raises(errors.InvalidArgument, match="do not fit"):
        value.update_inplace(new.astype(np.float64))


def test_copies_of_several_tensors() -> None:
    arrays = [np.full(n, n, np.float32) for n in (3, 500, 0)]
    sources = [_value(arrays[0]), ort.OrtValue.ortvalue_from_numpy(arrays[1]), _value(arrays[2])]
    made = ort.OrtValue.ortvalue_from_shape_and_type
    targets = [made([a.size], np.float32, "cuda", 0) for a in arrays]
    ort.copy_tensors(sources, targets)
    for target, array in zip(targets, arrays, strict=True):
        assert np.array_equal(target.numpy(), array)
    stream = ort.get_ep_devices()[1].create_sync_stream()
    back = [made([a.size], np.float32) for a in arrays]
    ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(a + 1) for a in arrays], targets, stream)
    ort.copy_tensors(targets, back, stream)
    for target, array in zip(back, arrays, strict=True):
        assert np.array_equal(target.numpy(), array + 1)


def test_pinned_memory_is_numpys() -> None:
    info = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.CPU
    )
    assert info.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
    value = ort.OrtValue.ortvalue_from_shape_and_type([4, 5], np.float32, memory_info=info)
    assert value.device_name() == "cpu"
    value.numpy()[...] = 7
    assert _value(value.numpy()).numpy().sum() == 140
    # To other libraries it is the processor's: torch, for one, takes no device 3 of DLPack.
    assert value.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(value)
    assert shared.ctypes.data == value.data_ptr()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_dlpack_both_ways(dtype: Any, options: dict[str, Any]) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = _value(array)
    assert value.__dlpack_device__() == (2, 0)
    again = ort.OrtValue.from_dlpack(value)
    assert again.data_ptr() == value.data_ptr()
    held = ort.OrtValue.from_dlpack(value.__dlpack__(**options))
    del value
    for found in (again.numpy(), held.numpy()):
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()
    del again, held
    assert not lending.LENT


def test_a_capsule_is_taken_once_or_let_go() -> None:
    value = _value(np.ones(3, np.float32))
    capsule = value.__dlpack__()
    assert len(lending.LENT) == 1
    held = ort.OrtValue.from_dlpack(capsule)
    with pytest.raises(errors.InvalidArgument, match="used before"):
        exchange_again(capsule)
    del held
    assert not lending.LENT
    capsule = value.__dlpack__(max_version=(1, 0), stream=-1)
    del capsule
    assert not lending.LENT


def test_who_refuses_a_capsule_raises_his_own_error() -> None:
    value = _value(np.ones(3, np.float32))
    for _ in range(3):
        with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
            np.from_dlpack(value)
    assert not lending.LENT


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_memory_is_let_go_of_while_an_error_is_on_its_way(options: dict[str, Any]) -> None:
    capsule = _value(np.ones(3, np.float32)).__dlpack__(**options)
    name, address = exchange._found(capsule)
    api, code = ctypes.pythonapi, functions.library().code
    record = (ctypes.c_void_p * LETTING_GO.words)()
    work = dict.fromkeys(("fetch", "restore", "unlock"), api.PyErr_Occurred)  # they do nothing
    work |= {"lock": api.PyErr_NoMemory}
    work |= {"work": exchange._FORMS[name].from_address(address).deleter}
    for step, function in work.items():
        record[LETTING_GO[step]] = ctypes.cast(function, ctypes.c_void_p).value
    as_failing = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("let_go"))
    exchange._rename(capsule, exchange._USED[name])
    with pytest.raises(MemoryError):
        as_failing(ctypes.addressof(record), address)
    assert not lending.LENT


def exchange_again(capsule: Any) -> None:
    """As `from_dlpack`, for a capsule that nobody should take."""
    try:
        exchange.from_producer(capsule)
    except BufferError as error:
        raise errors.InvalidArgument(str(error)) from None


STREAMS: dict[str, tuple[Any, type[Exception] | None]] = {
    "any": (None, None),
    "no order": (-1, None),
    "default": (1, None),
    "of each thread": (2, None),
    "ambiguous": (0, errors.InvalidArgument),
    "negative": (-2, errors.InvalidArgument),
    "text": ("abc", TypeError),
    "bool": (True, TypeError),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_dlpack(name: str) -> None:
    stream, error = STREAMS[name]
    value = _value(np.ones(3, np.float32))
    if error is None:
        assert ort.OrtValue.from_dlpack(value.__dlpack__(stream=stream)).numpy().sum() == 3
    else:
        with pytest.raises(error, match=r"\[__dlpack__\].*1 or None for the default one"):
            value.__dlpack__(stream=stream)
    assert not lending.LENT


def test_dlpack_to_the_processor() -> None:
    array = np.arange(5, dtype=np.float32)
    capsule = _value(array).__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert np.array_equal(ort.OrtValue.from_dlpack(capsule).numpy(), array)
    with pytest.raises(BufferError, match="cannot be brought"):
        _value(array).__dlpack__(dl_device=(2, 7))


class Foreign:
    """An array of a library that knows the older interface alone; its memory is a value's."""

    def __init__(self, value: ort.OrtValue, **changes: Any) -> None:
        self._value = value
        self.__cuda_array_interface__ = {**value.__cuda_array_interface__, **changes}


def test_the_older_interface() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    value = _value(array)
    held = ort.OrtValue.from_dlpack(Foreign(value))
    assert held.data_ptr() == value.data_ptr()
    assert np.array_equal(held.numpy(), array)
    read_only = ort.OrtValue.from_dlpack(Foreign(value, data=(value.data_ptr(), True)))
    with pytest.raises(errors.InvalidArgument, match="read-only"):
        read_only.update_inplace(array)
    with pytest.raises(AttributeError):
        _ = ort.OrtValue.ortvalue_from_numpy(array).__cuda_array_interface__


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2, 1:4],
        lambda a: a[:, ::3],
        lambda a: a[1],
        lambda a: np.broadcast_to(a[0], (3, 6)),
        lambda a: a.reshape(2, 2, 6).transpose(1, 0, 2),
        lambda a: a.reshape(2, 2, 3, 2).transpose(2, 0, 3, 1),
    ],
)
def test_strided_memory_is_made_dense(view: Any) -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    value, wanted = _value(array), view(array)
    skip = wanted.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    foreign = Foreign(
        value, shape=wanted.shape, strides=wanted.strides, data=(value.data_ptr() + skip, False)
    )
    assert np.array_equal(ort.OrtValue.from_dlpack(foreign).numpy(), wanted)


def test_addresses_are_checked() -> None:
    session_memory = ort.OrtMemoryInfo(
        "Cuda", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    ).kind()
    value = _value(np.ones(4, np.float32))
    found = session_memory.at(value.data_ptr(), (4,), np.dtype(np.float32))
    assert isinstance(found, CudaArray)
    assert found.numpy().tolist() == [1, 1, 1, 1]
    with pytest.raises(errors.InvalidArgument, match="no memory of a device"):
        session_memory.at(64, (4,), np.dtype(np.float32))


def test_an_address_without_memory_is_refused() -> None:
    value = _value(np.ones(4, np.float32))
    with pytest.raises(errors.InvalidArgument, match="The address is null"):
        ort.OrtValue.from_dlpack(Foreign(value, data=(0, False)))


def _steps(value: ort.OrtValue) -> Foreign:
    return Foreign(value, shape=(2,), strides=(8,))


@pytest.mark.parametrize(
    ("make", "error"), [(lambda _: 1.0, "no memory"), (lambda _: np.float32(1), "no memory"),
                        (lambda _: [1.0] * 4, "no memory"), (_steps, "lie in steps")],
)  # fmt: skip
def test_results_are_written_to_memory_that_is_seen(make: Any, error: str) -> None:
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }").SerializeToString()
    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    target = make(_value(np.zeros(4, np.float32)))
    x = np.ones(2, np.float32)
    with pytest.raises(errors.InvalidArgument, match=rf"\[output y\].*{error}"):
        session.run(None, {"x": x}, out=[target])
    with pytest.raises(errors.InvalidArgument, match=rf"\[output y\].*{error}"):
        session.io_binding().bind_ortvalue_output("y", target)
    with pytest.raises(errors.InvalidArgument, match=rf"\[output y\].*{error}"):
        list(session.pipeline().map([x], [(target,)]))


@pytest.mark.parametrize("runs_before", [0, 3])
@pytest.mark.parametrize("freed", ["input x", "output y"])
def test_a_freed_address_names_its_input_or_output(freed: str, runs_before: int) -> None:
    device(0).enter()
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }").SerializeToString()
    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    addresses = {name: int(call("cuMemAlloc", 16)) for name in ("input x", "output y")}
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, [4], addresses["input x"])
    binding.bind_output("y", "cuda", 0, np.float32, [4], addresses["output y"])
    for _ in range(runs_before):
        session.run_with_iobinding(binding)
    (kept,) = [a for name, a in addresses.items() if name != freed]
    call("cuMemFree", addresses[freed])
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match=rf"\[{freed}\].*Was it freed\?"):
            session.run_with_iobinding(binding)
    call("cuMemFree", kept)
    x = np.ones(4, np.float32)
    assert session.run(None, {"x": x})[0].tolist() == [2] * 4


def test_copies_and_pickles() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = _value(array)
    for make, is_same in ((copy.copy, True), (copy.deepcopy, False)):
        made = make(value)
        assert (made.device_name(), made.data_ptr() == value.data_ptr()) == ("cuda", is_same)
        np.testing.assert_array_equal(made.numpy(), array)
    with pytest.raises(TypeError, match=r"cannot be pickled. Pickle its numpy\(\)"):
        pickle.dumps(value)
    host = pickle.loads(pickle.dumps(ort.OrtValue.ortvalue_from_numpy(array)))
    np.testing.assert_array_equal(host.numpy(), array)


def test_arrays_of_values_are_copies() -> None:
    array = np.arange(6, dtype=np.float32)
    value = _value(array)
    np.testing.assert_array_equal(np.asarray(value), array)
    assert np.array(value, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        value.__array__(copy=False)
    host = ort.OrtValue.ortvalue_from_numpy(array)
    assert np.shares_memory(host.__array__(copy=False), array)


def test_values_as_text() -> None:
    array = np.ones((2, 3), np.float16)
    sparse = ort.SparseTensor.sparse_coo_from_numpy(
        [3, 3], np.ones(2, np.float32), np.array([1, 2]), ort.OrtDevice.make("cpu", 0)
    )
    for value, text in (
        (_value(array), "<OrtValue float16[2, 3] on cuda:0>"),
        (ort.OrtValue.ortvalue_from_numpy(array), "<OrtValue float16[2, 3] on cpu>"),
        (ort.OrtValue.ort_value_from_sparse_tensor(sparse), "<OrtValue sparse_tensor(float)[3, 3]"),
        (ort.OrtValue([array]), "<OrtValue seq(tensor(float16)) on cpu>"),
        (ort.OrtValue(None), "<OrtValue optional() on cpu>"),
    ):
        assert repr(value).startswith(text)


def test_graphs_are_released_by_number() -> None:
    model = model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }").SerializeToString()
    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    session.release_captured_graph(3)
    with pytest.raises(errors.InvalidArgument, match="no gpu_graph_id. Expected int, got 'x'"):
        session.release_captured_graph("x")  # type: ignore[arg-type]  # that is the test


def test_devices_in_onnxruntimes_words() -> None:
    device = ort.OrtDevice.make("cuda", 1)
    assert (device.device_type(), device.device_id(), device.device_vendor_id()) == (1, 1, 0x10DE)
    with pytest.raises(errors.NotImplemented, match="npu"):
        ort.OrtDevice.make("npu", 0)
    with pytest.raises(errors.InvalidArgument, match="processor.s number is 0. Got 1"):
        ort.OrtDevice.make("cpu", 1)
    with pytest.raises(errors.InvalidArgument, match="no device 9"):
        ort.OrtValue.ortvalue_from_numpy(np.ones(1), "cuda", 9)
    kinds, memory = ort.OrtMemoryInfoDeviceType, ort.OrtDeviceMemoryType
    made = ort.OrtMemoryInfo.create_v2(
        "mine", kinds.GPU, 0x10DE, 0, memory.HOST_ACCESSIBLE, 0,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip
    assert (made.name, made.kind_name) == ("mine", "CudaPinned")
