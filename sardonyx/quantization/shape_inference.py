"""`quant_pre_process`: a model is made ready to be quantised."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.loader.load import load
from sardonyx.quantization.model import find_types, fold, mark_prepared, write_model


def quant_pre_process(
    input_model: Any = None,
    output_model_path: str | os.PathLike[str] | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    *,
    input_model_path: Any = None,
) -> None:
    """Write a model with folded constants, folded batch normalisations and inferred shapes.

    Args:
        input_model: A path, bytes or a `ModelProto`.
        output_model_path: The file to write.
        skip_optimization: Fold nothing.
        skip_onnx_shape: Together with the next: infer no shapes.
        skip_symbolic_shape: See before. Inference here is symbolic and always both.
        auto_merge: No effect: sizes that contradict each other get names of their own.
        int_max: No effect: sizes have no bounds.
        guess_output_rank: No effect: ranks are known or the model is refused.
        verbose: No effect: see `set_default_logger_severity`.
        save_as_external_data: Write large constants to a file beside the model.
        all_tensors_to_one_file: No effect: it is always one.
        external_data_location: Its name; must be that of the model with `.data`.
        external_data_size_threshold: Bytes from which a constant is large.
        input_model_path: An older name of `input_model`.

    Raises:
        InvalidArgument: There is no model, or no file to write, or the location is another.
    """
    source = input_model if input_model is not None else input_model_path
    if source is None or output_model_path is None:
        what = "It needs a model and a file to write"
        raise InvalidArgument(message("quant_pre_process", what))
    expected = f"{os.path.basename(output_model_path)}.data"
    if save_as_external_data and external_data_location not in (None, expected):
        what = "External data cannot have this name"
        raise InvalidArgument(
            message("quant_pre_process", what, expected=expected, got=str(external_data_location))
        )
    graph = load(source)
    if not skip_optimization:
        fold(graph)
    if not (skip_onnx_shape and skip_symbolic_shape):
        find_types(graph)
    mark_prepared(graph)
    external = external_data_size_threshold if save_as_external_data else False
    write_model(graph, output_model_path, external=external)
