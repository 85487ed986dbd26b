"""A model that is ready to run, as `onnxruntime.backend` has it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message

#: Options of runs that may be given, as in onnxruntime; others stop runs.
_RUN_OPTIONS = (
    "log_severity_level",
    "log_verbosity_level",
    "logid",
    "only_execute_path_to_fetches",
)


def set_options(options: Any, given: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Set options; one that does not exist warns, since onnxruntime passes over it.

    Raises:
        InvalidArgument: An option is not to be set here: it writes files, or ends runs.
    """
    for name, value in given.items():
        kind = type(options).__name__
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            what = f"{kind}.{name} cannot be set here"
            raise InvalidArgument(message("backend", what, expected=f"one of {list(allowed)}"))
        else:
            what = f"{kind} has no option {name!r}: it has no effect"
            text = message("backend", what, do=nearest(name, allowed))
            warnings.warn(text, UserWarning, stacklevel=3)


class OnnxRuntimeBackendRep:
    """A model that is ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """Outputs, given one value, a list of values in the model's order, or a dict by name.

        A dict whose keys are not the inputs' names is itself the value of the only input, a map.

        Raises:
            InvalidArgument: There are too many inputs, or an option is none that may be set.
        """
        options = RunOptions()
        set_options(options, kwargs, _RUN_OPTIONS)
        names = [i.name for i in self._session.get_inputs()]
        is_by_name = isinstance(inputs, Mapping) and (
            len(names) != 1 or names[0] in inputs or not inputs
        )
        if not is_by_name:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise InvalidArgument(
                    message(
                        "backend", "Too many inputs", expected=str(len(names)), got=str(len(given))
                    )
                )
            inputs = dict(zip(names, given, strict=False))
        return self._session.run(None, inputs, options)
