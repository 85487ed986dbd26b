"""Options of sessions and runs, under onnxruntime's names and with its defaults."""

from __future__ import annotations

import warnings
from typing import Any

from sardonyx.api.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.cancel import CancelFlag

#: Session-config keys that mean something here, or that ask for what is done anyway.
CONFIG_KEYS: dict[str, str] = {
    "session.intra_op.allow_spinning": "nothing spins between runs, whatever is asked",
    "session.inter_op.allow_spinning": "there are no inter-op threads",
    "session.force_spinning_stop": "nothing spins between runs",
    "session.disable_prepacking": "weights are packed before the first run",
    "session.use_device_allocator_for_initializers": "weights never lie in an arena",
    "session.set_denormal_as_zero": "denormal numbers are kept",
    "session.disable_cpu_ep_fallback": "there is one provider",
    "session.use_env_allocators": "arenas belong to frames of runs",
    "session.dynamic_block_base": "work is claimed in decreasing blocks already",
    "optimization.enable_gelu_approximation": "GELU is computed as it is written",
    "session.disable_quant_qdq": "quantised operators are computed as they are written",
    "session.strict_shape_type_inference": "shapes are always inferred",
    "session.load_model_format": "ONNX is what is read",
}

#: What would change results or files if it were ignored: key -> the values that change nothing.
_REFUSED = {
    "session.set_denormal_as_zero": ("0",),
    "session.load_model_format": ("", "ONNX"),
}

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
#: Properties whose other values nothing here implements yet.
_FIXED = ("enable_profiling", "optimized_model_filepath")


class SessionOptions:
    """How a session is made. Unknown properties are errors, never ignored.

    Effective: `intra_op_num_threads`, `graph_optimization_level`, free dimension overrides. Without
    effect because the engine does better anyway: memory arena, pattern and reuse, execution mode
    and order, `inter_op_num_threads` (there are no inter-op threads), `use_deterministic_compute`
    (results are the same bits from run to run), log settings (see Python's `logging`).
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_values", dict(_DEFAULTS))
        object.__setattr__(self, "_config", {})
        object.__setattr__(self, "_dimensions", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(self._unknown(name))
        default = _DEFAULTS[name]
        if name in _FIXED and value != default:
            raise errors.NotImplemented(
                message(f"SessionOptions.{name}", "This is not supported yet", got=repr(value))
            )
        wanted = int if isinstance(default, int) else type(default)
        if not isinstance(value, wanted):
            raise InvalidArgument(
                message(
                    f"SessionOptions.{name}", "The value has the wrong type",
                    expected=wanted.__name__, got=type(value).__name__,
                )
            )  # fmt: skip
        if name == "intra_op_num_threads" and value < 0:
            raise InvalidArgument(
                message(f"SessionOptions.{name}", "The number is negative", got=str(value))
            )
        self._values[name] = value

    @staticmethod
    def _unknown(name: str) -> str:
        return message(
            "SessionOptions", f"There is no option {name!r}", do=nearest(name, _DEFAULTS)
        )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; one that is not known warns once, with the nearest name.

        Raises:
            NotImplemented: The value asks for something that is not supported.
        """
        if key in _REFUSED and value not in _REFUSED[key]:
            raise errors.NotImplemented(
                message(f"session config {key}", "It is not supported", got=value)
            )
        if key not in CONFIG_KEYS and key not in self._config:
            text = message(
                "session config", f"The key {key!r} has no effect", do=nearest(key, CONFIG_KEYS)
            )
            warnings.warn(text, UserWarning, stacklevel=2)
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry.

        Raises:
            RuntimeError: It was not set.
        """
        if key not in self._config:
            raise RuntimeError(message("session config", f"The key {key!r} is not set"))
        return str(self._config[key])

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give the dimension that inputs call `name` a fixed size."""
        self._dimensions[name] = int(size)

    @property
    def free_dimension_overrides(self) -> dict[str, int]:
        """Sizes by dimension name."""
        return dict(self._dimensions)


class RunOptions:
    """How one run is done: `terminate = True`, from any thread, ends runs that were given it."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.cancel_flag = CancelFlag()
        self._terminate = False
        self._config: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """Whether runs with these options end."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = bool(value)
        if value:
            self.cancel_flag.set()
        else:
            self.cancel_flag.clear()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry of the run."""
        self._config[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry of the run."""
        if key not in self._config:
            raise RuntimeError(message("run config", f"The key {key!r} is not set"))
        return self._config[key]
