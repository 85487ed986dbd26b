"""`SessionOptions`, under onnxruntime's names and with its defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from sardonyx.api.config_keys import BLOCK_BASE_KEY, SESSION_KEYS, check_entry
from sardonyx.api.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
)
from sardonyx.api.model_options import ModelOptions
from sardonyx.api.optimizers import KEY as OPTIMIZERS_KEY
from sardonyx.api.optimizers import optimizer_names
from sardonyx.api.provider_options import ProviderOptions
from sardonyx.api.shown import options_text
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.base.log import scope
from sardonyx.base.notes import note
from sardonyx.runtime.budget import LIMIT_KEY, byte_count
from sardonyx.runtime.cancel import CancelFlag, checked_seconds
from sardonyx.runtime.thread_setup import CreateThread, JoinThread, checked_function

_TIME_KEY = "session.load_timeout_seconds"
#: onnxruntime's words, which programs look for.
_ABSENT = "SessionOptions does not have configuration with key"

_DEFAULTS: dict[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "profile_file_prefix": "onnxruntime_profile_",
    "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "execution_order": ExecutionOrder.DEFAULT,
    "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "intra_op_num_threads": 0,
    "inter_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}

#: Properties whose other values change no result, and why.
_HINTS = {
    "enable_mem_pattern": "memory is planned for each combination of shapes",
    "enable_mem_reuse": "memory of values that are not needed any more is always reused",
    "execution_order": "kernels run in the order of the graph",
    "log_verbosity_level": "levels are those of Python's logging",
}


#: What `repr` counts.
_PARTS = {
    "_config": "config entry", "_sizes": "fixed dimension", "_denoted": "fixed denotation",
    "_initializers": "initializer", "_providers": "provider",
}  # fmt: skip


class SessionOptions(ModelOptions, ProviderOptions):
    """How a session is made. Unknown properties are errors, never ignored.

    `intra_op_num_threads`: threads of a run, the caller's included; 0 for all.
    `graph_optimization_level`: ORT_DISABLE_ALL rewrites and fuses nothing, so that each node has
    kernels and memory of its own, all row-major; the others are one.
    `enable_cpu_mem_arena`: False gives memory of intermediate values back after each run.
    `optimized_model_filepath`: where the rewritten graph is written, as ONNX.
    `log_severity_level`, `logid`: the least level that making and running the session logs, and
    the attribute `logid` of its records; the level of the logger `sardonyx` holds as well.
    `use_per_session_threads`: False takes the size given to `set_global_thread_pool_sizes`.
    `use_deterministic_compute`: the same feeds give the same bits in any case.

    `execution_mode`: ORT_PARALLEL lets threads walk independent branches of the graph, where that
    takes less time than sharing each kernel; values of branches then need memory at once.
    `inter_op_num_threads`: how many branches at once, then; 0 for as many as there are threads.

    Hints without effect, noted in the log: `enable_mem_pattern`, `enable_mem_reuse`,
    `execution_order`, `log_verbosity_level`.

    `enable_profiling`: runs are recorded until `InferenceSession.end_profiling` writes them to a
    file; `profile_file_prefix`: how its name begins, which the time follows.
    """

    def __init__(self) -> None:
        own = self.__dict__
        own["_values"] = dict(_DEFAULTS)
        own["_config"] = {}
        own["_sizes"] = {}
        own["_denoted"] = {}
        own["_data_files"] = {}
        own["_disabled"] = []
        own["_selection"] = []
        own["_initializers"] = {}
        own["_providers"] = []
        own["_threads"] = {}
        own["load_flag"] = CancelFlag()

    def __repr__(self) -> str:
        return options_text(self, _DEFAULTS, _PARTS)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(self._unknown(name))
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(self._unknown(name))
        value = self._fitting(name, value)
        if name.endswith("op_num_threads") and value < 0:
            raise InvalidArgument(
                message(f"SessionOptions.{name}", "The number is negative", got=str(value))
            )
        if name == "log_severity_level" and not -1 <= value <= 4:
            raise InvalidArgument(
                message(
                    f"SessionOptions.{name}", "No such level", expected="-1 to 4", got=str(value)
                )
            )
        if name in _HINTS and value != _DEFAULTS[name]:
            with self.log_scope():
                note(f"SessionOptions.{name} = {value}", _HINTS[name])
        self._values[name] = value

    @property
    def least_level(self) -> int:
        """The least level that is logged, as in `logging`."""
        own = self.log_severity_level
        return 10 * (own + 1) if own >= 0 else 0

    def log_scope(self) -> AbstractContextManager[None]:
        """Inside, what is logged has the session's name, and what is below its level is dropped."""
        return scope(self.least_level, self.logid)

    @staticmethod
    def _fitting(name: str, value: Any) -> Any:
        """The value in the option's type."""
        kind = type(_DEFAULTS[name])
        fits = isinstance(value, str) if kind is str else isinstance(value, (int, np.integer))
        try:
            if fits:
                return kind(value)
        except ValueError:  # no member of an enumeration
            pass
        error = InvalidArgument if fits else WrongType
        raise error(
            message(
                f"SessionOptions.{name}", "The value does not fit",
                expected=kind.__name__, got=repr(value),
            )
        )  # fmt: skip

    @staticmethod
    def _unknown(name: str) -> str:
        return message(
            "SessionOptions", f"There is no option {name!r}", do=nearest(name, _DEFAULTS)
        )

    def copy(self) -> SessionOptions:
        """The same options, which later changes to these do not reach."""
        made = SessionOptions()
        made.__setstate__(self.__getstate__())
        return made

    def __getstate__(self) -> dict[str, Any]:
        # The flag belongs to sessions that are being made here and now.
        return {name: held for name, held in self.__dict__.items() if name != "load_flag"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__["load_flag"] = CancelFlag()
        for name, held in state.items():
            self.__dict__[name] = held.copy() if isinstance(held, (dict, list)) else held

    # -- configuration ------------------------------------------------------------------------

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; one that is not known warns, with the nearest name.

        Raises:
            InvalidArgument: Key or value are not text, or the value is none that the key takes.
            NotImplemented: The value asks for something that is not supported.
        """
        check_entry("session", key, value, SESSION_KEYS)
        if value and key == LIMIT_KEY:
            byte_count(value)
        elif value and key == _TIME_KEY:
            checked_seconds(value, key)
        elif value and key == BLOCK_BASE_KEY:
            _block_base(value)
        self._config[key] = value

    @names_misfits
    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry.

        Raises:
            Fail: It was not set.
        """
        if key not in self._config:
            raise errors.Fail(message("session config", f"{_ABSENT}: {key}"))
        return str(self._config[key])

    @names_misfits
    def config(self, key: str) -> str:
        """The value of a configuration entry, "" if it was not set."""
        return str(self._config.get(key, ""))

    @names_misfits
    def is_on(self, key: str) -> bool:
        """Whether an entry that switches something is "1".

        Raises:
            InvalidArgument: Its value is neither "0" nor "1".
        """
        value = self.config(key)
        if value not in ("", "0", "1"):
            raise InvalidArgument(message(key, "No such value", expected="0 or 1", got=value))
        return value == "1"

    @names_misfits
    def fill(self, values: Mapping[str, Any], config: Mapping[str, str]) -> None:
        """Set what was left as it was by default, and entries that were not added."""
        for name, value in values.items():
            if name not in _DEFAULTS or self._values[name] == _DEFAULTS[name]:
                setattr(self, name, value)
        for key, text in config.items():
            if key not in self._config:
                self.add_session_config_entry(key, text)

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported: such libraries have onnxruntime's own binary interface.

        Raises:
            NotImplemented: Always.
        """
        raise errors.NotImplemented(
            message(
                "register_custom_ops_library",
                f"Libraries of onnxruntime's custom operators are not supported: {path}",
            )
        )

    def set_ep_context_data_read_func(self, read_func: Any, max_data_size: int) -> None:
        """Accepted, and never called: a bundle has no data beside it.

        Raises:
            InvalidArgument: It is no function, or the size is none.
        """
        if not callable(read_func) or not isinstance(max_data_size, int) or max_data_size < 0:
            raise InvalidArgument(
                message(
                    "set_ep_context_data_read_func", "A function and a number of bytes are needed",
                    got=f"{type(read_func).__name__}, {max_data_size!r}",
                )
            )  # fmt: skip

    def clear_ep_context_data_read_func(self) -> None:
        """Forget the callback, which is never called."""

    @names_misfits
    def set_load_cancellation_flag(self, is_cancel: bool) -> None:
        """Whether sessions that are being made with these options end with ModelLoadCanceled."""
        (self.load_flag.set if is_cancel else self.load_flag.clear)()

    def disable_optimizers(self, names: Any) -> None:
        """Leave out what stands for these optimisers of onnxruntime; see `api.optimizers`."""
        self._disabled.extend(optimizer_names(names))

    @property
    def disabled_optimizers(self) -> tuple[str, ...]:
        """Names of optimisers that were disabled, by the argument of a session or by an entry."""
        named = (x.strip() for x in self.config(OPTIMIZERS_KEY).split(";"))
        return tuple(dict.fromkeys([*self._disabled, *filter(None, named)]))

    @property
    def memory_limit_bytes(self) -> int | None:
        """The most memory that the session may hold; None for what the machine has."""
        text = self.config(LIMIT_KEY)
        return byte_count(text) if text else None

    @property
    def load_seconds(self) -> float | None:
        """How long making the session may take; None for no limit."""
        text = self.config(_TIME_KEY)
        return checked_seconds(text, _TIME_KEY) if text else None

    @property
    def block_base(self) -> int:
        """How fine the blocks are that threads claim; 0 leaves it to the engine."""
        return _block_base(self.config(BLOCK_BASE_KEY) or "0")

    # -- threads ------------------------------------------------------------------------------

    @property
    def thread_functions(self) -> dict[str, Any]:
        """What the functions below were given: `create`, `join`, `user_data`."""
        return dict(self._threads)

    def set_custom_create_thread_fn(self, create: CreateThread | None) -> None:
        """What makes threads: `create(user_data, work)` starts one that calls `work()` and ends.

        It gives a handle that is not None. Sessions of these options then have threads of their
        own, which are made when a run first has work for them.
        """
        self._threads["create"] = checked_function("set_custom_create_thread_fn", create)

    def set_custom_thread_creation_options(self, user_data: Any) -> None:
        """The user data that the function gets."""
        self._threads["user_data"] = user_data

    def set_custom_join_thread_fn(self, join: JoinThread | None) -> None:
        """What waits for the end of a thread: `join(handle)`, when sessions are gone."""
        self._threads["join"] = checked_function("set_custom_join_thread_fn", join)


_shared_options = SessionOptions()


def get_default_session_options() -> SessionOptions:
    """Options that every caller shares; sessions without options of their own do not take them."""
    return _shared_options


#: Finer blocks than one a claim there are none, however many there were.
_FINEST = 1 << 10


def _block_base(text: str) -> int:
    """The number that `session.dynamic_block_base` gives.

    Raises:
        InvalidArgument: It is none, or negative.
    """
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidArgument(
            message(
                BLOCK_BASE_KEY, "The value is no number of parts",
                expected='"0" (the default), or a positive number such as "4"', got=repr(text),
            )
        )  # fmt: skip
    return min(int(text), _FINEST)
