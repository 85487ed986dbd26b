"""Small changes of model files. All of them read any file that a session reads.

What is written is what was read, as the loader has it: functions are inlined, constants of nodes
are initializers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.loader.external_writer import replacing
from sardonyx.loader.load import load
from sardonyx.loader.writer import EXTERNAL_THRESHOLD_BYTES, write, write_stripped
from sardonyx.passes.infer import infer
from sardonyx.tools.optimizer.model import onnx_package, set_dimensions
from sardonyx.tools.targets import check_targets

_logger = get_logger("tools")
Path = str | os.PathLike[str]


def remove_initializers_from_inputs(source: Any, output: Path) -> list[str]:
    """Write a model whose initializers no caller may override, so that engines can fold them.

    Returns:
        The names of the initializers that were inputs.
    """
    graph = load(source)
    names = [value.name for value in graph.overridable]
    graph.overridable.clear()
    write(graph, output, None)
    return names


def fix_shapes(
    source: Any,
    output: Path,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, list[int | str]]:
    """Write a model whose inputs have fixed sizes.

    Args:
        source: What `loader.load` takes.
        output: The file to write.
        dims: Numbers for named dimensions.
        inputs: Whole shapes by the names of inputs; a named dimension that gets a number there
            gets it everywhere.

    Returns:
        The shapes of inputs and outputs, as far as they are known.

    Raises:
        InvalidArgument: There is no such dimension or input, or a size contradicts another.
    """
    graph = load(source)
    numbers = dict(dims or {})
    unnamed: dict[str, Sequence[int]] = {}
    for name, shape in (inputs or {}).items():
        numbers.update(_numbers(graph, name, shape, numbers))
        unnamed[name] = shape
    set_dimensions(graph, numbers)
    for value in graph.inputs:
        if value.name in unnamed:
            value.shape = tuple(int(size) for size in unnamed[value.name])
    try:
        infer(graph)
    except SardonyxError as error:
        _logger.warning("the sizes of outputs stay as they were: %s", error)
    write(graph, output, None)
    return {
        value.name: [d if isinstance(d, int) else repr(d) for d in value.shape or ()]
        for value in (*graph.inputs, *graph.outputs)
    }


def _numbers(
    graph: Graph, name: str, shape: Sequence[int], known: Mapping[str, int]
) -> dict[str, int]:
    """What an input's shape says about named dimensions."""
    found = next((value for value in graph.inputs if value.name == name), None)
    where = f"input {name}"
    if found is None:
        names = [value.name for value in graph.inputs]
        raise InvalidArgument(message(where, "There is no such input", do=nearest(name, names)))
    if any(size < 1 for size in shape):
        raise InvalidArgument(message(where, "Sizes are 1 or more", got=str(list(shape))))
    if found.shape is None:
        return {}
    if len(found.shape) != len(shape):
        expected, got = f"{len(found.shape)} sizes", str(len(shape))
        raise InvalidArgument(message(where, "Wrong number of axes", expected=expected, got=got))
    numbers: dict[str, int] = {}
    for declared, size in zip(found.shape, shape, strict=True):
        if isinstance(declared, int):
            fixed = declared
        else:
            fixed = numbers.setdefault(repr(declared), known.get(repr(declared), size))
        if fixed != size:
            expected, got = str(fixed), str(size)
            raise InvalidArgument(message(where, "A size is fixed", expected=expected, got=got))
    return numbers


def split_external(
    source: Any,
    output: Path,
    threshold: int = EXTERNAL_THRESHOLD_BYTES,
    location: str | None = None,
) -> int:
    """Write a model whose weights lie in a file beside it, each at a multiple of 4096 bytes.

    Args:
        source: What `loader.load` takes.
        output: The file to write.
        threshold: Weights of so many bytes go there.
        location: The name of that file; by default that of the model + ".data".

    Returns:
        The size of that file in bytes.

    Raises:
        InvalidArgument: The threshold is negative, or that file is one of those that are read.
    """
    _check_threshold(threshold)
    target = os.fspath(output)
    name = location or f"{os.path.basename(target)}.data"
    beside = os.path.join(os.path.dirname(target), name)
    check_targets(source, beside)
    write(load(source), output, threshold, location)
    return os.path.getsize(beside)


def strip_weights(
    source: Any, output: Path, threshold: int = EXTERNAL_THRESHOLD_BYTES
) -> list[str]:
    """Write a model without its weights, which `SessionOptions.add_external_initializers` takes.

    They are declared as those of a file that does not exist.

    Args:
        source: What `loader.load` takes.
        output: The file to write.
        threshold: Weights of fewer bytes stay: shapes and axes are among them.

    Returns:
        The names of what was left out.
    """
    _check_threshold(threshold)
    return write_stripped(load(source, allow_missing_data=True), output, threshold)


def _check_threshold(threshold: int) -> None:
    if threshold < 0:
        what = "It is a number of bytes"
        raise InvalidArgument(message("--threshold", what, got=str(threshold)))


def update_opset(source: Any, output: Path | None, opset: int) -> tuple[int, int, bytes]:
    """Write a model that imports a newer version of ONNX's operators, by onnx's converter.

    Args:
        source: What `loader.load` takes.
        output: The file to write; None for none.
        opset: The version.

    Returns:
        The versions before and after, and the bytes of the model.

    Raises:
        InvalidArgument: The version is not newer, or onnx does not know it.
        NotImplemented: The package onnx is not installed.
        Fail: onnx cannot convert the model.
    """
    onnx = onnx_package("update-opset")
    graph = load(source)
    old = graph.opset.get("", 0)
    newest = onnx.defs.onnx_opset_version()
    if not old < opset <= newest:
        expected = f"{old + 1} to {newest}" if old < newest else "none that is newer"
        what = f"The model has version {old}, and onnx knows {newest}"
        raise InvalidArgument(message("--opset", what, expected=expected, got=str(opset)))
    try:
        model = onnx.load_from_string(write(graph))
        data = onnx.version_converter.convert_version(model, opset).SerializeToString()
    except SardonyxError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise Fail(message("update-opset", f"onnx cannot convert the model: {text}")) from error
    load(data)
    if output is not None:
        with replacing(os.fspath(output)) as file:
            file.write(data)
    return old, opset, data
