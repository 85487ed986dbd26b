"""PTX in a device: kernels, found by name."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import NotFound, RuntimeException, message
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call, release


class Module:
    """The kernels of a model, compiled by the driver for the device.

    Args:
        device: Where.
        ptx: The text.
    """

    def __init__(self, device: Device, ptx: str) -> None:
        device.enter()
        self._device = device
        self._module: Any = call("cuModuleLoadData", ptx.encode() + b"\0") if ptx else None
        self._functions: dict[str, Any] = {}

    def function(self, symbol: str) -> Any:
        """The kernel of that name.

        Raises:
            NotFound: There is none.
        """
        found = self._functions.get(symbol)
        if found is None:
            try:
                found = call("cuModuleGetFunction", self._module, symbol.encode())
            except RuntimeException as error:
                what = f"There is no kernel {symbol!r}: {error}"
                raise NotFound(message("CUDA", what)) from None
            self._functions[symbol] = found
        return found

    def address(self, symbol: str) -> int:
        """Not 0: native code calls no kernel itself."""
        return 1

    def __del__(self) -> None:
        if getattr(self, "_module", None) is not None and release is not None:
            release("cuModuleUnload", self._module, device=self._device)
