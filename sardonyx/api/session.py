"""`InferenceSession`: a model, ready to run."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.options import RunOptions, SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.declared import ModelMetadata, ValueInfo

if TYPE_CHECKING:
    from sardonyx.runtime.session import Engine

CPU = "CPUExecutionProvider"


class NodeArg:
    """An input or output of a model.

    Attributes:
        name: Its name.
        type: Its type in ONNX's words, such as `tensor(float)`.
        shape: A number, a name or None for each axis.
    """

    def __init__(self, info: ValueInfo) -> None:
        self.name = info.name
        self.type = f"tensor({info.dtype})"
        self.shape = list(info.shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


class InferenceSession:
    """A model, compiled and ready to run from any number of threads.

    Args:
        path_or_bytes: Path of a model, its bytes, or a `ModelProto`.
        sess_options: How to make the session.
        providers: Names of execution providers, or (name, options) pairs, in order of preference.
            One that is not there gives a warning and is passed over.
        provider_options: Options for each of `providers`.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        NotImplemented: The model needs something that is not supported.
        InvalidArgument: An argument is none of these.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        unknown = set(kwargs) - {"enable_fallback", "read_config_from_model", "disabled_optimizers"}
        if unknown:
            raise InvalidArgument(message("InferenceSession", f"Unknown arguments {unknown}"))
        if isinstance(path_or_bytes, (str, os.PathLike)) and str(path_or_bytes).endswith(".ort"):
            raise errors.NotImplemented(
                message(str(path_or_bytes), "ORT's own format is not read", do="Save it as ONNX")
            )
        self._source = path_or_bytes
        self._options = sess_options or SessionOptions()
        _check_providers(providers, provider_options)
        self._engine = self._create()
        self._set_up()

    def _create(self) -> Engine:
        # The engine is two thirds of the package: a program that only imports does not load it.
        from sardonyx.runtime.session import EngineOptions, create_engine

        o = self._options
        options = EngineOptions(
            threads=o.intra_op_num_threads,
            optimization_level=int(o.graph_optimization_level),
            free_dimension_overrides=o.free_dimension_overrides,
        )
        return create_engine(self._source, options)

    def _set_up(self) -> None:
        engine = self._engine
        self._names = tuple(v.name for v in engine.inputs)
        self._output_names = [v.name for v in engine.outputs]
        self._run = engine.run
        self._input_count = len(self._names)

    # -- running ------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model once.

        Args:
            output_names: Which outputs to return; None or empty for all.
            input_feed: Arrays (or lists, OrtValues, anything with `__dlpack__`) by input name.
            run_options: May end the run from another thread.

        Raises:
            ValueError: An input is missing.
            InvalidArgument: A name, type, rank or size is wrong.
            RuntimeException: The model met data that it cannot work on.
        """
        given = [input_feed.get(name) for name in self._names]
        if len(input_feed) != self._input_count or not all(map(_is_array, given)):
            given = feeding.in_order(self._engine.inputs, input_feed)
        cancel = run_options.cancel_flag if run_options is not None else None
        results = self._run(given, cancel)
        if not output_names:
            return results
        return [results[k] for k in self._places(output_names)]

    def _places(self, names: Sequence[str]) -> list[int]:
        places = []
        for name in names:
            if name not in self._output_names:
                raise InvalidArgument(
                    message(
                        "run", f"The model has no output {name!r}",
                        do=nearest(name, self._output_names),
                    )
                )  # fmt: skip
            places.append(self._output_names.index(name))
        return places

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with inputs in order or by name; one output comes alone, several as a tuple."""
        if len(args) > self._input_count:
            raise InvalidArgument(
                message(
                    "call", "Too many inputs", expected=str(self._input_count), got=str(len(args))
                )
            )
        results = self.run(None, dict(zip(self._names, args, strict=False)) | kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run`, with handles in place of arrays."""
        given = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(a) for a in self.run(output_names, given, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread; `callback(results, user_data, error_text)` gets what comes."""

        def work() -> None:
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:  # noqa: BLE001 - the callback gets every error
                callback([], user_data, str(error))
            else:
                callback(results, user_data, "")

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> Any:
        """A new binding of inputs and outputs to memory."""
        from sardonyx.api.iobinding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(self, iobinding: Any, run_options: RunOptions | None = None) -> None:
        """Run with the memory that a binding names."""
        iobinding.run(run_options)

    # -- what it is ---------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run must be given."""
        return [NodeArg(v) for v in self._engine.inputs]

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
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Their options."""
        return {CPU: {}}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Make the session anew for these providers."""
        _check_providers(providers, provider_options)
        self._engine = self._create()
        self._set_up()

    def enable_fallback(self) -> None:
        """There is one provider: nothing to fall back to."""

    def disable_fallback(self) -> None:
        """There is one provider: nothing to fall back to."""

    def end_profiling(self) -> str:
        """Not there yet.

        Raises:
            NotImplemented: Always.
        """
        raise errors.NotImplemented(message("end_profiling", "The profiler is not there yet"))

    def explain(self) -> str:
        """Which kernels run, in order, with the nodes that each computes."""
        lines = [f"{len(self._engine.executable.plan.calls)} kernels"]
        commands = self._engine.executable.plan.calls
        lines += [f"{c.kernel:16s} {' '.join(c.origin)}" for c in commands]
        return "\n".join(lines)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by phase of making the session."""
        return dict(self._engine.timings)

    def __reduce__(self) -> Any:
        return (_again, (self._source, self._options.free_dimension_overrides))


def _again(source: Any, dimensions: dict[str, int]) -> InferenceSession:
    options = SessionOptions()
    for name, size in dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    return InferenceSession(source, options)


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "strides")


def _check_providers(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> None:
    names = [p if isinstance(p, str) else p[0] for p in providers or (CPU,)]
    if options is not None and len(options) != len(names):
        raise InvalidArgument(
            message(
                "InferenceSession", "There must be options for each provider",
                expected=str(len(names)), got=str(len(options)),
            )
        )  # fmt: skip
    for name in names:
        if name != CPU:
            text = message(
                "InferenceSession", f"The provider {name!r} is not available",
                expected=f"one of {[CPU]}", do="The next one is used",
            )  # fmt: skip
            warnings.warn(text, UserWarning, stacklevel=3)
