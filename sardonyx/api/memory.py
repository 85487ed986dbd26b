"""Kinds of memory, in onnxruntime's words: by a device, or by an allocator's name."""

from __future__ import annotations

from sardonyx.api.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from sardonyx.api.named_memory import (
    check_number,
    check_processor,
    known_device,
    memory_kind,
)
from sardonyx.api.shown import facts
from sardonyx.api.warned import warn
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.storage import MemoryKind

#: The maker of the GPUs here.
NVIDIA = 0x10DE
#: What says nothing about a maker.
_ANY_MAKER = (-1, 0)
#: Names of devices, with the numbers of their type and of their maker.
_DEVICES = {"cpu": (0, 0), "cuda": (1, NVIDIA)}
_BY_TYPE = {0: "cpu", 1: "cuda"}
#: Names of kinds of memory, with the device that has it and whether the host reaches it.
_MEMORIES = {"Cpu": ("cpu", False), "Cuda": ("cuda", False), "CudaPinned": ("cpu", True)}
#: What addresses of new memory of each kind are multiples of, in bytes.
_ALIGNED = {"Cpu": 16, "Cuda": 256, "CudaPinned": 256}


class OrtDevice:
    """A device: the processor, or a GPU by its number. It need not be there.

    `cpu` or `cuda` (`gpu` is the same), in small or capital letters; `cuda:1` has its number.
    For DirectML (`dml`) the processor stands in, as it does for sessions of that provider.

    Raises:
        NotImplemented: There are no devices of this name or maker here, or the numbers that
            onnxruntime's compiled class takes ask for other memory than a device's ordinary one.
        InvalidArgument: The number cannot be one.
    """

    @names_misfits
    def __init__(self, name: str | int = "cpu", device_id: int = 0, *rest: int) -> None:
        vendor_id = -1
        if isinstance(name, int) and rest:  # type, memory, (maker,) number
            if device_id != OrtDevice.default_memory():
                what = "A device is its ordinary memory"
                do = "Name other memory by an OrtMemoryInfo"
                raise errors.NotImplemented(message("device", what, got=str(device_id), do=do))
            *maker, device_id = rest
            name, vendor_id = _BY_TYPE.get(name, ""), maker[0] if maker else -1
        self._name, device_id = known_device(name if isinstance(name, str) else "", device_id)
        if self._name not in _DEVICES:
            raise errors.NotImplemented(
                message(
                    "device", "There is no device of this name", expected="'cpu' or 'cuda'",
                    got=repr(name),
                )
            )  # fmt: skip
        check_maker(self._name, vendor_id)
        if self._name == "cpu":
            check_processor(device_id)
        if device_id < 0:
            what = f"There is no {self._name} {device_id}"
            raise InvalidArgument(message("device", what, expected="0 or more"))
        self._number = int(device_id)

    def __repr__(self) -> str:
        own = self.__dict__
        return facts(self, f"{own.get('_name')}:{own.get('_number')}")

    @staticmethod
    def cpu() -> int:
        """The number of the processor's type."""
        return 0

    @staticmethod
    def cuda() -> int:
        """The number of a GPU's type."""
        return 1

    gpu = cuda

    @staticmethod
    def default_memory() -> int:
        """The number of ordinary memory."""
        return 0

    @staticmethod
    @names_misfits
    def make(name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device `name`, of any maker (-1 or 0) or of NVIDIA; raises as the class does."""
        made = OrtDevice(name, device_id)
        check_maker(made._name, vendor_id)
        return made

    def device_id(self) -> int:
        """Its number among devices of its type."""
        return self._number

    def device_type(self) -> int:
        """0, the processor, or 1, a GPU."""
        return _DEVICES[self._name][0]

    def device_vendor_id(self) -> int:
        """The maker's number; 0 for the processor, whose memory is no maker's own."""
        return _DEVICES[self._name][1]

    def device_mem_type(self) -> int:
        """0, ordinary memory."""
        return 0

    @property
    def _ort_device(self) -> OrtDevice:
        return self

    def _get_c_device(self) -> OrtDevice:
        """Itself: onnxruntime's Python part has a compiled device inside, which clients take."""
        return self

    def memory(self) -> MemoryKind:
        """Memory of the device.

        Raises:
            EPFail: Its driver is missing.
            InvalidArgument: There is no device with this number.
        """
        return memory_kind(self._name, self._number)


class OrtMemoryInfo:
    """What kind of memory something lies in: `Cpu`, `Cuda`, or `CudaPinned` of the host.

    Raises:
        NotImplemented: There is no such memory here.
        InvalidArgument: The number of the device is negative.
    """

    @names_misfits
    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, id: int, mem_type: OrtMemType
    ) -> None:
        if name not in _MEMORIES:
            raise errors.NotImplemented(
                message(
                    "OrtMemoryInfo", "There is no memory of this kind",
                    expected=f"one of {list(_MEMORIES)}", got=repr(name),
                )
            )  # fmt: skip
        self.name = self.kind_name = name
        self.allocator_type = OrtAllocatorType(allocator_type)
        if id < 0:
            what = f"There is no device {id}"
            raise InvalidArgument(message("OrtMemoryInfo", what, expected="0 or more"))
        self.device_id = int(id)
        self.mem_type = OrtMemType(mem_type)
        _, is_pinned = _MEMORIES[name]
        pinned, plain = OrtDeviceMemoryType.HOST_ACCESSIBLE, OrtDeviceMemoryType.DEFAULT
        self.device_mem_type = pinned if is_pinned else plain
        self.device_vendor_id = 0 if name == "Cpu" else NVIDIA

    def __repr__(self) -> str:
        own = self.__dict__
        return facts(self, f"{own.get('kind_name')} of device {own.get('device_id')}")

    @staticmethod
    @names_misfits
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        memory_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """The same, with the kind of device as a number and a name of any kind.

        Args:
            name: Any; it is kept.
            device_type: The processor's or a GPU's.
            vendor_id: The GPU's maker, NVIDIA; -1 or 0 for any.
            device_id: Number of the device.
            memory_type: Its own memory, or memory of the host that it reaches, which is pinned.
            alignment: Of addresses, in bytes: up to 256 for a GPU's, 16 for the processor's.
            allocator_type: As the class has it.

        Raises:
            NotImplemented: There is no such memory here.
            InvalidArgument: The device's number is negative, or the alignment no power of two.
        """
        kind = OrtMemoryInfoDeviceType(device_type)
        if kind not in (OrtMemoryInfoDeviceType.CPU, OrtMemoryInfoDeviceType.GPU):
            OrtDevice(kind.name, device_id)  # raises
        is_pinned = OrtDeviceMemoryType(memory_type) == OrtDeviceMemoryType.HOST_ACCESSIBLE
        plain = "Cuda" if kind == OrtMemoryInfoDeviceType.GPU else "Cpu"
        if plain == "Cuda" or is_pinned:
            check_maker("CudaPinned" if is_pinned else plain, vendor_id)
        own = "CudaPinned" if is_pinned and (plain == "Cuda" or vendor_id == NVIDIA) else plain
        _check_alignment(own, alignment)
        made = OrtMemoryInfo(own, allocator_type, device_id, OrtMemType.DEFAULT)
        made.name, made.device_vendor_id = name, vendor_id
        made.device_mem_type = OrtDeviceMemoryType(memory_type)
        return made

    def kind(self) -> MemoryKind:
        """The memory itself.

        Raises:
            EPFail: Its driver is missing.
            InvalidArgument: There is no such device.
        """
        return memory_kind(self.kind_name, self.device_id)


def memory_of(
    device: str | OrtDevice | OrtMemoryInfo, number: int = 0, vendor_id: int = -1
) -> MemoryKind:
    """The memory that is meant.

    Args:
        device: A name, as `api.named_memory.known_device` has them, or an object that has all
            of it.
        number: Of the device, if that is a name without one.
        vendor_id: The device's maker; -1 or 0 for any.

    Raises:
        NotImplemented: There are no devices of this name or maker here.
        EPFail: The device's driver is missing.
        InvalidArgument: There is no device with this number, or the object has another one.
    """
    if isinstance(device, str):
        name, number = known_device(device, number)
        check_maker(name, vendor_id)
        return memory_kind(name, number)
    if isinstance(device, OrtDevice):
        name, own, found = device._name, device.device_id(), device.memory
    elif isinstance(device, OrtMemoryInfo):
        name, own, found = device.kind_name, device.device_id, device.kind
    else:
        raise errors.WrongType(
            message(
                "device", "This is no device", got=type(device).__name__,
                expected="a name such as 'cuda', an OrtDevice or an OrtMemoryInfo",
            )
        )  # fmt: skip
    check_maker(name, vendor_id)
    check_number(own, number)
    return found()


def memory_for(
    info: OrtMemoryInfo | None, device: str | OrtDevice | OrtMemoryInfo, number: int, vendor_id: int
) -> MemoryKind:
    """`memory_of` a memory info, if there is one, else of a device; raises as that does.

    With both there is a warning, as onnxruntime has it: the device is not looked at.
    """
    if info is None:
        return memory_of(device, number, vendor_id)
    if (device, number, vendor_id) != ("cpu", 0, -1):
        warn("device_type, device_id and vendor_id are not looked at: there is a memory_info")
    return memory_of(info)


def _check_alignment(name: str, alignment: int) -> None:
    """Refuse an alignment that new memory does not have by itself."""
    where = "OrtMemoryInfo alignment"
    if alignment < 0 or alignment & (alignment - 1):
        expected = "0 or a power of two"
        raise InvalidArgument(message(where, "It is none", expected=expected, got=str(alignment)))
    if alignment > _ALIGNED[name]:
        what, expected = f"Memory of {name} is not made so", f"up to {_ALIGNED[name]} bytes"
        raise errors.NotImplemented(message(where, what, expected=expected, got=str(alignment)))


def check_maker(name: str, vendor_id: int) -> None:
    """Refuse a device of another maker than that of the GPUs here.

    Memory of the processor is no maker's own.

    Raises:
        NotImplemented: There are no such devices here.
    """
    if name.lower() != "cpu" and vendor_id not in (*_ANY_MAKER, NVIDIA):
        raise errors.NotImplemented(
            message(
                "device vendor_id", f"There is no memory of {name!r} of this maker",
                expected=f"-1, 0 or {NVIDIA:#x} (NVIDIA)", got=f"{vendor_id:#x}",
            )
        )  # fmt: skip


def cpu_memory() -> OrtMemoryInfo:
    """Memory of the processor."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


def info_of(kind: MemoryKind) -> OrtMemoryInfo:
    """A kind of memory in onnxruntime's words."""
    allocator = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    return OrtMemoryInfo(kind.memory_name, allocator, kind.number, OrtMemType.DEFAULT)
