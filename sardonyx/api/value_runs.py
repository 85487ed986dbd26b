"""Runs with handles of tensors in place of arrays, and with bindings to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo, memory_for, memory_of
from sardonyx.api.ortvalue import OrtValue, numpy_type
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.api.run_options import RunOptions
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.growable_values import GrownView
from sardonyx.runtime.overlaps import check_apart
from sardonyx.runtime.storage import MemoryKind
from sardonyx.runtime.try_run import LEAVE, WAIT, Completion, TryRun

if TYPE_CHECKING:
    from sardonyx.api.output_names import OutputNames
    from sardonyx.runtime.engine import Engine


class ValueRuns:
    """The part of `InferenceSession` that takes and gives `OrtValue`s."""

    run: Callable[..., list[Any]]
    _names: tuple[str, ...]
    _input_count: int
    _every: list[int]
    _output_names: list[str]
    _kind: MemoryKind
    _is_on_host: bool
    _try_run: TryRun
    _engine: Engine
    _chosen: Callable[[Sequence[str]], tuple[Engine, list[int] | None]]
    _asked: OutputNames
    _run_to: Callable[..., list[Any]]
    _run_places: Callable[..., list[Any]]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
        *,
        stream: Any = None,
    ) -> list[OrtValue]:
        """`run`, with handles in place of arrays; results stay on the session's device.

        With the run-config entry `disable_synchronize_execution_providers` the run may be under way
        when this returns: what uses the results later waits for it, on the device.
        """
        main, places = self._engine, None
        if output_names is not None:
            main, places = self._chosen(output_names)
        if stream is None and main is self._engine:
            values: list[OrtValue] | None = None
            if run_options is None:
                values = self._repeated_values(input_dict_ort_values, WAIT)
            elif type(run_options) is RunOptions and run_options.only_leaves:
                values = self._repeated_values(input_dict_ort_values, LEAVE)
            if values is not None:
                return values if places is None else [values[k] for k in places]
        feeding.check_mapping(input_dict_ort_values)
        given = _arrays(input_dict_ort_values)
        if self._is_on_host and not any(type(x) is GrownView for x in given.values()):
            found = self.run(output_names, given, run_options, stream=stream)
        else:
            if main is not self._engine:  # inner values stay where they are: refused by name
                places = self._asked.places(output_names)
            chosen = self._every if places is None else places
            found = self._run_to(given, chosen, self._kind, run_options, None, stream)
        return [OrtValue(a) for a in found]

    def _repeated_values(self, values: Any, completion: Completion) -> list[OrtValue] | None:
        """The outputs, if the fast path does the run and the values are plain."""
        if type(values) is not dict or len(values) != self._input_count:
            return None
        given = []
        for name in self._names:
            value = values.get(name)
            if type(value) is not OrtValue:
                return None
            given.append(value._array)
        found, new = self._try_run(tuple(given), None, completion), object.__new__
        if found is not None:
            for k, array in enumerate(found):
                found[k] = value = new(OrtValue)
                value._array = array
        return found

    @names_misfits
    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[str | OrtDevice | OrtMemoryInfo],
    ) -> None:
        """Run, with lists of values.

        Args:
            run_options: As of `run`.
            feed_names: Names of the inputs.
            feeds: A value for each.
            fetch_names: Names of the outputs; none for all.
            fetches: Gets the outputs; or has a value for each already, which is written to.
            fetch_devices: Where each new output is to lie.

        Raises:
            InvalidArgument: Lists that belong together are not equally long, fetches overlap, or
                as `run` does.
        """
        where = "run_with_ortvaluevector"
        _check_lengths(where, "feed", feed_names, feeds)
        names = fetch_names or self._output_names
        _check_lengths(where, "fetch", names, fetches or fetch_devices)
        main, places = self._chosen(names)
        places = self._every if places is None else places
        if fetches:
            infos = [main.record.outputs[k] for k in places]
            targets: list[Any] = [
                feeding.target_of(*pair) for pair in zip(fetches, infos, strict=True)
            ]
            check_apart(zip(names, targets, strict=True))
        else:
            targets = [memory_of(device) for device in fetch_devices]
        given = _arrays(dict(zip(feed_names, feeds, strict=True)))
        found = self._run_places(main, given, places, targets, run_options)
        fetches[:] = map(OrtValue, found)

    def run_with_iobinding(
        self, iobinding: Any, run_options: RunOptions | None = None, *, stream: Any = None
    ) -> None:
        """Run with the memory that a binding names, in a stream if there is one.

        Raises:
            InvalidArgument: The binding is another session's, or an input is not bound.
        """
        try:
            is_own = iobinding._session is self
        except AttributeError:
            is_own = False
        if not is_own:
            raise InvalidArgument(
                message("run_with_iobinding", "The binding is not one of this session's")
            )
        if run_options is not None or stream is not None or not iobinding.try_run():
            iobinding.run(run_options, stream=stream)

    @names_misfits
    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice | OrtMemoryInfo = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """New memory, contents undefined; on the session's device from its own arena.

        Arguments and errors are those of `OrtValue.ortvalue_from_shape_and_type`.
        """
        memory, own = memory_for(memory_info, device_type, device_id, vendor_id), self._kind
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
