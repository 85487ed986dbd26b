"""Tensors of torch on a device, without DLPack: its Python code takes longer than a short run."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sardonyx.cuda.device import device
from sardonyx.cuda.stream import Stream
from sardonyx.cuda.values import CudaArray
from sardonyx.runtime.storage import DeviceArray

#: NumPy's types of torch's, as far as DLPack has told them.
_types: dict[Any, np.dtype[Any]] = {}


def array_of(tensor: Any) -> CudaArray | None:
    """The array on a tensor's memory; None where DLPack must say how it lies, or refuse."""
    torch = sys.modules.get("torch")
    if torch is None or type(tensor) is not torch.Tensor or not tensor.is_cuda:
        return None
    dtype = _types.get(tensor.dtype)
    if (
        dtype is None
        or not tensor.is_contiguous()
        or tensor.requires_grad
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    where, shape = device(tensor.get_device()), tuple(tensor.shape)
    return CudaArray(where, shape, dtype, tensor.data_ptr(), owner=tensor, producer=tensor)


def note_type(tensor: Any, dtype: np.dtype[Any]) -> None:
    """What DLPack said of a tensor holds for all of its type."""
    torch = sys.modules.get("torch")
    if torch is not None and type(tensor) is torch.Tensor:
        _types[tensor.dtype] = dtype


def current_stream(number: int) -> int:
    """The handle of torch's current stream of a device."""
    torch = sys.modules["torch"]
    # What code that torch compiles calls, too; the public way makes an object of Python first.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(number).cuda_stream if raw is None else raw(number))


def let_wait(stream: Stream) -> None:
    """Let a stream wait for what torch's current stream has under way."""
    where = stream.device
    handle = current_stream(where.number)
    if handle != stream.handle:
        stream.wait_for(where.stream_of(handle).record())


def tensor_on(array: DeviceArray) -> Any:
    """A tensor of torch on an array's memory, for its current stream."""
    torch = sys.modules["torch"]
    # The handle 0 is the legacy stream, which DLPack calls 1.
    _, number = array.__dlpack_device__()
    capsule = array.__dlpack__(stream=current_stream(number) or 1)
    return torch.from_dlpack(capsule)
