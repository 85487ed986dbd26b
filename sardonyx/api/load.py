"""`sardonyx.load`: a session by few words, and its first runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.api.config_keys import SESSION_KEYS
from sardonyx.api.cuda_options import CUDA, OPTIONS, cuda_options
from sardonyx.api.feeds import check_mapping
from sardonyx.api.options import SessionOptions
from sardonyx.api.parts import engine_of
from sardonyx.api.providers import CPU, cuda_is_missing
from sardonyx.api.session import InferenceSession
from sardonyx.api.spelling import nearest
from sardonyx.api.thread_pool import has_shared_threads
from sardonyx.base import errors
from sardonyx.base.devices import device_named
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.base.log import get_logger

if TYPE_CHECKING:
    from sardonyx.runtime.declared import ValueInfo

_logger = get_logger("session")
#: One run compiles what is left to compile, the next is captured on a GPU, the third is as all
#: later ones.
_RUNS = 3
#: So long what a GPU has done in the background may go on before `warmup` returns.
_SEARCH_SECONDS = 30.0


def load(
    model: Any,
    *,
    device: str = "cpu",
    threads: int = 0,
    sizes: Mapping[str, int] | None = None,
    config: Mapping[str, str] | None = None,
    **provider_options: Any,
) -> InferenceSession:
    """A model, compiled and ready to be called.

    Unlike `InferenceSession`, it never works elsewhere than asked, and takes no unknown name.

    Args:
        model: Path of an ONNX file or a bundle, its bytes, or a `ModelProto`.
        device: `cpu`, `cuda` (or `gpu`), or `cuda:N` for a GPU by its number; capital letters are
            the same.
        threads: How many threads a run has on the processor; 0 for one for each. After
            `set_global_thread_pool_sizes` it has those that sessions share.
        sizes: Sizes of named dimensions that never change; plans get simpler by them.
        config: Session configuration entries, by key.
        provider_options: Options of the CUDA provider, such as `use_tf32=0`.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        NotImplemented: The model needs something that is not supported.
        EPFail: There is no such device, and the text says what is missing.
        InvalidArgument: An argument is unknown (then a TypeError, too), or its value does not fit.
    """
    options = SessionOptions()
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise InvalidArgument(message("load", "threads is no whole number", got=repr(threads)))
    options.intra_op_num_threads = threads
    options.use_per_session_threads = not has_shared_threads()
    for name, size in (sizes or {}).items():
        options.add_free_dimension_override_by_name(name, size)
    for key, value in (config or {}).items():
        if key not in SESSION_KEYS:
            what = f"There is no configuration entry {key!r}"
            raise InvalidArgument(message("load", what, do=nearest(str(key), SESSION_KEYS)))
        options.add_session_config_entry(key, value)
    provider = _provider(device, provider_options)
    return InferenceSession(model, options, providers=[provider])


def _provider(device: str, given: dict[str, Any]) -> Any:
    for option in given:
        if option not in OPTIONS:
            known = (*(load.__kwdefaults__ or ()), *OPTIONS)
            what = f"There is no argument {option!r}"
            raise WrongType(message("load", what, do=nearest(option, known)))
    name, number = device_named(str(device))
    if name not in ("cpu", "cuda") or (name == "cpu" and number):
        what, expected = "There is no such device", "cpu, cuda (or gpu), or cuda:N for one of many"
        raise InvalidArgument(message("load", what, expected=expected, got=repr(device)))
    if name == "cpu":
        if given:
            what = f"{min(given)!r} is an option of the CUDA provider"
            do = "Leave it out, or load with device='cuda'"
            raise InvalidArgument(message("load", what, got=f"device={device!r}", do=do))
        return CPU
    beside = str(given.get("device_id", 0 if number is None else number))
    if number is not None and beside != str(number):
        what = "The device is given with its number, and another number as device_id"
        raise InvalidArgument(message("load", what, expected=str(number), got=beside))
    missing = cuda_is_missing(int(cuda_options({"device_id": beside})["device_id"]))
    if missing:
        raise errors.EPFail(message("load", f"{device} cannot be used: {missing}"))
    return CUDA, {**given, "device_id": beside}


def warm_up(
    session: InferenceSession,
    feeds: Mapping[str, Sequence[int] | Any] | None = None,
) -> float:
    """See `InferenceSession.warmup`."""
    given = {} if feeds is None else feeds
    check_mapping(given)
    inputs: dict[str, ValueInfo] = {v.name: v for v in engine_of(session).inputs}
    for name in given:
        if name not in inputs:
            what = f"The model has no input {name!r}"
            raise InvalidArgument(message("warmup", what, do=nearest(str(name), inputs)))
    began = time.perf_counter()
    arrays = {name: _array(info, given.get(name)) for name, info in inputs.items()}
    for _ in range(_RUNS):
        session.run(None, arrays)
    executable = engine_of(session).executable
    if executable.is_settling:
        while executable.is_settling and time.perf_counter() - began <= _SEARCH_SECONDS:
            time.sleep(0.005)
        if executable.is_settling:
            what = "plans or kernels are still made in the background: later runs may get faster"
            _logger.warning("warmup: after %.0f s %s", _SEARCH_SECONDS, what)
        for _ in range(_RUNS):
            session.run(None, arrays)
    return time.perf_counter() - began


def _array(info: ValueInfo, given: Any) -> Any:
    """What is fed: what was given, or zeros of the shape that was."""
    where = f"warmup {info.name}"
    is_shape = isinstance(given, (list, tuple)) and all(type(k) is int for k in given)
    if given is not None and not is_shape:
        return given
    shape = info.shape if given is None else given
    if shape is None or not all(isinstance(d, int) and d >= 0 for d in shape):
        dims = ", ".join("?" if d is None else str(d) for d in shape or ("...",))
        what = f"Its sizes are not known: ({dims})"
        do = f"warmup({{{info.name!r}: (sizes)}}), or an array"
        raise InvalidArgument(message(where, what, do=do))
    if getattr(info.dtype, "numpy", None) is None:
        raise InvalidArgument(message(where, "This is no tensor", do="Give a value of its type"))
    return np.zeros(tuple(shape), info.dtype.numpy)
