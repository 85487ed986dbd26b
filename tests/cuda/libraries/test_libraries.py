"""Arrays of torch and cupy as feeds, as results and as bound memory, without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.providers import cuda_is_missing
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
pytestmark = pytest.mark.skipif(bool(cuda_is_missing()), reason="no GPU here")
_TEXT = "g (float[N,M] x, float[N,M] w) => (float[N,M] y) { a = Mul(x, w) y = Add(a, x) }"


def _session(text: str = _TEXT) -> ort.InferenceSession:
    return ort.InferenceSession(model_of(text).SerializeToString(), providers=[CUDA])


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    session = _session()
    x, w = torch.randn(30, 70, device="cuda"), torch.randn(30, 70, device="cuda")
    y = session(x, w)
    assert isinstance(y, torch.Tensor)
    assert y.is_cuda
    torch.testing.assert_close(y, x * w + x)
    torch.testing.assert_close(session(x.t().contiguous().t(), w), x * w + x)
    found = session.run(None, {"x": x, "w": w})[0]
    assert_near(found, (x * w + x).cpu().numpy(), "float: functions near zero")
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        session(x.clone().requires_grad_(), w)
    half = _session(_TEXT.replace("float[", "bfloat16["))
    x, w = x.bfloat16(), w.bfloat16()
    found, expected = half(x, w), x * w + x
    assert (found.dtype, found.device) == (expected.dtype, expected.device)
    assert_near(found.float().cpu().numpy(), expected.float().cpu().numpy(), "bfloat16: products")


def test_work_of_torch_is_waited_for_in_both_directions() -> None:
    torch = pytest.importorskip("torch")
    session = _session()
    big = torch.randn(6000, 6000, device="cuda")
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        for own in (None, stream):
            with torch.cuda.stream(stream):
                x = torch.zeros(1000, 1000, device="cuda")
                w = torch.ones_like(x)
                for _ in range(3):
                    big = (big @ big) * 1e-4  # a while of work before the feed is written
                    x += big[:1000, :1000] * 0 + 1
                values = {n: ort.OrtValue.from_dlpack(t) for n, t in (("x", x), ("w", w))}
                (y,) = session.run_with_ort_values(None, values, options, stream=own)
                assert bool((torch.from_dlpack(y) == 6).all())


def test_memory_of_torch_is_bound() -> None:
    torch = pytest.importorskip("torch")
    session = _session()
    x, w = torch.randn(30, 70, device="cuda"), torch.randn(30, 70, device="cuda")
    y = torch.empty_like(x)
    binding = session.io_binding()
    for name, tensor in (("x", x), ("w", w)):
        shape = tuple(tensor.shape)
        binding.bind_input(name, "cuda", 0, np.float32, shape, tensor.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, tuple(y.shape), y.data_ptr())
    for _ in range(3):
        x += 1
        torch.cuda.synchronize()
        session.run_with_iobinding(binding)
        torch.testing.assert_close(y, x * w + x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    torch.testing.assert_close(y, x * w + x)


def test_cupy_in_cupy_out() -> None:
    cupy: Any = pytest.importorskip("cupy")
    session = _session()
    x, w = cupy.random.rand(5, 6, dtype=np.float32), cupy.ones((5, 6), np.float32)
    y = session(x, w)
    assert isinstance(y, cupy.ndarray)
    assert_near(y.get(), (x * w + x).get(), "float: one operation")
    stream = cupy.cuda.Stream(non_blocking=True)
    found = session.run(None, {"x": x, "w": w}, stream=stream)[0]
    assert_near(found, (x * w + x).get(), "float: one operation")
    back = cupy.asarray(ort.OrtValue.ortvalue_from_numpy(found, "cuda", 0))
    cupy.testing.assert_allclose(back, found)
