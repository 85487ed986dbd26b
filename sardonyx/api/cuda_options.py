"""Options of the CUDA provider, under onnxruntime's names: what acts, what has no effect yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sardonyx.api.config_keys import note
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message

if TYPE_CHECKING:
    from sardonyx.cuda.settings import CudaSettings

CUDA = "CUDAExecutionProvider"

#: Options with their defaults. Other values than the default act, are noted, or are refused.
DEFAULTS = {
    "device_id": "0", "gpu_mem_limit": "18446744073709551615",
    "arena_extend_strategy": "kNextPowerOfTwo", "cudnn_conv_algo_search": "EXHAUSTIVE",
    "do_copy_in_default_stream": "1", "has_user_compute_stream": "0", "user_compute_stream": "0",
    "gpu_external_alloc": "0", "gpu_external_free": "0", "gpu_external_empty_cache": "0",
    "cudnn_conv_use_max_workspace": "1", "cudnn_conv1d_pad_to_nc1d": "0", "enable_cuda_graph": "0",
    "tunable_op_enable": "0", "tunable_op_tuning_enable": "0",
    "tunable_op_max_tuning_duration_ms": "0", "enable_skip_layer_norm_strict_mode": "0",
    "prefer_nhwc": "0", "use_ep_level_unified_stream": "0", "use_tf32": "1", "fuse_conv_bias": "0",
    "sdpa_kernel": "0", "external_data_loader_reading_threads": "4",
    "external_data_loader_use_gds": "0",
}  # fmt: skip

_NOT_TUNED = "kernels are not tuned by measuring"
#: Hints about how fast work is done, and why they change nothing: results are the same anyway.
_HINTS = {
    "do_copy_in_default_stream": "copies are in the stream of the run",
    "cudnn_conv1d_pad_to_nc1d": "images of one axis have it last in any case, as 1 asks for",
    "tunable_op_enable": _NOT_TUNED,
    "tunable_op_tuning_enable": _NOT_TUNED,
    "tunable_op_max_tuning_duration_ms": _NOT_TUNED,
    "prefer_nhwc": "channels lie side by side in any case",
    "use_ep_level_unified_stream": "a run has one stream in any case",
    "fuse_conv_bias": "biases are part of convolutions in any case",
    "sdpa_kernel": "the faster of cuDNN and our kernel is found by measuring",
    "enable_skip_layer_norm_strict_mode": "sums are in float32 in any case",
    "external_data_loader_reading_threads": "files of weights are read by the processor",
    "external_data_loader_use_gds": "files of weights are read by the processor",
}

#: Options that act, with all their values.
_CHOICES = {
    "use_tf32": ("0", "1"),
    "enable_cuda_graph": ("0", "1"),
    "cudnn_conv_use_max_workspace": ("0", "1"),
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
}


#: Options that are numbers: what they mean is checked here, not when a session is made.
_NUMBERS = frozenset(
    "gpu_mem_limit user_compute_stream gpu_external_alloc gpu_external_free"
    " gpu_external_empty_cache".split()
)
_FLAGS = {"False": "0", "True": "1", "false": "0", "true": "1"}
_STRATEGIES = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}


def cuda_options(given: Mapping[str, str]) -> dict[str, str]:
    """All options, the given ones among them.

    Raises:
        InvalidArgument: There is no such option, or not such a value.
        NotImplemented: A value asks for something that is not there yet.
    """
    found = dict(DEFAULTS)
    for key, value in given.items():
        if key not in DEFAULTS:
            text = f"There is no option {key!r}"
            raise InvalidArgument(message(CUDA, text, do=nearest(key, DEFAULTS)))
        if DEFAULTS[key] in _FLAGS.values():
            value = _FLAGS.get(value, value)
        found[key] = value
        if key == "device_id":
            if not value.isdecimal():
                raise _wrong(key, "Invalid device ID", "0 or more", value)
        elif key in _NUMBERS:
            found[key] = str(_number(key, value))
        elif key == "arena_extend_strategy":
            found[key] = _STRATEGIES.get(value, value)
            if found[key] not in _STRATEGIES.values():
                raise _wrong(key, "No such strategy", " or ".join(_STRATEGIES.values()), value)
        elif key in _CHOICES:
            if value not in _CHOICES[key]:
                raise _wrong(key, "No such value", " or ".join(_CHOICES[key]), value)
        elif value == DEFAULTS[key]:
            continue
        elif key == "has_user_compute_stream":
            note(f"{CUDA} option {key} = {value}", "user_compute_stream alone says it")
        elif key in _HINTS:
            if not value.isdecimal():
                raise _wrong(key, "This is no number", "0 or more", value)
            note(f"{CUDA} option {key} = {value}", _HINTS[key])
        else:
            text = f"The option {key} = {value} is not supported yet"
            raise errors.NotImplemented(message(CUDA, text, expected=DEFAULTS[key]))
    if (found["gpu_external_alloc"] == "0") != (found["gpu_external_free"] == "0"):
        what = "Functions that allocate and free come together"
        raise InvalidArgument(message(f"{CUDA} gpu_external_alloc, gpu_external_free", what))
    found["has_user_compute_stream"] = str(int(found["user_compute_stream"] != "0"))
    return found


def _wrong(key: str, what: str, expected: str, value: str) -> InvalidArgument:
    return InvalidArgument(message(f"{CUDA} {key}", what, expected=expected, got=value))


def _number(key: str, value: str) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise _wrong(key, "This is no number", "0 or more", value)
    return number


def settings(options: Mapping[str, str], *, shares_arena: bool) -> CudaSettings:
    """What checked options ask of the device."""
    from sardonyx.cuda.arena import ArenaSettings
    from sardonyx.cuda.settings import CudaSettings

    names = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
    allocate, free, empty = (int(options[name]) for name in names)
    return CudaSettings(
        ArenaSettings(int(options["gpu_mem_limit"]), options["arena_extend_strategy"]),
        shares_arena, (allocate, free, empty), int(options["user_compute_stream"]),
        options["use_tf32"] == "1",
        "wanted" if options["enable_cuda_graph"] == "1" else "automatic",
        options["cudnn_conv_algo_search"], options["cudnn_conv_use_max_workspace"] == "1",
    )  # fmt: skip
