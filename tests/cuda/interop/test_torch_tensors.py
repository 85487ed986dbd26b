"""Tensors of torch without DLPack, with a stand-in for torch: no GPU is needed for the order."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import errors
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.interop import torch_tensors
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.runtime.try_run import TENSORS
from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import FakeLibrary
from tests.support.fake_provider import FakeProvider
from tests.support.inside import executable_of
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_TEXT = "g (float[N,3] x) => (float[N,3] y) { y = Add(x, x) }"


class Tensor:
    """Memory of a device, with the names of torch that are asked for."""

    dtype, is_cuda, requires_grad = "torch.float32", True, False

    def __init__(self, held: Any, *, is_dense: bool = True) -> None:
        self.held, self.is_dense, self.asked = held, is_dense, 0
        self.shape = held.shape

    def numpy(self) -> Any:
        return self.held.numpy()

    def is_contiguous(self) -> bool:
        return self.is_dense

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return int(self.held.address)

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


Tensor.__module__ = "torch"


@pytest.fixture
def torch(lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in; its current stream is `torch.stream`."""
    made: Any = types.ModuleType("torch")
    made.Tensor, made.stream = Tensor, 0
    made._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda number: made.stream)
    made.from_dlpack = lambda capsule: Tensor(ort.OrtValue.from_dlpack(capsule)._array)
    made.device, made.captured, made.made = (lambda *given: given), False, 0
    made.current = 0

    def empty_strided(shape: Any, strides: Any, dtype: Any, device: Any) -> Tensor:
        assert (dtype, device) == ("torch.float32", ("cuda", 0))
        dense = np.empty(shape, np.float32)
        assert strides == tuple(step // dense.itemsize for step in dense.strides) or not dense.size
        made.made += 1
        held = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, "cuda", 0)
        return Tensor(held._array)

    made.empty_strided = empty_strided
    made.cuda = types.SimpleNamespace(
        is_current_stream_capturing=lambda: made.captured,
        current_stream=lambda: made.stream,
        current_device=lambda: made.current,
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(torch_tensors, "_types", {})
    return made


def _session() -> ort.InferenceSession:
    model = model_of(_TEXT).SerializeToString()
    return ort.InferenceSession(model, providers=["CUDAExecutionProvider"])


def test_dlpack_is_asked_once_for_a_type(torch: Any) -> None:
    session, asked = _session(), []
    for k in range(6):
        x = np.full((4, 3), k, np.float32)
        tensor = Tensor(ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)._array)
        found = session(tensor)
        np.testing.assert_array_equal(found.numpy(), x + x)
        asked.append(tensor.asked)
    assert asked == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["is_contiguous", "is_neg", "is_conj", "requires_grad"])
def test_dlpack_says_what_is_not_plain(torch: Any, name: str) -> None:
    held = ort.OrtValue.ortvalue_from_numpy(np.ones((4, 3), np.float32), "cuda", 0)._array
    plain = Tensor(held)
    assert torch_tensors.array_of(plain) is None
    torch_tensors.note_type(plain, held.dtype)
    found = torch_tensors.array_of(plain)
    assert found is not None
    assert (found.address, found.shape, found.dtype) == (held.address, held.shape, held.dtype)
    other = Tensor(held)
    value: Any = True if name == "requires_grad" else (lambda: name != "is_contiguous")
    setattr(other, name, value)
    assert torch_tensors.array_of(other) is None


def test_runs_wait_for_the_current_stream(torch: Any, lazy: FakeDriver) -> None:
    """Its work is put in the stream, and done by nobody before the run waits for it."""
    device(0).enter()
    session, x = _session(), np.zeros((4, 3), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    other = ort.OrtValue.ortvalue_from_numpy(x + 7, "cuda", 0)
    tensor = Tensor(value._array)
    for k in range(5):
        session(tensor)
        torch.stream = device(0).new_stream().handle if k % 2 else 0
        held, source = value._array, other._array
        lazy.cuMemcpyAsync(held.address, source.address, held.nbytes, torch.stream)
        np.testing.assert_array_equal(session(tensor).numpy(), x + 14)
        value.update_inplace(x)


def test_calls_like_the_last_one_are_replays_in_torchs_stream(torch: Any, lazy: FakeDriver) -> None:
    session = _session()
    feeds = [np.full((4, 3), k, np.float32) for k in range(8)]
    tensors = [Tensor(ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)._array) for x in feeds]
    for tensor in tensors[:3]:
        session(tensor)
    for stream in (0, device(0).new_stream().handle):
        torch.stream = stream
        session(tensors[0])
        torch.made, before = 0, lazy.replays
        found = [session(tensor) for tensor in tensors]
        for x, result in zip(feeds, found, strict=True):
            np.testing.assert_array_equal(result.numpy(), x + x)
        assert torch.made == len(feeds)
        assert lazy.replays == before + len(feeds)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (5, 1, 2), (2, 0, 3)])
def test_results_are_dense(shape: tuple[int, ...]) -> None:
    found = torch_tensors.dense_strides(shape)
    if 0 not in shape:
        assert found == tuple(step // 4 for step in np.empty(shape, np.float32).strides)
    assert len(found) == len(shape) and all(found)


def test_tensors_by_name(torch: Any) -> None:
    text = "g (float[N,3] x, float[N,3] w) => (float[N,3] y, float[N,3] z)"
    model = model_of(f"{text} {{ y = Sub(x, w) z = Add(x, w) }}").SerializeToString()
    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    a, b = np.full((4, 3), 5, np.float32), np.full((4, 3), 2, np.float32)
    x, w = (Tensor(ort.OrtValue.ortvalue_from_numpy(v, "cuda", 0)._array) for v in (a, b))
    for _ in range(5):
        y, z = session(w=w, x=x)
        np.testing.assert_array_equal(y.numpy(), a - b)
        np.testing.assert_array_equal(z.numpy(), a + b)
    assert torch.made >= 4
    with pytest.raises(errors.InvalidArgument, match="missing from input feed"):
        session(x=x, v=w)


def test_where_libraries_read_feeds_runs_stay_in_their_own_stream(
    torch: Any, lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a library in a graph has addresses of its own."""
    library, make = FakeLibrary(lazy), FakeProvider.__init__

    def with_library(provider: Any, fake: FakeDriver, **options: Any) -> None:
        make(provider, fake, libraries=Libraries({"matmul": library}), **options)

    monkeypatch.setattr(FakeProvider, "__init__", with_library)
    model = model_of("g (float[N,12] x, float[12,8] w) => (float[N,8] y) { y = MatMul(x, w) }")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    x, w = np.ones((5, 12), np.float32), np.arange(96, dtype=np.float32).reshape(12, 8)
    given = [Tensor(ort.OrtValue.ortvalue_from_numpy(v, "cuda", 0)._array) for v in (x, w)]
    for _ in range(30):
        np.testing.assert_array_equal(session(*given).numpy(), x @ w)
    assert torch.made == 0
    assert library.done == ["matmul"] * 30
    (frame,) = inspect(session).frames
    assert frame.is_own_stream
    assert frame.replays >= 20


@pytest.mark.parametrize("change", ["shape", "captured", "dense", "kind", "grad", "host"])
def test_other_calls_take_the_long_way(torch: Any, change: str) -> None:
    session, x = _session(), np.ones((4, 3), np.float32)

    def tensor(array: Any) -> Tensor:
        return Tensor(ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)._array)

    given = tensor(x)
    for _ in range(4):
        session(given)
    executable = executable_of(session)
    assert executable.try_run((given,), None, TENSORS) is not None
    other: Any = tensor(np.ones((5, 3), np.float32) if change == "shape" else x)
    torch.captured = change == "captured"
    if change == "dense":
        other.is_contiguous = lambda: False
    elif change == "kind":
        other.dtype = "torch.float16"
    elif change == "grad":
        other.requires_grad = True
    elif change == "host":
        other.get_device = lambda: -1
    assert executable.try_run((other,), None, TENSORS) is None
    torch.captured = False
    np.testing.assert_array_equal(executable.try_run((given,), None, TENSORS)[0].numpy(), 2 * x)


def test_what_torch_captures_on_another_device_is_not_asked_for(torch: Any) -> None:
    """It says that of its current stream of its current device alone."""
    session = _session()
    given = Tensor(ort.OrtValue.ortvalue_from_numpy(np.ones((4, 3), np.float32), "cuda", 0)._array)
    for _ in range(4):
        session(given)
    torch.captured, torch.current = True, 1
    made = torch.made
    np.testing.assert_array_equal(session(given).numpy(), 2 * np.ones((4, 3), np.float32))
    assert torch.made == made + 1


def test_a_session_with_a_stream_of_its_own_keeps_it(torch: Any, lazy: FakeDriver) -> None:
    own = device(0).new_stream().handle
    model = model_of(_TEXT).SerializeToString()
    options = {"user_compute_stream": str(own)}
    session = ort.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    x = np.ones((4, 3), np.float32)
    tensor = Tensor(ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)._array)
    for _ in range(4):
        np.testing.assert_array_equal(session(tensor).numpy(), x + x)
    (frame,) = inspect(session).frames
    assert frame.stream == own


_SINE = "g (float[N,256] x) => (float[N,256] y) { y = Sin(x) }"
_PRODUCT = "g (float[N,8] x, float[8,8] w) => (float[N,8] y) { y = MatMul(x, w) }"
_PICKED = "g (float[N,3] x, int64[M] at) => (float[M,3] y) { y = Gather(x, at) }"


@pytest.mark.skipif(bool(cuda_is_missing()), reason="there is no GPU with a driver")
@pytest.mark.parametrize("side", [False, True], ids=["default stream", "another stream"])
def test_tensors_of_a_device(side: bool) -> None:
    """What comes before and behind a run in torch's stream is in order; faults are raised."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch needs a GPU")

    def session_of(text: str) -> ort.InferenceSession:
        given = [("CUDAExecutionProvider", {"use_tf32": "0"})]
        return ort.InferenceSession(model_of(text).SerializeToString(), providers=given)

    sine, product, picked = map(session_of, (_SINE, _PRODUCT, _PICKED))
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        x, w = torch.zeros(5, 256, device="cuda"), torch.eye(8, device="cuda") * 2
        for k in range(40):
            x += 0.25
            y = sine(x)
            assert y.is_cuda and y.shape == x.shape
            assert y.dtype == x.dtype
            assert_near(y.cpu().numpy(), torch.sin(x).cpu().numpy(), "float: functions near zero")
            a = torch.full((3, 8), float(k), device="cuda")
            torch.testing.assert_close(product(w=w, x=a), 2 * a)
            at = torch.tensor([k % 5, 0], device="cuda")
            torch.testing.assert_close(picked(x[:, :3].contiguous(), at), x[at, :3])
        with pytest.raises(errors.SardonyxError, match="index"):
            picked(x[:, :3].contiguous(), at + 7)
        torch.testing.assert_close(picked(x[:, :3].contiguous(), at), x[at, :3])
    assert inspect(sine).frames[0].replays >= 30
