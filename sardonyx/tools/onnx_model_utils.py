"""Names of onnxruntime.tools.onnx_model_utils, for programs that have a ModelProto in their hands.

What takes a `ModelProto` or `GraphProto` changes it in place, and needs no package but the one that
made it. `sardonyx.tools.models` has the same for files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from sardonyx.api.enums import GraphOptimizationLevel
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.loader.load import load
from sardonyx.loader.writer import write
from sardonyx.passes.infer import infer
from sardonyx.tools.models import update_opset
from sardonyx.tools.optimizer.model import onnx_package, open_model, optimize_graph

#: First version of the format whose initializers need not be inputs.
_INITIALIZERS_APART = 4
_LEVELS = {
    "disable": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def remove_initializer_from_input(model: Any) -> bool:
    """Take initializers out of a ModelProto's inputs; whether there were any.

    Models of the format's versions before 4 need them there, and stay as they are.
    """
    if model.ir_version < _INITIALIZERS_APART:
        return False
    names = {held.name for held in model.graph.initializer}
    found = [value for value in model.graph.input if value.name in names]
    for value in found:
        model.graph.input.remove(value)
    return bool(found)


def make_dim_param_fixed(graph: Any, param_name: str, value: int) -> None:
    """Give a named dimension its number, in all values of a GraphProto and its subgraphs.

    Raises:
        InvalidArgument: The number is less than 1.
    """
    if value < 1:
        raise InvalidArgument(message(param_name, "Sizes are 1 or more", got=str(value)))
    for inner in _graphs(graph):
        for info in (*inner.input, *inner.output, *inner.value_info):
            for dim in info.type.tensor_type.shape.dim:
                if dim.HasField("dim_param") and dim.dim_param == param_name:
                    dim.Clear()
                    dim.dim_value = value


def make_input_shape_fixed(graph: Any, input_name: str, fixed_shape: Sequence[int]) -> None:
    """Give an input of a GraphProto its shape; named dimensions get their numbers everywhere.

    Raises:
        InvalidArgument: There is no such input, or its shape is another one.
    """
    where = f"input {input_name}"
    found = next((value for value in graph.input if value.name == input_name), None)
    if found is None:
        names = [value.name for value in graph.input]
        do = nearest(input_name, names)
        raise InvalidArgument(message(where, "There is no such input", do=do))
    shape = found.type.tensor_type.shape
    if not found.type.tensor_type.HasField("shape"):
        for size in fixed_shape:
            shape.dim.add().dim_value = size
    if len(shape.dim) != len(fixed_shape):
        expected, got = f"{len(shape.dim)} sizes", str(len(fixed_shape))
        raise InvalidArgument(message(where, "Wrong number of axes", expected=expected, got=got))
    for dim, size in zip(shape.dim, fixed_shape, strict=True):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            if dim.dim_value != size:
                expected, got = str(dim.dim_value), str(size)
                raise InvalidArgument(message(where, "A size is fixed", expected=expected, got=got))
        elif dim.HasField("dim_param"):
            make_dim_param_fixed(graph, dim.dim_param, size)
        else:
            dim.Clear()
            dim.dim_value = size


def fix_output_shapes(model: Any) -> None:
    """Declare the sizes of a ModelProto's outputs that follow from those of its inputs."""
    graph = load(model, allow_missing_data=True)
    infer(graph)
    for declared, value in zip(model.graph.output, graph.outputs, strict=True):
        if value.shape is None or not all(isinstance(d, int) for d in value.shape):
            continue
        tensor = declared.type.tensor_type
        del tensor.shape.dim[:]
        for size in value.shape:
            tensor.shape.dim.add().dim_value = size


def update_onnx_opset(
    model_path: str | os.PathLike[str],
    opset: int,
    out_path: str | os.PathLike[str] | None = None,
    logger: Any = None,
) -> Any:
    """A model with a newer version of ONNX's operators, as a ModelProto, and as a file if asked.

    Args:
        model_path: The file.
        opset: The version, newer than the model's own.
        out_path: The file to write.
        logger: Told what is done, if given.

    Raises:
        InvalidArgument: The version is not newer, or onnx does not know it.
        NotImplemented: The package onnx is not installed.
        Fail: onnx cannot convert the model.
    """
    if logger is not None:
        logger.info("Updating %s to opset %d", model_path, opset)
    data = update_opset(model_path, out_path, opset)[2]
    return onnx_package("update_onnx_opset").load_from_string(data)


def get_optimization_level(level: str) -> GraphOptimizationLevel:
    """The level of that name: disable, basic, extended or all.

    Raises:
        InvalidArgument: There is none.
    """
    if level not in _LEVELS:
        do = nearest(level, _LEVELS)
        raise InvalidArgument(message("level", "No such level", got=level, do=do))
    return _LEVELS[level]


def optimize_model(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_BASIC,
    log_level: int = 3,
    use_external_initializers: bool = False,
) -> None:
    """Write a model as a level of optimisation leaves it, in ONNX's own operators.

    Args:
        model_path: The file.
        output_path: The file to write.
        level: All but ORT_DISABLE_ALL are one.
        log_level: Taken, and without effect.
        use_external_initializers: Whether weights go to a file of their own.
    """
    model = optimize_graph(open_model(model_path), int(int(level) > 0))
    write(model.graph, output_path, True if use_external_initializers else None)


def _graphs(graph: Any) -> Iterator[Any]:
    """A GraphProto and those inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for inner in attribute.graphs:
                yield from _graphs(inner)
