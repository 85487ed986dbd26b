"""Runs with arrays, which all other runs of a session are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sardonyx.api import feeds as feeding
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.run_options import RunOptions, check_run_options
from sardonyx.api.session_model import LoadedModel, SessionModel
from sardonyx.api.shrinking import check_arenas, shrink
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.storage import OutputPlacement, again, is_of_host
from sardonyx.runtime.try_run import FETCH, TryRun, never

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine


class CallOptions(NamedTuple):
    """What a call says beside names and feeds; as of `InferenceSession.run`."""

    run_options: RunOptions | None = None
    timeout: float | None = None
    stream: Any = None
    out: Sequence[Any] | None = None


#: Makes `CallOptions` of a tuple, without a frame of Python: runs with options begin with it.
call_options: Callable[[tuple[Any, ...]], CallOptions] = partial(tuple.__new__, CallOptions)
#: The options of a call that has none.
PLAIN = CallOptions()


def tensor_of(value: Any) -> Any:
    """What a value holds; what is no value stays what it is."""
    return value._array if type(value) is OrtValue else value


class ArrayRuns:
    """Runs of a session's model, by arrays and the places of outputs.

    The fast path is looked up once: when the model is compiled, or recorded from now on.

    Args:
        model: The session's.

    Attributes:
        loaded: The model that runs.
        try_run: The fast path, if the session may take it.
    """

    loaded: LoadedModel

    def __init__(self, model: SessionModel) -> None:
        self._model = model
        self.choose_run()

    def choose_run(self) -> None:
        """Take the model as it was compiled last, and its fast path, if it may be used."""
        self.loaded = loaded = self._model.loaded
        self.try_run: TryRun = never if loaded.gives_memory_back else loaded.engine.try_run

    # -- options ------------------------------------------------------------------------------

    def checked(self, run_options: Any) -> RunOptions:
        """The options of a run, each of which can be done here.

        Raises:
            InvalidArgument: They are none, or ask for what the session does not have.
        """
        options = check_run_options(run_options)
        if options.shrinks:
            check_arenas(self.loaded.engine, options.shrinks)
        return options

    def after_run(self, run_options: RunOptions | None) -> None:
        """Give memory back where options say so."""
        if self.loaded.gives_memory_back:
            self.loaded.engine.trim()
        if run_options is not None and run_options.shrinks:
            shrink(self.loaded.engine, run_options.shrinks)

    def check_stream(self, stream: Any) -> None:
        """Refuse a stream where there are none.

        Raises:
            InvalidArgument: The session works on the processor.
        """
        if stream is not None and self.loaded.is_on_host:
            what = "The session works on the processor, which has no streams"
            raise InvalidArgument(message("run stream", what, got=repr(stream)))

    # -- running ------------------------------------------------------------------------------

    def run_plain(self, feeds: dict[str, Any]) -> list[Any]:
        """All outputs, of a call without options."""
        loaded, found = self.loaded, None
        if len(feeds) == len(loaded.names):
            given = map(feeds.get, loaded.names)
            if loaded.is_on_host:
                found = self.try_run(tuple(given))
            else:
                found = self.try_run(tuple(map(tensor_of, given)), None, FETCH)
        return self.run_chosen(loaded.engine, None, feeds, PLAIN) if found is None else found

    def run(
        self, names: Sequence[str] | None, feeds: Mapping[str, Any], call: CallOptions
    ) -> list[Any]:
        """`run_chosen` by names of outputs; None or empty for all."""
        if names is None:
            return self.run_chosen(self.loaded.engine, None, feeds, call)
        return self.run_chosen(*self.chosen(names), feeds, call)

    def run_chosen(
        self, main: Engine, places: list[int] | None, feeds: Mapping[str, Any], call: CallOptions
    ) -> list[Any]:
        """Run once, in the way that is there for all feeds.

        Args:
            main: The engine to run.
            places: Where the outputs stand that are wanted; None for all.
            feeds: By name.
            call: As of `InferenceSession.run`.
        """
        loaded = self.loaded
        is_main, on_host = main is loaded.engine, loaded.is_on_host
        run_options, timeout, stream, out = call
        if out is not None or not (is_main or on_host):
            return self.run_into(main, places, feeds, call)
        if run_options is not None:
            feeds = self.checked(run_options).with_adapters(feeds)
            if run_options.only_execute_path_to_fetches and is_main and places and on_host:
                main, places = self._for_outputs(places)
        if not on_host and (places is not None or stream is not None):
            chosen = loaded.every if places is None else places
            return self.run_to(chosen, None, feeds, call)
        if stream is not None:
            self.check_stream(stream)
        given = feeding.plain(loaded.names, feeds)
        if given is None:
            main, given = self._sorted_feeds(feeds, main)
        if run_options is None and timeout is None:
            results = main.run(given)
        else:
            options = run_options or RunOptions()
            with options.limit(timeout) as cancel, options.graph():
                results = main.run(given, cancel)
        if loaded.gives_memory_back or (run_options is not None and run_options.shrinks):
            self.after_run(run_options)
        return results if places is None else [results[k] for k in places]

    def run_to(
        self, places: list[int], target: Any, feeds: Mapping[str, Any], call: CallOptions = PLAIN
    ) -> list[Any]:
        """The outputs at `places`, each in the memory `target`; the others stay on the device."""
        run_options, timeout, stream, _ = call
        if run_options is not None:
            feeds = self.checked(run_options).with_adapters(feeds)
        engine, given = self.fed(feeds)
        targets = [self.loaded.kind] * len(self.loaded.output_names)
        for place in places:
            targets[place] = target
        if run_options is None and timeout is None:
            results = engine.run_to(given, OutputPlacement(targets, stream))
        else:
            options = run_options or RunOptions()
            wanted = OutputPlacement(targets, stream, target is None or not options.is_left)
            with options.limit(timeout) as cancel, options.graph():
                results = engine.run_to(given, wanted, cancel)
            self.after_run(run_options)
        return [results[k] for k in places]

    def run_into(
        self,
        main: Engine,
        places: list[int] | None,
        feeds: Mapping[str, Any],
        call: CallOptions,
        target: Any = None,
    ) -> list[Any]:
        """The outputs of an engine at `places`, in memory of the caller or else in `target`."""
        infos = main.record.outputs
        places = list(range(len(infos))) if places is None else places
        held = feeding.targets(call.out, [infos[k] for k in places])
        given = [target if mine is None else mine for mine in held]
        found = self.run_places(main, places, given, feeds, call)
        return feeding.given_back(found, held, call.out)

    def run_places(
        self,
        main: Engine,
        places: list[int],
        targets: Sequence[Any],
        feeds: Mapping[str, Any],
        call: CallOptions,
    ) -> list[Any]:
        """The outputs of an engine at `places`, each in the memory that `targets` has for it."""
        options = call.run_options or RunOptions()
        engine, given = self._sorted_feeds(self.checked(options).with_adapters(feeds), main)
        self.check_stream(call.stream)
        unread = None if self.loaded.is_on_host else main.executable.facts.memory_kind
        into: list[Any] = [unread] * len(main.record.outputs)
        first = dict(zip(reversed(places), reversed(targets), strict=True))
        for place, target in first.items():
            into[place] = target
        is_once = len(first) == len(places)
        # Whoever gets an array of NumPy's reads it at once.
        waits = not (options.is_left and is_once) or any(map(is_of_host, into))
        with options.limit(call.timeout) as cancel, options.graph():
            results = engine.run_to(given, OutputPlacement(into, call.stream, waits), cancel)
        self.after_run(call.run_options)
        if is_once:
            return [results[k] for k in places]
        found = []
        for number, (k, target) in enumerate(zip(places, targets, strict=True)):
            is_first = places.index(k) == number
            name = main.record.outputs[k].name
            found.append(results[k] if is_first else again(name, target, results[k]))
        return found

    # -- feeds and outputs --------------------------------------------------------------------

    def fed(self, feeds: Mapping[str, Any]) -> tuple[Engine, list[Any]]:
        """Feeds in order, and the engine to run."""
        given = feeding.plain(self.loaded.names, feeds)
        main = self.loaded.engine
        return self._sorted_feeds(feeds, main) if given is None else (main, given)

    def _sorted_feeds(self, feeds: Mapping[str, Any], main: Engine) -> tuple[Engine, list[Any]]:
        """Feeds that are not plain arrays for exactly the inputs, and the engine to run."""
        feeding.check_mapping(feeds)
        fed = tuple(v.name for v in main.record.overridable if v.name in feeds)
        engine = main.with_inputs(fed)
        return engine, feeding.in_order(engine.inputs, feeds, main.record.overridable)

    def _for_outputs(self, places: list[int]) -> tuple[Engine, list[int]]:
        """The engine that computes these outputs alone, and where they are among its own."""
        main, names = self.loaded.engine, self.loaded.output_names
        wanted = sorted(set(places))
        engine = main.with_outputs(tuple(names[k] for k in wanted))
        if engine is main:
            return engine, places
        return engine, [wanted.index(k) for k in places]

    def chosen(self, names: Sequence[str]) -> tuple[Engine, list[int] | None]:
        """What gives these outputs, or inner values, and where they are among what it gives."""
        loaded = self.loaded
        known = loaded.asked.known(names)
        if known is not None:
            return loaded.engine, known[0]
        are_names = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
        unknown = set(names) - set(loaded.output_names) if are_names else None
        if not unknown:
            return loaded.engine, loaded.asked.places(names)
        listed = tuple(dict.fromkeys(names))
        try:
            engine = loaded.engine.with_inner(listed)
        except InvalidArgument as error:
            missing = [n for n in names if repr(n) in str(error)] or sorted(unknown)
            advice = nearest(missing[0], loaded.output_names)
            raise InvalidArgument(f"{error} {advice}".rstrip()) from None
        if engine is None:
            return loaded.engine, loaded.asked.places(names)
        return engine, [listed.index(n) for n in names]
