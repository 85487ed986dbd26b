"""Addresses that callers gave: whether a device has memory there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import pointer_attribute

if TYPE_CHECKING:
    from sardonyx.plan.plan import Plan


class NoSuchMemory(InvalidArgument):
    """A device has no memory at an address: it was freed, is another device's, or the host's.

    Attributes:
        address: Where.
    """

    def __init__(self, address: int, where: str = "CUDA", **words: str) -> None:
        super().__init__(message(where, **words))
        self.address, self._words = address, words

    def of(self, where: str) -> NoSuchMemory:
        """The same of a feed or a result."""
        return NoSuchMemory(self.address, where, **self._words)


def device_number(address: int) -> int:
    """Which device has the memory at an address; the current context may be any device's.

    Raises:
        NoSuchMemory: None has.
    """
    found = pointer_attribute("DEVICE_ORDINAL", address)
    if found is None:
        what = f"There is no memory of a device at {address:#x}"
        raise NoSuchMemory(address, what=what, do="Was it freed?")
    return found


def check_pointer(address: int, where: Device) -> None:
    """Refuse an address that is not in memory of a device.

    Raises:
        NoSuchMemory: It was freed, is another device's, or the host's.
    """
    found = device_number(address)
    if found != where.number:
        what = f"The memory at {address:#x} is another device's"
        expected, got = f"device {where.number}", f"device {found}"
        raise NoSuchMemory(address, what=what, expected=expected, got=got)


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
