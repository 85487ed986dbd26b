"""`ModelCompiler`: a model compiled ahead of time, in one file; see `docs/bundles.md`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sardonyx.api.arguments import check_arguments
from sardonyx.api.enums import GraphOptimizationLevel, OrtCompileApiFlags
from sardonyx.api.making import engine_options
from sardonyx.api.options import SessionOptions
from sardonyx.base import errors
from sardonyx.base.errors import Fail, InvalidArgument, message
from sardonyx.base.files import check_file
from sardonyx.base.forks import compiling
from sardonyx.base.notes import note

#: What `compile_to_stream` hands over at once.
_CHUNK_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class OrtExternalInitializerInfo:
    """Where the data of an initializer lie in another file."""

    filepath: str
    file_offset: int
    byte_size: int


class OrtEpContextData:
    """Compiled data beside a model, given to a callback. Bundles have none, so nobody gets one.

    Attributes:
        size: Bytes.
    """

    size = 0

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A part of the data: nothing."""
        return b""


class OrtEpContextDataBuffer:
    """Memory that a callback fills with compiled data. Bundles ask for none.

    Attributes:
        is_allocated: Whether it has a size.
        max_size, size: Bytes.
    """

    is_allocated, max_size, size = False, 0, 0

    def allocate(self, size: int) -> None:
        """Not supported: nobody would read it.

        Raises:
            NotImplemented: Always.
        """
        raise errors.NotImplemented(message("EPContext", "Bundles have no data beside them"))

    def write(self, data: Any, offset: int = 0) -> None:
        """Not supported; see `allocate`."""
        self.allocate(0)


def check_callback(where: str, function: Any) -> None:
    """Raise InvalidArgument unless it can be called."""
    if not callable(function):
        raise InvalidArgument(message(where, "This is no function", got=type(function).__name__))


class ModelCompiler:
    """Writes a bundle: machine code, packed weights and plan of a model, which starts at once.

    Args:
        sess_options: What sessions of it need: free dimensions, threads' mode, initializers.
        input_model_path_or_bytes: The model.
        embed_compiled_data_into_model: A bundle is one file in any case.
        external_initializers_file_path: Not supported: weights are packed, and in the bundle.
        external_initializers_size_threshold: Goes with it.
        flags: ERROR_IF_NO_NODES_COMPILED and ERROR_IF_OUTPUT_FILE_EXISTS act.
        graph_optimization_level: onnxruntime's part before a provider compiles; here there is one
            compiler, whose level is `sess_options.graph_optimization_level`.
        get_initializer_location_func: Not supported, as `external_initializers_file_path`.

    Raises:
        InvalidArgument: An argument is of another kind.
        NoSuchFile: There is no such model.
        NotImplemented: Weights are to go to another file.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        where, source = "ModelCompiler", input_model_path_or_bytes
        if not isinstance(sess_options, SessionOptions):
            raise InvalidArgument(
                message(
                    where, "sess_options is of another type",
                    expected="SessionOptions", got=type(sess_options).__name__,
                )
            )  # fmt: skip
        if not isinstance(source, (str, os.PathLike, bytes)):
            got = type(source).__name__
            raise InvalidArgument(message(where, "This is no path, and no bytes", got=got))
        if not (source if isinstance(source, bytes) else os.fspath(source)):
            raise InvalidArgument(message(where, "The model's path, or its bytes, are empty"))
        if not isinstance(source, bytes):
            check_file(source)
        check_arguments(source, sess_options, {})
        if external_initializers_file_path or get_initializer_location_func is not None:
            what = "Weights are packed, and lie in the bundle: they cannot go to another file"
            raise errors.NotImplemented(message(where, what))
        self._flags = OrtCompileApiFlags(flags)
        level = GraphOptimizationLevel(graph_optimization_level)
        if level is not GraphOptimizationLevel.ORT_DISABLE_ALL:
            note(f"ModelCompiler {level.name}", "the level of the session's options holds")
        self._source, self._options = source, sess_options.copy()

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the bundle to a file, which appears when it is complete.

        Args:
            output_model_path: The file; None for MODEL_ctx.onnx beside MODEL.onnx.

        Raises:
            InvalidArgument: There is no path, or no file can have it.
            Fail: The file exists, or the model has no nodes, and the flags make that an error.
            NotImplemented: The model asks for something that is not supported.
        """
        if output_model_path:
            path = os.fspath(output_model_path)
        elif isinstance(self._source, bytes):
            raise InvalidArgument(message("compile_to_file", "A model of bytes needs a path"))
        else:
            path = os.path.splitext(os.fspath(self._source))[0] + "_ctx.onnx"
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and os.path.exists(path):
            raise Fail(message("compile_to_file", f"The file {path!r} exists already"))
        with compiling:
            from sardonyx.compiler.bundle_writer import bundle_file

        bundle_file(self._source, path, engine_options(self._options), check=self._check)

    def compile_to_bytes(self) -> bytes:
        """The bundle as bytes. Raises as `compile_to_file` does."""
        with compiling:
            from sardonyx.compiler.bundle_writer import write_bundle

        file = io.BytesIO()
        self._check(write_bundle(self._source, file, engine_options(self._options)).nodes)
        return file.getvalue()

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the bundle over, part by part.

        Raises:
            Fail: The function raised something.
            InvalidArgument: It is no function.
            NotImplemented: The model asks for something that is not supported.
        """
        check_callback("compile_to_stream", write_function)
        data = self.compile_to_bytes()
        for start in range(0, len(data), _CHUNK_BYTES):
            try:
                write_function(data[start : start + _CHUNK_BYTES])
            except Exception as error:
                what = f"The function raised {type(error).__name__}: {error}"
                raise Fail(message("compile_to_stream", what)) from error

    def _check(self, nodes: int) -> None:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED and not nodes:
            raise Fail(message("ModelCompiler", "The model has nothing to compile"))

    def set_ep_context_data_write_func(
        self, write_func: Callable[[str, OrtEpContextData], None]
    ) -> None:
        """Accepted, and never called: a bundle has no data beside it."""
        check_callback("set_ep_context_data_write_func", write_func)

    def clear_ep_context_data_write_func(self) -> None:
        """Forget the callback, which is never called."""
