"""PTX in a device: kernels, found by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import ref

from sardonyx.base.errors import NotFound, RuntimeException, SardonyxError, message
from sardonyx.base.forks import RenewedLock
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call, release
from sardonyx.cuda.libraries.background import Background

_logger = get_logger("cuda")
#: https://docs.nvidia.com/cuda/parallel-thread-execution/#kernel-and-function-directives-entry
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
_COMPILER = Background("sardonyx-modules", lambda: None)


class Module:
    """The kernels of a model, compiled by the driver for the device.

    Args:
        device: Where.
        texts: PTX, as several modules.
        spare: Those of kernels that runs can do without: compiled in the background, or when one of
            them is asked for before that.
    """

    def __init__(self, device: Device, texts: Sequence[str], spare: Sequence[str] = ()) -> None:
        self._device = device
        self._modules = _all_loaded(device, texts)
        self._functions: dict[str, Any] = {}
        self._spare: dict[str, SparePart] = {}
        for text in spare:
            part = SparePart(device, text)
            self._spare.update(dict.fromkeys(_ENTRY.findall(text), part))
            # The driver takes some 0.1 s for one that it has not compiled before.
            if not _COMPILER.do(partial(_load_if_wanted, ref(part))):
                part.is_pending = False

    @property
    def pending(self) -> int:
        """How many parts of it are still to be compiled in the background."""
        return sum(part.is_pending for part in set(self._spare.values()))

    def is_ready(self, symbol: str) -> bool:
        """Whether it is no use to wait for that kernel: it is there, or is compiled on demand."""
        part = self._spare.get(symbol)
        return part is None or part.module is not None or not part.is_pending

    def function(self, symbol: str) -> Any:
        """The kernel of that name.

        Raises:
            NotFound: There is none.
            OutOfMemory: There is no room for it on the device.
        """
        found = self._functions.get(symbol)
        if found is None:
            part = self._spare.get(symbol)
            modules = self._modules if part is None else [part.load()]
            found = self._functions[symbol] = _find(modules, symbol)
        return found

    def address(self, symbol: str) -> int:
        """Not 0: native code calls no kernel itself."""
        return 1

    def __del__(self) -> None:
        for module in getattr(self, "_modules", ()):
            _unload(self._device, module)


class SparePart:
    """A part of a module that is compiled later.

    Attributes:
        module: None until it is.
        is_pending: Whether that has not been tried in the background as yet.
    """

    def __init__(self, device: Device, text: str) -> None:
        self._device, self._text, self._lock = device, text, RenewedLock()
        self.module: Any = None
        self.is_pending = True

    def load(self) -> Any:
        """Compile it, unless it is; gives the module."""
        with self._lock:
            if self.module is None:
                self.module = _loaded(self._text)
                self._text = ""
        return self.module

    def load_early(self) -> None:
        """Compile it though nobody has asked: what fails then is tried again when somebody does."""
        try:
            self._device.enter()
            self.load()
        except SardonyxError as error:  # without memory for that, say
            _logger.info("a module of kernels is not compiled in advance: %s", error)
        finally:
            self.is_pending = False

    def __del__(self) -> None:
        if getattr(self, "module", None) is not None:
            _unload(self._device, self.module)


def _load_if_wanted(part: ref[SparePart]) -> None:
    """Compile a part in the background, if its session is still there."""
    found = part()
    if found is not None:
        found.load_early()


def _find(modules: Sequence[Any], symbol: str) -> Any:
    reason: Exception | None = None
    for module in modules:
        try:
            return call("cuModuleGetFunction", module, symbol.encode())
        except RuntimeException as error:
            reason = error
    raise NotFound(message("CUDA", f"There is no kernel {symbol!r}: {reason}")) from None


def _unload(device: Device, module: Any) -> None:
    if release is not None:  # else the interpreter goes away
        release("cuModuleUnload", module, device=device)


def _all_loaded(device: Device, texts: Sequence[str]) -> list[Any]:
    """Modules of all texts: the driver compiles them side by side, as it lets go of Python."""
    if len(texts) < 2:
        with device.entered():
            return [_loaded(text) for text in texts]

    def load(text: str) -> Any:
        device.enter()
        return _loaded(text)

    with ThreadPoolExecutor(min(len(texts), usable_processors())) as pool:
        return list(pool.map(load, texts))


def _loaded(ptx: str) -> Any:
    return call("cuModuleLoadData", ptx.encode() + b"\0")
