"""What `repr` shows of sessions, options and the like: a line, whatever state they are in.

Nothing of it comes from a model's data or from entries of a configuration, which may be long or
nobody's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from sardonyx.base.printable import printable
from sardonyx.base.texts import counted, shortened

#: The most options that are shown.
_MOST = 4


def facts(shown: object, *texts: str) -> str:
    """`<Class text, text>`; what is empty is left out."""
    text = " ".join([f"<{type(shown).__name__}", ", ".join(filter(None, texts))]).rstrip() + ">"
    return printable(text)


def session_text(session: Any) -> str:
    """A session's model, its inputs and outputs, and the providers that it runs on."""
    own: Mapping[str, Any] = session.__dict__
    if "_model" not in own:
        return facts(session, "without a model")
    model = own["_model"]
    record, source = model.engine.record, model.source
    name = os.path.basename(source) if isinstance(source, (str, os.PathLike)) else ""
    title = shortened(os.fsdecode(name) or record.metadata.graph_name) or "model"
    inputs, outputs = len(record.inputs), len(record.outputs)
    ports = f"{counted(inputs, 'input')}, {counted(outputs, 'output')}"
    return facts(session, f"{title}: {ports}", *model.providers)


def options_text(options: Any, defaults: Mapping[str, Any], parts: Mapping[str, str]) -> str:
    """Options that have not their defaults, and how many parts there are of each kind.

    Args:
        options: Has `_values`, by name, and collections of parts.
        defaults: Of the values.
        parts: What one part is called, by the collection's name.
    """
    own: Mapping[str, Any] = options.__dict__
    values: Mapping[str, Any] = own.get("_values", {})
    changed = [f"{k}={_value(v)}" for k, v in values.items() if v != defaults[k]]
    more = [f"{len(changed) - _MOST} more"] if len(changed) > _MOST else []
    return facts(options, *changed[:_MOST], *more, *_counts(own, parts))


def _counts(own: Mapping[str, Any], parts: Mapping[str, str]) -> Iterable[str]:
    for name, noun in parts.items():
        if count := len(own.get(name, ())):
            yield counted(count, noun)


def _value(value: Any) -> str:
    return shortened(repr(value)) if isinstance(value, str) else str(getattr(value, "name", value))
