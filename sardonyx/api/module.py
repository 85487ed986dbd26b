"""Functions of the package: what is there, and how it logs."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.plugins import plugin_names
from sardonyx.api.providers import CPU, available, cuda_is_missing
from sardonyx.api.version import __version__
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.forks import compiling
from sardonyx.base.log import logger
from sardonyx.base.notes import note

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_available_providers() -> list[str]:
    """Names of the execution providers that work here."""
    return available()


def get_all_providers() -> list[str]:
    """Names of all execution providers of this package, and of installed ones outside it."""
    return [CUDA, *plugin_names(), CPU]


def get_device() -> str:
    """`GPU` where there is one that works, else `CPU`."""
    return "CPU" if cuda_is_missing() else "GPU"


def cuda_version() -> str:
    """The version of CUDA that the driver has, such as `13.0`; "" where there is none."""
    from sardonyx.cuda.driver.driver import interface_text

    try:
        return interface_text()
    except SardonyxError:
        return ""


#: What the package has, and loads when it is first asked for: most programs generate no text.
_LATER = {
    "Generation": "sardonyx.api.generation.generate",
    "generate": "sardonyx.api.generation.generate",
}


def of_package(name: str) -> Any:
    """An attribute of the package that is not there yet; from then on it is.

    Raises:
        AttributeError: There is none of that name.
    """
    if name not in _LATER:
        return asked(name)
    with compiling:
        found = getattr(importlib.import_module(_LATER[name]), name)
    setattr(sys.modules["sardonyx"], name, found)
    return found


def names_of_package() -> list[str]:
    """What `dir` says of the package: what is loaded later is there, too."""
    return sorted({*vars(sys.modules["sardonyx"]), *_LATER})


def asked(name: str) -> str:
    """`cuda_version` as an attribute of a module, which is found out when it is asked for.

    Raises:
        AttributeError: It is another name.
    """
    if name == "cuda_version":
        return cuda_version()
    raise AttributeError(f"There is no {name!r} in this module")


def get_version_string() -> str:
    """The package's version."""
    return __version__


def get_build_info() -> str:
    """A sentence about how code is made."""
    return f"Build Info: sardonyx {__version__}, compiles through LLVM when a session is made"


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the `sardonyx` logger: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    if not isinstance(severity, int) or not 0 <= severity < len(_LEVELS):
        raise InvalidArgument(
            message(
                "set_default_logger_severity",
                "No such severity",
                expected="0 to 4",
                got=str(severity),
            )
        )
    logger.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """The verbosity has no effect: levels are those of Python's `logging`."""
    if verbosity:
        note("set_default_logger_verbosity", "levels are those of Python's logging")


def set_seed(seed: int) -> None:
    """Let random operators without a seed of their own draw the same again.

    It holds from now on for all sessions, those that were made before, too: each begins anew. Two
    runs of a session still differ; a session made again, or seeded again, repeats the first one's.
    A `seed` among the attributes of a node counts for that node alone.

    Raises:
        InvalidArgument: It is no integer.
    """
    if not isinstance(seed, int):
        raise InvalidArgument(message("set_seed", "The seed is no integer", got=repr(seed)))
    from sardonyx.host import random

    random.set_seed(seed)


def has_collective_ops() -> bool:
    """Whether operators across machines exist: no."""
    return False


def enable_telemetry_events() -> None:
    """Nothing is ever reported to anybody, on any system."""


def disable_telemetry_events() -> None:
    """Nothing is ever reported to anybody, on any system."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """There are no libraries to load: code is compiled for each model."""


def print_debug_info() -> None:
    """Write versions and providers to the standard output."""
    lines = (get_build_info(), f"python {sys.version}", f"providers {get_available_providers()}")
    sys.stdout.write("\n".join(lines) + "\n")


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Not supported: such libraries have onnxruntime's own binary interface.

    Raises:
        NotImplemented: Always.
    """
    raise errors.NotImplemented(
        message(
            "register_execution_provider_library",
            f"Libraries with onnxruntime's binary interface are not supported: {library_path}",
            do="Write a provider in Python, or over a library of its own: see docs/plugins.md",
        )
    )


def unregister_execution_provider_library(registration_name: str) -> None:
    """No library is ever registered.

    Raises:
        NotFound: Always.
    """
    raise errors.NotFound(
        message(
            "unregister_execution_provider_library", f"There is no library {registration_name!r}"
        )
    )
