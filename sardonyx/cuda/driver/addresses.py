"""Memory that callers name by its address: whether it is there, and how far it goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cuda.driver.driver import address_range, pointer_attribute
from sardonyx.cuda.memory.arena import arenas_on
from sardonyx.cuda.memory.staging import is_pinned

if TYPE_CHECKING:
    from sardonyx.cuda.driver.device import Device
    from sardonyx.plan.plan import Plan

#: So many answers are kept about memory that runs name again and again.
_MOST_KNOWN = 512


class NoSuchMemory(InvalidArgument):
    """Memory at an address is not there, is too small, another device's, or the host's.

    Attributes:
        address: Where.
    """

    def __init__(self, address: int, where: str = "CUDA", **words: str) -> None:
        super().__init__(message(where, **words))
        self.address, self._words = address, words

    def of(self, where: str) -> NoSuchMemory:
        """The same of a feed or a result."""
        return NoSuchMemory(self.address, where, **self._words)


def named(
    error: BaseException, plan: Plan, feeds: Sequence[Any], targets: Sequence[Any] = ()
) -> BaseException:
    """An error of a run; one about an address says which feed or target lies there."""
    if isinstance(error, NoSuchMemory):
        inputs = ((f"input {spec.name}", f) for spec, f in zip(plan.inputs, feeds, strict=False))
        outputs = zip(plan.outputs, targets, strict=False)
        for name, array in (*inputs, *((f"output {spec.name}", t) for spec, t in outputs)):
            if getattr(array, "address", None) == error.address:
                return error.of(name)
    return error


def device_number(address: int) -> int:
    """Which device has the memory at an address; the current context may be any device's.

    Raises:
        NoSuchMemory: None has; the address is null, or memory there was freed.
    """
    found = pointer_attribute("DEVICE_ORDINAL", address) if address else None
    if found is None:
        what = f"There is no memory of a device at {address:#x}"
        do = "Was it freed?" if address else "The address is null: give that of memory"
        raise NoSuchMemory(address, what=what, do=do)
    return found


def check_pointer(address: int, where: Device) -> None:
    """Refuse an address that is not in memory of a device.

    Raises:
        NoSuchMemory: It is null, was freed, is another device's, or the host's.
    """
    found = device_number(address)
    if found != where.number:
        what = f"The memory at {address:#x} is another device's"
        expected, got = f"device {where.number}", f"device {found}"
        raise NoSuchMemory(address, what=what, expected=expected, got=got)


def check_memory(
    address: int, size_bytes: int, where: Device, *, is_repeated: bool = False
) -> None:
    """Refuse bytes from an address on that do not all lie in memory of a device.

    Memory of ours ends with its block. Of other memory the driver is asked how far it goes; what
    it cannot tell is not held against the memory: then `check_pointer` is all.

    Args:
        address: Of the first byte.
        size_bytes: How many; of none nothing is asked.
        where: The device.
        is_repeated: Whether runs give the same address again and again: how far memory of others
            goes is asked once.

    Raises:
        NoSuchMemory: As `check_pointer`, or the memory ends before.
    """
    if not size_bytes:
        return
    with where.entered():
        check_pointer(address, where)
        end = _end_of_block(address, where)
        if end is not None:
            _check_size(address, size_bytes, end - address)
        elif is_repeated:
            check_range_once(address, size_bytes, where)
        else:
            _check_range(address, size_bytes, where)


def check_pinned(address: int, size_bytes: int, where: Device) -> None:
    """Refuse bytes that do not lie in memory of the host that a device reaches.

    Raises:
        NoSuchMemory: The address is null, the memory is not pinned, or it ends before.
    """
    if not size_bytes:
        return
    with where.entered():
        for place in (address, address + size_bytes - 1):
            if not address or not is_pinned(place):
                what = f"There is no pinned memory at {place:#x}"
                raise NoSuchMemory(address, what=what, do="Name other memory of the host 'cpu'")
    end = _end_of_block(address, where)
    if end is not None:
        _check_size(address, size_bytes, end - address)


def _check_size(address: int, wanted_bytes: int, found_bytes: int) -> None:
    if found_bytes < wanted_bytes:
        what = f"The memory at {address:#x} is too small"
        do = "Check shape and type" if found_bytes else "Was it freed?"
        expected, got = f"{wanted_bytes} bytes", f"{found_bytes} bytes"
        raise NoSuchMemory(address, what=what, expected=expected, got=got, do=do)


def _end_of_block(address: int, where: Device) -> int | None:
    """Where the block of one of our arenas ends that has the address; None if it is none's."""
    ends = (arena.end_of_block(address) for arena in arenas_on(where))
    return next((end for end in ends if end is not None), None)


def _check_range(address: int, size_bytes: int, where: Device) -> None:
    """Refuse memory that ends too early, as far as the driver tells.

    Memory that was mapped piece by piece, as torch does with `expandable_segments`, is several
    ranges side by side.
    """
    end, wanted = address, address + size_bytes
    while end < wanted:
        found = address_range(end)
        after = sum(found) if found is not None else end
        if after <= end:
            return
        end = after
        is_one = pointer_attribute("IS_LEGACY_CUDA_IPC_CAPABLE", address)  # of cuMemAlloc
        if is_one or pointer_attribute("DEVICE_ORDINAL", end) != where.number:
            break
    _check_size(address, size_bytes, end - address)


check_range_once = lru_cache(_MOST_KNOWN)(_check_range)
