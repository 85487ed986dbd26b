"""What `InferenceSession` may be given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sardonyx.api.optimizers import optimizer_names
from sardonyx.api.options import SessionOptions
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, WrongType, message

#: Further arguments.
_ARGUMENTS = ("enable_fallback", "disabled_optimizers", "read_config_from_model")
#: Those that are named in the signature.
_NAMED = ("path_or_bytes", "sess_options", "providers", "provider_options")


def check_arguments(source: Any, options: Any, further: Mapping[str, Any]) -> None:
    """Refuse what a session cannot be made of, and note what has no effect.

    Raises:
        InvalidArgument: An argument is unknown, or the options are none.
        NotImplemented: The model is in ORT's own format.
    """
    for name, value in further.items():
        if name not in _ARGUMENTS:
            raise InvalidArgument(
                message(
                    "InferenceSession", f"There is no argument {name!r}",
                    do=nearest(name, (*_NAMED, *_ARGUMENTS)),
                )
            )  # fmt: skip
        if name == "disabled_optimizers" and value is not None:
            optimizer_names(value)
    if options is not None and not isinstance(options, SessionOptions):
        raise WrongType(
            message(
                "InferenceSession", "sess_options is of another type",
                expected="SessionOptions", got=type(options).__name__,
                do="Make one with SessionOptions(), and set its attributes",
            )
        )  # fmt: skip
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".ort"):
        raise errors.NotImplemented(
            message(str(source), "ORT's own format is not read", do="Save it as ONNX")
        )
