"""A model that is ready to run, as `onnxruntime.backend` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import InvalidArgument, message


class OnnxRuntimeBackendRep:
    """A model that is ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """Outputs, given one value, a list of values in the model's order, or a dict by name.

        A dict whose keys are not the inputs' names is itself the value of the only input, a map.

        Raises:
            InvalidArgument: There are too many inputs, or an option of the run is unknown.
        """
        options = RunOptions()
        for name, value in kwargs.items():
            setattr(options, name, value)
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
