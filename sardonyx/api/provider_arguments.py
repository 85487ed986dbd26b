"""Providers and their options in one form, as onnxruntime's own function makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.api.warned import warn
from sardonyx.base.errors import InvalidArgument, message

_WHERE = "providers"


def check_and_normalize_provider_args(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Names, and the options of each as text; a name that comes twice counts once, with a warning.

    Args:
        providers: Names, or (name, options) pairs.
        provider_options: Options for each, where there are no pairs.
        available_provider_names: Others give a warning.

    Raises:
        InvalidArgument: They have another form.
    """
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence) or isinstance(providers, (str, bytes)):
        raise _refusal("providers is not a list of names", providers)
    options: Sequence[Any] = [{}] * len(providers)
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise _refusal("provider_options is not a list of dicts", provider_options)
        if len(provider_options) != len(providers):
            raise _refusal("There must be options for each provider", provider_options)
        options = provider_options
    found: dict[str, dict[str, str]] = {}
    for entry, own in zip(providers, options, strict=True):
        if isinstance(entry, tuple) and len(entry) == 2:
            if provider_options is not None:
                raise _refusal("Options are given twice", entry)
            name, own = entry
        else:
            name = entry
        if not isinstance(name, str) or not isinstance(own, Mapping):
            raise _refusal("A provider is a name, or a name and a dict of options", (name, own))
        if name not in available_provider_names:
            warn(f"The provider {name!r} is not available")
        if name in found:
            warn(f"The provider {name!r} is named twice")
            continue
        found[name] = {str(key): str(value) for key, value in own.items()}
    return list(found), list(found.values())


def _refusal(what: str, given: Any) -> InvalidArgument:
    return InvalidArgument(message(_WHERE, what, got=repr(given)))
