"""`session(...)`: feeds in order, and results of the library whose arrays are fed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.api import feeds as feeding
from sardonyx.api.array_runs import PLAIN, ArrayRuns
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.value_runs import ValueRuns
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.try_run import TENSORS, WAIT


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
        may_follow = loaded.follows_tensors and not args and len(kwargs) == len(names)
        if may_follow and kwargs:
            tensors = tuple(map(kwargs.get, names))
            if type(tensors[0]) is not OrtValue:
                results = self._runs.try_run(tensors, None, TENSORS)
                if results is not None:
                    return alone(results)
        feeds = dict(zip(names, args, strict=False)) | kwargs
        if args and kwargs and type(args[0]) is OrtValue:
            values = self._values.try_run(feeds, WAIT)
            if values is not None:
                return alone(values)
        convert = feeding.converter(feeds.values())
        if convert is None:
            return alone(self._runs.run_plain(feeds))
        stream, found = None, None
        if not loaded.is_on_host:
            follows = loaded.follows_tensors
            stream = feeding.stream_of(feeds.values(), loaded.kind.number, follows=follows)
            engine, given = self._runs.fed(feeds)
            if engine is loaded.engine:
                feeds = dict(zip(names, given, strict=True))
                found = self._runs.try_run(tuple(given)) if stream is None else None
        if found is None:
            call = PLAIN if stream is None else PLAIN._replace(stream=stream)
            found = self._runs.run_to(loaded.every, loaded.kind, feeds, call)
        return alone([feeding.like_feeds(convert, x) for x in found])


def alone(results: list[Any]) -> Any:
    """One result for itself, several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)
