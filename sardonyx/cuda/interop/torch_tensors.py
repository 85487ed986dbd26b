"""Tensors of torch on a device, without DLPack: its Python code takes longer than a short run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sardonyx.cuda.driver.capturing import is_captured
from sardonyx.cuda.driver.device import Device, device
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.memory.values import CudaArray
from sardonyx.runtime.storage import DeviceArray

#: NumPy's types of torch's, as far as DLPack has told them.
_types: dict[Any, np.dtype[Any]] = {}
#: By device what short runs ask of torch.
_known: dict[Device, Torch] = {}


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


class Torch:
    """What short runs ask of torch, looked up once.

    Attributes:
        module: `torch`.

    Args:
        module: `torch`.
        where: The device.
    """

    def __init__(self, module: Any, where: Device) -> None:
        self.module = module
        self._tensor, self._number = module.Tensor, where.number
        self._place = module.device("cuda", where.number)
        native = getattr(module._C, "_cuda_isCurrentStreamCapturing", None)
        self._is_captured = native or module.cuda.is_current_stream_capturing
        native = getattr(module._C, "_cuda_getDevice", None)
        self._current_device = native or module.cuda.current_device
        self._kinds: dict[np.dtype[Any], Any] = {}

    def stream(self) -> int:
        """The handle of its current stream."""
        return current_stream(self._number)

    def is_captured(self, queue: Stream) -> bool:
        """Whether its current stream of this device is, `queue`; it says so of one device alone."""
        if self._current_device() == self._number:
            return bool(self._is_captured())
        return is_captured(queue)

    def put_addresses(
        self,
        tensors: Sequence[Any],
        known: Sequence[tuple[int, Any, Any]],
        unaligned: int,
        found: memoryview[int],
    ) -> bool:
        """Where plain tensors of known shapes and types lie; False if one is anything else.

        Args:
            tensors: What is fed.
            known: The number, the shape and NumPy's type of each.
            unaligned: Bits that an address must not have.
            found: Gets the addresses.
        """
        kind, where = self._tensor, self._number
        for number, shape, dtype in known:
            tensor = tensors[number]
            if (
                type(tensor) is not kind
                or tensor.shape != shape
                or _types.get(tensor.dtype) is not dtype
                or tensor.get_device() != where  # -1 on the host
                or not tensor.is_contiguous()
                or tensor.requires_grad
                or tensor.is_conj()
                or tensor.is_neg()
            ):
                return False
            found[number] = address = tensor.data_ptr()
            if address & unaligned:
                return False
        return True

    def makers(self, wanted: Sequence[tuple[Any, ...]]) -> list[Callable[[], Any]] | None:
        """What makes new tensors; None if torch is not known to have one.

        Args:
            wanted: For each its shape and NumPy's type, and whatever else.
        """
        kinds = self._kinds
        if any(dtype not in kinds for _, dtype, *_ in wanted):
            kinds.update((held, kind) for kind, held in list(_types.items()))
            if any(dtype not in kinds for _, dtype, *_ in wanted):
                return None
        # Torch takes half as long again for `empty`.
        return [
            partial(
                self.module.empty_strided, shape, dense_strides(shape),
                dtype=kinds[dtype], device=self._place,
            )
            for shape, dtype, *_ in wanted
        ]  # fmt: skip


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, in elements."""
    found = [1]
    for size in shape[:0:-1]:
        found.append(found[-1] * max(1, size))
    return tuple(found[::-1]) if shape else ()


def known_torch(where: Device, tensor: Any) -> Torch | None:
    """What is known of torch on a device; None if that is no tensor of it."""
    module = sys.modules.get("torch")
    if module is None or type(tensor) is not module.Tensor:
        return None
    found = _known.get(where)
    if found is None or found.module is not module:
        found = _known[where] = Torch(module, where)
    return found


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
    found = torch.from_dlpack(capsule)
    note_type(found, array.dtype)
    return found
