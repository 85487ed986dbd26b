"""NVIDIA's libraries: which are there, what they take, and the calls that runs make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from sardonyx.base import knobs
from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.plan.plan import Command, LibraryCall, Plan
from sardonyx.plan.vendor_offers import Offer

_logger = get_logger("cuda")

#: So many kinds of failures are logged, each once: there may be one in each run.
_MOST_FAILURES = 64
#: The operands that a call has before bias and residual.
_OPERANDS = {"attention": ("left", "right", "values", "out")}
_OTHER_OPERANDS = ("left", "right", "out")


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call's work goes.

    Attributes:
        stream: The queue.
        workspace: Gives the address of so many bytes that only this queue's work uses.
        rehearse: Gives what does the same work by the command's own kernel, on other memory.
        is_ready: Says whether that kernel can do the work without having to be compiled.
    """

    stream: Any
    workspace: Callable[[int], int]
    rehearse: Callable[[], Rehearsal | None] = lambda: None
    is_ready: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class LibraryWork:
    """A call with the values of a run.

    Attributes:
        dtype: Name of the type of the factors' elements.
        result: The same of all others.
        activation: `relu`, `gelu` or "".
        left, right, out: Addresses of factors and result; those of an attention's queries, keys.
        bias, residual: Addresses of what is added; 0 for nothing.
        values: Address of an attention's values.
        numbers: Sizes and strides, as `plan.vendor_offers` orders them.
        call: What was planned.
    """

    dtype: str
    result: str
    activation: str
    left: int
    right: int
    out: int
    bias: int
    residual: int
    numbers: tuple[int, ...]
    call: LibraryCall
    values: int = 0

    @staticmethod
    def of(call: LibraryCall, words: Sequence[int]) -> LibraryWork:
        """From the arguments of a command: pairs of address and offset, then numbers."""
        facts = dict(call.facts)
        names = [*_OPERANDS.get(call.function, _OTHER_OPERANDS)]
        names += [name for name in ("bias", "residual") if facts[name]]
        dtype, result = str(facts["dtype"]), str(facts["result"])
        kinds = dict.fromkeys(names, result) | {"left": dtype, "right": dtype}
        kinds["bias"] = str(facts.get("bias_type") or result)
        places = {
            name: words[2 * k] + words[2 * k + 1] * SIZES[kinds[name]]
            for k, name in enumerate(names)
        }
        return LibraryWork(
            dtype, result, str(facts["activation"]), places["left"], places["right"],
            places["out"], places.get("bias", 0), places.get("residual", 0),
            tuple(words[2 * len(names) :]), call, places.get("values", 0),
        )  # fmt: skip


class Library(Protocol):
    """One of them.

    Attributes:
        pending: How many plans are being made in the background, which runs do without as yet.
        searching: How many plans that are in use already may get better in the background.
        version: Changes when plans have been made that other calls used to do without, once for
            all that are made in a row.
        key: What of it changes what it takes.
    """

    searching: int
    version: int
    key: str

    @property
    def pending(self) -> int:
        """See above."""

    def refusal(self, offer: Offer) -> str:
        """Why it does not take an offer, when a plan is made; "" if it does."""

    def run(self, work: LibraryWork, place: CallPlace) -> bool:
        """Do the work; False if it cannot at these sizes, or not yet."""


#: Bytes of one element of the types that libraries take.
SIZES = {"float16": 2, "bfloat16": 2, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class LibrarySettings:
    """What a session asks of libraries; see `settings.CudaSettings`."""

    tf32: bool = True
    convolution_search: str = "EXHAUSTIVE"
    any_workspace: bool = True
    product_search: bool = False
    attention: str = ""


class Libraries:
    """All of a provider; also says what they take (`plan.vendor_offers.Accelerator`).

    Attributes:
        missing: Why functions are done by kernels alone, by function.

    Args:
        found: A library by function, or why there is none.
    """

    def __init__(self, found: Mapping[str, Library | str]) -> None:
        self._found = {name: x for name, x in found.items() if not isinstance(x, str)}
        self.missing = {name: x for name, x in found.items() if isinstance(x, str)}
        self._failures: set[str] = set()
        self._every = tuple({id(x): x for x in self._found.values()}.values())

    def refusal(self, offer: Offer) -> str:
        """See `Accelerator.refusal`."""
        library = self._found.get(offer.function)
        if library is None:
            return self.missing.get(offer.function, f"no library does {offer.function}")
        return library.refusal(offer)

    @property
    def key(self) -> str:
        """What of it changes plans."""
        return " ".join(f"{name} {self._found[name].key}" for name in sorted(self._found))

    def takes(self, call: LibraryCall | None) -> bool:
        """Whether there is a library for a planned call."""
        return call is not None and call.function in self._found

    def calls_of(self, plan: Plan) -> dict[int, tuple[LibraryCall, int, int]]:
        """Calls by command, and which of the command's arguments are the call's: from, up to."""
        found = {}
        for number, command in enumerate(plan.commands):
            if isinstance(command, Command) and command.library is not None:
                last = len(command.arguments)
                found[number] = (command.library, last - command.library.count, last)
        return {number: x for number, x in found.items() if self.takes(x[0])}

    def remarks(self, calls: int, undone: int) -> list[str]:
        """What is to be said of so many calls, and of those that kernels did."""
        found = [f"no library: {reason}" for reason in dict.fromkeys(self.missing.values())]
        if calls:
            text = f"libraries: {calls - undone} of {calls} calls done by them in the last run"
            pending = self.pending
            text += f", {pending} plans in the making" if pending else ""
            text += f", {self.searching} being measured" if self.searching else ""
            found.append(text)
        return found

    @property
    def pending(self) -> int:
        """How many plans are being made in the background."""
        return sum(library.pending for library in self._every)

    @property
    def searching(self) -> int:
        """How many plans may get better in the background."""
        return sum(library.searching for library in self._every)

    @property
    def version(self) -> int:
        """Changes when calls are done otherwise than before."""
        found = 0
        for library in self._every:  # asked in every run, where `sum` would take longer
            found += library.version
        return found

    def run(self, call: LibraryCall, words: Sequence[int], place: CallPlace) -> bool:
        """Do what a command plans; False if the kernel has to."""
        try:
            return self._found[call.function].run(LibraryWork.of(call, words), place)
        except SardonyxError:
            raise
        except Exception as error:  # noqa: BLE001 - the kernel does what a library fails at
            text = f"{call.function}: {error}"
            if text not in self._failures and len(self._failures) < _MOST_FAILURES:
                self._failures.add(text)
                _logger.warning("a library failed at %s", text)
            return False


@cache
def find_libraries(device: Device, settings: LibrarySettings) -> Libraries:
    """The libraries that are installed, shared by all sessions with equal settings.

    Args:
        device: Where they work.
        settings: What is asked of them.
    """
    if not knobs.get("SARDONYX_LIBRARIES"):
        return Libraries({})
    from sardonyx.cuda.libraries.cublaslt import CublasLt
    from sardonyx.cuda.libraries.cudnn import Cudnn

    makers: dict[str, tuple[tuple[str, ...], Callable[[], Library]]] = {
        "nvmath-python": (("matmul",), lambda: CublasLt(device, settings)),
        "nvidia-cudnn-frontend": (("convolution", "attention"), lambda: Cudnn(device, settings)),
    }
    found: dict[str, Library | str] = {}
    for package, (functions, make) in makers.items():
        library: Library | str
        try:
            library = make()
        except Exception as error:  # noqa: BLE001 - packages and their libraries fail in many ways
            library = f"{package} is not usable: {error}"
            _logger.info("no library for %s: %s", ", ".join(functions), library)
        found.update(dict.fromkeys(functions, library))
    if settings.attention == "kernel":
        found["attention"] = "the option sdpa_kernel = 16 leaves attention to our own kernels"
    elif settings.attention and isinstance(found["attention"], str):
        text = "the option sdpa_kernel = 8 asks for cuDNN's attention, but %s"
        _logger.warning(text, found["attention"])
    return Libraries(found)
