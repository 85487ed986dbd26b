"""What the examples share: where they run, memory there, and how they measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper, parser

import sardonyx as ort


def session_of(text: str, weights: dict[str, Any]) -> ort.InferenceSession:
    """A session of a graph in ONNX's text form, on the GPU if there is one."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    return ort.InferenceSession(model.SerializeToString(), providers=ort.get_available_providers())


def device_of(session: ort.InferenceSession) -> str:
    """The device that a session works on, as values name it."""
    return "cuda" if session.get_providers()[0] == "CUDAExecutionProvider" else "cpu"


def without_a_gpu(device: str) -> str:
    """What to expect of times where there is no device to copy to; empty where there is one."""
    if device == "cuda":
        return ""
    return (
        "\nWithout a GPU no copy is saved: kernels read NumPy arrays where they lie. Expect about"
        " the same\ntimes; where a run takes less than a millisecond, up to 15 % more with values."
    )


def pinned(device: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Floats of the host in memory that a GPU copies by itself; plain memory without one."""
    if device == "cpu":
        return np.zeros(shape, np.float32)
    kind = ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    info = ort.OrtMemoryInfo("CudaPinned", kind, 0, ort.OrtMemType.DEFAULT)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, memory_info=info)
    found: np.ndarray[Any, Any] = value.numpy()
    found[...] = 0
    return found


def milliseconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The median time of a call, after one that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3
