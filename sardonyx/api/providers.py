"""Execution providers: which are there, which were asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.api.cuda_options import CUDA, STREAM, cuda_options
from sardonyx.api.plugins import plugin_names
from sardonyx.api.spelling import nearest
from sardonyx.api.warned import warn
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.devices import device_named
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.base.notes import note

CPU = "CPUExecutionProvider"
#: From here on names of providers are all alike.
_COMMON_PART = re.compile("[ _-]?(?:exec|prov)")

#: Providers of onnxruntime: a program may name them anywhere, but they are not here.
FOREIGN = (
    "NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider",
    "MIGraphXExecutionProvider", "ROCMExecutionProvider", "OpenVINOExecutionProvider",
    "DnnlExecutionProvider", "VitisAIExecutionProvider", "QNNExecutionProvider",
    "NnapiExecutionProvider", "VSINPUExecutionProvider", "JsExecutionProvider",
    "CoreMLExecutionProvider", "ArmNNExecutionProvider", "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider", "WebNNExecutionProvider", "WebGpuExecutionProvider",
    "XnnpackExecutionProvider", "CANNExecutionProvider", "AzureExecutionProvider",
)  # fmt: skip

#: Options of the processor's provider: valid values, and why they have no effect.
_CPU_OPTIONS = {
    "arena_extend_strategy": (
        ("kNextPowerOfTwo", "kSameAsRequested"),
        "memory of a run is one block of the planned size",
    ),
}


@names_misfits
def check_options(name: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Options of one provider, as text.

    Raises:
        InvalidArgument: The provider has no such option, or not such a value.
    """
    if not isinstance(options, Mapping):
        raise InvalidArgument(
            message(name, "Options are no dict", expected="dict", got=type(options).__name__)
        )
    if name == CUDA:
        return cuda_options({str(key): value for key, value in options.items()})
    given = {str(key): str(value) for key, value in options.items()}
    if name != CPU:
        return given
    for key, value in given.items():
        if key not in _CPU_OPTIONS:
            raise InvalidArgument(
                message(CPU, f"There is no option {key!r}", do=nearest(key, _CPU_OPTIONS))
            )
        valid, reason = _CPU_OPTIONS[key]
        if value not in valid:
            raise InvalidArgument(
                message(f"{CPU} {key}", "No such value", expected=f"one of {valid}", got=value)
            )
        if value != valid[0]:
            note(f"{CPU} option {key} = {value}", reason)
    return given


@names_misfits
def choose(
    providers: Sequence[Any] | None,
    options: Sequence[Mapping[str, Any]] | None,
    *,
    may_fall_back: bool = True,
) -> dict[str, dict[str, str]]:
    """The providers that are there, in order of preference, with their options.

    The processor's provider is the last one where it is not named.

    Args:
        providers: Names, or (name, options) pairs; one that is not there gives a warning.
        options: Options for each of `providers`.
        may_fall_back: Whether another provider may stand in for one that is not there.

    Raises:
        InvalidArgument: These are no providers.
        EPFail: None of the providers is there, and none may stand in.
    """
    pairs = _pairs(providers, options)
    found: dict[str, dict[str, str]] = {}
    passed_over: list[str] = []
    seen: set[str] = set()
    for name, given in pairs:
        if name in seen:
            warn(f"The provider {name!r} is named twice")
            continue
        seen.add(name)
        checked = check_options(name, given)
        missing = cuda_is_missing(int(checked["device_id"])) if name == CUDA else ""
        if not missing and (name in (CPU, CUDA) or name in plugin_names()):
            found[name] = checked
            continue
        text = message(
            "InferenceSession", f"The provider {name!r} is not available",
            expected=f"one of {available()}", do=missing or _advice(name),
        )  # fmt: skip
        if not may_fall_back:
            raise errors.EPFail(text)
        passed_over.append(text)
    found.setdefault(CPU, {})
    for text in passed_over:
        warn(f"{text} The session runs on {' and '.join(preferred(found))}.")
    return found


def preferred(chosen: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Those of the chosen providers that a model runs on.

    The processor has kernels for all nodes: for a provider that is named after it none is left.
    """
    names = list(chosen)
    return {name: chosen[name] for name in names[: names.index(CPU) + 1]}


def streams_of(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> list[Any]:
    """Streams among the options of providers, which a session keeps alive."""
    pairs = _pairs(providers, options)
    return [given[STREAM] for name, given in pairs if name == CUDA and STREAM in given]


def check_names(providers: Sequence[Any] | None) -> None:
    """Refuse a provider that nobody knows, where nothing may stand in for it.

    Raises:
        InvalidArgument: There is none of this name, here or in onnxruntime.
    """
    known = (*available(), CUDA, *FOREIGN)
    for name, _ in _pairs(providers, None):
        if name not in known:
            what = f"Unknown Provider Type: {name}"
            raise InvalidArgument(message("set_providers", what, do=_advice(name)))


def meant(name: str) -> str:
    """The provider that runs here whose name, or whose device's name, is near; "" for none.

    What all names have in common, `ExecutionProvider`, does not make them near.
    """
    import difflib  # only for errors

    known = {_own_part(long): long for long in (CPU, CUDA, *plugin_names())}
    found = difflib.get_close_matches(_own_part(name), known, 1, cutoff=0.7)
    return known[found[0]] if found else ""


def _own_part(name: str) -> str:
    part = _COMMON_PART.split(name.lower(), maxsplit=1)[0]
    return device_named(part)[0].partition(":")[0]


def _advice(name: str) -> str:
    near = "" if name in FOREIGN else meant(name)
    return f"Did you mean {near!r}?" if near else ""


def cuda_is_missing(device_id: int = 0) -> str:
    """Why the CUDA provider cannot be used; "" where it can."""
    from sardonyx.cuda.driver.device import device

    try:
        device(device_id)
    except (errors.EPFail, errors.RuntimeException, errors.OutOfMemory) as error:
        return str(error)
    return ""


def available() -> list[str]:
    """Names of the providers that work here, the processor's last; others may refuse to start."""
    return [*([] if cuda_is_missing() else [CUDA]), *plugin_names(), CPU]


def _pairs(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, Mapping[str, Any]]]:
    if isinstance(providers, (str, bytes)) or not isinstance(providers or (), Sequence):
        raise WrongType(
            message(
                "InferenceSession", "providers is not a list",
                expected=f"names in a list, such as ['{CUDA}', '{CPU}']", got=repr(providers),
            )
        )  # fmt: skip
    if options is not None and len(options) != len(providers or ()):
        raise InvalidArgument(
            message(
                "InferenceSession", "There must be options for each provider",
                expected=str(len(providers or ())), got=str(len(options)),
            )
        )  # fmt: skip
    found: list[tuple[str, Mapping[str, Any]]] = []
    for number, entry in enumerate(providers or ()):
        if isinstance(entry, str):
            found.append((entry, options[number] if options is not None else {}))
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            if options is not None:
                raise InvalidArgument(
                    message("InferenceSession", "Options of providers are given twice")
                )
            found.append((entry[0], entry[1]))
        else:
            raise InvalidArgument(
                message(
                    "InferenceSession", "This is no provider",
                    expected="a name or a (name, options) pair", got=repr(entry),
                )
            )  # fmt: skip
    return found
