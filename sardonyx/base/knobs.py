"""Every switch of the engine, declared once; values come from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.records import dataclass

_SIZE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True, slots=True)
class Knob:
    """One switch.

    Attributes:
        name: The environment variable.
        parse: Turns the variable's text into a value; raises ValueError when it cannot.
        default: The value when the variable is unset or empty.
        valid: The valid values, in words, for errors and the CLI.
        doc: One sentence.
        changes_code: Whether another value can give other machine code (then it is in cache keys).
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    valid: str
    doc: str
    changes_code: bool = False


def _flag(text: str) -> bool:
    values = {"0": False, "false": False, "off": False, "1": True, "true": True, "on": True}
    return values[text.lower()] if text.lower() in values else _refuse()


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda text: text.lower() if text.lower() in words else _refuse()


def _count(text: str) -> int:
    value = int(text)
    return value if value >= 0 else _refuse()


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmg]i?)?b?", text.strip().lower())
    return int(found[1]) * _SIZE_UNITS[found[2] or ""] if found else _refuse()


def _refuse() -> Any:
    raise ValueError


_DECLARED = (
    Knob(
        "SARDONYX_CPU",
        _one_of("avx512", "avx2", "sse", "neon"),
        None,
        "avx512, avx2, sse or neon",
        "Instruction set to generate code for; by default the best that this machine has.",
        changes_code=True,
    ),
    Knob(
        "SARDONYX_CACHE",
        str,
        None,
        "a folder, or `off`",
        "Folder of the disk cache; by default sardonyx in the user's cache folder.",
    ),
    Knob(
        "SARDONYX_CACHE_LIMIT_BYTES",
        _bytes,
        8 * 10**9,
        "a number of bytes, such as 500M or 8G",
        "Size above which the disk cache drops what was not used for longest.",
    ),
    Knob(
        "SARDONYX_KERNELS",
        str,
        None,
        "a folder, or `off`",
        "Folder of kernels compiled ahead; by default those of the package sardonyx-kernels.",
    ),
    Knob(
        "SARDONYX_VERIFY",
        _flag,
        False,
        "0 or 1",
        "Check every intermediate form after every pass.",
    ),
    Knob(
        "SARDONYX_LOG",
        _one_of("debug", "info", "warning", "error"),
        "warning",
        "debug, info, warning or error",
        "Least severe level that is logged; what no handler takes goes to stderr.",
    ),
    Knob(
        "SARDONYX_TUNE",
        _flag,
        False,
        "0 or 1",
        "Measure several ways to compute each kernel of a model when its first session is made.",
    ),
    Knob(
        "SARDONYX_LIBRARIES",
        _flag,
        True,
        "0 or 1",
        "Let libraries of a device's maker do products and convolutions where they are installed.",
    ),
    Knob(
        "SARDONYX_NVTX",
        _flag,
        False,
        "0 or 1",
        "Mark what a GPU (never the processor) does for each node for NVIDIA's profilers; runs are "
        "no CUDA graphs then.",
    ),
    Knob(
        "SARDONYX_THREADS",
        _count,
        0,
        "a number; 0 means one per available processor",
        "Threads that one run may use, when the session does not say.",
    ),
    Knob(
        "SARDONYX_SETTINGS",
        str,
        None,
        "a file",
        "Settings that `sardonyx tune` found, for all sessions that name no file of their own.",
    ),
    Knob(
        "SARDONYX_PROFILE_EVENTS",
        _count,
        1_000_000,
        "a number",
        "Events that a profile may have; a warning says that there were more.",
    ),
    Knob(
        "SARDONYX_COMPILE_PROCESSES",
        _count,
        0,
        "a number; 0 means one per available processor",
        "Child processes that kernels are compiled in; 1 compiles them in this process.",
    ),
)
_KNOBS = {knob.name: knob for knob in _DECLARED}
_overrides: dict[str, Any] = {}


def all_knobs() -> tuple[Knob, ...]:
    """All switches, in the order of declaration."""
    return _DECLARED


def get(name: str) -> Any:
    """The value of a switch: the override in force, else the environment's, else the default.

    Raises:
        InvalidArgument: The environment holds a value that the switch does not take.
    """
    knob = _KNOBS[name]
    if name in _overrides:
        return _overrides[name]
    text = os.environ.get(name, "")
    if not text:
        return knob.default
    try:
        return knob.parse(text)
    except ValueError:
        raise InvalidArgument(
            message(name, "The variable has a bad value", expected=knob.valid, got=repr(text))
        ) from None


@contextmanager
def override(name: str, value: Any) -> Iterator[None]:
    """Give a switch a value for the time of a `with` block, in all threads of this process.

    Args:
        name: The switch.
        value: Text, which is parsed as the environment's is, or an already parsed value.
    """
    knob = _KNOBS[name]
    missing = object()
    before = _overrides.get(name, missing)
    if isinstance(value, str):
        try:
            value = knob.parse(value)
        except ValueError:
            raise InvalidArgument(
                message(name, "The switch has a bad value", expected=knob.valid, got=repr(value))
            ) from None
    _overrides[name] = value
    try:
        yield
    finally:
        if before is missing:
            _overrides.pop(name, None)
        else:
            _overrides[name] = before


def code_signature() -> str:
    """The switches that change generated code, with their values: a part of cache keys."""
    return ";".join(f"{k.name}={get(k.name)}" for k in _DECLARED if k.changes_code)
