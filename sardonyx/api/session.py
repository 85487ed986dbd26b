"""`InferenceSession`: a model, ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.arguments import check_arguments
from sardonyx.api.async_runs import AsyncRuns
from sardonyx.api.config_keys import SETTINGS_KEY
from sardonyx.api.cuda_options import CUDA
from sardonyx.api.making import make_engine
from sardonyx.api.model_config import take_model_config
from sardonyx.api.options import SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.output_names import OutputNames
from sardonyx.api.profiling import Profiling
from sardonyx.api.providers import CPU, check_names, choose, preferred, streams_of
from sardonyx.api.run_options import RunOptions
from sardonyx.api.spelling import nearest
from sardonyx.api.value_runs import ValueRuns
from sardonyx.base import knobs, resources
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.handlers import undisturbed
from sardonyx.base.log import get_logger
from sardonyx.base.notes import note
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import HOST, OutputPlacement, again, is_of_host
from sardonyx.runtime.try_run import FETCH, TENSORS, WAIT, TryRun, never

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("session")


def _tensor_of(value: Any) -> Any:
    return value._array if type(value) is OrtValue else value


class InferenceSession(Profiling, AsyncRuns, ValueRuns):
    """A model, compiled and ready to run from any number of threads.

    Args:
        path_or_bytes: Path of a model, its bytes, or a `ModelProto`.
        sess_options: How to make the session.
        providers: Names of execution providers, or (name, options) pairs, in order of preference.
            One that is not there gives a warning and is passed over.
        provider_options: Options for each of `providers`.
        kwargs: `disabled_optimizers`, names of onnxruntime's optimisers; `enable_fallback`.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        NotImplemented: The model needs something that is not supported.
        InvalidArgument: An argument is none of these.
        ResourceError: The system refuses files, threads, processes, room on a disk, or access.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        check_arguments(path_or_bytes, sess_options, kwargs)
        self._source = path_or_bytes
        undisturbed(partial(self._begin, sess_options, providers, provider_options, kwargs))

    def _begin(
        self, given: SessionOptions | None, providers: Any, options: Any, further: dict[str, Any]
    ) -> None:
        with resources.named("session"):
            self._options = SessionOptions() if given is None else given.copy()
            with self._options.log_scope():
                self._make(providers, options, given or self._options, further)

    def _make(
        self, providers: Any, provider_options: Any, given: SessionOptions, further: dict[str, Any]
    ) -> None:
        """Make the session; `given` are the caller's options, which may end it."""
        if further.get("disabled_optimizers"):
            self._options.disable_optimizers(further["disabled_optimizers"])
        wanted = bool(further.get("read_config_from_model"))
        take_model_config(self._source, self._options, wanted)
        if providers is None and given.has_providers():
            providers = given.providers_for(self._source)
        self._start_profile()
        providers, tuned = self._take_settings(providers, provider_options is not None)
        self._choose(providers, provider_options)
        self._engine = self._create(given.load_flag, tuned)
        self._set_up()

    def _take_settings(self, providers: Any, has_options: bool) -> tuple[Any, Tuned | None]:
        """Providers and kernels, of a file of settings if one is named; options are filled in."""
        path = self._options.config(SETTINGS_KEY) or knobs.get("SARDONYX_SETTINGS")
        if not path:
            return providers, None
        from sardonyx.api.settings import settings_for, use

        settings = settings_for(path, self._source)
        if settings is None:
            return providers, None
        return use(settings, self._options, providers, has_options=has_options)

    def _choose(self, providers: Any, provider_options: Any) -> None:
        may_fall_back = self._options.config("session.disable_cpu_ep_fallback") != "1"
        self._providers = choose(providers, provider_options, may_fall_back=may_fall_back)
        self._streams = streams_of(providers, provider_options)

    def _create(self, cancel: CancelFlag | None = None, tuned: Tuned | None = None) -> Engine:
        used = preferred(self._providers)
        idle = {name: given for name, given in self._providers.items() if name not in used}
        for name in idle:
            note(f"the provider {name}", f"{CPU} is named before it, and runs all of a model")
        engine = make_engine(self._source, self._options, used, cancel, tuned)
        if CUDA not in used and knobs.get("SARDONYX_NVTX"):
            note("SARDONYX_NVTX", "the session runs on the processor, whose kernels have no ranges")
        self._providers = {**used, **idle}
        return engine

    def _tune(self, tuned: Tuned) -> None:
        self._engine = self._create(tuned=tuned)
        self._set_up()

    def _set_up(self) -> None:
        record = self._engine.record
        self._names = tuple(v.name for v in record.inputs)
        self._output_names = [v.name for v in record.outputs]
        self._asked = OutputNames(self._output_names)
        self._every = list(range(len(self._output_names)))
        self._run = self._engine.run
        self._input_count = len(self._names)
        self._kind = self._engine.executable.facts.memory_kind
        self._is_on_host = self._kind is HOST
        self._gives_memory_back = self._is_on_host and not self._options.enable_cpu_mem_arena
        self._follow_engine()
        self._choose_run()
        used = {
            f"{v.name}.{axis}" if d is None else d
            for v in (*record.inputs, *record.overridable)
            for axis, d in enumerate(v.shape)
        }
        for name in self._options.free_dimension_overrides:
            if name not in used:
                text = "No dimension of an input is called %r: its size has no effect. %s"
                _logger.warning(text, name, nearest(name, {d for d in used if isinstance(d, str)}))
        denoted = {d.lower() for d in record.denotations}
        for name in self._options.denoted_sizes:
            if name.lower() not in denoted:
                text = "No dimension of an input stands for %r: its size has no effect. %s"
                _logger.warning(text, name, nearest(name, record.denotations))

    def _choose_run(self) -> None:
        self._try_run: TryRun = never if self._gives_memory_back else self._engine.try_run
        self._takes_tensors = self._engine.executable.facts.follows_tensors

    # -- running ------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
        *,
        out: Sequence[Any] | None = None,
        timeout: float | None = None,
        stream: Any = None,
    ) -> list[Any]:
        """Run the model once.

        Args:
            output_names: Which outputs to return; None or empty for all. Names of inner tensors
                may be among them: a plan that gives these values is compiled when they are first
                asked for.
            input_feed: Arrays (or lists, OrtValues, anything with `__dlpack__` or
                `__cuda_array_interface__`) by input name. Overridable initializers may be among
                them. What lies on the session's device is not copied.
            run_options: May end the run from another thread, or after some time.
            out: For each output that is returned, an array (or `OrtValue`, or array of another
                library) to write it to, or None. It must have the output's type and shape; it may
                be longer along the first axis, or have one axis alone and as many elements. It
                may be memory of a feed, which is read first, but not another output's.
            timeout: Seconds that the run may take.
            stream: A stream of the session's GPU: a handle, a stream of torch or cupy, or an
                object with `__cuda_stream__`. By default one of the session's own.

        Returns:
            NumPy arrays; for what is no tensor a list, a dict, a `SparseTensor` or None.

        Raises:
            InvalidArgument: An input is missing, or a name, type, rank, size or device is wrong.
            RuntimeException: The model met data that it cannot work on.
            TimedOut: The run took longer than it may.
            OutOfMemory: The run needs more memory than the session may have.
        """
        main, places = self._engine, None
        if output_names is not None:
            main, places = self._chosen(output_names)
        if out is not None or (main is not self._engine and not self._is_on_host):
            return self._run_into(main, input_feed, places, out, run_options, timeout, stream)
        if run_options is not None:
            input_feed = self._checked(run_options).with_adapters(input_feed)
            fetches = run_options.only_execute_path_to_fetches and main is self._engine
            if fetches and places and self._is_on_host:
                main, places = self._for_outputs(places)
        elif timeout is None and stream is None and main is self._engine:
            names = self._names
            if type(input_feed) is dict and len(input_feed) == len(names):
                found = None
                if self._is_on_host:
                    found = self._try_run(tuple(map(input_feed.get, names)))
                elif places is None:
                    tensors = tuple(map(_tensor_of, map(input_feed.get, names)))
                    found = self._try_run(tensors, None, FETCH)
                if found is not None:
                    return found if places is None else [found[k] for k in places]
        if not self._is_on_host and (places is not None or stream is not None):
            chosen = self._every if places is None else places
            return self._run_to(input_feed, chosen, None, run_options, timeout, stream)
        self._check_stream(stream)
        run = self._run if main is self._engine else main.run
        given = feeding.plain(self._names, input_feed)
        if given is None:
            engine, given = self._sorted_feeds(input_feed, main)
            run = engine.run
        if run_options is None and timeout is None:
            results = run(given)
        else:
            options = run_options or RunOptions()
            with options.limit(timeout) as cancel, options.graph():
                results = run(given, cancel)
        if self._gives_memory_back or run_options is not None:
            self._after_run(run_options)
        return results if places is None else [results[k] for k in places]

    def _run_to(
        self,
        feeds: Mapping[str, Any],
        places: list[int],
        target: Any,
        run_options: RunOptions | None,
        timeout: float | None,
        stream: Any,
    ) -> list[Any]:
        """The outputs at `places`, each in the memory `target`; the others stay on the device."""
        if run_options is not None:
            feeds = self._checked(run_options).with_adapters(feeds)
        engine, given = self._fed(feeds)
        targets = [self._kind] * len(self._output_names)
        for place in places:
            targets[place] = target
        if run_options is None and timeout is None:
            results = engine.run_to(given, OutputPlacement(targets, stream))
        else:
            options = run_options or RunOptions()
            wanted = OutputPlacement(targets, stream, target is None or not options.is_left)
            with options.limit(timeout) as cancel, options.graph():
                results = engine.run_to(given, wanted, cancel)
            self._after_run(run_options)
        return [results[k] for k in places]

    def _run_into(
        self,
        main: Engine,
        feeds: Mapping[str, Any],
        places: list[int] | None,
        out: Sequence[Any] | None,
        run_options: RunOptions | None,
        timeout: float | None,
        stream: Any,
        target: Any = None,
    ) -> list[Any]:
        """The outputs of an engine at `places`, in memory of the caller or else in `target`."""
        infos = main.record.outputs
        places = list(range(len(infos))) if places is None else places
        held = feeding.targets(out, [infos[k] for k in places])
        given = [target if mine is None else mine for mine in held]
        found = self._run_places(main, feeds, places, given, run_options, timeout, stream)
        return feeding.given_back(found, held, out)

    def _run_places(
        self,
        main: Engine,
        feeds: Mapping[str, Any],
        places: list[int],
        targets: Sequence[Any],
        run_options: RunOptions | None,
        timeout: float | None = None,
        stream: Any = None,
    ) -> list[Any]:
        """The outputs of an engine at `places`, each in the memory that `targets` has for it."""
        options = run_options or RunOptions()
        engine, given = self._sorted_feeds(self._checked(options).with_adapters(feeds), main)
        self._check_stream(stream)
        unread = None if self._is_on_host else main.executable.facts.memory_kind
        into: list[Any] = [unread] * len(main.record.outputs)
        first = dict(zip(reversed(places), reversed(targets), strict=True))
        for place, target in first.items():
            into[place] = target
        is_once = len(first) == len(places)
        # Whoever gets an array of NumPy's reads it at once.
        waits = not (options.is_left and is_once) or any(map(is_of_host, into))
        with options.limit(timeout) as cancel, options.graph():
            results = engine.run_to(given, OutputPlacement(into, stream, waits), cancel)
        self._after_run(run_options)
        if is_once:
            return [results[k] for k in places]
        found = []
        for number, (k, target) in enumerate(zip(places, targets, strict=True)):
            is_first = places.index(k) == number
            name = main.record.outputs[k].name
            found.append(results[k] if is_first else again(name, target, results[k]))
        return found

    def _fed(self, feeds: Mapping[str, Any]) -> tuple[Engine, list[Any]]:
        """Feeds in order, and the engine to run."""
        given = feeding.plain(self._names, feeds)
        return self._sorted_feeds(feeds) if given is None else (self._engine, given)

    def _sorted_feeds(
        self, feeds: Mapping[str, Any], main: Engine | None = None
    ) -> tuple[Engine, list[Any]]:
        """Feeds that are not plain arrays for exactly the inputs, and the engine to run."""
        feeding.check_mapping(feeds)
        main = main or self._engine
        fed = tuple(v.name for v in main.record.overridable if v.name in feeds)
        engine = main.with_inputs(fed)
        return engine, feeding.in_order(engine.inputs, feeds, main.record.overridable)

    def _for_outputs(self, places: list[int]) -> tuple[Engine, list[int]]:
        """The engine that computes these outputs alone, and where they are among its own."""
        wanted = sorted(set(places))
        engine = self._engine.with_outputs(tuple(self._output_names[k] for k in wanted))
        if engine is self._engine:
            return engine, places
        return engine, [wanted.index(k) for k in places]

    def _chosen(self, names: Sequence[str]) -> tuple[Engine, list[int] | None]:
        """What gives these outputs, or inner values, and where they are among what it gives."""
        known = self._asked.known(names)
        if known is not None:
            return self._engine, known[0]
        are_names = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
        unknown = set(names) - set(self._output_names) if are_names else None
        if not unknown:
            return self._engine, self._asked.places(names)
        listed = tuple(dict.fromkeys(names))
        try:
            engine = self._engine.with_inner(listed)
        except InvalidArgument as error:
            missing = [n for n in names if repr(n) in str(error)] or sorted(unknown)
            advice = nearest(missing[0], self._output_names)
            raise InvalidArgument(f"{error} {advice}".rstrip()) from None
        if engine is None:
            return self._engine, self._asked.places(names)
        return engine, [listed.index(n) for n in names]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with inputs in order or by name; one output comes alone, several as a tuple.

        Outputs are arrays of the library whose arrays are fed, on the session's device: tensors of
        torch for tensors of torch, `OrtValue`s for those, NumPy arrays otherwise. Where torch or
        cupy captures its current stream, the run becomes part of that graph.
        """
        if len(args) > self._input_count:
            raise InvalidArgument(
                message(
                    "call", "Too many inputs", expected=str(self._input_count), got=str(len(args))
                )
            )
        tensors = args
        if kwargs and not args and len(kwargs) == self._input_count:
            tensors = tuple(map(kwargs.get, self._names))
        may_follow = self._takes_tensors and len(tensors) == self._input_count
        if may_follow and tensors and type(tensors[0]) is not OrtValue:
            results = self._try_run(tensors, None, TENSORS)
            if results is not None:
                return results[0] if len(results) == 1 else tuple(results)
        feeds = dict(zip(self._names, args, strict=False)) | kwargs
        if args and type(args[0]) is OrtValue:
            values = self._repeated_values(feeds, WAIT)
            if values is not None:
                return values[0] if len(values) == 1 else tuple(values)
        convert = feeding.converter(feeds.values())
        if convert is None:
            results = self.run(None, feeds)
        else:
            stream, found = None, None
            if not self._is_on_host:
                follows = self._engine.executable.facts.follows_tensors
                stream = feeding.stream_of(feeds.values(), self._kind.number, follows=follows)
                engine, given = self._fed(feeds)
                if engine is self._engine:
                    feeds = dict(zip(self._names, given, strict=True))
                    found = self._try_run(tuple(given)) if stream is None else None
            if found is None:
                found = self._run_to(feeds, self._every, self._kind, None, None, stream)
            results = [feeding.like_feeds(convert, x) for x in found]
        return results[0] if len(results) == 1 else tuple(results)

    def memory(self) -> dict[str, Any]:
        """What the session holds, in bytes: weights, intermediate values, arenas of its device."""
        from sardonyx.api.notebook import MemoryUse
        from sardonyx.runtime.explain import memory

        return MemoryUse(memory(self._engine))

    def warmup(self, feeds: Mapping[str, Any] | None = None) -> float:
        """Have ready what first runs would make: memory, graphs, plans and algorithms of libraries.

        Args:
            feeds: Shapes, or arrays, by input. Inputs whose sizes are known may be left out; for a
                shape, zeros are fed. Call it once for each shape that will come.

        Returns:
            The seconds that it took. On a GPU it waits, for up to 30 s, until libraries have
            found algorithms and all kernels are compiled.

        Raises:
            InvalidArgument: There is no such input, or its sizes are not known.
        """
        from sardonyx.api.load import warm_up

        return warm_up(self, feeds)

    def trim(self) -> None:
        """Give back what is held between runs: the next one takes it again."""
        self._engine.trim()

    def io_binding(self) -> Any:
        """A new binding of inputs and outputs to memory."""
        from sardonyx.api.iobinding import IOBinding

        return IOBinding(self)

    @names_misfits
    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Make the session anew for these providers.

        Raises:
            InvalidArgument: There is no provider of a name; the session stays what it was.
        """
        check_names(providers)
        self._choose(providers, provider_options)
        self._engine = self._create()
        self._set_up()

    def __reduce__(self) -> Any:
        return (
            InferenceSession,
            (self._source, self._options, list(self._providers.items())),
        )
