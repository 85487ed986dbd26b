"""PTX in a device: kernels, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sardonyx.base.errors import NotFound, RuntimeException, message
from sardonyx.base.forks import RenewedLock
from sardonyx.base.processors import usable_processors
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call, release


class Module:
    """The kernels of a model, compiled by the driver for the device.

    Args:
        device: Where.
        texts: PTX, as several modules.
        spare: Those of kernels that are hardly ever needed: compiled when one of them is.
    """

    def __init__(self, device: Device, texts: Sequence[str], spare: Sequence[str] = ()) -> None:
        self._device, self._spare = device, list(spare)
        self._modules = _all_loaded(device, texts)
        self._functions: dict[str, Any] = {}
        self._lock = RenewedLock()

    def function(self, symbol: str) -> Any:
        """The kernel of that name.

        Raises:
            NotFound: There is none.
        """
        found = self._functions.get(symbol)
        if found is None:
            with self._lock:
                for text in [t for t in self._spare if f".entry {symbol}(" in t]:
                    self._modules.append(_loaded(text))
                    self._spare.remove(text)
            found = self._functions[symbol] = self._find(symbol)
        return found

    def _find(self, symbol: str) -> Any:
        reason: Exception | None = None
        for module in self._modules:
            try:
                return call("cuModuleGetFunction", module, symbol.encode())
            except RuntimeException as error:
                reason = error
        raise NotFound(message("CUDA", f"There is no kernel {symbol!r}: {reason}")) from None

    def address(self, symbol: str) -> int:
        """Not 0: native code calls no kernel itself."""
        return 1

    def __del__(self) -> None:
        for module in getattr(self, "_modules", ()):
            if release is not None:
                release("cuModuleUnload", module, device=self._device)


def _all_loaded(device: Device, texts: Sequence[str]) -> list[Any]:
    """Modules of all texts: the driver compiles them side by side, as it lets go of Python."""
    device.enter()
    if len(texts) < 2:
        return [_loaded(text) for text in texts]

    def load(text: str) -> Any:
        device.enter()
        return _loaded(text)

    with ThreadPoolExecutor(min(len(texts), usable_processors())) as pool:
        return list(pool.map(load, texts))


def _loaded(ptx: str) -> Any:
    return call("cuModuleLoadData", ptx.encode() + b"\0")
