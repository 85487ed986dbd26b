"""`InferenceSession`: a model, ready to run.

The class is the interface: its methods say what they do, and parts do it. `SessionModel` compiles
the model; `ArrayRuns`, `ValueRuns`, `TensorCalls` and `AsyncRuns` run it; `SessionFacts` and
`Profiling` tell of it. What is short and done often, asking for the fast path, is done here,
without a part. Who looks for what a session holds asks `inspection.inspect`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sardonyx.api import tuning_results
from sardonyx.api.arguments import check_arguments
from sardonyx.api.array_runs import PLAIN, ArrayRuns, CallOptions, call_options, tensor_of
from sardonyx.api.assignment import OrtEpAssignedSubgraph
from sardonyx.api.async_runs import AsyncRuns, Callback
from sardonyx.api.devices import OrtEpDevice
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo, memory_for
from sardonyx.api.node_arg import NodeArg
from sardonyx.api.options import SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.api.profiling import Profiling, own_profile
from sardonyx.api.providers import check_names
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session_facts import SessionFacts
from sardonyx.api.session_model import SessionModel
from sardonyx.api.shown import session_text
from sardonyx.api.tensor_calls import TensorCalls
from sardonyx.api.value_runs import Fetches, ValueRuns
from sardonyx.base import resources
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.handlers import undisturbed
from sardonyx.runtime.declared import ModelMetadata
from sardonyx.runtime.try_run import FETCH, LEAVE, TENSORS, WAIT

if TYPE_CHECKING:
    from sardonyx.api.pipeline import Pipeline
    from sardonyx.profiling.profile import Profile
    from sardonyx.profiling.session_profile import SessionProfile


class InferenceSession:
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

    _model: SessionModel
    _runs: ArrayRuns
    _values: ValueRuns
    _calls: TensorCalls
    _async_runs: AsyncRuns
    _facts: SessionFacts
    _profiling: Profiling

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        check_arguments(path_or_bytes, sess_options, kwargs)
        make = partial(self._make, path_or_bytes, sess_options, kwargs)
        undisturbed(partial(make, providers, provider_options))

    def _make(
        self,
        source: Any,
        given: SessionOptions | None,
        further: Mapping[str, Any],
        providers: Any,
        provider_options: Any,
    ) -> None:
        """Make the session; `given` are the caller's options, which may end it."""
        with resources.named("session"):
            own = SessionOptions() if given is None else given.copy()
            with own.log_scope():
                model = SessionModel(source, own, further)
                given = own if given is None else given
                if providers is None and given.has_providers():
                    providers = given.providers_for(source)
                profile = own_profile(own)
                model.first_compile(providers, provider_options, given.load_flag)
                self._take(model, ArrayRuns(model), profile)

    def _take(self, model: SessionModel, runs: ArrayRuns, profile: SessionProfile | None) -> None:
        self._model, self._runs = model, runs
        self._values = ValueRuns(runs)
        self._calls = TensorCalls(runs, self._values)
        self._async_runs = AsyncRuns(runs)
        self._facts = SessionFacts(model)
        self._profiling = Profiling(model, runs, profile)

    # -- running --------------------------------------------------------------------------------

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
        runs = self._runs
        loaded, places = runs.loaded, None
        main = loaded.engine
        if output_names is not None:
            main, places = runs.chosen(output_names)
        call = PLAIN
        if run_options is not None or timeout is not None or stream is not None or out is not None:
            call = call_options((run_options, timeout, stream, out))
        elif main is loaded.engine:
            names = loaded.names
            if type(input_feed) is dict and len(input_feed) == len(names):
                found = None
                if loaded.is_on_host:
                    found = runs.try_run(tuple(map(input_feed.get, names)))
                elif places is None:
                    tensors = tuple(map(tensor_of, map(input_feed.get, names)))
                    found = runs.try_run(tensors, None, FETCH)
                if found is not None:
                    return found if places is None else [found[k] for k in places]
        return runs.run_chosen(main, places, input_feed, call)

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
        runs = self._runs
        loaded, places = runs.loaded, None
        main = loaded.engine
        if output_names is not None:
            main, places = runs.chosen(output_names)
        if stream is None and main is loaded.engine:
            values: list[OrtValue] | None = None
            if run_options is None:
                values = self._values.try_run(input_dict_ort_values, WAIT)
            elif type(run_options) is RunOptions and run_options.only_leaves:
                values = self._values.try_run(input_dict_ort_values, LEAVE)
            if values is not None:
                return values if places is None else [values[k] for k in places]
        call = PLAIN
        if run_options is not None or stream is not None:
            call = call_options((run_options, None, stream, None))
        return self._values.run(main, places, output_names, input_dict_ort_values, call)

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
        wanted = Fetches(fetch_names, fetches, fetch_devices)
        self._values.run_vectors(CallOptions(run_options), feed_names, feeds, wanted)

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

    def run_async(
        self,
        output_names: Sequence[str] | Mapping[str, Any] | None,
        input_feed: Mapping[str, Any] | None = None,
        callback: Callable[[list[Any], Any, str], None] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
        *,
        out: Sequence[Any] | None = None,
        timeout: float | None = None,
        stream: Any = None,
    ) -> Any:
        """Run while the caller goes on.

        With a callback: in another thread; `callback(results, user_data, error_text)` gets what
        `run` gives. Without one what is returned can be awaited:
        `await session.run_async({"x": x})`, or with names of outputs first. On a device no thread
        is held meanwhile: the device itself wakes the event loop. Runs that are awaited at the same
        time work in streams of their own. On the processor threads of the package do it: 16 at most
        for one session, 64 for all, called `sardonyx-run`; further runs wait.

        Who cancels what awaits a run ends the run, as `terminate` of its options would: one that
        has not begun never does; one that has ends within milliseconds, and is waited for, so that
        its feeds and `out` are the caller's again. After 1 s (a function of Python may be in its
        way) it is left behind, with a warning in the log.

        Args:
            output_names: Which outputs; None for all. Feeds may stand here, with names left out.
            input_feed: As `run` takes them. They must not change before the run is over. If one is
                missing, that is an error at once; other errors come with the run.
            callback: Gets the results.
            user_data: Is passed to it.
            run_options: As of `run`.
            out: As of `run`.
            timeout: As of `run`.
            stream: As of `run`.

        Returns:
            None; or what gives, awaited, NumPy arrays, or arrays of the library whose arrays are
            fed, on the session's device.

        Raises:
            InvalidArgument: A feed is missing, the options are none or name memory that the session
                does not have, the callback is no function, or there is a stream on the processor.
        """
        told = None if callback is None else Callback(callback, user_data)
        call = CallOptions(run_options, timeout, stream, out)
        return self._async_runs.begin(output_names, input_feed, told, call)

    def pipeline(self, depth: int = 3) -> Pipeline:
        """Runs one after another, with copies to the device, work and copies back overlapping.

        See `Pipeline`; its runs have no options, time limit or stream of the caller's.

        Args:
            depth: How many runs are under way at once.

        Raises:
            InvalidArgument: The depth is no number from 1 to 64.
        """
        from sardonyx.api.pipeline import Pipeline

        return Pipeline(self, depth)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with inputs in order or by name; one output comes alone, several as a tuple.

        Outputs are arrays of the library whose arrays are fed, on the session's device: tensors of
        torch for tensors of torch, `OrtValue`s for those, NumPy arrays otherwise. Where torch or
        cupy captures its current stream, the run becomes part of that graph.
        """
        runs = self._runs
        loaded = runs.loaded
        if args and not kwargs and len(args) == len(loaded.names):
            results = None
            if type(args[0]) is OrtValue:
                feeds = dict(zip(loaded.names, args, strict=True))
                results = self._values.try_run(feeds, WAIT)
            elif loaded.follows_tensors:
                results = runs.try_run(args, None, TENSORS)
            if results is not None:
                return results[0] if len(results) == 1 else tuple(results)
        return self._calls.call(args, kwargs)

    def io_binding(self) -> Any:
        """A new binding of inputs and outputs to memory."""
        from sardonyx.api.iobinding import IOBinding

        return IOBinding(self)

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
        memory = memory_for(memory_info, device_type, device_id, vendor_id)
        return self._values.new(memory, shape, element_type)

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

    # -- inputs, outputs and devices ------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run must be given."""
        return self._facts.inputs()

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that a run gives."""
        return self._facts.outputs()

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that the file lists as inputs, too."""
        return self._facts.overridable()

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself."""
        return self._model.engine.record.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._model.options

    def get_providers(self) -> list[str]:
        """The execution providers in use."""
        return list(self._model.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Their options."""
        return {name: dict(options) for name, options in self._model.providers.items()}

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each input is wanted."""
        return self._facts.input_memory_infos()

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each output lies."""
        return self._facts.output_memory_infos()

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device of each input."""
        return self._facts.input_devices()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which nodes of the file each provider has.

        Raises:
            Fail: The session-config entry that asks for it is not set.
        """
        return self._facts.assigned_subgraphs()

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """The same as `get_inputs()`."""
        return self.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """The same as `get_outputs()`."""
        return self.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """The same as `get_overridable_initializers()`."""
        return self.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        """The same as `get_modelmeta()`."""
        return self.get_modelmeta()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """The same as `get_input_memory_infos()`."""
        return self.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """The same as `get_output_memory_infos()`."""
        return self.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        """The same as `get_input_epdevices()`."""
        return self.get_input_epdevices()

    @property
    def session_options(self) -> SessionOptions:
        """The same as `get_session_options()`."""
        return self._model.options

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by phase of making the session."""
        return dict(self._model.engine.timings)

    @names_misfits
    def explain(self, *, verbose: bool = False) -> str:
        """What a run does: kernels with the nodes they compute, copies, memory, other plans.

        Args:
            verbose: Add sizes, buffers, conditions and phases of loading.
        """
        return self._facts.explained(verbose)

    def memory(self) -> dict[str, Any]:
        """What the session holds, in bytes: weights, intermediate values, arenas of its device."""
        return self._facts.memory()

    # -- how runs are done ----------------------------------------------------------------------

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
        self._model.compile(providers, provider_options)
        self._profiling.follow_engine()

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Which kernels are computed otherwise than the cost model would; [] if nothing was tuned.

        One entry for each provider, as in onnxruntime: `ep`, its name; `results`, by structure of
        kernel the numbers that differ; `validators`, what they hold for. See SARDONYX_TUNE.
        """
        return tuning_results.written(self._model.engine.tuned)

    def set_tuning_results(
        self, results: list[dict[str, Any]], *, error_on_invalid: bool = False
    ) -> None:
        """Make the session anew, with kernels as `get_tuning_results` said somewhere else.

        Args:
            results: What `get_tuning_results` gave. Entries of other providers are left out.
            error_on_invalid: Whether results for another machine or version are an error; else a
                warning says that they are not used.

        Raises:
            InvalidArgument: They are no results of tuning.
            Fail: They do not fit, and `error_on_invalid` is set.
        """
        tuned = tuning_results.read(results, error_on_invalid)
        if tuned is not None:
            self._model.tune(tuned)
            self._profiling.follow_engine()

    @names_misfits
    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """No provider of the package has such options.

        Raises:
            InvalidArgument: Always, unless there are none.
        """
        if options:
            where = ", ".join(self._model.providers)
            raise InvalidArgument(message(where, f"There are no dynamic options {list(options)}"))

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Forget the graphs of a device that runs with this `gpu_graph_id` became.

        Raises:
            InvalidArgument: It is no number.
        """
        self._facts.release_graphs(graph_annotation_id)

    def trim(self) -> None:
        """Give back what is held between runs: the next one takes it again."""
        self._model.engine.trim()

    def enable_fallback(self) -> None:
        """No run falls back: who computes what is settled when the session is made."""

    def disable_fallback(self) -> None:
        """No run falls back: who computes what is settled when the session is made."""

    # -- profiles -------------------------------------------------------------------------------

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Record the runs that any thread makes in a `with` block.

        `with session.profile() as p: session.run(...)`, then `p.table()` or `p.save(path)`. Runs
        are a few per cent slower meanwhile, and as fast as ever afterwards.
        """
        with self._profiling.profile() as found:
            yield found

    def end_profiling(self) -> str:
        """Write the profile that `SessionOptions.enable_profiling` asked for.

        Returns:
            The file's path; "" if there is no profile, or it was written before.

        Raises:
            OSError: The file cannot be written.
        """
        return self._profiling.end()

    def get_profiling_start_time_ns(self) -> int:
        """When the session's profile began, in nanoseconds since 1970; 0 if there is none."""
        return self._profiling.start_ns

    # -- what clients ask of onnxruntime's own fields -------------------------------------------

    @property
    def _sess(self) -> Any:
        from sardonyx.api.compiled import CompiledSession

        return CompiledSession(self)

    @property
    def _sess_options(self) -> SessionOptions:
        return self._model.options

    @property
    def _providers(self) -> dict[str, dict[str, str]]:
        return self._model.providers

    @property
    def _model_path(self) -> str | None:
        source = self._model.source
        return os.fspath(source) if isinstance(source, (str, os.PathLike)) else None

    @property
    def _model_bytes(self) -> bytes | None:
        source = self._model.source
        return source if isinstance(source, bytes) else None

    def __repr__(self) -> str:
        return session_text(self)

    def _repr_html_(self) -> str:
        from sardonyx.api.notebook import session_html

        return session_html(self)

    def __reduce__(self) -> Any:
        model = self._model
        return InferenceSession, (self._model.source, model.options, list(model.providers.items()))
