"""What callers feed becomes arrays that the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.object_types import ObjectType
from sardonyx.runtime.declared import ValueInfo


def check_mapping(given: Any) -> None:
    """Refuse feeds that are not by name.

    Raises:
        InvalidArgument: They are not.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            message(
                "run", "The feeds are no dict", expected="{name: array}", got=type(given).__name__
            )
        )


def in_order(
    inputs: tuple[ValueInfo, ...],
    given: Mapping[str, Any],
    overridable: tuple[ValueInfo, ...] = (),
) -> list[Any]:
    """The feeds in the order of `inputs`, each an array.

    Raises:
        InvalidArgument: One is missing, is not an input, or cannot be made an array.
    """
    missing = [v.name for v in inputs if v.name not in given and not _is_optional(v)]
    if missing:
        raise InvalidArgument(
            message(
                "run", f"Required inputs ({missing}) are missing",
                expected=str([v.name for v in inputs]), got=str(list(given)),
            )
        )  # fmt: skip
    known = {v.name for v in (*inputs, *overridable)}
    for name in given:
        if name not in known:
            raise InvalidArgument(
                message("run", f"The model has no input {name!r}", do=nearest(name, known))
            )
    return [as_array(given.get(v.name), v) for v in inputs]


def _is_optional(info: ValueInfo) -> bool:
    return isinstance(info.dtype, ObjectType) and info.dtype.form == "optional"


def as_array(value: Any, info: ValueInfo) -> Any:
    """One feed as an array; numbers in lists take the input's type.

    Sequences, maps and optionals stay what they are.
    """
    if isinstance(info.dtype, ObjectType):
        return value.to_python() if isinstance(value, OrtValue) else value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, OrtValue):
        return value.numpy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (list, tuple, int, float, bool, str, bytes)):
        try:
            return np.asarray(value, info.dtype.numpy)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidArgument(
                message(f"input {info.name}", f"The feed is no array: {error}")
            ) from None
    if hasattr(value, "__dlpack__"):
        return OrtValue.from_dlpack(value).numpy()
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise InvalidArgument(
        message(
            f"input {info.name}", "The feed is no array",
            expected=info.dtype.type_text, got=type(value).__name__,
        )
    )  # fmt: skip
