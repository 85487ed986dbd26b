"""Runs with handles of tensors in place of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sardonyx.api import feeds as feeding
from sardonyx.api.array_runs import ArrayRuns, CallOptions
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo, memory_of
from sardonyx.api.ortvalue import OrtValue, numpy_type
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.growable_values import GrownView
from sardonyx.runtime.overlaps import check_apart
from sardonyx.runtime.storage import MemoryKind
from sardonyx.runtime.try_run import Completion

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine


class Fetches(NamedTuple):
    """Outputs that are asked for by lists: names, values, and where new values are to lie."""

    names: Sequence[str]
    values: OrtValueVector
    devices: Sequence[str | OrtDevice | OrtMemoryInfo]


class ValueRuns:
    """The part of `InferenceSession` that takes and gives `OrtValue`s.

    Args:
        runs: With arrays.
    """

    def __init__(self, runs: ArrayRuns) -> None:
        self._runs = runs

    def run(
        self,
        main: Engine,
        places: list[int] | None,
        output_names: Sequence[str] | None,
        values: Mapping[str, OrtValue],
        call: CallOptions,
    ) -> list[OrtValue]:
        """The outputs of an engine at `places`, in the way that is there for all values."""
        feeding.check_mapping(values)
        given = _arrays(values)
        runs, loaded = self._runs, self._runs.loaded
        if loaded.is_on_host and not any(type(x) is GrownView for x in given.values()):
            found = runs.run_chosen(main, places, given, call)
        else:
            if main is not loaded.engine:  # inner values stay where they are: refused by name
                places = loaded.asked.places(output_names)
            chosen = loaded.every if places is None else places
            found = runs.run_to(chosen, loaded.kind, given, call)
        return [OrtValue(a) for a in found]

    def try_run(self, values: Any, completion: Completion) -> list[OrtValue] | None:
        """The outputs, if the fast path does the run and the values are plain."""
        runs = self._runs
        names = runs.loaded.names
        if type(values) is not dict or len(values) != len(names):
            return None
        given = []
        for name in names:
            value = values.get(name)
            if type(value) is not OrtValue:
                return None
            given.append(value._array)
        found, new = runs.try_run(tuple(given), None, completion), object.__new__
        if found is not None:
            for k, array in enumerate(found):
                found[k] = value = new(OrtValue)
                value._array = array
        return found

    def run_vectors(
        self,
        call: CallOptions,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        wanted: Fetches,
    ) -> None:
        """See `InferenceSession.run_with_ortvaluevector`.

        Raises:
            InvalidArgument: Lists that belong together are not equally long, or fetches overlap.
        """
        where = "run_with_ortvaluevector"
        _check_lengths(where, "feed", feed_names, feeds)
        loaded, fetches = self._runs.loaded, wanted.values
        names = wanted.names or loaded.output_names
        _check_lengths(where, "fetch", names, fetches or wanted.devices)
        main, places = self._runs.chosen(names)
        places = loaded.every if places is None else places
        if fetches:
            infos = [main.record.outputs[k] for k in places]
            targets: list[Any] = [
                feeding.target_of(*pair) for pair in zip(fetches, infos, strict=True)
            ]
            check_apart(zip(names, targets, strict=True))
        else:
            targets = [memory_of(device) for device in wanted.devices]
        given = _arrays(dict(zip(feed_names, feeds, strict=True)))
        found = self._runs.run_places(main, places, targets, given, call)
        fetches[:] = map(OrtValue, found)

    def new(self, memory: MemoryKind, shape: Sequence[int], element_type: Any) -> OrtValue:
        """New memory, contents undefined; on the session's device from its own arena."""
        own = self._runs.loaded.kind
        if (memory.memory_name, memory.number) == (own.memory_name, own.number):
            memory = own
        return OrtValue(memory.empty(tuple(map(int, shape)), numpy_type(element_type)))


def _arrays(values: Mapping[Any, OrtValue]) -> dict[Any, Any]:
    """What values hold.

    Raises:
        InvalidArgument: One is no value.
    """
    for name, value in values.items():
        if type(value) is not OrtValue:
            what, got = "The feed is no OrtValue", type(value).__name__
            raise InvalidArgument(message(f"input {name}", what, expected="OrtValue", got=got))
    return {name: value._array for name, value in values.items()}


def _check_lengths(where: str, what: str, names: Sequence[str], others: Sequence[Any]) -> None:
    if len(names) != len(others):
        text = f"There are more or fewer entries than {what} names"
        raise InvalidArgument(message(where, text, expected=str(len(names)), got=str(len(others))))
