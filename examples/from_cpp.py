"""What onnxruntime's page of device tensors does in C++, in Python.

    python -m examples.from_cpp

Each function has the C++ of one snippet in its docstring. Without a GPU the same calls name memory
of the processor. DirectML's snippet has no other half here: a resource of Direct3D becomes memory
by its address, as `wrapped` shows for CUDA's, but there is no provider for such devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import sardonyx as ort
from examples.device import device_of, session_of

SHAPE = [1, 4, 64, 64]


def model() -> tuple[str, dict[str, Any]]:
    """A step of denoising in its smallest form: latents of half floats, noise of floats."""
    text = """
    step (float16[1,4,H,W] latent, float[1,4,H,W] noise) => (float[1,4,H,W] y) {
      a = Cast<to=1>(latent) b = Mul(noise, scale) y = Sub(a, b)
    }"""
    return text, {"scale": np.array([0.25], np.float32)}


def memory_of(device: str) -> ort.OrtMemoryInfo:
    """Memory of a device.

    ```c++
    Ort::MemoryInfo memory_info_cuda("Cuda", OrtArenaAllocator, /*device_id*/0,
                                     OrtMemTypeDefault);
    ```
    """
    kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    return ort.OrtMemoryInfo(device.capitalize(), kind, 0, ort.OrtMemType.DEFAULT)


def allocated(session: ort.InferenceSession, device: str) -> ort.OrtValue:
    """A tensor from the session's allocator.

    ```c++
    Ort::Allocator gpu_allocator(session, memory_info_cuda);
    auto ort_value = Ort::Value::CreateTensor(
            gpu_allocator, shape.data(), shape.size(),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
    ```
    """
    info = memory_of(device)
    return session.create_ortvalue_from_shape_and_type(SHAPE, np.float16, memory_info=info)


class Resource:
    """Memory that is not ours; it is given back when nothing refers to it.

    ```c++
    void *cuda_resource;
    CUDA_CHECK(cudaMalloc(&cuda_resource, cuda_buffer_size));
    ```
    """

    def __init__(self, device: str, size_bytes: int) -> None:
        self._driver: Any = None
        if device == "cpu":
            self._kept = np.empty(size_bytes, np.uint8)
            self.address = self._kept.ctypes.data
        else:
            from cuda.bindings import driver

            def done(name: str, *arguments: Any) -> Any:
                code, *results = getattr(driver, name)(*arguments)
                if code != driver.CUresult.CUDA_SUCCESS:
                    raise MemoryError(f"{size_bytes} bytes: {name} gave {code.name}")
                return results[0] if results else None

            # cudaMalloc makes the device current by itself; the driver's functions do not.
            done("cuCtxSetCurrent", done("cuDevicePrimaryCtxRetain", done("cuDeviceGet", 0)))
            self._driver, self.address = driver, int(done("cuMemAlloc", size_bytes))

    def __del__(self) -> None:
        if self._driver is not None:
            self._driver.cuMemFree(self.address)


def wrapped(device: str) -> ort.OrtValue:
    """A tensor on such memory, with no copy; it refers to the memory's owner.

    ```c++
    std::array<int64_t, 4> shape{1, 4, 64, 64};
    size_t cuda_buffer_size = 4 * 64 * 64 * sizeof(float);
    auto ort_value = Ort::Value::CreateTensor(
        memory_info_cuda, cuda_resource, cuda_buffer_size,
        shape.data(), shape.size(),
        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
    ```
    """
    resource = Resource(device, 4 * 64 * 64 * 4)
    return ort.OrtValue.ortvalue_from_address(
        resource.address, SHAPE, np.float32, memory_info=memory_of(device), owner=resource
    )


def in_stream_of_ours(session: ort.InferenceSession) -> Any:
    """A stream for all runs of the session; None without a GPU.

    ```c++
    UpdateCUDAProviderOptionsWithValue(options, "user_compute_stream", cuda_stream);
    ```
    """
    if device_of(session) == "cpu":
        return None
    stream = next(d for d in ort.get_ep_devices() if d.device.vendor).create_sync_stream()
    options = {"user_compute_stream": str(stream.get_handle())}
    session.set_providers(["CUDAExecutionProvider"], [options])
    return stream


def run(steps: int = 5) -> dict[str, Any]:
    """Steps in which the result is the next noise; gives how far it is from NumPy's."""
    session = session_of(*model())
    device, stream = device_of(session), in_stream_of_ours(session)
    random = np.random.default_rng(6)
    latent = random.standard_normal(SHAPE).astype(np.float16)
    noise = random.standard_normal(SHAPE).astype(np.float32)
    first, second, result = allocated(session, device), wrapped(device), wrapped(device)
    first.update_inplace(latent)
    second.update_inplace(noise)
    binding = session.io_binding()
    binding.bind_ortvalue_input("latent", first)
    options = ort.RunOptions()  # nobody waits for a run: the stream has them in order
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    expected = noise
    for _ in range(steps):
        binding.bind_ortvalue_input("noise", second)
        binding.bind_ortvalue_output("y", result)
        session.run_with_iobinding(binding, options)
        second, result = result, second
        expected = latent.astype(np.float32) - expected * np.float32(0.25)
    if stream is not None:
        stream.synchronize()
    difference = float(np.abs(second.numpy() - expected).max())
    return {"device": device, "steps": steps, "difference": difference}


if __name__ == "__main__":
    for name, found in run().items():
        print(f"{name:12}{found}")
