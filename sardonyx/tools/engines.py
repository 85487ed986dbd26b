"""Other engines, to compare with: modules with onnxruntime's names."""

from __future__ import annotations

import importlib
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import message

_EXPECTED = "a module with onnxruntime's InferenceSession, such as onnxruntime"


def engine_module(name: str) -> Any:
    """The module `name`, which has an `InferenceSession`.

    Raises:
        NotFound: There is no such module, or it is no engine.
    """
    do = f"pip install {name}" if name == "onnxruntime" else ""
    try:
        found = importlib.import_module(name)
    except (ImportError, TypeError, ValueError) as error:
        what = f"There is no module {name!r} here: {error}"
        raise errors.NotFound(message("--against", what, expected=_EXPECTED, do=do)) from None
    if not hasattr(found, "InferenceSession"):
        what = f"The module {name!r} has no InferenceSession, so it is no engine to compare with"
        raise errors.NotFound(message("--against", what, expected=_EXPECTED))
    return found
