"""PTX in a device: kernels, found by name."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import NotFound, RuntimeException, message
from sardonyx.base.forks import RenewedLock
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call, release


class Module:
    """The kernels of a model, compiled by the driver for the device.

    Args:
        device: Where.
        ptx: The text.
        spare: The text of kernels that are hardly ever needed: compiled when the first of them is.
    """

    def __init__(self, device: Device, ptx: str, spare: str = "") -> None:
        device.enter()
        self._device, self._spare = device, spare
        self._modules = [_loaded(ptx)] if ptx else []
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
                if self._spare and f".entry {symbol}(" in self._spare:
                    self._modules.append(_loaded(self._spare))
                    self._spare = ""
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


def _loaded(ptx: str) -> Any:
    return call("cuModuleLoadData", ptx.encode() + b"\0")
