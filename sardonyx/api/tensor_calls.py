"""`session(...)`: feeds in order, and results of the library whose arrays are fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.api import feeds as feeding
from sardonyx.api.array_runs import PLAIN, ArrayRuns
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.value_runs import ValueRuns
from sardonyx.base.errors import InvalidArgument, message


class TensorCalls:
    """The part of `InferenceSession` that is called as a function.

    Args:
        runs: With arrays.
        values: Runs with `OrtValue`s.
    """

    def __init__(self, runs: ArrayRuns, values: ValueRuns) -> None:
        self._runs, self._values = runs, values

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """See `InferenceSession.__call__`.

        Raises:
            InvalidArgument: There are more inputs than the model has.
        """
        loaded = self._runs.loaded
        names = loaded.names
        if len(args) > len(names):
            expected, got = str(len(names)), str(len(args))
            raise InvalidArgument(message("call", "Too many inputs", expected=expected, got=got))
        is_quick = not (loaded.is_on_host or args) and len(kwargs) == len(names)
        if is_quick and kwargs:
            tensors = tuple(map(kwargs.get, names))
            if type(tensors[0]) is not OrtValue:
                results = self._runs.tensors_alike(tensors)
                if results is not None:
                    return alone(results)
        feeds = dict(zip(names, args, strict=False)) | kwargs
        if args and kwargs and type(args[0]) is OrtValue:
            values = self._values.quick_values(feeds, self._runs.run_alike)
            if values is not None:
                return alone(values)
        convert = feeding.converter(feeds.values())
        if convert is None:
            return alone(self._runs.run_plain(feeds))
        stream, found = None, None
        if not loaded.is_on_host:
            follows = loaded.engine.executable.follows_tensors
            stream = feeding.stream_of(feeds.values(), loaded.kind.number, follows=follows)
            engine, given = self._runs.fed(feeds)
            if engine is loaded.engine:
                feeds = dict(zip(names, given, strict=True))
                found = self._runs.run_alike(tuple(given)) if stream is None else None
        if found is None:
            call = PLAIN if stream is None else PLAIN._replace(stream=stream)
            found = self._runs.run_to(loaded.every, loaded.kind, feeds, call)
        return alone([feeding.like_feeds(convert, x) for x in found])


def alone(results: list[Any]) -> Any:
    """One result for itself, several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)
