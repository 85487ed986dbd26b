"""`RunOptions`: how one run is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sardonyx.api.adapters import LoraAdapter
from sardonyx.api.config_keys import RUN_KEYS, check_entry
from sardonyx.api.shown import options_text
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.devices import device_named
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.base.notes import note
from sardonyx.runtime.cancel import CancelFlag, checked_seconds, time_limit

_DEFAULTS: dict[str, Any] = {
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "only_execute_path_to_fetches": False,
    "terminate": False,
}
_HINTS = {
    "log_severity_level": "sessions have levels, see SessionOptions",
    "log_verbosity_level": "levels are those of Python's logging",
    "logid": "sessions have log ids, see SessionOptions",
}


#: What `repr` counts.
_PARTS = {"_config": "config entry", "_adapters": "adapter"}


class RunOptions:
    """`terminate = True`, from any thread, ends runs that were given these options.

    `only_execute_path_to_fetches`: `run` and `run_with_ort_values` compute the named outputs alone,
    in sessions of the processor; a plan for them is compiled when they are first asked for.

    Hints without effect, noted in the log: `log_severity_level`, `log_verbosity_level`, `logid`.
    """

    def __init__(self) -> None:
        own = self.__dict__
        own["_values"] = dict(_DEFAULTS)
        own["_config"] = {}
        own["_adapters"] = []
        own["cancel_flag"] = CancelFlag()
        own["shrinks"] = frozenset()
        own["is_left"] = False
        own["graph_number"] = None
        own["timeout_seconds"] = None

    def __repr__(self) -> str:
        return options_text(self, _DEFAULTS, _PARTS)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(
                message("RunOptions", f"There is no option {name!r}", do=nearest(name, _DEFAULTS))
            )
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(
                message("RunOptions", f"There is no option {name!r}", do=nearest(name, _DEFAULTS))
            )
        kind = type(_DEFAULTS[name])
        if not isinstance(value, str if kind is str else int):
            raise InvalidArgument(
                message(
                    f"RunOptions.{name}", "The value has the wrong type",
                    expected=kind.__name__, got=type(value).__name__,
                )
            )  # fmt: skip
        self._values[name] = kind(value)
        if name == "terminate":
            (self.cancel_flag.set if value else self.cancel_flag.clear)()
        elif name in _HINTS and value != _DEFAULTS[name]:
            note(f"RunOptions.{name}", _HINTS[name])

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; one that is not known warns, with the nearest name.

        Raises:
            InvalidArgument: Key or value are not text, or the value is none that the key takes.
        """
        check_entry("run", key, value, RUN_KEYS)
        if key == "memory.enable_memory_arena_shrinkage":
            self.__dict__["shrinks"] = _arenas(value)
        elif key == "disable_synchronize_execution_providers":
            self.__dict__["is_left"] = _one_of(key, value, ("0", "1")) == "1"
        elif key == "gpu_graph_id":
            self.__dict__["graph_number"] = _number(key, value)
        elif key == "run.timeout_seconds":
            self.__dict__["timeout_seconds"] = checked_seconds(value, key) if value else None
        self._config[key] = value

    @property
    def only_leaves(self) -> bool:
        """Whether all that these options want now is that nobody waits for the run."""
        own = self.__dict__
        return (
            own["is_left"]
            and own["graph_number"] is None
            and own["timeout_seconds"] is None
            and not own["shrinks"]
            and not own["_adapters"]
            and not own["cancel_flag"].is_set
            and not own["_values"]["only_execute_path_to_fetches"]
        )

    def ended_apart(self) -> RunOptions:
        """These options for one run, which can be ended without others that have them."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__["cancel_flag"] = self.cancel_flag.child()
        return made

    def limit(self, timeout: float | None = None) -> AbstractContextManager[CancelFlag]:
        """What ends a run that is done with these options; it holds during the `with` block.

        Args:
            timeout: Seconds that the run may take, if that is less than these options say.
        """
        given = [t for t in (timeout, self.timeout_seconds) if t is not None]
        if not given:
            return nullcontext(self.cancel_flag)
        return time_limit(min(given), self.cancel_flag)

    def graph(self) -> AbstractContextManager[Any]:
        """Says which graphs of a device runs become; it holds during the `with` block."""
        if self.graph_number is None:
            return nullcontext()
        from sardonyx.cuda.run.graphs import numbered

        return numbered(self.graph_number)

    @names_misfits
    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry.

        Raises:
            Fail: It was not set.
        """
        if key not in self._config:
            raise errors.Fail(message("run config", f"The key {key!r} is not set"))
        return str(self._config[key])

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """Feed an adapter's tensors to runs with these options.

        They take the place of overridable initializers, or of inputs, of their names, before what
        the run itself is fed; of two adapters with one name the later holds.

        Raises:
            InvalidArgument: It is no adapter.
        """
        if not isinstance(adapter, LoraAdapter):
            raise InvalidArgument(
                message(
                    "RunOptions.add_active_adapter", "This is no adapter",
                    expected="LoraAdapter", got=type(adapter).__name__,
                )
            )  # fmt: skip
        self._adapters.append(adapter)

    def with_adapters(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Feeds, with those of the active adapters.

        Raises:
            InvalidArgument: Nothing was loaded into one.
        """
        if not self._adapters or not isinstance(feeds, Mapping):
            return feeds
        found = dict(feeds)
        for adapter in self._adapters:
            found.update(adapter.feeds())
        return found


def check_run_options(given: Any) -> RunOptions:
    """What a run got as its options.

    Raises:
        InvalidArgument: They are none.
    """
    if not isinstance(given, RunOptions):
        what, got = "run_options is of another type", type(given).__name__
        do = "Make one with RunOptions(), and set its attributes"
        raise WrongType(message("run", what, expected="RunOptions", got=got, do=do))
    return given


def _arenas(devices: str) -> frozenset[str]:
    """The arenas in a list such as `cpu:0;gpu:0`, by these names.

    Raises:
        InvalidArgument: One has no such name.
    """
    found = set()
    for text in filter(None, devices.split(";")):
        name, number = device_named(text)
        if (name, number) == ("cpu", 0):
            found.add("cpu:0")
        elif name == "cuda" and number is not None:
            found.add(f"gpu:{number}")
        else:
            what = f"There is no memory of {text!r}"
            raise InvalidArgument(message("run config", what, expected="'cpu:0' or 'gpu:0'"))
    return frozenset(found)


def _one_of(key: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        what = "No such value"
        raise InvalidArgument(message(f"run config {key}", what, expected=str(valid), got=value))
    return value


def _number(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        what = "This is no number"
        raise InvalidArgument(message(f"run config {key}", what, got=repr(value))) from None
