"""Options that a model's own metadata ask for, where a program wants them read."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.api.options import SessionOptions
from sardonyx.base.errors import InvalidArgument, message

#: onnxruntime's switch in the environment.
_SWITCH = "ORT_LOAD_CONFIG_FROM_MODEL"
_KEY = "ort_config"
#: What may stand under `session_options`.
_NAMES = (
    "intra_op_num_threads", "inter_op_num_threads", "use_per_session_threads", "execution_mode",
    "graph_optimization_level", "enable_profiling",
)  # fmt: skip


def take_model_config(source: Any, options: SessionOptions, wanted: bool) -> None:
    """Set the options that the model's metadata name, if they are wanted.

    Args:
        source: A path, bytes or a `ModelProto`.
        options: They are changed; what the model says goes first.
        wanted: Whether the caller wants them; ORT_LOAD_CONFIG_FROM_MODEL=1 does, too.

    Raises:
        InvalidArgument: The metadata are no such JSON, or name an option or a value that is none.
    """
    if not wanted and os.environ.get(_SWITCH) != "1":
        return
    from sardonyx.loader.load import metadata_of
    from sardonyx.runtime.bundle import is_bundle

    text = None if is_bundle(source) else metadata_of(source).get(_KEY)
    if text is None:
        return
    import json  # only for models that hold options

    try:
        found = json.loads(text)["session_options"]
        entries = dict(found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"This is no JSON with session_options: {type(error).__name__}: {error}"
        raise InvalidArgument(message(f"metadata {_KEY}", what, got=text[:100])) from None
    for name, value in entries.items():
        if name not in _NAMES:
            what = f"The model asks for an option {name!r}"
            raise InvalidArgument(message(f"metadata {_KEY}", what, expected=f"one of {_NAMES}"))
        setattr(options, name, value)
