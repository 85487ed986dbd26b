"""What a session says about itself: inputs, outputs, devices, memory, kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.api import tuning_results
from sardonyx.api.assignment import OrtEpAssignedSubgraph, assigned
from sardonyx.api.devices import OrtEpDevice
from sardonyx.api.memory import OrtMemoryInfo, info_of
from sardonyx.api.node_arg import NodeArg
from sardonyx.api.options import SessionOptions
from sardonyx.api.run_options import RunOptions, check_run_options
from sardonyx.api.shown import session_text
from sardonyx.api.shrinking import check_arenas, shrink
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.runtime.declared import ModelMetadata
from sardonyx.runtime.storage import MemoryKind

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine
    from sardonyx.store.tuning_choices import Tuned


class SessionFacts:
    """The part of `InferenceSession` that runs nothing."""

    _source: Any
    _engine: Engine
    _options: SessionOptions
    _providers: dict[str, dict[str, str]]
    _kind: MemoryKind
    _is_on_host: bool
    _gives_memory_back: bool

    def _checked(self, run_options: Any) -> RunOptions:
        """The options of a run, each of which can be done here.

        Raises:
            InvalidArgument: They are none, or ask for what the session does not have.
        """
        options = check_run_options(run_options)
        if options.shrinks:
            check_arenas(self._engine, options.shrinks)
        return options

    def _after_run(self, run_options: RunOptions | None) -> None:
        """Give memory back where options say so."""
        if self._gives_memory_back:
            self._engine.trim()
        if run_options is not None and run_options.shrinks:
            shrink(self._engine, run_options.shrinks)

    def _check_stream(self, stream: Any) -> None:
        if stream is not None and self._is_on_host:
            what = "The session works on the processor, which has no streams"
            raise InvalidArgument(message("run stream", what, got=repr(stream)))

    def _tune(self, tuned: Tuned) -> None:
        """Make the session anew with these kernels."""
        raise NotImplementedError  # `InferenceSession` does it

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run must be given."""
        return [NodeArg(v, self._options.free_dimension_overrides) for v in self._engine.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that a run gives."""
        return [NodeArg(v) for v in self._engine.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that the file lists as inputs, too."""
        return [NodeArg(v) for v in self._engine.record.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself."""
        return self._engine.record.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The execution providers in use."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Their options."""
        return {name: dict(options) for name, options in self._providers.items()}

    # What clients ask of the compiled session inside onnxruntime's.

    @property
    def _sess(self) -> Any:
        from sardonyx.api.compiled import CompiledSession

        return CompiledSession(self)

    @property
    def _sess_options(self) -> SessionOptions:
        return self._options

    @property
    def _model_path(self) -> str | None:
        return os.fspath(self._source) if isinstance(self._source, (str, os.PathLike)) else None

    @property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None

    @property
    def session_options(self) -> SessionOptions:
        """The same as `get_session_options()`."""
        return self._options

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

    def enable_fallback(self) -> None:
        """No run falls back: who computes what is settled when the session is made."""

    def disable_fallback(self) -> None:
        """No run falls back: who computes what is settled when the session is made."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each input is wanted."""
        return [info_of(self._kind) for _ in self._engine.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each output lies."""
        return [info_of(self._kind) for _ in self._engine.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device of each input."""
        number = -1 if self._is_on_host else self._kind.number
        return [OrtEpDevice(number) for _ in self._engine.inputs]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which nodes of the file each provider has.

        Raises:
            Fail: The session-config entry that asks for it is not set.
        """
        key = "session.record_ep_graph_assignment_info"
        if self._options.config(key) != "1":
            what = f"Session configuration entry '{key}' must be set to \"1\""
            raise errors.Fail(message("session", what))
        return assigned(self._source, self._engine.claims)

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Which kernels are computed otherwise than the cost model would; [] if nothing was tuned.

        One entry for each provider, as in onnxruntime: `ep`, its name; `results`, by structure of
        kernel the numbers that differ; `validators`, what they hold for. See SARDONYX_TUNE.
        """
        return tuning_results.written(self._engine.tuned)

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
            self._tune(tuned)

    @names_misfits
    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """No provider of the package has such options.

        Raises:
            InvalidArgument: Always, unless there are none.
        """
        if options:
            where = ", ".join(self._providers)
            raise InvalidArgument(message(where, f"There are no dynamic options {list(options)}"))

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Forget the graphs of a device that runs with this `gpu_graph_id` became.

        Raises:
            InvalidArgument: It is no number.
        """
        if not isinstance(graph_annotation_id, (int, np.integer)):
            what, got = "This is no gpu_graph_id", repr(graph_annotation_id)
            raise WrongType(message("release_captured_graph", what, expected="int", got=got))
        for engine in (self._engine, *self._engine.variants.values()):
            engine.executable.release_graphs(graph_annotation_id)

    @names_misfits
    def explain(self, *, verbose: bool = False) -> str:
        """What a run does: kernels with the nodes they compute, copies, memory, other plans.

        Args:
            verbose: Add sizes, buffers, conditions and phases of loading.
        """
        from sardonyx.api.notebook import Explanation
        from sardonyx.runtime.explain import explain

        return Explanation(explain(self._engine, verbose=verbose))

    def __repr__(self) -> str:
        return session_text(self)

    def _repr_html_(self) -> str:
        from sardonyx.api.notebook import session_html

        return session_html(self)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by phase of making the session."""
        return dict(self._engine.timings)
