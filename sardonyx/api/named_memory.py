"""Memory by the names of devices, as programs write them."""

from __future__ import annotations

from sardonyx.base import errors
from sardonyx.base.devices import device_named
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.runtime.storage import HOST, MemoryKind

_logger = get_logger("device")
#: Devices of providers that a session has the processor stand in for.
_STOOD_IN = ("dml",)
_warned: set[str] = set()


def known_device(name: str, number: int) -> tuple[str, int]:
    """A device's name, as it is spelt here, and its number.

    Small and capital letters are the same, `gpu` is `cuda`, and the number may stand behind the
    name: `cuda:1`. Then `number` is 0, its default everywhere, or the same.

    Sessions for DirectML run on the processor, so values for it lie there, too; the log says so.

    Raises:
        InvalidArgument: The name has a number, and `number` is another one.
    """
    known, own = device_named(name) if isinstance(name, str) else ("", None)
    if own is not None:
        check_number(own, number)
        number = own
    if known not in _STOOD_IN:
        return known, number
    if known not in _warned:
        _warned.add(known)
        _logger.warning("there is no device %r: the processor's memory stands in for it", name)
    return "cpu", 0


def check_number(own: int, number: int) -> None:
    """Refuse a number that is given beside a device that has its own.

    Raises:
        InvalidArgument: It is neither 0, the default, nor the device's.
    """
    if number not in (0, own):
        what = "The device is given with its number, and another number beside it"
        raise InvalidArgument(message("device", what, expected=str(own), got=str(number)))


def memory_kind(name: str, number: int = 0) -> MemoryKind:
    """The kind of memory that a device's or an allocator's name means; see `known_device`.

    Raises:
        NotImplemented: There is no such device here.
        EPFail: Its driver is missing.
        InvalidArgument: There is no device with this number.
    """
    known, number = known_device(name, number)
    if known == "cpu":
        check_processor(number)
        return HOST
    if known in ("cuda", "cudapinned"):
        from sardonyx.cuda.memory.values import cuda_memory

        found: MemoryKind = cuda_memory(number, pinned=known == "cudapinned")
        return found
    raise errors.NotImplemented(
        message(
            "device", "There is no memory of a device of this name",
            expected="'cpu', 'cuda' (or 'cuda:1' and so on) or 'cudapinned'", got=repr(name),
        )
    )  # fmt: skip


def check_processor(number: int) -> None:
    """Refuse a number that the processor does not have.

    Raises:
        InvalidArgument: It is not 0.
    """
    if number != 0:
        raise InvalidArgument(message("device", "The processor's number is 0", got=str(number)))
