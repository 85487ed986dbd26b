"""Functions of the package: what is there, how it logs, and standing in for onnxruntime."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

from sardonyx.api.version import __version__
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import logger

#: The version of onnxruntime whose face this is; what programs see that ask for its version.
ONNXRUNTIME_VERSION = "1.31.1"

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_available_providers() -> list[str]:
    """Names of the execution providers that work here."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """Names of all execution providers of this package."""
    return ["CPUExecutionProvider"]


def get_device() -> str:
    """`CPU`."""
    return "CPU"


def get_version_string() -> str:
    """The package's version."""
    return __version__


def get_build_info() -> str:
    """A sentence about how code is made."""
    return f"sardonyx {__version__}, compiles through LLVM when a session is made"


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the `sardonyx` logger: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    if not 0 <= severity < len(_LEVELS):
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


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` give sardonyx, for programs that cannot be edited."""
    package: Any = sys.modules["sardonyx"]
    face = types.ModuleType("onnxruntime", "sardonyx under onnxruntime's name")
    face.__dict__.update({n: getattr(package, n) for n in package.__all__})
    face.__dict__.update(__version__=ONNXRUNTIME_VERSION, __path__=[])
    capi = types.ModuleType("onnxruntime.capi")
    capi.__path__ = []
    names = {n: getattr(package, n) for n in package.__all__}
    names |= {n: e for n, e in vars(errors).items() if isinstance(e, type)}
    sys.modules["onnxruntime"] = face
    sys.modules["onnxruntime.capi"] = face.__dict__["capi"] = capi
    for name in ("_pybind_state", "onnxruntime_pybind11_state"):
        part = types.ModuleType(f"onnxruntime.capi.{name}")
        part.__dict__.update(names)
        sys.modules[part.__name__] = part
        setattr(capi, name, part)
    collection = types.ModuleType("onnxruntime.capi.onnxruntime_inference_collection")
    collection.__dict__.update(names)
    sys.modules[collection.__name__] = collection
    _answer_version()


def _answer_version() -> None:
    """Let `importlib.metadata.version("onnxruntime")` answer, too."""
    import importlib.metadata

    original = importlib.metadata.version
    if getattr(original, "answers_for_onnxruntime", False):
        return

    def version(distribution_name: str) -> str:
        if distribution_name == "onnxruntime":
            return ONNXRUNTIME_VERSION
        return original(distribution_name)

    version.answers_for_onnxruntime = True  # type: ignore[attr-defined]
    importlib.metadata.version = version
