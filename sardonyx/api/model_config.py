"""Options that a model's own metadata ask for, where a program wants them read."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.api.options import SessionOptions
from sardonyx.base.errors import InvalidArgument, message

#: onnxruntime's switch in the environment.
_SWITCH = "ORT_LOAD_CONFIG_FROM_MODEL"
_KEY = "ort_config"
#: What may stand under `session_options` beside `tuning_rules.SESSION`.
_SWITCHES = ("use_per_session_threads", "enable_profiling")
_MOST_BYTES = 1 << 20


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
    from sardonyx.store.bundle import is_bundle

    text = None if is_bundle(source) else metadata_of(source).get(_KEY)
    if text is None:
        return
    # Only for models that hold options.
    from sardonyx.api.tuning_rules import SESSION, OptionRule, check_rules
    from sardonyx.base.bounded_json import parse_json

    where = f"metadata {_KEY}"
    found = parse_json(text, where, most=_MOST_BYTES)
    if not isinstance(found, dict) or "session_options" not in found:
        what = "This is no JSON with session_options"
        raise InvalidArgument(message(where, what, got=text[:100]))
    switch = OptionRule(lambda v: v in (0, 1) and isinstance(v, int), "0, 1, false or true")
    rules = {**SESSION, **dict.fromkeys(_SWITCHES, switch)}
    check_rules(where, found["session_options"], rules)
    for name, value in found["session_options"].items():
        setattr(options, name, value)
