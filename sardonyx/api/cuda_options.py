"""Options of the CUDA provider, under onnxruntime's names: values, defaults, what each one does.

`python -m tests.api.cuda_options` writes the table of `docs/gpu_options.md` from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.notes import note

if TYPE_CHECKING:
    from sardonyx.cuda.settings import CudaSettings

CUDA = "CUDAExecutionProvider"
#: A stream of the caller's for all runs, and whether there is one, which follows from it.
STREAM, HAS_STREAM = "user_compute_stream", "has_user_compute_stream"

_SWITCH = ("0", "1")
_SWITCHED = {"False": "0", "True": "1", "false": "0", "true": "1"}
_MOST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Option:
    """What an option means here.

    Attributes:
        default: Its value where none is given.
        effect: What it does; of a hint, what is done whatever it says.
        values: Those that it takes, as they are read back; none for a whole number, 0 or more.
        names: Other texts that are taken for some of them.
        is_hint: Whether results and memory are the same with all values.
        done: Of a hint: further values that ask for what is done anyway. Others are noted.
    """

    default: str
    effect: str
    values: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    is_hint: bool = False
    done: tuple[str, ...] = ()


def _switch(default: str, effect: str) -> Option:
    return Option(default, effect, _SWITCH, _SWITCHED)


def _hint(default: str, effect: str, *done: str) -> Option:
    return Option(default, effect, _SWITCH, _SWITCHED, is_hint=True, done=done)


def _choice(effect: str, *values: str) -> Option:
    """The first value is the default; each may be given by its number, too."""
    return Option(values[0], effect, values, {str(k): v for k, v in enumerate(values)})


_TRIED = "algorithms of libraries are measured, or not, as `cudnn_conv_algo_search` says"
_READ = "files of weights are read by the processor"

OPTIONS: dict[str, Option] = {
    "device_id": Option("0", "which GPU, as the driver counts"),
    "gpu_mem_limit": Option(
        str(_MOST), "bytes that the session's arena may hold; more is an error that names holders"
    ),
    "arena_extend_strategy": _choice(
        "whether the arena grows by ever larger regions, or by what is asked for",
        "kNextPowerOfTwo", "kSameAsRequested",
    ),
    "cudnn_conv_algo_search": _choice(
        "how libraries' algorithms of convolutions, products and attentions are chosen: measured,"
        " by their heuristic, or the first that simpler rules name",
        "EXHAUSTIVE", "HEURISTIC", "DEFAULT",
    ),
    "do_copy_in_default_stream": _switch(
        "1",
        "whether feeds and results of the host are copied in the stream of the run, or in streams"
        " of their own, so that they overlap the work of other runs in that stream",
    ),
    HAS_STREAM: Option(
        "0", f"follows from `{STREAM}`", _SWITCH, _SWITCHED, is_hint=True
    ),
    STREAM: Option(
        "0",
        "the stream of runs that name none: its handle, a stream of torch or cupy, or an object"
        " with `__cuda_stream__`, which lives as long as the session; 0 for our own",
    ),
    "gpu_external_alloc": Option("0", "address of a function that allocates the arena's memory"),
    "gpu_external_free": Option("0", "address of the one that frees it"),
    "gpu_external_empty_cache": Option(
        "0", "address of the one that lets go of what they keep, called by `trim`"
    ),
    "cudnn_conv_use_max_workspace": _switch(
        "1", "whether convolutions may work in as much memory as they like, or in 32 MiB"
    ),
    "cudnn_conv1d_pad_to_nc1d": _hint("0", "images of one axis have it last, as 1 asks for", "1"),
    "enable_cuda_graph": _switch(
        "0", "graphs are automatic; with 1 a warning says why runs do not become one"
    ),
    "tunable_op_enable": _hint("0", _TRIED),
    "tunable_op_tuning_enable": _hint("0", _TRIED),
    "tunable_op_max_tuning_duration_ms": Option("0", _TRIED, is_hint=True),
    "enable_skip_layer_norm_strict_mode": _hint("0", "sums are in float32, as 1 asks for", "1"),
    "prefer_nhwc": _hint("0", "channels lie side by side, as 1 asks for", "1"),
    "use_ep_level_unified_stream": _hint("0", "a run has one stream, as 1 asks for", "1"),
    "use_tf32": _switch("1", "whether factors of products of float32 are rounded to TF32"),
    "fuse_conv_bias": _hint("0", "biases are part of convolutions, as 1 asks for", "1"),
    "sdpa_kernel": Option(
        "0",
        "which kernels do attention, as a sum: 8 cuDNN's wherever it has one, 16 our own; with"
        " both, or 0, the faster one",
        ("0", "8", "16", "24"),
    ),
    "external_data_loader_reading_threads": Option("4", _READ, is_hint=True),
    "external_data_loader_use_gds": _hint("0", _READ),
}  # fmt: skip

#: Numbers that are addresses or handles: they are read back as decimal text.
_ADDRESSES = (
    STREAM, "gpu_mem_limit", "gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache",
)  # fmt: skip
#: Kernels of onnxruntime's that a mask may name, beside cuDNN's (8) and plain products (16).
_OTHER_ATTENTIONS = {
    1: "FLASH_ATTENTION", 2: "EFFICIENT_ATTENTION", 4: "TRT_FUSED_ATTENTION",
    32: "TRT_FLASH_ATTENTION", 64: "TRT_CROSS_ATTENTION", 128: "TRT_CAUSAL_ATTENTION",
    256: "LEAN_ATTENTION", 512: "DECODER_ATTENTION",
}  # fmt: skip
_ATTENTIONS = {"8": "cudnn", "16": "kernel"}


def cuda_options(given: Mapping[str, Any]) -> dict[str, str]:
    """All options as text, the given ones among them.

    Args:
        given: Values of any type; a stream may be an object of another library.

    Raises:
        InvalidArgument: There is no such option, or not such a value.
    """
    found = {key: option.default for key, option in OPTIONS.items()}
    for key, value in given.items():
        if key not in OPTIONS:
            text = f"There is no option {key!r}"
            raise InvalidArgument(message(CUDA, text, do=nearest(key, OPTIONS)))
        found[key] = _checked(key, _stream_text(value) if key == STREAM else str(value))
    if (found["gpu_external_alloc"] == "0") != (found["gpu_external_free"] == "0"):
        what = "Functions that allocate and free come together"
        raise InvalidArgument(message(f"{CUDA} gpu_external_alloc, gpu_external_free", what))
    has_stream = str(int(found[STREAM] != "0"))
    for key in given:
        option, value = OPTIONS[key], found[key]
        if key == HAS_STREAM:
            is_done = value == has_stream
        else:
            is_done = not option.is_hint or value in (option.default, *option.done)
        if not is_done:
            note(f"{CUDA} option {key} = {value}", option.effect)
    return found | {HAS_STREAM: has_stream}


def _checked(key: str, text: str) -> str:
    """A value as it is read back."""
    option = OPTIONS[key]
    value = option.names.get(text, text)
    if key == "device_id":
        if not value.isdecimal():
            raise _wrong(key, "Invalid device ID", "0 or more", text)
        value = str(int(value))
    elif key == "sdpa_kernel":
        _check_attention(value)
    elif option.values:
        if value not in option.values:
            raise _wrong(key, "No such value", " or ".join(option.values), text)
    elif key in _ADDRESSES or not value.isdecimal():
        value = str(_number(key, value))
    return value


def _check_attention(value: str) -> None:
    """Refuse a mask that names kernels which are not here."""
    mask, key = _number("sdpa_kernel", value), "sdpa_kernel"
    if value in OPTIONS[key].values:
        return
    others = [name for bit, name in _OTHER_ATTENTIONS.items() if mask & bit]
    what = f"These kernels are onnxruntime's own: {', '.join(others)}" if others else "No such mask"
    raise _wrong(key, what, "0, 8 (cuDNN), 16 (sardonyx's kernel) or 24 (the faster)", value)


def _stream_text(value: Any) -> str:
    """The handle of a stream of any library, as text."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    from sardonyx.cuda.driver.stream import handle_of

    try:
        return str(handle_of(value))
    except InvalidArgument:
        expected = "a handle, a stream of torch or cupy, or an object with __cuda_stream__"
        raise _wrong(STREAM, "This is no stream", expected, repr(value)) from None


def _wrong(key: str, what: str, expected: str, value: str) -> InvalidArgument:
    return InvalidArgument(message(f"{CUDA} {key}", what, expected=expected, got=value))


def _number(key: str, value: str) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= _MOST:
        raise _wrong(key, "This is no number", "0 or more", value)
    return number


def settings(options: Mapping[str, str], *, shares_arena: bool) -> CudaSettings:
    """What checked options ask of the device."""
    from sardonyx.cuda.memory.arena import ArenaSettings
    from sardonyx.cuda.settings import CudaSettings

    names = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
    allocate, free, empty = (int(options[name]) for name in names)
    return CudaSettings(
        arena=ArenaSettings(int(options["gpu_mem_limit"]), options["arena_extend_strategy"]),
        shares_arena=shares_arena,
        external=(allocate, free, empty),
        stream=int(options[STREAM]),
        tf32=options["use_tf32"] == "1",
        graphs="wanted" if options["enable_cuda_graph"] == "1" else "automatic",
        convolution_search=options["cudnn_conv_algo_search"],
        any_workspace=options["cudnn_conv_use_max_workspace"] == "1",
        attention=_ATTENTIONS.get(options["sdpa_kernel"], ""),
        copies_apart=options["do_copy_in_default_stream"] == "0",
    )
