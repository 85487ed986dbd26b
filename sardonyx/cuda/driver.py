"""NVIDIA's driver, through `cuda-bindings`; nothing is imported before a GPU is asked for."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import OutOfMemory, RuntimeException, message


@cache
def bindings() -> Any:
    """The module with the driver's functions, once initialised.

    Raises:
        EPFail: The package, the driver or a GPU is not there.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        what = f"The package cuda-bindings is missing: {error}"
        raise errors.EPFail(message("CUDA", what, do='pip install "sardonyx[cuda]"')) from None
    try:
        code, *_ = driver.cuInit(0)
    except RuntimeError as error:  # the package found no driver to load
        raise errors.EPFail(message("CUDA", f"There is no driver: {error}")) from None
    if code != driver.CUresult.CUDA_SUCCESS:
        raise errors.EPFail(message("CUDA", f"The driver does not start: {code.name}"))
    return driver


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the driver; gives its result, or the tuple of them.

    Raises:
        OutOfMemory: The device has not so much memory.
        RuntimeException: It failed for another reason, which the text names.
    """
    driver = bindings()
    code, *results = getattr(driver, name)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise OutOfMemory(message("CUDA", f"{name}: the device has no memory left"))
        raise RuntimeException(message("CUDA", f"{name} failed: {error_text(code)}"))
    return results[0] if len(results) == 1 else tuple(results)


def release(name: str, *arguments: Any) -> None:
    """Call a function that gives something back, from a finaliser: it raises nothing."""
    # The driver, or the interpreter, may be going away.
    with contextlib.suppress(errors.SardonyxError, ImportError, AttributeError, TypeError):
        getattr(bindings(), name)(*arguments)


def error_text(number: int) -> str:
    """What one of the driver's codes means."""
    code = bindings().CUresult(number)
    _, text = bindings().cuGetErrorString(code)
    return f"{code.name} ({text.decode() if text else ''})"
